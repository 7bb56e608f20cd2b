"""HTTP responses, and error responses that state what to do (application/problem+json).

Promises: a problem states what must hold, what was found and what to do next, and never quotes a
query, a URL, a user id, a token or an address. It has Retry-After whenever a retry can succeed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from starlette.types import Send

from blendstream.agents.gateway.http.request_types import EpochNumber

__all__ = [
    "JSON",
    "SEND_PIECE_BYTES",
    "Headers",
    "HttpResponse",
    "Part",
    "Problem",
    "json_response",
    "problem",
]

Headers = list[tuple[bytes, bytes]]
Part = bytes | memoryview

#: A larger response is sent in pieces of this size. Sending ends when the reader has taken all but
#: the last piece, and until then the request's memory stays reserved.
SEND_PIECE_BYTES = 64 * 1024

JSON = b"application/json"
_PROBLEM_JSON = b"application/problem+json"
_encode = msgspec.json.Encoder().encode


class HttpResponse:
    """A response: status, headers and a body in parts.

    The body of Starlette's response is one `bytes`; this one sends parts shared between responses.
    """

    __slots__ = ("headers", "parts", "size", "status")

    def __init__(
        self, status: int, body: bytes | Sequence[Part], content_type: bytes, headers: Headers
    ) -> None:
        """Take the body whole or in parts; parts are sent one by one, without copying them."""
        self.status = status
        self.parts: Sequence[Part] = (body,) if isinstance(body, bytes) else body
        self.size = sum(map(len, self.parts))
        if self.size <= SEND_PIECE_BYTES and len(self.parts) > 1:
            self.parts = (b"".join(self.parts),)
        self.headers: Headers = [
            (b"content-type", content_type),
            (b"content-length", b"%d" % self.size),
            *headers,
        ]
        if status in (204, 304):
            self.headers = headers

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)

    async def send(self, send: Send, extra: Headers | None = None) -> None:
        """Send the response over ASGI, with `extra` headers if given."""
        headers = self.headers if extra is None else self.headers + extra
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        if self.size <= SEND_PIECE_BYTES:
            await send({"type": "http.response.body", "body": self.parts[0]})
            return
        for part in self.parts:
            # Slices of a view copy nothing.
            whole = memoryview(part) if len(part) > SEND_PIECE_BYTES else part
            for start in range(0, len(whole), SEND_PIECE_BYTES):
                piece = whole[start : start + SEND_PIECE_BYTES]
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body"})


class Problem(msgspec.Struct, frozen=True, omit_defaults=True, rename={"kind": "type"}):
    """Body of an error response: the fault, and what to do about it (RFC 9457)."""

    title: str
    status: int
    detail: str
    kind: str = "about:blank"
    #: A code for programs, one of the reasons listed in the API description.
    reason: str | None = None
    #: Seconds since 1970 at which the service expects to accept submissions again.
    resumes_s: int | None = None
    #: The epoch assigned to entries that state none: a retry must state it.
    epoch: EpochNumber | None = None
    #: One verdict per entry sent, if the body could be read.
    verdicts: list[Any] | None = None


_TITLES: Mapping[int, str] = {
    400: "The request could not be read",
    401: "A valid token is needed",
    403: "Not admitted",
    404: "There is nothing here",
    405: "This method is not offered here",
    406: "No such representation",
    411: "Content-Length is needed",
    413: "The body is too large",
    415: "The body is of an unsupported type",
    422: "No entry was accepted",
    429: "Too many entries",
    500: "The gateway failed",
    503: "Not now",
}


def problem(
    status: int,
    detail: str,
    *,
    retry_after_s: float | None = None,
    headers: Iterable[tuple[bytes, bytes]] = (),
    **members: Any,
) -> HttpResponse:
    """Return an error response; `retry_after_s` is rounded up to whole seconds."""
    extra = [(b"cache-control", b"no-store"), *headers]
    if retry_after_s is not None:
        extra.append((b"retry-after", b"%d" % max(1, -int(-retry_after_s // 1))))
    body = Problem(title=_TITLES[status], status=status, detail=detail, **members)
    return HttpResponse(status, _encode(body), _PROBLEM_JSON, extra)


def json_response(status: int, value: Any, headers: Headers | None = None) -> HttpResponse:
    """Return `value` as a JSON response; msgspec must be able to encode it."""
    return HttpResponse(status, _encode(value), JSON, headers or [])
