"""The baseline: an ASGI application that reads the body and responds 202, on the same server.

    python -m bench._bare_asgi PORT [WAIT_S]

With WAIT_S, all requests that arrive within WAIT_S wait for one timer, as reports wait for their
frame: the difference is the cost of waiting, without any work.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import uvicorn

BODY = b'{"verdicts":[{"status":"accepted"}]}'
START = {
    "type": "http.response.start",
    "status": 202,
    "headers": [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(BODY)),
        (b"cache-control", b"no-store"),
    ],
}
END = {"type": "http.response.body", "body": BODY}


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Do only what every server that takes a POST must do."""
    while (await receive()).get("more_body"):
        pass
    await send(START)
    await send(END)


class WaitingApp:
    """As `app`, but it responds when the next timer fires."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._waiting: list[asyncio.Future[None]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Respond to one request."""
        while (await receive()).get("more_body"):
            pass
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_later(self._wait_s, self._respond)
        fired = loop.create_future()
        self._waiting.append(fired)
        await fired
        await send(START)
        await send(END)

    def _respond(self) -> None:
        waiting, self._waiting = self._waiting, []
        for fired in waiting:
            fired.set_result(None)


if __name__ == "__main__":
    uvicorn.run(
        app if len(sys.argv) == 2 else WaitingApp(float(sys.argv[2])),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # as in a gateway
        backlog=4096,
        log_level="warning",
    )
