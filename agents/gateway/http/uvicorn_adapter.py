"""The undocumented parts of uvicorn that the gateway uses: here and nowhere else.

| used of uvicorn | for |
|---|---|
| `HttpToolsProtocol` and its parser's callbacks (`on_message_begin` to `on_response_complete`) | limits and checks while a request arrives |
| `transport`, `client`, `flow`, `server_state`, `_unset_keepalive_if_required` | joined writes, no addresses, back-pressure, open connections, deadlines of our own |
| `parser`, `url`, `headers`, `expect_100_continue` | the head of a request before uvicorn acts on it |
| `cycle` with its `response_started` and `response_complete`, `pipeline` | which answers are under way, so that they stay in order |
| all that the connection asks of a `cycle` (`DirectReply`) | answers without an ASGI task |
| `STATUS_LINE`, `server_state.default_headers` | answers to what cannot be parsed |
| `Server.capture_signals`, `startup`, `servers`, `started`, `Config.http_protocol_class` | no signal handlers; deadlines for TLS |

Tested with uvicorn>=0.54,<0.55, each of them: raise the bound, here and in `pyproject.toml`, when
`tests/agents/gateway/http` passes on a newer one.
"""  # noqa: E501

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import Collection, Iterator
from typing import Any, cast

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from agents.gateway.responses import JSON, Answer, Headers

__all__ = ["BACKLOG", "DirectReply", "HttpServer", "UvicornConnection"]


#: Connections that the kernel keeps until they are accepted.
BACKLOG = 4096
#: What the kernel takes of a connection with TLS before we read it. uvloop keeps buffers for each
#: connection that grow to the largest piece ever read: 1.1 MiB in all without this limit, 0.65 with
#: it (`tests/agents/gateway/http/test_tls.py`). A body of 1 MiB needs some 16 round trips.
_TLS_RECEIVED_BYTES = 64 * 1024

_CLOSE = (b"connection", b"close")


class _NoEvent:
    """Nothing waits for it."""

    def set(self) -> None:
        """Wake no one."""


class DirectReply:
    """An answer that no task makes, in the place of uvicorn's cycle until it is sent.

    uvicorn says when the peer is gone and when the connection must close, and starts no other
    request of the connection before `response_complete`.
    """

    __slots__ = ("_connection", "disconnected", "keep_alive", "response_complete")

    message_event = _NoEvent()
    response_started = False

    def __init__(self, connection: UvicornConnection) -> None:
        self._connection = connection
        self.disconnected = False
        self.keep_alive = True
        self.response_complete = False

    def send(self, answer: Answer, extra: Headers | None) -> None:
        """Send it with more headers, if anyone still listens."""
        self.response_complete = True
        if not self.disconnected:
            self._connection.reply(answer, extra, keep_alive=self.keep_alive)


class _Rendered:
    """The answer that was sent last, as bytes: most answers of one second are the same."""

    dated: list[tuple[bytes, bytes]] | None = None
    answer: Answer | None = None
    whole = b""


class UvicornConnection(HttpToolsProtocol):
    """One connection; uvicorn's state under names that say what it means."""

    def write_through(self, transport: Any) -> None:
        """Send answers by this transport. Forgets the peer's address: nothing depends on it."""
        self.transport = cast(asyncio.Transport, transport)
        self.client = None

    def parse(self, data: bytes | memoryview) -> None:
        """Feed the parser, which calls back; `httptools.HttpParserError` if it cannot continue."""
        self._unset_keepalive_if_required()
        while True:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                # Nothing is upgraded to: what follows is the next request.
                data = data[upgrade.args[0] :]

    @property
    def http_version(self) -> str:
        """Of the request whose head was just read."""
        return self.parser.get_http_version()

    @property
    def asks_for_upgrade(self) -> bool:
        """Whether that request wants another protocol."""
        return self.parser.should_upgrade()

    def forget_expectation(self) -> None:
        """Send no 100 before the answer."""
        self.expect_100_continue = False

    @property
    def requests_waiting(self) -> int:
        """Whole or half requests behind the one that is being answered."""
        return len(self.pipeline)

    @property
    def answering(self) -> bool:
        """Whether the request that was read last is not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def answer_began(self) -> bool:
        """Whether the answer to the request that was read last is on its way."""
        return self.cycle.response_started

    def drop_last_waiting(self) -> bool:
        """Take the request that was read last out of the queue; false if it is not in it."""
        if not self.pipeline or self.pipeline[0][0] is not self.cycle:
            return False
        self.pipeline.popleft()
        return True

    @property
    def is_plain_post(self) -> bool:
        """Whether the head just read is of a POST with nothing about it to be seen to.

        No other request of the connection is under way, and what was answered is being read.
        """
        parser, cycle, headers = self.parser, self.cycle, dict(self.headers)
        return (
            parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
            and not self.expect_100_continue
            and (cycle is None or cycle.response_complete)
            and not self.pipeline
            and not self.flow.write_paused
            and headers.get(b"content-type", JSON) == JSON
            and b"content-encoding" not in headers
            and b"transfer-encoding" not in headers
            and len(headers) == len(self.headers)
        )

    def answers_later(self, reply: DirectReply) -> None:
        """The request that was just read is answered through `reply`."""
        self.cycle = cast(Any, reply)

    def reply(self, answer: Answer, extra: Headers | None, *, keep_alive: bool) -> None:
        """Send an answer of one part, and go on as uvicorn does after an answer."""
        dated = self.server_state.default_headers
        if extra is not None or not keep_alive:
            closing = [] if keep_alive else [_CLOSE]
            self.write_whole(_rendered(answer, [*dated, *answer.headers, *(extra or ()), *closing]))
        else:
            if _Rendered.dated is not dated or _Rendered.answer is not answer:
                _Rendered.whole = _rendered(answer, [*dated, *answer.headers])
                _Rendered.dated, _Rendered.answer = dated, answer
            self.write_whole(_Rendered.whole)
        if not keep_alive:
            self.transport.close()
        self.on_response_complete()

    def write_whole(self, data: bytes) -> None:
        """Write an answer, head and body."""
        self.transport.write(data)

    def stop_reading(self) -> None:
        """Take no more from the peer."""
        self.flow.pause_reading()

    def answer_and_close(self, answer: Answer) -> None:
        """Send an answer that no application made."""
        dated = self.server_state.default_headers
        self.write_whole(_rendered(answer, [*dated, *answer.headers, _CLOSE]))
        self.transport.close()


def _rendered(answer: Answer, headers: Headers) -> bytes:
    head = [STATUS_LINE[answer.status]]
    for name, value in headers:
        head += [name, b": ", value, b"\r\n"]
    return b"".join((*head, b"\r\n", *answer.parts))


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: they end the process before frames are flushed."""

    #: How long TLS may take to begin and to end, in seconds.
    tls_timeout_s = 20.0

    @property
    def connections(self) -> Collection[Any]:
        """Open connections: the server's own, changing set."""
        return self.server_state.connections

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to `GatewayProcess`."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen. uvicorn would leave TLS the event loop's 60 s to begin and 30 s to end."""
        if self.config.ssl is None or sockets is None:
            await super().startup(sockets)
            return
        for listening in sockets:  # connections inherit it
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _TLS_RECEIVED_BYTES)
        protocol: Any = self.config.http_protocol_class
        make = functools.partial(
            protocol, config=self.config, server_state=self.server_state, app_state={}
        )
        self.servers = [
            await asyncio.get_running_loop().create_server(
                make,
                sock=listening,
                backlog=BACKLOG,
                ssl=self.config.ssl,
                ssl_handshake_timeout=self.tls_timeout_s,
                ssl_shutdown_timeout=self.tls_timeout_s,
            )
            for listening in sockets
        ]
        self.started = True
