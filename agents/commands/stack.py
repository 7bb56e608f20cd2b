"""Run a real Kafka and a real Redis on this machine until Ctrl-C, and say where they listen.

Prints two lines for the shell:

    export KAFKA_URL=kafka://127.0.0.1:PORT
    export REDIS_URL=redis://127.0.0.1:PORT/0

--edge also starts nginx, where it is installed, with the configuration that production uses, and
prints where a gateway must listen to be behind it:

    export BLENDSTREAM_GATEWAY_UNIX_SOCKET=PATH

--brokers 3 starts three Kafka nodes that replicate, --redis cluster or sentinel a Redis that
survives the loss of a node. Each node's process id is said: `kill -9` one to see what the service
does then.

The first time, Kafka's jars are fetched by Maven into the user's cache. Data lives in a temporary
folder and ends with the command, unless --folder names one; only the user who runs the command can
read either, and a --folder with links is refused. With --kafka-port and --redis-port the addresses
stay the same from start to start, as a file of settings needs them. Where KAFKA_URL or REDIS_URL is
already set, that server is used and nothing is started in its place.
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
        help="keep the data there for the next start (not of a replicated Redis)",
    )  # fmt: skip
    parser.add_argument(
        "--brokers", type=int, choices=(1, 3), default=1, help="Kafka nodes (default: 1)"
    )
    parser.add_argument(
        "--redis",
        choices=("single", "cluster", "sentinel"),
        default="single",
        help="one Redis; three masters with a replica each; or a primary with a replica behind "
        "three Sentinels (default: single)",
    )
    for name in ("kafka", "redis"):
        parser.add_argument(
            f"--{name}-port", type=within(int, 1, 65535), metavar="PORT",
            help=f"of a single {name.capitalize()}; default: a free one, another at each start",
        )  # fmt: skip

    parser.add_argument(
        "--edge",
        action="store_true",
        help="nginx in front of a gateway, with TLS, as in production",
    )
    parser.add_argument(
        "--edge-port", type=within(int, 1, 65535), metavar="PORT",
        help="of the edge; default: a free one, another at each start",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Start, print the addresses, watch until a signal comes or a server ends by itself."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    os.umask(0o077)  # for the servers too, whose files have raw opt-in records
    began = time.monotonic()
    try:
        ports = arguments.kafka_port, arguments.redis_port
        if any(ports) and (arguments.brokers, arguments.redis) != (1, "single"):
            raise StackError("--kafka-port and --redis-port are for one Kafka and one Redis")
        if arguments.edge:
            find_nginx()  # Before anything is started that would have to end again.
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
            _say(f"ready after {time.monotonic() - began:.1f} s; Ctrl-C stops it")
            return _watch(running, alone=not several)
    except KeyboardInterrupt:
        _say("stopped")
        return 0


def _several(stack: Stack) -> bool:
    """Whether there are nodes of which one may be lost."""
    return any(isinstance(part, RedisNode | ClusterNode) for part in stack.started)


def _watch(running: list[LocalPart], *, alone: bool) -> int:
    """Say which server ended by itself; one of several may, and the others go on."""
    while running:
        for part in [part for part in running if not part.server.running]:
            running.remove(part)
            _say(f"{part.name} ended by itself. It last printed:\n{part.server.last_words()}")
            if alone:
                return 1
        time.sleep(0.5)
    return 1


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
