"""Configure the HTTP server: uvicorn, through its public interface only.

The edge in front buffers whole requests, closes slow connections, ends TLS and compresses; this
server does none of that (docs/decisions/0140-an-edge-in-front.md). It writes no access log, which
would contain addresses.

uvicorn handles SIGTERM and SIGINT while it serves, sets `should_exit`, and raises the signal again
after it has stopped; the handlers of `agents.process` see both. A second SIGINT (a second Ctrl-C)
ends the requests in flight with an error.
"""

from __future__ import annotations

import uvicorn
from starlette.types import ASGIApp

from blendstream.agents.gateway.http.listening import BACKLOG

__all__ = ["KEEP_ALIVE_S", "make_server"]

#: Longer than the edge keeps its connections (50 s in deploy/edge/nginx.conf): the side that sends
#: the next request must be the one that closes, or that request may be lost.
KEEP_ALIVE_S = 75


def make_server(app: ASGIApp, *, stop_s: float) -> uvicorn.Server:
    """Return a server that is not listening yet; a stop waits `stop_s` for responses in flight."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=max(1, int(stop_s)),
            # On every response, uvicorn's own refusals included.
            headers=[("x-content-type-options", "nosniff")],
        )
    )
