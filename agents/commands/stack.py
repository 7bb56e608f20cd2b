"""Run a real Kafka and a real Redis on this machine until Ctrl-C, and say where they listen.

Prints two lines for the shell:

    export KAFKA_URL=kafka://127.0.0.1:PORT
    export REDIS_URL=redis://127.0.0.1:PORT/0

The first time, Kafka's jars are fetched by Maven into the user's cache. Data lives in a temporary
folder and ends with the command, unless --folder names one. Where KAFKA_URL or REDIS_URL is already
set, that server is used and nothing is started in its place.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from agents.local import LocalKafka, LocalRedis, Stack

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --folder."""
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="keep the data there for the next start"
    )


def run(arguments: argparse.Namespace) -> int:
    """Start, print the addresses, watch until a signal comes or a server ends by itself."""
    signal.signal(signal.SIGTERM, _as_ctrl_c)
    began = time.monotonic()
    try:
        with Stack.start(arguments.folder, progress=_say) as stack:
            print(f"export KAFKA_URL={stack.kafka.url}")
            print(f"export REDIS_URL={stack.redis.url}", flush=True)
            _say(f"ready after {time.monotonic() - began:.1f} s; Ctrl-C stops it")
            return _watch(stack)
    except KeyboardInterrupt:
        _say("stopped")
        return 0


def _watch(stack: Stack) -> int:
    started = [
        part for part in (stack.kafka, stack.redis) if isinstance(part, LocalKafka | LocalRedis)
    ]
    while all(part.server.running for part in started):
        time.sleep(0.5)
    for part in started:
        if not part.server.running:
            _say(f"{part.name} ended by itself. It last printed:\n{part.server.last_words()}")
    return 1


def _as_ctrl_c(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
