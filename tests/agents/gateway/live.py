"""The gateway's own HTTP server on a real socket, on uvloop as in production; without Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn
import uvloop

from blendstream.agents.gateway.http.server import make_server
from blendstream.agents.gateway.state.publications import PublishedDocument
from blendstream.streams.settings.sections import GatewaySettings
from tests.agents.gateway.doubles import TestGateway, make_gateway
from tests.service.waiting import until, wait_for


def patient_gateway() -> TestGateway:
    """A gateway that waits for Kafka, and has published one epoch."""
    gateway = make_gateway(
        frame_limits=GatewaySettings(linger_s=0.001, delivery_deadline_s=30, buffer_bytes=1 << 20)
    )
    gateway.publications.estimates = {1: PublishedDocument(1, "ab" * 32, b"{}" * 1000)}
    return gateway


@dataclass
class Live:
    """A gateway that listens; its event loop runs in a thread of its own."""

    port: int
    gateway: TestGateway
    server: uvicorn.Server
    _loop: asyncio.AbstractEventLoop

    def call(self, do: Callable[[], Any]) -> None:
        """Run something on the gateway's event loop."""
        self._loop.call_soon_threadsafe(do)

    def connect(self) -> socket.socket:
        """A connection whose reads fail after some seconds, rather than never."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def wait_for(self, holds: Callable[[], bool]) -> None:
        """Until something holds, or fail."""
        wait_for(holds, "what must hold", 10, every_s=0.002)


@contextlib.contextmanager
def live_gateway(
    make: Callable[[], TestGateway] = make_gateway, listening: socket.socket | None = None
) -> Iterator[Live]:
    """Serve until the block ends, on a free port unless `listening` is given."""
    if listening is None:
        listening = socket.create_server(("127.0.0.1", 0), backlog=1000)
    address = listening.getsockname()
    started: list[Live] = []
    ready = threading.Event()

    async def serve() -> None:
        gateway = make()
        server = make_server(gateway.app, stop_s=1)
        port = address[1] if isinstance(address, tuple) else 0
        started.append(Live(port, gateway, server, asyncio.get_running_loop()))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        await until(lambda: server.started, "the server", every_s=0.005)
        ready.set()
        await serving

    thread = threading.Thread(target=lambda: uvloop.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(10), "the server did not start"
    try:
        yield started[0]
    finally:
        started[0].server.should_exit = True
        thread.join(10)


@contextlib.asynccontextmanager
async def serving(gateway: TestGateway) -> AsyncIterator[int]:
    """Serve on the event loop of the test; yields the port."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=1000)
    server = make_server(gateway.app, stop_s=1)
    running = asyncio.create_task(server.serve(sockets=[listening]))
    await until(lambda: server.started, "the server", every_s=0.005)
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        await running


async def exchange(port: int, data: bytes, timeout_s: float = 10) -> bytes:
    """Send bytes and read until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        async with asyncio.timeout(timeout_s):
            return await reader.read()
    finally:
        writer.close()
