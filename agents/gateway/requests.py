"""One HTTP request as the handlers see it, and how its body is read within limits.

Promises: no more than `body_bytes` of one body and `ByteBudget` of all bodies are held at once;
nothing of the sender's address is looked at. How long a body may take is the protocol's matter
(`agents.gateway.protocol`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from agents.gateway.answers import Answer, problem
from agents.gateway.limits import ByteBudget

__all__ = ["Disconnected", "Receive", "Refused", "Request", "Scope", "Send"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Disconnected(Exception):
    """The sender went away before its body was complete."""


class Refused(Exception):
    """The request is answered with a problem; raised where the reading of it must stop."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class Request:
    """Method, path, query parameters and headers of one request."""

    __slots__ = ("_headers", "_receive", "scope")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self._receive = receive
        self._headers: dict[bytes, bytes] | None = None

    @property
    def headers(self) -> dict[bytes, bytes]:
        """Headers by lower-case name."""
        if self._headers is None:
            self._headers = dict(self.scope["headers"])
        return self._headers

    async def body(self, *, body_bytes: int, held: ByteBudget) -> bytes:
        """The whole body, or `Refused`."""
        headers = self.headers
        stated = headers.get(b"content-length")
        if stated is not None:
            if not stated.isdigit():
                raise Refused(problem(400, "content-length must be a whole number of bytes"))
            if int(stated) > body_bytes:
                raise Refused(_too_large(body_bytes))
        kind = headers.get(b"content-type")
        if kind is not None and kind != b"application/json":
            _check_type(kind)
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise Refused(problem(415, "the body must not be compressed; send it as it is"))
        message = await self._receive()
        if message["type"] != "http.request":
            raise Disconnected
        body: bytes = message["body"]
        if not message.get("more_body"):
            if len(body) > body_bytes:
                raise Refused(_too_large(body_bytes))
            return body
        return await self._rest_of(body, body_bytes, held)

    async def _rest_of(self, first: bytes, body_bytes: int, held: ByteBudget) -> bytes:
        # Bodies that come in pieces are what fills memory when many senders are slow.
        parts = bytearray(first)
        reserved = 0
        more = True
        try:
            while more:
                growth = len(parts) - reserved
                if not held.take(growth):
                    raise Refused(
                        problem(
                            503,
                            "too many bodies are being read; send the same request again later",
                            retry_after_s=1,
                            reason="busy",
                        )
                    )
                reserved += growth
                message = await self._receive()
                if message["type"] != "http.request":
                    raise Disconnected
                parts += message["body"]
                more = message.get("more_body", False)
                if len(parts) > body_bytes:
                    raise Refused(_too_large(body_bytes))
        finally:
            held.give_back(reserved)
        return bytes(parts)


def _too_large(body_bytes: int) -> Answer:
    return problem(
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
        raise Refused(problem(415, "content-type must be application/json, in UTF-8"))


_UTF_8 = (b"charset=utf-8", b'charset="utf-8', b"charset=utf8")
