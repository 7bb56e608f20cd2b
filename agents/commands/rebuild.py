"""Rebuild the counts of all unreleased epochs: delete them from Redis; workers recount from Kafka.

Use it in two cases: a partition is halted because a script failed half-way (repair Redis first), or
`verify` finds counts that differ. Nothing released changes, and nothing is lost as long as Kafka
has the records.

Running workers resume every partition automatically, halted ones included; start some if none runs.
The command prints their progress and ends when they have finished. If interrupted, it prints which
partitions were reset and what to do next; each is reset completely or not at all.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from dataclasses import dataclass, field

from blendstream.agents.commands.operator_context import connected, read_log
from blendstream.agents.jobs.job_context import JobContext
from blendstream.agents.output import say
from blendstream.streams.errors import StoreMismatch, StoreUnavailable
from blendstream.streams.kafka.topics import Topics
from blendstream.streams.names import InputStream
from blendstream.streams.settings import Settings, load_settings

__all__ = ["add_arguments", "rebuild", "run"]

_ATTEMPTS = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait-s",
        type=float,
        default=3600.0,
        metavar="SECONDS",
        help="stop watching the workers after this; default: %(default)g",
    )


def run(arguments: argparse.Namespace) -> int:
    """Reset the counts and wait for the workers."""
    settings = load_settings(arguments.settings).settings
    try:
        return asyncio.run(_run(settings, arguments.wait_s))
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM


async def _run(settings: Settings, wait_s: float) -> int:
    task = asyncio.current_task()
    assert task is not None
    # Handle SIGTERM like Ctrl-C, so that the command can report its progress.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with connected(settings) as context:
        await rebuild(context, wait_s)
    return 0


async def rebuild(context: JobContext, wait_s: float) -> None:
    """Reset every partition's counts, and wait until the workers have counted them again."""
    done = _Progress(context.topics)
    try:
        log_state = await read_log(context)
        for stem in InputStream:
            await _reset(context, stem, sorted(log_state.epochs), done)
            say(f"{stem.value}: counts reset; waiting for the workers")
        deadline = time.monotonic() + wait_s
        for stem in InputStream:
            await _wait_until_counted(context, stem, deadline, done)
    except BaseException as error:
        # A failure may leave only some partitions reset, as an interruption does.
        if isinstance(error, asyncio.CancelledError) or done.half_reset:
            print(f"blendstream: {done.sentence()}", file=sys.stderr)
        raise


@dataclass
class _Progress:
    """Progress of a rebuild, for the operator who interrupts it: partitions by topic."""

    topics: Topics
    reset: dict[InputStream, int] = field(default_factory=dict)
    counted: dict[InputStream, int] = field(default_factory=dict)

    @property
    def half_reset(self) -> bool:
        """True if some partitions were reset, but not all."""
        wanted = sum(self.topics.of(stem).partitions for stem in InputStream)
        return bool(self.reset) and sum(self.reset.values()) < wanted

    def sentence(self) -> str:
        """Return the state after an interruption, and what to do next."""
        if not self.reset:
            return "stopped before any counts were reset: nothing has changed"
        if self.half_reset:
            return (
                f"stopped while resetting counts: {self._listed(self.reset)} are reset, and "
                "perhaps the next one. Workers count these again automatically; the others keep "
                "their counts. Run `blendstream rebuild` again for all of them"
            )
        return (
            "stopped while waiting for the workers: all counts are reset, "
            f"{self._listed(self.counted)} were counted again so far. The workers continue "
            "automatically, and nothing needs to be run again; run `blendstream verify` when they "
            "are done"
        )

    def _listed(self, partitions: dict[InputStream, int]) -> str:
        each = [(self.topics.of(stem), partitions.get(stem, 0)) for stem in InputStream]
        return " and ".join(f"{n} of {topic.partitions} in {topic.name}" for topic, n in each)


async def _reset(
    context: JobContext, stem: InputStream, epochs: list[int], done: _Progress
) -> None:
    tables, topic = context.tables(stem), context.topics.of(stem)
    done.reset[stem] = 0
    for partition in range(topic.partitions):
        for _ in range(_ATTEMPTS):
            if await tables.forget_partition(partition, epochs):
                break
        else:
            raise StoreUnavailable(
                f"partition {partition} of {topic.name} is counted too fast to be reset; "
                "stop the workers for a moment and run this again"
            )
        done.reset[stem] = partition + 1


async def _wait_until_counted(
    context: JobContext, stem: InputStream, deadline: float, progress: _Progress
) -> None:
    """Wait until the workers reach the topic's end, and print their progress."""
    tables, topic = context.tables(stem), context.topics.of(stem)
    ends = await context.kafka.ends(topic.name, range(topic.partitions))
    reported = -1
    while True:
        states = [await tables.stored_state(partition) for partition in sorted(ends)]
        failed = [n for n, state in enumerate(states) if state.applying is not None]
        if failed:
            raise StoreMismatch(
                f"every batch must be stored whole, but partition {failed[0]} of {topic.name} "
                "failed half-way again: repair Redis (the worker's log names the command), then "
                "run this again"
            )
        done = sum((states[partition].offset or 0) >= end for partition, end in ends.items())
        progress.counted[stem] = done
        if done != reported:
            say(f"{stem.value}: {done} of {len(ends)} partitions counted")
            reported = done
        if done == len(ends):
            return
        if time.monotonic() > deadline:
            raise StoreUnavailable(
                f"the workers must count {len(ends)} partitions of {topic.name}, {done} are done "
                "so far; is `blendstream worker` running and ready? Nothing needs to be run again: "
                "they continue automatically"
            )
        await asyncio.sleep(0.5)
