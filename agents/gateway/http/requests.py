"""One submission as its handler sees it, and how its body is read within limits.

Promises: at most `body_bytes` of one body and `ByteBudget` of all requests together are in memory
at once, from a body's first byte until its answer was sent; the sender's address is not looked at.
How long either may take, the protocol decides (`agents.gateway.http.uvicorn_protocol`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from agents.gateway.resource_limits import ByteBudget
from agents.gateway.responses import TAKEN_AT_ONCE, Answer, problem

__all__ = ["Refused", "SubmitRequest"]


class Refused(Exception):
    """The request is answered with a problem; raised where the reading of it must stop."""

    def __init__(self, status: int, detail: str, **more: Any) -> None:
        super().__init__(status)
        self.answer = problem(status, detail, **more)


class SubmitRequest:
    """Headers and body of a submission, and what it holds of memory until it is answered.

    Starlette's request would read a body of any size, and costs more than the report inside.
    """

    __slots__ = ("_body_bytes", "_budget", "_headers", "_held", "_receive", "_scope")

    def __init__(self, scope: Scope, receive: Receive, budget: ByteBudget) -> None:
        """`budget` is what all requests share."""
        self._scope = scope
        self._receive = receive
        self._headers: dict[bytes, bytes] | None = None
        self._budget = budget
        self._held = self._body_bytes = 0

    @property
    def headers(self) -> dict[bytes, bytes]:
        """Headers by lower-case name; several lines of one name are one list."""
        if self._headers is None:
            lines = self._scope["headers"]
            self._headers = dict(lines)
            if len(self._headers) < len(lines):
                self._headers = _joined(lines)
        return self._headers

    def hold(self, size: int) -> None:
        """Count `size` more bytes until the request is answered, or `Refused`."""
        if not self._budget.take(size):
            raise Refused(
                503,
                "too many requests are being read; send the same request again later",
                retry_after_s=1,
                reason="busy",
            )
        self._held += size

    def hold_answer(self, answer: Answer) -> Answer:
        """Count an answer of its own, if its reader cannot take it at once; or `Refused`.

        A refusal asks for the same request again. What was queued of it counts once.
        """
        if answer.size > TAKEN_AT_ONCE:
            self.hold(answer.size)
        return answer

    def body_dropped(self) -> None:
        """The body was let go; what was made of it still counts."""
        self._give_back(self._body_bytes)
        self._body_bytes = 0

    def answered(self) -> None:
        """Give back all that was counted."""
        self._give_back(self._held)

    def _give_back(self, size: int) -> None:
        self._budget.give_back(size)
        self._held -= size

    async def body(self, *, body_bytes: int) -> bytes:
        """The whole body, or `Refused`; counted until `body_dropped`."""
        headers = self.headers
        stated = headers.get(b"content-length")
        if stated is not None:
            if not stated.isdigit():
                raise Refused(400, "content-length must be a whole number of bytes")
            if int(stated) > body_bytes:
                raise _too_large(body_bytes)
        kind = headers.get(b"content-type")
        if kind is not None and kind != b"application/json":
            _check_type(kind)
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise Refused(415, "the body must not be compressed; send it as it is")
        message = await self._receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        body: bytes = message["body"]
        self._hold_body(len(body), body_bytes)
        if not message.get("more_body"):
            return body
        parts = bytearray(body)
        while message.get("more_body"):
            message = await self._receive()
            if message["type"] != "http.request":
                raise ClientDisconnect
            self._hold_body(len(message["body"]), body_bytes)
            parts += message["body"]
        return bytes(parts)

    def _hold_body(self, more: int, body_bytes: int) -> None:
        if self._body_bytes + more > body_bytes:
            raise _too_large(body_bytes)
        self.hold(more)
        self._body_bytes += more


def _joined(lines: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    values: dict[bytes, list[bytes]] = {}
    for name, value in lines:
        values.setdefault(name, []).append(value)
    return {name: b", ".join(listed) for name, listed in values.items()}


def _too_large(body_bytes: int) -> Refused:
    return Refused(
        413,
        f"the body must be at most {body_bytes} bytes; send fewer entries in one request",
        headers=[(b"connection", b"close")],
    )


def _check_type(kind: bytes) -> None:
    essence, _, parameters = kind.partition(b";")
    charset = parameters.strip().lower()
    if essence.strip().lower() != b"application/json" or (
        charset.startswith(b"charset=") and charset.strip(b'"') not in _UTF_8
    ):
        raise Refused(415, "content-type must be application/json, in UTF-8")


_UTF_8 = (b"charset=utf-8", b'charset="utf-8', b"charset=utf8")
