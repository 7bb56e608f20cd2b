"""Read one submission: its headers, and its body within size and memory limits.

Promises: at most `body_bytes` of one body and `ByteBudget` of all requests together are in memory,
reserved by Content-Length before the first byte is read and until the response was sent. A body
that differs in length from its Content-Length is refused: its framing broke on the way, and it may
contain another sender's request. The sender's address is never read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from blendstream.agents.gateway.http.resource_limits import ByteBudget
from blendstream.agents.gateway.http.responses import SEND_PIECE_BYTES, HttpResponse, problem

__all__ = ["RefusedRequest", "SubmitRequest"]

_CLOSE = [(b"connection", b"close")]


class RefusedRequest(Exception):
    """Ends the reading of a request; `response` is the problem to send."""

    def __init__(self, status: int, detail: str, **more: Any) -> None:
        super().__init__(status)
        self.response = problem(status, detail, **more)


class SubmitRequest:
    """Headers and body of a submission, and the memory reserved for it until the response is sent.

    Starlette's request would read a body of any size, and costs more than handling the report.
    """

    __slots__ = ("_body_bytes", "_budget", "_held", "_receive", "headers")

    def __init__(self, scope: Scope, receive: Receive, budget: ByteBudget) -> None:
        """Take the budget of bytes that all requests share."""
        lines = scope["headers"]
        #: Values by lower-case name; several lines of one name are one list.
        self.headers: dict[bytes, bytes] = dict(lines)
        if len(self.headers) < len(lines):
            self.headers = _joined(lines)
        self._receive = receive
        self._budget = budget
        self._held = self._body_bytes = 0

    def reserve(self, size: int) -> None:
        """Reserve `size` more bytes until the response is sent, or raise `RefusedRequest`."""
        if not self._budget.take(size):
            raise RefusedRequest(
                503,
                "too many requests are being read; send the same request again later",
                retry_after_s=1,
                reason="busy",
            )
        self._held += size

    def reserve_response(self, response: HttpResponse) -> HttpResponse:
        """Reserve memory for a response that is sent in several pieces, or raise `RefusedRequest`.

        The sender then repeats the request; entries already queued still count once.
        """
        if response.size > SEND_PIECE_BYTES:
            self.reserve(response.size)
        return response

    def release_body(self, kept: int = 0) -> None:
        """Release the body's reservation, except `kept` bytes for data derived from it."""
        released = self._body_bytes - kept
        self._budget.give_back(released)
        self._held -= released
        self._body_bytes = 0

    def release(self) -> None:
        """Release all reservations; the response has been sent."""
        self._budget.give_back(self._held)
        self._held = 0

    async def body(self, *, body_bytes: int) -> bytes:
        """Return the whole body, reserved until `release_body`, or raise `RefusedRequest`."""
        headers = self.headers
        stated = headers.get(b"content-length")
        if stated is None:
            raise RefusedRequest(
                411,
                "the request must state its body's size in Content-Length; chunked bodies are not "
                "accepted",
                headers=_CLOSE,
            )
        if not stated.isdigit():
            raise RefusedRequest(400, "content-length must be a number of bytes", headers=_CLOSE)
        # Python refuses to convert thousands of digits.
        size = int(stated) if len(stated) <= 16 else body_bytes + 1
        if size > body_bytes:
            raise RefusedRequest(
                413,
                f"the body must be at most {body_bytes} bytes; send fewer entries in one request",
                headers=_CLOSE,
            )
        kind = headers.get(b"content-type")
        if kind is not None and kind != b"application/json":
            _check_type(kind)
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise RefusedRequest(415, "the body must not be compressed; send it as it is")
        self.reserve(size)
        self._body_bytes = size
        message = await self._receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        body: bytes = message["body"]
        if message.get("more_body"):
            body = await self._rest(body, size)
        if len(body) != size:
            raise RefusedRequest(
                400, "the body must be as long as Content-Length states, and is not", headers=_CLOSE
            )
        return body

    async def _rest(self, first: bytes, size: int) -> bytes:
        """Return a body that arrives in pieces; stop at the first piece beyond `size`."""
        body = bytearray(first)
        more = True
        while more and len(body) <= size:
            message = await self._receive()
            if message["type"] != "http.request":
                raise ClientDisconnect
            body += message["body"]
            more = message.get("more_body", False)
        return bytes(body)


def _joined(lines: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    values: dict[bytes, list[bytes]] = {}
    for name, value in lines:
        values.setdefault(name, []).append(value)
    return {name: b", ".join(listed) for name, listed in values.items()}


def _check_type(kind: bytes) -> None:
    essence, _, parameters = kind.partition(b";")
    charset = parameters.strip().lower()
    if essence.strip().lower() != b"application/json" or (
        charset.startswith(b"charset=") and charset.strip(b'"') not in _UTF_8
    ):
        raise RefusedRequest(415, "content-type must be application/json, in UTF-8")


_UTF_8 = (b"charset=utf-8", b'charset="utf-8', b"charset=utf8")
