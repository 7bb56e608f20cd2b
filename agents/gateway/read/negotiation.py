"""Which representation of a published document a reader gets, and whether it already has it.

Promises: an ETag names the bytes of one representation; a reader that has any representation of
the same document in the form it would get is answered 304 without a body.
"""

from __future__ import annotations

from collections.abc import Sequence

from agents.gateway.read.gzip_join import Piece, pack_together
from agents.gateway.responses import JSON, Answer, Headers, problem

__all__ = ["CSV", "accepts_gzip", "choose_form", "document_answer", "page_answer"]

CSV = b"text/csv"

#: A document that never changes under its address.
FOR_EVER = b"public, max-age=31536000, immutable"
#: "current" and "latest": how long a reader may miss a new one.
FOR_A_MINUTE = b"public, max-age=60"


def document_answer(
    headers: dict[bytes, bytes],
    *,
    name: str,
    body: bytes,
    packed: bytes | None,
    content_type: bytes = JSON,
    cache_control: bytes,
) -> Answer:
    """200 with the document, compressed if the reader takes that, or 304."""
    zipped = packed is not None and _takes_gzip(headers)
    tag = f'"{name}-gzip"' if zipped else f'"{name}"'
    extra: Headers = [
        (b"etag", tag.encode()),
        (b"cache-control", cache_control),
        (b"vary", b"accept-encoding, accept"),
    ]
    if _has_it(headers.get(b"if-none-match", b""), tag.encode()):
        return Answer(304, b"", content_type, extra)
    if zipped:
        extra.append((b"content-encoding", b"gzip"))
    return Answer(200, (packed or b"") if zipped else body, content_type, extra)


def page_answer(
    headers: dict[bytes, bytes], pieces: Sequence[Piece], content_type: bytes, extra: Headers
) -> Answer:
    """200 with what the pieces hold, compressed if the reader takes that."""
    extra = [*extra, (b"vary", b"accept-encoding, accept")]
    if not _takes_gzip(headers):
        return Answer(200, [body for body, _ in pieces], content_type, extra)
    extra.append((b"content-encoding", b"gzip"))
    return Answer(200, pack_together(pieces), content_type, extra)


def _takes_gzip(headers: dict[bytes, bytes]) -> bool:
    return accepts_gzip(headers.get(b"accept-encoding", b""))


def _has_it(if_none_match: bytes, tag: bytes) -> bool:
    tags = [t.strip() for t in if_none_match.split(b",")]
    return b"*" in tags or any(t.removeprefix(b"W/") == tag for t in tags)


def accepts_gzip(accept_encoding: bytes) -> bool:
    """Whether a reader takes gzip.

    >>> [accepts_gzip(h) for h in (b"", b"gzip, br", b"gzip;q=0", b"*", b"identity")]
    [False, True, False, True, False]
    """
    weights = dict(_weighted(accept_encoding))
    return weights.get(b"gzip", weights.get(b"*", 0.0)) > 0


def choose_form(accept: bytes) -> bytes:
    """JSON or CSV, whichever the reader prefers; JSON when both please alike.

    >>> [choose_form(h) for h in (b"", b"text/csv", b"text/csv;q=0.5, application/json", b"*/*")]
    [b'application/json', b'text/csv', b'application/json', b'application/json']
    >>> choose_form(b"image/png")
    b''
    """
    if not accept.strip():
        return JSON
    weights = dict(_weighted(accept))
    best, best_weight = b"", 0.0
    for form in (JSON, CSV):
        kind = form.partition(b"/")[0] + b"/*"
        weight = weights.get(form, weights.get(kind, weights.get(b"*/*", 0.0)))
        if weight > best_weight:
            best, best_weight = form, weight
    return best


def no_such_form() -> Answer:
    """406: the reader wants neither form."""
    return problem(406, "accept must allow application/json or text/csv")


def _weighted(header: bytes) -> list[tuple[bytes, float]]:
    weighted = []
    for part in header.lower().split(b","):
        name, *parameters = (piece.strip() for piece in part.split(b";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith(b"q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        weighted.append((name, weight))
    return weighted
