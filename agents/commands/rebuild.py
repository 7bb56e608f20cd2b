"""Count all that is unreleased again: Redis is emptied of counts, workers fill it from Kafka.

Use it when a partition stands still because a script failed half-way (mend Redis first), or when
`verify` finds counts that differ. Nothing released changes, and nothing is lost as long as Kafka
has the records. Workers that run take every partition up again by themselves, also one that stood
still; start some if none runs. Shows how far they are and ends when they are through.
"""

from __future__ import annotations

import argparse
import asyncio
import time

from agents.commands.reading import connected
from agents.job_context import JobContext
from streams.epochs import Stem
from streams.errors import StoreMismatch, StoreUnavailable
from streams.settings import Settings, load_settings

__all__ = ["add_arguments", "rebuild", "run"]

_ATTEMPTS = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --wait-s."""
    parser.add_argument(
        "--wait-s",
        type=float,
        default=3600.0,
        metavar="SECONDS",
        help="stop watching the workers after this; default: %(default)g",
    )


def run(arguments: argparse.Namespace) -> int:
    """Empty, then wait for the workers."""
    settings = load_settings(arguments.settings).settings
    return asyncio.run(_run(settings, arguments.wait_s))


async def _run(settings: Settings, wait_s: float) -> int:
    async with connected(settings) as context:
        await rebuild(context, wait_s)
    return 0


async def rebuild(context: JobContext, wait_s: float) -> None:
    """Forget every partition's counts, and wait until they are back."""
    book = await context.log.catch_up()
    for stem in Stem:
        tables, topic = context.tables(stem), context.topics.of(stem)
        for partition in range(topic.partitions):
            for _ in range(_ATTEMPTS):
                if await tables.forget_partition(partition, sorted(book.epochs)):
                    break
            else:
                raise StoreUnavailable(
                    f"partition {partition} of {topic.name} is counted too fast to be forgotten; "
                    "stop the workers for a moment and run this again"
                )
        print(f"{stem.value}: counts forgotten; waiting for the workers", flush=True)
    deadline = time.monotonic() + wait_s
    for stem in Stem:
        await _counted_again(context, stem, deadline)


async def _counted_again(context: JobContext, stem: Stem, deadline: float) -> None:
    """Wait for the workers, and say how far they are."""
    tables, topic = context.tables(stem), context.topics.of(stem)
    ends = await context.kafka.ends(topic.name, range(topic.partitions))
    told = -1
    while True:
        states = [await tables.stored_state(partition) for partition in sorted(ends)]
        failed = [n for n, state in enumerate(states) if state.applying is not None]
        if failed:
            raise StoreMismatch(
                f"every batch must be stored whole, but partition {failed[0]} of {topic.name} "
                "failed half-way again: mend Redis (the worker's log names the command), then run "
                "this again"
            )
        done = sum((states[partition].offset or 0) >= end for partition, end in ends.items())
        if done != told:
            print(f"{stem.value}: {done} of {len(ends)} partitions counted", flush=True)
            told = done
        if done == len(ends):
            return
        if time.monotonic() > deadline:
            raise StoreUnavailable(
                f"the workers must count {len(ends)} partitions of {topic.name}, {done} are done "
                "so far; is `blendstream worker` running and ready? Nothing needs to be run again: "
                "they go on by themselves"
            )
        await asyncio.sleep(0.5)
