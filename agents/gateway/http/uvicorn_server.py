"""The HTTP server under the application: uvicorn, set up once for the process and for its tests.

Promises: no access log, no address from a proxy's headers, no signal handlers of its own. Its
connections have the operator's limits (`agents.gateway.http.uvicorn_protocol`), with TLS from their
first byte: connections that are still shaking hands count too, and have as long as a request has to
arrive.

Private parts of uvicorn: `Server.startup`, `.capture_signals`, `.servers` and `.started`. Tested
with uvicorn>=0.54,<0.55; raise the bound only when tests/agents/gateway/http passes.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import ssl
import weakref
from collections.abc import Iterator
from typing import Any

import uvicorn

from agents.gateway.http.uvicorn_protocol import protocol_class
from streams.settings.sections import GatewaySettings

__all__ = ["BACKLOG", "HttpServer", "make_server"]

#: Connections that the kernel keeps until they are accepted.
BACKLOG = 4096
#: What the kernel takes of a connection with TLS before we read it. uvloop keeps buffers for each
#: connection that grow to the largest piece ever read: 1.1 MiB in all without this limit, 0.65 with
#: it (`tests/agents/gateway/http/test_tls.py`). A body of 1 MiB needs some 16 round trips.
_TLS_RECEIVED_BYTES = 64 * 1024


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: they end the process before frames are flushed."""

    #: How long TLS may take to begin and to end, in seconds.
    tls_timeout_s = 20.0

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


class _Tls(ssl.SSLContext):
    """TLS for a limited number of connections. More are closed before they cost a handshake."""

    max_connections: int
    _open: weakref.WeakSet[ssl.SSLObject]

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        """Begin TLS on a new connection; the event loop calls it."""
        if len(self._open) >= self.max_connections:
            raise ssl.SSLError("too many connections are open")
        begun = super().wrap_bio(*args, **options)
        self._open.add(begun)
        return begun


def _tls(gateway: GatewaySettings) -> _Tls:
    assert gateway.tls_certificate_file is not None
    context = _Tls(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(gateway.tls_certificate_file, gateway.tls_key_file)
    context.max_connections = gateway.connections
    context._open = weakref.WeakSet()
    return context


def make_server(app: Any, gateway: GatewaySettings, *, stop_s: float) -> HttpServer:
    """A server that is not listening yet; `stop_s` is how long a stop waits for answers."""
    server = HttpServer(
        uvicorn.Config(
            app,
            host=gateway.host,
            port=gateway.port,
            http=protocol_class(
                max_connections=gateway.connections, read_timeout_s=gateway.read_timeout_s
            ),
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=max(1, round(gateway.idle_timeout_s)),
            # It goes to `asyncio.wait_for`, which takes fractions too.
            timeout_graceful_shutdown=stop_s,  # type: ignore[arg-type]
            ssl_context_factory=(
                None
                if gateway.tls_certificate_file is None
                else lambda _config, _default: _tls(gateway)
            ),
        )
    )
    server.tls_timeout_s = gateway.read_timeout_s
    return server
