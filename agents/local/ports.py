"""Find free ports on the loopback interface that remain available while a server restarts."""

import random
import socket
from pathlib import Path

from blendstream.agents.local.process_guard import StackError

__all__ = ["free_port"]

LOWEST, HIGHEST = 15_000, 32_000
LINUX_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """Return a free port, below the range of ports for outgoing connections.

    A client's connection could occupy a port of that range while its server is down: a client that
    retries on loopback can even connect to itself.
    """
    highest = HIGHEST
    if LINUX_RANGE.exists():
        highest = min(highest, int(LINUX_RANGE.read_text().split()[0]) - 1)
    if highest <= LOWEST + 100:
        return _any_port()
    dice = random.SystemRandom()
    for _ in range(200):
        port = dice.randint(LOWEST, highest)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise StackError(f"no free port found between {LOWEST} and {highest}; stop what listens there")


def _any_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
