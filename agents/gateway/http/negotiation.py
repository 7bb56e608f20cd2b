"""Which representation of a published document a reader gets, and whether it already has it.

Promises: an ETag names the bytes of one representation; a reader that has any representation of
the same document in the form it would get is answered 304 without a body. A whole document is
compressed once, for all its readers; what is put together for one reader, the edge compresses.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from typing import NamedTuple

from starlette.requests import Request

from blendstream.agents.gateway.http.responses import JSON, Answer, Headers, Part, problem

__all__ = [
    "CSV",
    "FOR_A_MINUTE",
    "FOR_EVER",
    "NO_SUCH_FORM",
    "Representation",
    "accepts_gzip",
    "choose_form",
    "document_answer",
    "form_for",
    "packed",
    "page_answer",
]

CSV = b"text/csv"
#: Smaller documents gain nothing from compression.
_WORTH_COMPRESSING = 1024

#: A document that never changes under its address.
FOR_EVER = b"public, max-age=31536000, immutable"
#: "current" and "latest": how long a reader may miss a new one.
FOR_A_MINUTE = b"public, max-age=60"
NO_SUCH_FORM = problem(
    406, "accept must allow application/json or text/csv, and format be json or csv"
)


class Representation(NamedTuple):
    """One representation of a document: a name for its bytes, the bytes, and those as gzip."""

    name: str
    body: bytes
    packed: bytes | None
    content_type: bytes = JSON


def packed(body: bytes) -> bytes | None:
    """Return `body` as gzip, the same bytes in every gateway; None where that saves nothing.

    >>> gzip.decompress(packed(b"weather" * 200)) == b"weather" * 200, packed(b"weather")
    (True, None)
    """
    if len(body) < _WORTH_COMPRESSING:
        return None
    compressed = gzip.compress(body, 6, mtime=0)
    return compressed if len(compressed) < len(body) else None


def document_answer(request: Request, form: Representation, *, cache_control: bytes) -> Answer:
    """200 with the document, compressed if the reader takes that, or 304."""
    zipped = form.packed is not None and accepts_gzip(_lines(request, "accept-encoding"))
    tag = f'"{form.name}-gzip"' if zipped else f'"{form.name}"'
    extra = [(b"cache-control", cache_control), (b"vary", b"accept-encoding, accept")]
    if zipped:
        extra.append((b"content-encoding", b"gzip"))
    body = form.packed if zipped else form.body
    return _unless_known(request, tag, body or b"", form.content_type, extra)


def page_answer(
    request: Request, name: str, parts: Sequence[Part], content_type: bytes, extra: Headers
) -> Answer:
    """200 with these parts, one after the other, or 304; `name` is one for their bytes."""
    return _unless_known(request, f'"{name}"', parts, content_type, [*extra, (b"vary", b"accept")])


def _unless_known(
    request: Request,
    tag: str,
    body: bytes | Sequence[Part],
    content_type: bytes,
    extra: Headers,
) -> Answer:
    extra = [(b"etag", tag.encode()), *extra]
    if _has_it(_lines(request, "if-none-match"), tag):
        return Answer(304, b"", content_type, extra)
    return Answer(200, body, content_type, extra)


def form_for(request: Request) -> bytes:
    """JSON or CSV, as `?format=` says or else the request prefers; empty for neither."""
    asked = request.query_params.get("format")
    if asked is not None:
        return {"json": JSON, "csv": CSV}.get(asked, b"")
    return choose_form(_lines(request, "accept"))


def _lines(request: Request, name: str) -> str:
    """A header's value; several lines of one name are one list."""
    return ", ".join(request.headers.getlist(name))


def _has_it(if_none_match: str, tag: str) -> bool:
    tags = [t.strip() for t in if_none_match.split(",")]
    return "*" in tags or any(t.removeprefix("W/") == tag for t in tags)


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether a reader takes gzip.

    >>> [accepts_gzip(h) for h in ("", "gzip, br", "gzip;q=0", "*", "identity")]
    [False, True, False, True, False]
    """
    weights = dict(_weighted(accept_encoding))
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def choose_form(accept: str) -> bytes:
    """JSON or CSV, whichever the reader prefers; JSON when both please alike.

    >>> [choose_form(h) for h in ("", "text/csv", "text/csv;q=0.5, application/json", "*/*")]
    [b'application/json', b'text/csv', b'application/json', b'application/json']
    >>> choose_form("image/png")
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
