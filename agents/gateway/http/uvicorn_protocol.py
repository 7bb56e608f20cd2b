"""HTTP/1.1 on uvicorn, with the limits and checks that uvicorn leaves to others.

A connection that sends a request byte by byte, or never reads its answer, holds memory and a
descriptor for as long as it likes unless we close it; a header without end, before the body
or after it, grows without end, and so do requests sent ahead of their answers. uvicorn 0.x limits
none of them, so this subclass of its protocol does: how long a request may take to arrive and an
answer to be taken, how large a head may be, how many connections there are. It also refuses what
the parser takes and HTTP/1.1 does not (`agents.gateway.http.head_checks`). What it needs of uvicorn
itself is in `agents.gateway.http.uvicorn_adapter`.

Promises: answers to what cannot be parsed are problem+json too, and come after the answers to
what was asked before. No address is looked at or kept.
Assumes: one sweep a second over all connections is cheaper than a timer for each request.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

import httptools

from agents.gateway.http.head_checks import NOT_HTTP, SENT_AHEAD, head_fault
from agents.gateway.http.uvicorn_adapter import DirectReply, UvicornConnection
from agents.gateway.responses import TAKEN_AT_ONCE, Answer, Headers, problem

__all__ = ["GatewayProtocol", "protocol_class", "sweep"]

log = logging.getLogger(__name__)

#: Takes a request's headers and its whole body, and answers later; false: it changed nothing.
Direct = Callable[[Headers, bytes, DirectReply], bool]

_SWEEP_EVERY_S = 1.0
#: Joining copies; beyond this the copy costs more than the second write that it saves, and what
#: many answers share would be in memory once for each of them.
_JOINED_BYTES = 16 * 1024
#: A reader must take so much of its answer, or all that is left of it, within the time that a
#: request has to arrive. Less would let it hold an answer for hours by reading a byte now and then.
_TAKEN_BYTES = 64 * 1024
#: Strangers decide how often a request cannot be read; a line of the log covers so long.
_LOGGED_EVERY_S = 60.0


class _JoinedWrites:
    """A transport that sends an answer's head and body together.

    uvicorn writes them one after the other, and the second system call was a tenth of a busy
    gateway's time. The head is kept until the body comes, the answer is complete or the
    connection closes, whichever is first.
    """

    __slots__ = (
        "_head", "_transport", "get_write_buffer_size", "is_closing", "pause_reading",
        "resume_reading", "written",
    )  # fmt: skip

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: bytes | None = None
        #: Bytes of all answers so far.
        self.written = 0
        self.is_closing = transport.is_closing
        self.get_write_buffer_size = transport.get_write_buffer_size
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    def write(self, data: bytes | memoryview) -> None:
        if self.is_closing():  # uvloop raises where asyncio says nothing
            return
        self.written += len(data)
        if self._head is not None:
            if len(data) > _JOINED_BYTES:
                self.flush()
            else:
                data, self._head = self._head + data, None
        elif data[:9] == b"HTTP/1.1 " and data[9:12] != b"100":
            self._head = bytes(data)
            return
        self._transport.write(data)

    def write_whole(self, data: bytes) -> None:
        if not self.is_closing():
            self.flush()
            self.written += len(data)
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


class GatewayProtocol(UvicornConnection):
    """One connection. `reading_since` is set while a request is expected or half here.

    A connection always has a deadline: `reading_since` when it sent anything since its last
    answer, uvicorn's keep-alive timer when it did not, and Kafka's while it waits for an answer.
    """

    max_head_bytes = 16 * 1024
    max_connections = 10_000
    read_timeout_s = 20.0
    #: Asked before the application of a small body that came whole to `direct_url`; see `_feed`.
    direct: Direct | None = None
    direct_url = b""

    reading_since: float | None = None
    #: Between the head of a request and the end of its body.
    in_body = False
    #: What came since the last whole head or piece of a body.
    head_bytes = 0
    #: What the parser was last given; its end may already be part of the next head.
    fed_bytes = 0
    #: uvicorn does not know of the head just read, nor of the body that came with it.
    withheld = False
    withheld_body = b""
    #: Why the parser was stopped, if not by itself.
    fault: Answer | None = None
    #: Set when no more can be read but earlier requests wait for their answers: sent after them.
    last_answer: Answer | None = None
    #: What the reader had taken of its answers when it last took enough of them, and when.
    taken_bytes = 0
    taken_at = 0.0
    #: Requests that could not be read since the last line about them in the log; the next line.
    unreadable = 0
    log_next_at = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, or turn it away when there are too many."""
        super().connection_made(transport)
        self._joined = _JoinedWrites(transport)
        self.write_through(self._joined)
        # Beyond so much an answer waits for its reader. With TLS it would be 512 KiB.
        transport.set_write_buffer_limits(high=TAKEN_AT_ONCE)
        self.reading_since = self.taken_at = time.monotonic()
        if len(self.connections) > self.max_connections:
            self.answer_and_close(
                problem(
                    503,
                    "too many connections are open; try again later",
                    retry_after_s=1,
                    reason="busy",
                )
            )

    def data_received(self, data: bytes) -> None:
        """Feed the parser, within the limit on what is neither body nor a whole request."""
        if len(data) <= self.max_head_bytes:
            self._feed(data)
            return
        # The limit is looked at after each piece: all of a large head may come at once.
        whole = memoryview(data)
        for start in range(0, len(data), self.max_head_bytes):
            self._feed(whole[start : start + self.max_head_bytes])

    def _feed(self, data: bytes | memoryview) -> None:
        if self.last_answer is not None or self.transport.is_closing():
            return
        self.fed_bytes = len(data)
        self.head_bytes += len(data)
        try:
            self.parse(data)
            # Nothing is withheld for longer than this, so that uvicorn's state and ours agree
            # whenever anything else happens to the connection.
            if self.withheld:
                self._hand_on()
        except httptools.HttpParserError:
            if self.withheld:
                self._hand_on()
            self._log_unreadable()
            self._turn_away(self.fault or NOT_HTTP)
            return
        if self.reading_since is None:
            # No request is half here. If none is under way either, then these bytes began none
            # (an empty line), but stopped uvicorn's clock for silent connections: start ours.
            if not self.answering:
                self.reading_since = time.monotonic()
        elif self.head_bytes > self.max_head_bytes:
            self._turn_away(self._too_large())

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.reading_since = time.monotonic()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header. Those that follow a body in pieces are not used, and not kept."""
        if not self.in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self.fault = self._fault()
        if self.fault is not None:
            raise httptools.HttpParserError  # which ends `feed_data`
        if not self.url.startswith(b"/"):
            self._shorten_target()
        self.head_bytes = 0
        self.in_body = True
        if self.direct is not None and self.url == self.direct_url and self.is_plain_post:
            self.withheld = True
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self.head_bytes = 0
        if self.withheld and not self.withheld_body:
            self.withheld_body = body
            return
        if self.withheld:
            self._hand_on()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.reading_since = None
        self.in_body = False
        self.head_bytes = 0
        if self.withheld:
            if self._answered_directly():
                return
            self._hand_on()
        super().on_message_complete()

    def _answered_directly(self) -> bool:
        assert self.direct is not None
        reply = DirectReply(self)
        try:
            if not self.direct(self.headers, self.withheld_body, reply):
                return False
        except Exception:  # the application meets it too, logs it and answers 500
            return False
        self.withheld, self.withheld_body = False, b""
        self.answers_later(reply)
        return True

    def _hand_on(self) -> None:
        """Tell uvicorn, and so the application, what was withheld."""
        self.withheld, body, self.withheld_body = False, self.withheld_body, b""
        super().on_headers_complete()
        if body:
            super().on_body(body)

    def write_whole(self, data: bytes) -> None:
        self._joined.write_whole(data)

    def on_response_complete(self) -> None:
        """The answer is complete; one without a body ends here."""
        self._joined.flush()
        if self.last_answer is not None and not self.requests_waiting:
            self.answer_and_close(self.last_answer)
        super().on_response_complete()

    def _fault(self) -> Answer | None:
        """Why a whole head is refused."""
        if self.requests_waiting >= SENT_AHEAD:
            return NOT_HTTP
        came = self.head_bytes + self.fed_bytes
        if came > self.max_head_bytes and self._head_size() > self.max_head_bytes:
            return self._too_large()
        version = self.http_version
        if version == "1.0":
            self.forget_expectation()  # it knows no answer before the answer
        return head_fault(version, self.headers, upgrade=self.asks_for_upgrade)

    def _head_size(self) -> int:
        fields = sum(len(name) + len(value) + 4 for name, value in self.headers)
        return len(self.url) + fields

    def _too_large(self) -> Answer:
        return problem(431, f"a request's head must be at most {self.max_head_bytes} bytes")

    def _shorten_target(self) -> None:
        """`http://host/path` is the same as `/path` to a server, and may be without a path."""
        url = httptools.parse_url(self.url)
        self.url = (url.path or b"/") + (b"?" + url.query if url.query else b"")

    def _log_unreadable(self) -> None:
        shared, now = type(self), time.monotonic()
        shared.unreadable += 1
        if now >= shared.log_next_at:
            log.warning("requests_unreadable", extra={"requests": shared.unreadable})
            shared.unreadable, shared.log_next_at = 0, now + _LOGGED_EVERY_S

    def close_if_slow(self, now: float) -> None:
        """Turn a connection away that does not send its request or take its answer in time."""
        if self._leaves_its_answer(now):
            # Closing would wait for the reader; this drops what it did not take.
            self.transport.abort()
            return
        since = self.reading_since
        if since is None or now - since < self.read_timeout_s or self.transport.is_closing():
            return
        if self.head_bytes or self.in_body:
            self._turn_away(
                problem(408, f"a request must arrive whole within {self.read_timeout_s:g} s")
            )
        else:
            self.transport.close()

    def _leaves_its_answer(self, now: float) -> bool:
        unread = self.transport.get_write_buffer_size()
        taken = self._joined.written - unread
        if not unread or taken >= self.taken_bytes + _TAKEN_BYTES:
            self.taken_bytes, self.taken_at = taken, now
            return False
        return now - self.taken_at >= self.read_timeout_s

    def _turn_away(self, answer: Answer) -> None:
        """Answer the request that is half here, if it has no answer yet, and close.

        Requests before it are answered first.
        """
        if self.in_body and self.drop_last_waiting():
            pass  # it waited for its turn, and this will be its answer
        elif self.in_body and self.answer_began:
            self.transport.close()
            return
        elif self.in_body or not self.answering:
            self.answer_and_close(answer)
            return
        self.last_answer = answer
        self.reading_since = None
        self.stop_reading()


def protocol_class(
    *,
    max_connections: int,
    read_timeout_s: float,
    direct: Direct | None = None,
    direct_url: bytes = b"",
) -> type[GatewayProtocol]:
    """The protocol with an operator's limits, and what `direct` may answer at `direct_url`."""
    limits: dict[str, Any] = {
        "max_connections": max_connections,
        "read_timeout_s": read_timeout_s,
        "direct": None if direct is None else staticmethod(direct),
        "direct_url": direct_url,
    }
    return type("LimitedGatewayProtocol", (GatewayProtocol,), limits)


async def sweep(connections: Iterable[Any], every_s: float = _SWEEP_EVERY_S) -> None:
    """For ever: close what is slow. `connections` is the server's own, changing set."""
    while True:
        await asyncio.sleep(every_s)
        now = time.monotonic()
        for connection in list(connections):
            connection.close_if_slow(now)
