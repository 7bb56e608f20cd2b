"""Content negotiation and conditional requests: JSON or CSV, gzip or not, 200 or 304.

Promises: an ETag identifies the bytes of one representation; a reader that has these bytes gets
304 without a body. A whole document is compressed once, for all its readers; the edge compresses
responses that are assembled per request.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from typing import NamedTuple

from starlette.requests import Request

from blendstream.agents.gateway.http.responses import JSON, Headers, HttpResponse, Part, problem

__all__ = [
    "CACHE_ONE_MINUTE",
    "CSV",
    "IMMUTABLE",
    "NOT_ACCEPTABLE",
    "Representation",
    "accepts_gzip",
    "choose_media_type",
    "document_response",
    "media_type_for",
    "packed",
    "page_response",
]

CSV = b"text/csv"
#: Smaller documents gain nothing from compression.
_WORTH_COMPRESSING = 1024

#: For a document that never changes under its URL.
IMMUTABLE = b"public, max-age=31536000, immutable"
#: For "current" and "latest": a cache may be a minute old.
CACHE_ONE_MINUTE = b"public, max-age=60"
NOT_ACCEPTABLE = problem(
    406, "accept must allow application/json or text/csv, and format be json or csv"
)


class Representation(NamedTuple):
    """One representation of a document: its ETag's text, its bytes, and these as gzip."""

    name: str
    body: bytes
    packed: bytes | None
    content_type: bytes = JSON


def packed(body: bytes) -> bytes | None:
    """Return `body` as gzip, the same bytes in every gateway; None if that saves nothing.

    >>> gzip.decompress(packed(b"weather" * 200)) == b"weather" * 200, packed(b"weather")
    (True, None)
    """
    if len(body) < _WORTH_COMPRESSING:
        return None
    compressed = gzip.compress(body, 6, mtime=0)
    return compressed if len(compressed) < len(body) else None


def document_response(
    request: Request, form: Representation, *, cache_control: bytes
) -> HttpResponse:
    """Return 200 with the document, compressed if the reader accepts gzip, or 304."""
    zipped = form.packed is not None and accepts_gzip(_lines(request, "accept-encoding"))
    tag = f'"{form.name}-gzip"' if zipped else f'"{form.name}"'
    extra = [(b"cache-control", cache_control), (b"vary", b"accept-encoding, accept")]
    if zipped:
        extra.append((b"content-encoding", b"gzip"))
    body = form.packed if zipped else form.body
    return _unless_known(request, tag, body or b"", form.content_type, extra)


def page_response(
    request: Request, name: str, parts: Sequence[Part], content_type: bytes, extra: Headers
) -> HttpResponse:
    """Return 200 with these parts in order, or 304; `name` identifies their bytes in the ETag."""
    return _unless_known(request, f'"{name}"', parts, content_type, [*extra, (b"vary", b"accept")])


def _unless_known(
    request: Request,
    tag: str,
    body: bytes | Sequence[Part],
    content_type: bytes,
    extra: Headers,
) -> HttpResponse:
    extra = [(b"etag", tag.encode()), *extra]
    if _has_it(_lines(request, "if-none-match"), tag):
        return HttpResponse(304, b"", content_type, extra)
    return HttpResponse(200, body, content_type, extra)


def media_type_for(request: Request) -> bytes:
    """Return JSON or CSV, by `?format=` or else by the Accept header; empty for neither."""
    asked = request.query_params.get("format")
    if asked is not None:
        return {"json": JSON, "csv": CSV}.get(asked, b"")
    return choose_media_type(_lines(request, "accept"))


def _lines(request: Request, name: str) -> str:
    """Return a header's value; several lines of one name form one list."""
    return ", ".join(request.headers.getlist(name))


def _has_it(if_none_match: str, tag: str) -> bool:
    tags = [t.strip() for t in if_none_match.split(",")]
    return "*" in tags or any(t.removeprefix("W/") == tag for t in tags)


def accepts_gzip(accept_encoding: str) -> bool:
    """Return True if this Accept-Encoding header allows gzip.

    >>> [accepts_gzip(h) for h in ("", "gzip, br", "gzip;q=0", "*", "identity")]
    [False, True, False, True, False]
    """
    weights = dict(_weighted(accept_encoding))
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def choose_media_type(accept: str) -> bytes:
    """Return JSON or CSV, whichever this Accept header weights higher; JSON if equal.

    >>> [choose_media_type(h) for h in ("", "text/csv", "text/csv;q=0.5, application/json", "*/*")]
    [b'application/json', b'text/csv', b'application/json', b'application/json']
    >>> choose_media_type("image/png")
    b''
    """
    if not accept.strip():
        return JSON
    weights = dict(_weighted(accept))
    best, best_weight = b"", 0.0
    for form in (JSON, CSV):
        name = form.decode()
        kind = name.partition("/")[0] + "/*"
        weight = weights.get(name, weights.get(kind, weights.get("*/*", 0.0)))
        if weight > best_weight:
            best, best_weight = form, weight
    return best


def _weighted(header: str) -> list[tuple[str, float]]:
    weighted = []
    for part in header.lower().split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        weighted.append((name, weight))
    return weighted
