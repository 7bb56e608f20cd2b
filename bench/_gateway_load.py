"""A load generator that is cheap enough to share two cores with the measured server.

Closed loop: each connection sends a request, waits for its response, and sends the next. It parses
only the status line and the length of the response. Run as a separate process:

    python -m bench._gateway_load PORT CONNECTIONS SECONDS BATCH HEAD_LIST FILE

writes one JSON object to FILE: seconds, the time of each response, and responses by status.
(Through a pipe, part of half a megabyte was missing in two runs of five.)
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import time
from collections import Counter
from pathlib import Path
from typing import cast

import uvloop

HEAD = (
    b"POST /v1/reports HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n"
)


class Bodies:
    """Reports with contributors that never repeat, made by pasting a number into bytes."""

    def __init__(self, batch: int, head_list: str, cells: int = 51) -> None:
        run = secrets.token_hex(8)
        one = (
            b'{"head_list":"' + head_list.encode() + b'","contributor":"' + run.encode() + b"%016x"
            b'","answers":[[%d]]}'
        )
        self._form = one if batch == 1 else b"[" + b",".join([one] * batch) + b"]"
        self._batch = batch
        self._cells = cells
        self._next = 0

    def request(self) -> bytes:
        """The next request, head and body."""
        values: list[int] = []
        for number in range(self._next, self._next + self._batch):
            values += (number, number % self._cells)
        self._next += self._batch
        body = self._form % tuple(values)
        return HEAD % len(body) + body


class Connection(asyncio.Protocol):
    """One sender."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._rest = b""
        self._sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self) -> None:
        self._sent_at = time.perf_counter()
        self._transport.write(self._load.bodies.request())

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._rest = data
            return
        at = data[:end].lower().find(b"content-length: ") + 16  # nginx writes capitals
        length = int(data[at : data.find(b"\r\n", at)])
        if len(data) < end + 4 + length:
            self._rest = data
            return
        self._rest = b""
        self._load.answered(data[9:12], time.perf_counter() - self._sent_at)
        if time.perf_counter() < self._load.until:
            self.send()
        else:
            self._load.finished()
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._load.statuses[b"lost"] += 1
            self._load.finished()


class Load:
    """All senders of one run."""

    def __init__(self, bodies: Bodies, connections: int) -> None:
        self.bodies = bodies
        self.statuses: Counter[bytes] = Counter()
        self.latencies: list[float] = []
        self.until = 0.0
        self._left = connections
        self._all = asyncio.get_running_loop().create_future()

    def answered(self, status: bytes, seconds: float) -> None:
        self.statuses[status] += 1
        self.latencies.append(seconds)

    def finished(self) -> None:
        self._left -= 1
        if self._left == 0 and not self._all.done():
            self._all.set_result(None)

    async def wait(self) -> None:
        await asyncio.wait_for(self._all, 60)


async def run(
    port: int, connections: int, seconds: float, batch: int, head_list: str
) -> dict[str, object]:
    """Send for `seconds` and sum up."""
    loop = asyncio.get_running_loop()
    load = Load(Bodies(batch, head_list), connections)
    opened = [
        (await loop.create_connection(lambda: Connection(load), "127.0.0.1", port))[1]
        for _ in range(connections)
    ]
    began = time.perf_counter()
    load.until = began + seconds
    for connection in opened:
        connection.send()
    await load.wait()
    took = time.perf_counter() - began
    return {
        "seconds": took,
        "answered_us": [round(1e6 * seconds) for seconds in load.latencies],
        "statuses": {status.decode(): n for status, n in load.statuses.items()},
    }


if __name__ == "__main__":
    port, connections, seconds, batch, head_list, file = sys.argv[1:]
    result = uvloop.run(run(int(port), int(connections), float(seconds), int(batch), head_list))
    Path(file).write_text(json.dumps(result))
