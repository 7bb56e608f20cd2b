"""Attacks on an edge from a process of their own, and honest reports in between.

    python -m tests.edge.attacks NAME PORT CONNECTIONS SECONDS ADDRESSES

opens connections to a plain port of 127.0.0.1 and misuses each as NAME says. ADDRESSES is the
number of source addresses: 1, or many of 127.0.0.0/8. A connection that the edge closes is opened
again. Tests and `bench edge_attacks` use the same code; loopback only, bounded in count and time.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import resource
import secrets
import socket
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import uvloop

#: Attackers have 127.64.0.0/10, honest devices one address elsewhere.
HONEST = "127.1.2.3"
MANY_ADDRESSES = 500
REPORTS_PER_S = 20
LARGE_CSV = b"/v1/estimates/1?format=csv"
_BODY_BYTES = 512 * 1024
_REOPEN_S = 0.3
#: The answer takes this long at most; later is a refusal to the device.
_PATIENCE_S = 10.0


@dataclass(frozen=True)
class Attack:
    """A way to misuse connections, and how many of them."""

    name: str
    connections: int

    def __str__(self) -> str:
        return f"{self.name}-{self.connections}"


ATTACKS = (
    Attack("unfinished-bodies", 130),
    Attack("unfinished-bodies", 1000),
    Attack("one-byte-chunks", 32),
    Attack("one-byte-chunks", 100),
    Attack("slow-heads", 1000),
    Attack("slow-readers", 150),
    Attack("idle-connections", 5000),
)


# --- what an attacker does with one connection ---------------------------------------------------


async def _unfinished_bodies(connection: socket.socket) -> None:
    """Send a body but for its end, then a byte now and then so that no deadline passes."""
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(
        connection,
        b"POST /v1/reports HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n" % _BODY_BYTES,
    )
    await loop.sock_sendall(connection, b" " * (_BODY_BYTES - 1000))
    for _ in range(900):
        await asyncio.sleep(3)
        await loop.sock_sendall(connection, b" ")


async def _one_byte_chunks(connection: socket.socket) -> None:
    """Send chunks of one byte as fast as the edge reads them."""
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(
        connection,
        b"POST /v1/reports HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"transfer-encoding: chunked\r\n\r\n",
    )
    for _ in range(_BODY_BYTES // len(_CHUNKS) * 6):
        await loop.sock_sendall(connection, _CHUNKS)


_CHUNKS = b"1\r\n \r\n" * 2000


async def _slow_heads(connection: socket.socket) -> None:
    """Send a head byte by byte."""
    loop = asyncio.get_running_loop()
    for byte in b"GET /healthz HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 1000:
        await loop.sock_sendall(connection, bytes([byte]))
        await asyncio.sleep(1)


async def _slow_readers(connection: socket.socket) -> None:
    """Ask for 7 MB and read nothing."""
    await asyncio.get_running_loop().sock_sendall(
        connection, b"GET " + LARGE_CSV + b" HTTP/1.1\r\nhost: x\r\n\r\n"
    )
    await asyncio.sleep(3600)


async def _idle_connections(_: socket.socket) -> None:
    await asyncio.sleep(3600)


_BEHAVIOURS: dict[str, Callable[[socket.socket], Awaitable[None]]] = {
    "unfinished-bodies": _unfinished_bodies,
    "one-byte-chunks": _one_byte_chunks,
    "slow-heads": _slow_heads,
    "slow-readers": _slow_readers,
    "idle-connections": _idle_connections,
}


async def _attack(name: str, port: int, connections: int, seconds: float, addresses: int) -> None:
    behave = _BEHAVIOURS[name]
    until = time.monotonic() + seconds

    async def again_and_again(number: int) -> None:
        source = number % addresses
        address = f"127.{64 + source // 62_500}.{source // 250 % 250}.{source % 250 + 1}"
        while (left_s := until - time.monotonic()) > 0:
            with contextlib.suppress(OSError, TimeoutError), socket.socket() as connection:
                connection.setblocking(False)
                if name == "slow-readers":
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.bind((address, 0))
                async with asyncio.timeout(left_s):
                    loop = asyncio.get_running_loop()
                    await loop.sock_connect(connection, ("127.0.0.1", port))
                    if name == "slow-readers":  # it never reads, so it cannot see the end
                        await behave(connection)
                    else:
                        await _until_closed(connection, behave)
            await asyncio.sleep(min(_REOPEN_S, max(0.0, until - time.monotonic())))

    await asyncio.gather(*(again_and_again(number) for number in range(connections)))


async def _until_closed(
    connection: socket.socket, behave: Callable[[socket.socket], Awaitable[None]]
) -> None:
    """Misuse the connection until it is misused up or the edge closes it."""
    working = asyncio.ensure_future(behave(connection))
    try:
        while await asyncio.get_running_loop().sock_recv(connection, 4096):
            pass
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


@contextlib.contextmanager
def attacking(attack: Attack, port: int, seconds: float, addresses: int) -> Iterator[None]:
    """Attack from another process while the block runs."""
    words = [attack.name, port, attack.connections, seconds, addresses]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.edge.attacks", *map(str, words)],
        cwd=Path(__file__).parents[2],
        env=os.environ,
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


# --- honest devices ------------------------------------------------------------------------------


@dataclass
class Honest:
    """What became of honest reports, and the gateways' memory meanwhile."""

    statuses: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    memory_before: int = 0
    memory_peak: int = 0

    @property
    def accepted(self) -> float:
        """Proportion of reports that were accepted."""
        return self.statuses["202"] / max(1, self.statuses.total())

    @property
    def p99_s(self) -> float:
        ordered = sorted(self.seconds)
        return ordered[math.ceil(0.99 * len(ordered)) - 1]

    @property
    def growth(self) -> float:
        return self.memory_peak / self.memory_before

    def __str__(self) -> str:
        return (
            f"{self.statuses['202']} of {self.statuses.total()} accepted, p99 {self.p99_s:.2f} s, "
            f"gateway {self.memory_before >> 20} -> {self.memory_peak >> 20} MiB"
        )


async def honest_reports(
    url_port: int, trust: ssl.SSLContext, head_list: str, gateway: psutil.Process, seconds: float
) -> Honest:
    """Send reports over TLS, each on its own connection, as devices do; watch the memory."""
    found = Honest(memory_before=gateway.memory_info().rss)

    async def one() -> None:
        began = time.perf_counter()
        try:
            async with asyncio.timeout(_PATIENCE_S):
                status = await send_report(url_port, trust, head_list)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            status = type(error).__name__
        found.statuses[status] += 1
        found.seconds.append(time.perf_counter() - began)

    began = time.monotonic()
    sending: list[asyncio.Task[None]] = []
    for number in range(round(seconds * REPORTS_PER_S)):
        await asyncio.sleep(max(0.0, began + number / REPORTS_PER_S - time.monotonic()))
        sending.append(asyncio.create_task(one()))
        found.memory_peak = max(found.memory_peak, gateway.memory_info().rss)
    await asyncio.gather(*sending)
    found.memory_peak = max(found.memory_peak, gateway.memory_info().rss)
    return found


async def send_report(port: int, trust: ssl.SSLContext, head_list: str) -> str:
    """Send a report of a new device, and return the status."""
    status, _, _ = await exchange_report(port, trust, head_list, secrets.token_hex(16))
    return str(status)


async def exchange_report(
    port: int, trust: ssl.SSLContext, head_list: str, contributor: str
) -> tuple[int, dict[str, str], bytes]:
    """Send one report over TLS on its own connection; return status, headers and body."""
    body = f'{{"head_list":"{head_list}","contributor":"{contributor}","answers":[[3]]}}'
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=trust, server_hostname="127.0.0.1", local_addr=(HONEST, 0)
    )
    try:
        writer.write(
            f"POST /v1/reports HTTP/1.1\r\nhost: edge\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = (line.partition(": ") for line in head.split("\r\n")[1:])
        headers = {name.lower(): value for name, _, value in lines if name}
        return int(head[9:12]), headers, await reader.read()
    finally:
        writer.close()


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    given_name, *numbers = sys.argv[1:]
    uvloop.run(
        _attack(given_name, int(numbers[0]), int(numbers[1]), float(numbers[2]), int(numbers[3]))
    )
