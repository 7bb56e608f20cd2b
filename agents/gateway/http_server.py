"""The HTTP server under the application: uvicorn, set up once for the process and for its tests.

Promises: no access log, no address from a proxy's headers, no signal handlers of its own. `http` of
the configuration is the protocol with the operator's limits (`agents.gateway.protocol`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import uvicorn

from agents.gateway.protocol import protocol_class
from streams.settings.sections import GatewaySettings

__all__ = ["BACKLOG", "HttpServer", "make_server"]

#: Connections that the kernel keeps until they are accepted.
BACKLOG = 4096


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: they end the process before frames are flushed."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to `GatewayProcess`."""
        yield


def make_server(app: Any, gateway: GatewaySettings, *, stop_s: float) -> HttpServer:
    """A server that is not listening yet; `stop_s` is how long a stop waits for answers."""
    return HttpServer(
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
            ssl_certfile=gateway.tls_certificate_file,
            ssl_keyfile=gateway.tls_key_file,
        )
    )
