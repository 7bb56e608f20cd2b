"""Run a real Kafka and a real Redis on this machine until Ctrl-C, and print their addresses.

Prints two lines for the shell:

    export KAFKA_URL=kafka://127.0.0.1:PORT
    export REDIS_URL=redis://127.0.0.1:PORT/0

--edge also starts nginx, if it is installed, with the configuration for production, and prints the
socket on which a gateway behind it must listen:

    export BLENDSTREAM_GATEWAY_UNIX_SOCKET=PATH

--brokers 3 starts three Kafka nodes that replicate; --redis cluster or sentinel starts a Redis that
survives the loss of a node. The process id of each node is printed: `kill -9` one to test how the
service reacts.

At the first start, Maven downloads Kafka's jars into the user's cache. The servers store their data
in the folder that --folder names, or else in a temporary one that the command deletes at its end.
Only the user who runs the command can read these folders; a --folder with links is refused.

--kafka-port and --redis-port keep the addresses constant, as a settings file needs them. If
KAFKA_URL or REDIS_URL is set, the command uses that server and starts none in its place.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from blendstream.agents.commands.demo import within
from blendstream.agents.local import Stack, StackError
from blendstream.agents.local.local_cluster import ClusterNode
from blendstream.agents.local.local_edge import LocalEdge, find_nginx
from blendstream.agents.local.local_server import LocalPart
from blendstream.agents.local.replicated_redis import RedisNode

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--folder", type=Path, metavar="DIR",
        help="store the data there for the next start (not that of a replicated Redis)",
    )  # fmt: skip
    parser.add_argument(
        "--brokers", type=int, choices=(1, 3), default=1, help="Kafka nodes (default: 1)"
    )
    parser.add_argument(
        "--redis",
        choices=("single", "cluster", "sentinel"),
        default="single",
        help="one server; three primaries with a replica each; or a primary with a replica and "
        "three Sentinels (default: single)",
    )
    for name in ("kafka", "redis"):
        parser.add_argument(
            f"--{name}-port", type=within(int, 1, 65535), metavar="PORT",
            help=f"port of a single {name.capitalize()}; default: any free port",
        )  # fmt: skip

    parser.add_argument(
        "--edge",
        action="store_true",
        help="nginx in front of a gateway, with TLS, as in production",
    )
    parser.add_argument(
        "--edge-port", type=within(int, 1, 65535), metavar="PORT",
        help="port of the edge; default: any free port",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Start the servers, print their addresses, and wait for a signal or the end of a server."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    os.umask(0o077)  # also for the servers, whose files contain raw opt-in records
    began = time.monotonic()
    try:
        ports = arguments.kafka_port, arguments.redis_port
        if any(ports) and (arguments.brokers, arguments.redis) != (1, "single"):
            raise StackError("--kafka-port and --redis-port are for one Kafka and one Redis")
        if arguments.edge:
            find_nginx()  # Fails before any server is started.
        with ExitStack() as parts:
            stack = parts.enter_context(
                Stack.start(
                    arguments.folder,
                    ports=ports,
                    progress=_say,
                    brokers=arguments.brokers,
                    redis_kind=arguments.redis,
                )
            )
            running: list[LocalPart] = list(stack.started)
            print(f"export KAFKA_URL={stack.kafka.url}")
            print(f"export REDIS_URL={stack.redis.url}", flush=True)
            if arguments.edge:
                edge = parts.enter_context(LocalEdge(port=arguments.edge_port))
                running.append(edge)
                print(f"export BLENDSTREAM_GATEWAY_UNIX_SOCKET={edge.socket()}", flush=True)
                _say(f"edge: {edge.url}, curl --cacert {edge.certificate}")
            several = _several(stack)
            for part in running if several else ():
                _say(f"{part.name}: process {part.server.pid}")
            _say(f"ready after {time.monotonic() - began:.1f} s; Ctrl-C stops them")
            return _watch(running, alone=not several)
    except KeyboardInterrupt:
        _say("stopped")
        return 0


def _several(stack: Stack) -> bool:
    """Return True if there are replicated nodes, of which one may be lost."""
    return any(isinstance(part, RedisNode | ClusterNode) for part in stack.started)


def _watch(running: list[LocalPart], *, alone: bool) -> int:
    """Wait until all servers, or one without a replica, have exited; print each exit."""
    while running:
        for part in [part for part in running if not part.server.running]:
            running.remove(part)
            _say(f"{part.name} exited. Its last output:\n{part.server.last_words()}")
            if alone:
                return 1
        time.sleep(0.5)
    return 1


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
