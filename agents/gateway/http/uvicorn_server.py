"""The HTTP server under the application: uvicorn, set up once for the process and for its tests.

Promises: no access log, no address from a proxy's headers, no signal handlers of its own. Its
connections have the operator's limits (`agents.gateway.http.uvicorn_protocol`), with TLS from their
first byte: connections that are still shaking hands count too, and have as long as a request has to
arrive.
"""

from __future__ import annotations

import ssl
import weakref
from typing import Any

import uvicorn

from agents.gateway.app import Gateway
from agents.gateway.http.uvicorn_adapter import BACKLOG, HttpServer
from agents.gateway.http.uvicorn_protocol import protocol_class
from agents.gateway.submit.direct_reports import REPORTS_PATH
from streams.settings.sections import GatewaySettings

__all__ = ["BACKLOG", "HttpServer", "make_server"]


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


def make_server(app: Gateway, gateway: GatewaySettings, *, stop_s: float) -> HttpServer:
    """A server that is not listening yet; `stop_s` is how long a stop waits for answers."""
    server = HttpServer(
        uvicorn.Config(
            app,
            host=gateway.host,
            port=gateway.port,
            http=protocol_class(
                max_connections=gateway.connections,
                read_timeout_s=gateway.read_timeout_s,
                direct=app.direct.take,
                direct_url=REPORTS_PATH.encode(),
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
