"""HTTP/1.1 on uvicorn, with the limits that uvicorn leaves to others.

A connection that sends a request byte by byte, or never reads its answer, holds memory and a
descriptor for as long as it likes unless somebody closes it; a header without end, before the body
or after it, grows without end, and so do requests sent ahead of their answers. uvicorn 0.x limits
none of them, so this subclass of its httptools protocol does: how long a request may take to
arrive and an answer to be taken, how large a head may be, how many connections there are.

Promises: answers to what cannot be parsed are problem+json too. No address is looked at or kept.
Assumes: one sweep a second over all connections is cheaper than a timer for each request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from agents.gateway.answers import Answer, problem

__all__ = ["GatewayProtocol", "protocol_class", "sweep"]

_SWEEP_EVERY_S = 1.0
#: Joining copies; beyond this the copy costs more than the second write that it saves, and what
#: many answers share would be held once for each of them.
_JOINED_BYTES = 16 * 1024
#: A reader must take so much of its answer, or all that is left of it, within the time that a
#: request has to arrive. Less would let it hold an answer for hours by reading a byte now and then.
_TAKEN_BYTES = 64 * 1024
#: Requests that a connection may send ahead of their answers; each takes a hundred times its bytes.
_SENT_AHEAD = 16


class _JoinedWrites:
    """A transport that sends an answer's head and body together.

    uvicorn writes them one after the other, and the second system call was a tenth of a busy
    gateway's time. The head is held until the body comes, the answer is complete or the
    connection closes, whichever is first.
    """

    __slots__ = (
        "_head", "_transport", "get_write_buffer_size", "is_closing", "pause_reading",
        "resume_reading",
    )  # fmt: skip

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: bytes | None = None
        self.is_closing = transport.is_closing
        self.get_write_buffer_size = transport.get_write_buffer_size
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    def write(self, data: bytes | memoryview) -> None:
        if self.is_closing():  # uvloop raises where asyncio says nothing
            return
        if self._head is not None:
            if len(data) > _JOINED_BYTES:
                self.flush()
            else:
                data, self._head = self._head + data, None
        elif data[:9] == b"HTTP/1.1 " and data[9:12] != b"100":
            self._head = bytes(data)
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
    """One connection. `reading_since` is set while a request is expected or half here.

    A connection always has a deadline: `reading_since` when it sent anything since its last
    answer, uvicorn's keep-alive timer when it did not, and Kafka's while it waits for an answer.
    """

    max_head_bytes = 16 * 1024
    max_connections = 10_000
    read_timeout_s = 20.0

    reading_since: float | None = None
    #: What came since the last whole head or piece of a body.
    head_bytes = 0
    #: What the reader had left of its answers when it last took something of them, and when.
    unread_bytes = 0
    unread_since = 0.0

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
        """Feed the parser, within the limit on what is neither body nor a whole request."""
        if self.transport.is_closing():
            return
        self.head_bytes += len(data)
        super().data_received(data)
        if self.reading_since is None:
            # No request is half here. If none is under way either, then these bytes began none
            # (an empty line), but stopped uvicorn's clock for silent connections: start ours.
            if self.cycle.response_complete:
                self.reading_since = time.monotonic()
        elif self.head_bytes > self.max_head_bytes:
            self._turn_away(
                problem(431, f"a request's head must be at most {self.max_head_bytes} bytes")
            )

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self.reading_since = time.monotonic()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header. Those that follow a body in pieces are nobody's, and not kept."""
        if "method" not in self.scope:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is here, the body may follow."""
        self.head_bytes = 0
        super().on_headers_complete()
        if len(self.pipeline) > _SENT_AHEAD:
            raise httptools.HttpParserError("too many requests ahead of their answers")

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self.head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The whole request is here."""
        self.reading_since = None
        self.head_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The answer is complete; one without a body ends here."""
        self._joined.flush()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """What cannot be parsed gets a problem too."""
        self._refuse(
            problem(
                400,
                f"the request must be valid HTTP/1.1, with at most {_SENT_AHEAD} more before its "
                "answer",
            )
        )

    def _unsupported_upgrade_warning(self) -> None:
        """Upgrades are ignored, without a line in the log for everyone who asks."""

    def close_if_slow(self, now: float) -> None:
        """Turn a connection away that does not send its request or take its answer in time."""
        if self._leaves_its_answer(now):
            # Closing would wait for the reader; this drops what it did not take.
            self.transport.abort()
            return
        since = self.reading_since
        if since is None or now - since < self.read_timeout_s or self.transport.is_closing():
            return
        self._turn_away(
            problem(408, f"a request must arrive whole within {self.read_timeout_s:g} s")
        )

    def _leaves_its_answer(self, now: float) -> bool:
        unread, before = self.transport.get_write_buffer_size(), self.unread_bytes
        if not unread or not before or unread <= before - _TAKEN_BYTES:
            self.unread_bytes, self.unread_since = unread, now
            return False
        self.unread_bytes = max(before, unread)
        return now - self.unread_since >= self.read_timeout_s

    def _turn_away(self, answer: Answer) -> None:
        """Answer the request that is half here, if one is and has no answer yet, and close."""
        whole_head = self.scope is not None and "method" in self.scope
        if not self.cycle.response_started if whole_head else self.head_bytes > 0:
            self._refuse(answer)
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


async def sweep(connections: Iterable[Any], every_s: float = _SWEEP_EVERY_S) -> None:
    """For ever: close what is slow. `connections` is the server's own, changing set."""
    while True:
        await asyncio.sleep(every_s)
        now = time.monotonic()
        for connection in list(connections):
            connection.close_if_slow(now)
