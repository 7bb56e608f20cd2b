"""Pages for people: every file under `pages/`, the results page and the API's description.

The folder `agents/gateway/pages/` is served as it is, from memory: `pages/index.html` at `/`,
`pages/docs/index.html` at `/docs`, `pages/results.css` at `/results.css`.

Promises: everything comes from this host, and browsers are told to load nothing from elsewhere.
"""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Mapping
from pathlib import Path

from agents.gateway.http.requests import Request
from agents.gateway.read.gzip_join import pack
from agents.gateway.read.negotiation import FOR_A_MINUTE, document_answer
from agents.gateway.responses import Answer

__all__ = ["FOLDER", "StaticPages"]

FOLDER = Path(__file__).parents[1] / "pages"

_GUARDS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        b"connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; "
        b"frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]


class StaticPages:
    """Called with a request and its path: the page there, or `None`."""

    def __init__(self, folder: Path = FOLDER) -> None:
        """Read every file once; a changed file is served after a restart."""
        self._pages: dict[str, tuple[bytes, str, bytes, bytes]] = {}
        for path, (content_type, body) in _files(folder).items():
            name = hashlib.sha256(body).hexdigest()[:32]
            packed = pack(body)
            self._pages[path] = content_type, name, body, packed

    def __call__(self, request: Request, path: str) -> Answer | None:
        """The page at this path."""
        found = self._pages.get(path)
        if found is None:
            return None
        content_type, name, body, packed = found
        answer = document_answer(
            request.headers,
            name=name,
            body=body,
            packed=packed,
            content_type=content_type,
            cache_control=FOR_A_MINUTE,
        )
        return answer.with_headers(_GUARDS)


def _files(folder: Path) -> Mapping[str, tuple[bytes, bytes]]:
    found: dict[str, tuple[bytes, bytes]] = {}
    for file in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if not file.is_file() or file.name.startswith("."):
            continue
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        if kind.startswith("text/") or kind in ("application/javascript", "image/svg+xml"):
            kind += "; charset=utf-8"
        path = "/" + file.relative_to(folder).as_posix()
        found[path] = kind.encode(), file.read_bytes()
        if file.name == "index.html":
            at = path.removesuffix("index.html")
            found |= {at: found[path], at.removesuffix("/") or "/": found[path]}
    return found
