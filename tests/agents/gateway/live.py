"""The gateway's own HTTP server on a real socket, on uvloop as in production; without Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import uvloop

from agents.gateway.http.uvicorn_protocol import sweep
from agents.gateway.http.uvicorn_server import HttpServer, make_server
from streams.settings.sections import GatewaySettings
from tests.agents.gateway.doubles import TestGateway, make_gateway


@dataclass
class Live:
    """A gateway that listens; its event loop runs in a thread of its own."""

    port: int
    gateway: TestGateway
    server: HttpServer
    _loop: asyncio.AbstractEventLoop

    def call(self, do: Callable[[], Any]) -> None:
        """Run something on the gateway's event loop."""
        self._loop.call_soon_threadsafe(do)

    def connect(self) -> socket.socket:
        """A connection whose reads fail after some seconds, rather than never."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def wait_for(self, holds: Callable[[], bool]) -> None:
        """Until something holds, or fail."""
        deadline = time.monotonic() + 10
        while not holds():
            assert time.monotonic() < deadline, "it never came to hold"
            time.sleep(0.002)


@contextlib.contextmanager
def live_gateway(make: Callable[[], TestGateway] = make_gateway, **settings: Any) -> Iterator[Live]:
    """Serve until the block ends. `settings` are those of the section `gateway`."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=1000)
    started: list[Live] = []
    ready = threading.Event()

    async def serve() -> None:
        gateway = make()
        server = make_server(gateway.app, GatewaySettings(**settings), stop_s=0.5)
        port = listening.getsockname()[1]
        started.append(Live(port, gateway, server, asyncio.get_running_loop()))
        sweeping = asyncio.create_task(sweep(server.server_state.connections, every_s=0.2))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.005)
        ready.set()
        await serving
        sweeping.cancel()

    thread = threading.Thread(target=lambda: uvloop.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(10), "the server did not start"
    try:
        yield started[0]
    finally:
        started[0].server.should_exit = True
        thread.join(10)
