"""Serve the results page and the API documentation: every file under `pages/`, from memory.

`pages/index.html` is at `/`, `pages/docs/index.html` at `/docs`, `pages/results.css` at
`/results.css`.

Promises: browsers load everything from this host and nothing from elsewhere. A file has the same
ETag at all gateways, and each gateway compresses it once; Starlette's `StaticFiles` does neither
(docs/decisions/0075-starlette-for-routing.md).
"""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request

from blendstream.agents.gateway.http.negotiation import (
    CACHE_ONE_MINUTE,
    Representation,
    document_response,
    packed,
)
from blendstream.agents.gateway.http.responses import HttpResponse

__all__ = ["FOLDER", "StaticPages"]

FOLDER = Path(__file__).parents[1] / "pages"

_GUARDS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        b"connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; "
        b"frame-ancestors 'none'",
    ),
    (b"referrer-policy", b"no-referrer"),
]


class StaticPages:
    """Handler that returns the page at a request's path, or raises Starlette's 404."""

    def __init__(self, folder: Path = FOLDER) -> None:
        """Read every file once; a changed file is served after a restart."""
        self._pages: dict[str, Representation] = {}
        for file in sorted(folder.rglob("*")):
            if not file.is_file() or file.name.startswith("."):
                continue
            path, page = f"/{file.relative_to(folder).as_posix()}", _page(file)
            self._pages[path] = page
            if file.name == "index.html":
                at = path.removesuffix("index.html")
                self._pages |= {at: page, at.removesuffix("/") or "/": page}

    async def __call__(self, request: Request) -> HttpResponse:
        page = self._pages.get(request.scope["path"])
        if page is None or request.method not in ("GET", "HEAD"):
            raise HTTPException(404)
        response = document_response(request, page, cache_control=CACHE_ONE_MINUTE)
        response.headers += _GUARDS
        return response


def _page(file: Path) -> Representation:
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    if kind.startswith("text/") or kind in ("application/javascript", "image/svg+xml"):
        kind += "; charset=utf-8"
    body = file.read_bytes()
    return Representation(hashlib.sha256(body).hexdigest()[:32], body, packed(body), kind.encode())
