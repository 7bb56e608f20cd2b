"""HTTP/1.1 on uvicorn, with the limits that uvicorn leaves to others.

A connection that sends a request byte by byte holds memory and a descriptor for as long as it
likes unless somebody closes it; a header without end grows without end. uvicorn 0.x limits
neither, so this subclass of its httptools protocol does: how long a request may take to arrive,
how large its head may be, how many connections there are.

Promises: answers to what cannot be parsed are problem+json too. No address is looked at or kept.
Assumes: one sweep a second over all connections is cheaper than a timer for each request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from agents.gateway.answers import Answer, problem

__all__ = ["GatewayProtocol", "protocol_class", "sweep"]

_SWEEP_EVERY_S = 1.0


class _JoinedWrites:
    """A transport that sends an answer's head and body together.

    uvicorn writes them one after the other, and the second system call was a tenth of a busy
    gateway's time. The head is held until the body comes, the answer is complete or the
    connection closes, whichever is first.
    """

    __slots__ = ("_head", "_transport", "is_closing", "pause_reading", "resume_reading")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: bytes | None = None
        self.is_closing = transport.is_closing
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    def write(self, data: bytes) -> None:
        if self._head is not None:
            data, self._head = self._head + data, None
        elif data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 100"):
            self._head = data
            return
        self._transport.write(data)

    def flush(self) -> None:
        if self._head is not None:
            data, self._head = self._head, None
            self._transport.write(data)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class GatewayProtocol(HttpToolsProtocol):
    """One connection. `reading_since` is set while a request is expected or half here."""

    max_head_bytes = 16 * 1024
    max_connections = 10_000
    read_timeout_s = 20.0

    reading_since: float | None = None
    head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, or turn it away when there are too many."""
        super().connection_made(transport)
        self._joined = _JoinedWrites(transport)
        self.transport = cast(asyncio.Transport, self._joined)
        # Nobody has use for the address: neither logs nor limits go by it.
        self.client = None
        self.reading_since = time.monotonic()
        if len(self.connections) > self.max_connections:
            self._refuse(
                problem(
                    503,
                    "too many connections are open; try again later",
                    retry_after_s=1,
                    reason="busy",
                )
            )

    def data_received(self, data: bytes) -> None:
        """Feed the parser, within the limit on a request's head."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        # uvicorn fills in the method once the head is complete.
        scope = self.scope
        if scope is None or "method" not in scope:
            self.head_bytes += len(data)
            if self.head_bytes > self.max_head_bytes:
                self._refuse(
                    problem(431, f"a request's head must be at most {self.max_head_bytes} bytes")
                )

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self.reading_since = time.monotonic()

    def on_headers_complete(self) -> None:
        """The head is here, the body may follow."""
        self.head_bytes = 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The whole request is here."""
        self.reading_since = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The answer is complete; one without a body ends here."""
        self._joined.flush()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """What cannot be parsed gets a problem too."""
        self._refuse(problem(400, "the request must be valid HTTP/1.1"))

    def _unsupported_upgrade_warning(self) -> None:
        """Upgrades are ignored, without a line in the log for everyone who asks."""

    def close_if_slow(self, now: float) -> None:
        """Turn a connection away whose request has not arrived in time."""
        since = self.reading_since
        if since is None or now - since < self.read_timeout_s or self.transport.is_closing():
            return
        half_here = self.head_bytes > 0 or (
            self.cycle is not None and not self.cycle.response_started
        )
        if half_here:
            self._refuse(
                problem(408, f"a request must arrive whole within {self.read_timeout_s:g} s")
            )
        else:
            self.transport.close()

    def _refuse(self, answer: Answer) -> None:
        head = [STATUS_LINE[answer.status]]
        for name, value in (*answer.headers, (b"connection", b"close")):
            head += [name, b": ", value, b"\r\n"]
        self.transport.write(b"".join((*head, b"\r\n", answer.body)))
        self.transport.close()


def protocol_class(*, max_connections: int, read_timeout_s: float) -> type[GatewayProtocol]:
    """The protocol with an operator's limits."""
    limits: dict[str, Any] = {
        "max_connections": max_connections,
        "read_timeout_s": read_timeout_s,
    }
    return type("LimitedGatewayProtocol", (GatewayProtocol,), limits)


async def sweep(connections: Iterable[Any]) -> None:
    """For ever: close what is slow. `connections` is the server's own, changing set."""
    while True:
        await asyncio.sleep(_SWEEP_EVERY_S)
        now = time.monotonic()
        for connection in list(connections):
            connection.close_if_slow(now)
