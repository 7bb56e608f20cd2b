"""Which representation of a published document a reader gets, and whether it already has it.

Promises: an ETag names the bytes of one representation; a reader that has any representation of
the same document in the form it would get is answered 304 without a body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from starlette.requests import Request

from agents.gateway.read.gzip_join import Piece, pack_together
from agents.gateway.responses import JSON, Answer, Headers, problem

__all__ = [
    "CSV",
    "FOR_A_MINUTE",
    "FOR_EVER",
    "NO_SUCH_FORM",
    "Form",
    "accepts_gzip",
    "choose_form",
    "document_answer",
    "form_for",
    "page_answer",
]

CSV = b"text/csv"

#: A document that never changes under its address.
FOR_EVER = b"public, max-age=31536000, immutable"
#: "current" and "latest": how long a reader may miss a new one.
FOR_A_MINUTE = b"public, max-age=60"
NO_SUCH_FORM = problem(
    406, "accept must allow application/json or text/csv, and format be json or csv"
)


class Form(NamedTuple):
    """One representation of a document: a name for its bytes, the bytes, and the same packed."""

    name: str
    body: bytes
    packed: bytes | None
    content_type: bytes = JSON


def document_answer(request: Request, form: Form, *, cache_control: bytes) -> Answer:
    """200 with the document, compressed if the reader takes that, or 304."""
    zipped = form.packed is not None and accepts_gzip(_lines(request, "accept-encoding"))
    tag = f'"{form.name}-gzip"' if zipped else f'"{form.name}"'
    extra: Headers = [
        (b"etag", tag.encode()),
        (b"cache-control", cache_control),
        (b"vary", b"accept-encoding, accept"),
    ]
    if _has_it(_lines(request, "if-none-match"), tag):
        return Answer(304, b"", form.content_type, extra)
    if not zipped:
        return Answer(200, form.body, form.content_type, extra)
    extra.append((b"content-encoding", b"gzip"))
    return Answer(200, form.packed or b"", form.content_type, extra)


def page_answer(
    request: Request,
    pieces: Sequence[Piece],
    content_type: bytes,
    extra: Headers,
    *,
    name: str | None = None,
) -> Answer:
    """200 with what the pieces hold, compressed if the reader takes that; 304 to one by `name`."""
    extra = [*extra, (b"vary", b"accept-encoding, accept")]
    zipped = accepts_gzip(_lines(request, "accept-encoding"))
    if name is not None:
        tag = f'"{name}-gzip"' if zipped else f'"{name}"'
        extra.append((b"etag", tag.encode()))
        if _has_it(_lines(request, "if-none-match"), tag):
            return Answer(304, b"", content_type, extra)
    if not zipped:
        return Answer(200, [body for body, _ in pieces], content_type, extra)
    extra.append((b"content-encoding", b"gzip"))
    return Answer(200, pack_together(pieces), content_type, extra)


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
