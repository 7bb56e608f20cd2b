"""The baseline: an ASGI application that reads the body and answers 202, on the same server.

python -m bench._bare_asgi PORT
"""

from __future__ import annotations

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
    """Nothing but what every server that takes a POST must do."""
    while (await receive()).get("more_body"):
        pass
    await send(START)
    await send(END)


if __name__ == "__main__":
    uvicorn.run(
        app,
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
