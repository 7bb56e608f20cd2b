"""Epoch jobs in the test's own process, step by step, on real Kafka and Redis, with a manual clock.

Counts are put into Redis by the counters' own script, as if so much had been counted; how counting
gets there is tested elsewhere. Two benches on one service are two job processes: each has its own
log, producer and clock, and may stop at a step until the test lets it go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np

from blendstream.agents.jobs.click_graphs import CLICK_GRAPHS
from blendstream.agents.jobs.epoch_lifecycle import Keeper
from blendstream.agents.jobs.estimates import ESTIMATES
from blendstream.agents.jobs.head_lists import HEAD_LISTS
from blendstream.agents.jobs.job_context import JobContext, RandomnessSources
from blendstream.agents.jobs.release_step import ReleaseSpec, publish_committed, release_step
from blendstream.streams.names import InputStream, OptinSubgroup
from blendstream.streams.releases.entries import Kind
from blendstream.streams.settings import Settings
from blendstream.streams.tables.batch_verdict import BatchVerdict, Tally
from blendstream.streams.tables.count_table import CountTable, PartitionState, SeenContributors
from blendstream.streams.tables.redis import connect_redis
from tests.service.epochs import EpochService

JOBS: dict[Kind, ReleaseSpec[Any, Any]] = {
    release.kind: release for release in (HEAD_LISTS, ESTIMATES, CLICK_GRAPHS)
}
#: The id of the topic that was never read.
DIRECTLY = "counted-directly"


class Clock:
    """A clock that the test moves; it starts at the broker's time."""

    def __init__(self) -> None:
        self.now_ms = time.time_ns() // 1_000_000

    def __call__(self) -> int:
        return self.now_ms

    def brokers_ms(self, _append_ms: int) -> int:
        """The brokers' clocks, which pass with it."""
        return self.now_ms


class JobBench:
    """One job process's worth of context."""

    def __init__(self, context: JobContext, clock: Clock, made: EpochService) -> None:
        self.context = context
        self._made = made
        self.clock = clock
        self.steps: list[str] = []
        self._keeper = Keeper(context)
        self._stop_at: str | None = None
        self.stopped = asyncio.Event()
        self.go_on = asyncio.Event()

    def stop_at(self, step: str) -> None:
        """Stand still at this step, once, until `go_on` is set."""
        self._stop_at = step
        self.stopped.clear()
        self.go_on.clear()

    async def observe(self, step: str) -> None:
        self.steps.append(step)
        if step == self._stop_at:
            self._stop_at = None
            self.stopped.set()
            await self.go_on.wait()

    async def keep(self) -> None:
        """Everything that the keeper has to do now."""

        async def kept() -> bool:
            while await self._keeper.step():
                pass
            await pass_markers(self._made)
            return True

        await self._made.until(kept, what="an end of the keeper's work")

    async def run(self, kind: Kind) -> bool:
        return await release_step(self.context, JOBS[kind])

    async def take_over(self, kind: Kind) -> bool:
        """Run as a job does that has just got the lease of another, or its own again after an
        outage: end what is open, publish what was committed, then do what is due."""
        await self.context.log.fence_and_read(kind)
        await publish_committed(self.context, JOBS[kind])
        return await self.run(kind)


@contextlib.asynccontextmanager
async def bench(
    made: EpochService,
    clock: Clock,
    *,
    dice: RandomnessSources | None = None,
    settings: Settings | None = None,
) -> AsyncIterator[JobBench]:
    """A bench on a service; its settings unless others are given."""
    chosen = settings or made.settings
    context = JobContext.build(
        chosen, made.topics, await connect_redis(chosen.redis), now_ms=clock,
        brokers_ms=clock.brokers_ms, dice=dice or RandomnessSources(),
    )  # fmt: skip
    built = JobBench(context, clock, made)
    context.observe = built.observe
    try:
        yield built
    finally:
        built.go_on.set()
        await context.close()


async def count_records(
    made: EpochService, epoch: int, shares: dict[OptinSubgroup, Counter[bytes]], partition: int = 0
) -> None:
    """Put opt-in counts into Redis, as counted; one record a user."""
    users = Counter({share: counts.total() for share, counts in shares.items()})
    await count_tally(
        made, epoch, Tally(received=users.total(), records=shares, users=users), partition
    )


async def count_tally(made: EpochService, epoch: int, tally: Tally, partition: int = 0) -> None:
    """Store the verdict on opt-in records in Redis."""
    await _add(made, InputStream.OPTIN_RECORDS, epoch, tally, partition)


async def count_reports(
    made: EpochService,
    epoch: int,
    size: int,
    reports: int,
    rng: np.random.Generator,
    width: int = 1,
) -> None:
    """Put reports of so many cells each into Redis, as counted."""
    cells = rng.multinomial(width * reports, np.full(size, 1 / size)).astype(np.int64)
    await _add(made, InputStream.CLIENT_REPORTS, epoch, Tally(received=reports, cells=cells), 0)


async def _add(
    made: EpochService, stem: InputStream, epoch: int, tally: Tally, partition: int
) -> None:
    tables = await made.tables(stem)
    stored = await tables.stored_state(partition)
    if stored.offset is None:
        await _open(tables, partition)
        stored = await tables.stored_state(partition)
    assert stored.offset is not None
    state = PartitionState(partition, DIRECTLY, stored.offset, {epoch: SeenContributors()})
    outcome = await tables.add_once(state, BatchVerdict({epoch: tally}), stored.offset + 1)
    assert type(outcome).__name__ == "Applied", outcome
    await tables.close()
    await pass_markers(made)


async def pass_markers(made: EpochService) -> None:
    """Move every partition's position over the markers that lie there, as a worker would.

    Only where no worker does it.
    """
    if made.has_workers:
        return
    for stem in InputStream:
        tables = await made.tables(stem)
        for partition, markers in (await asyncio.to_thread(made.markers, stem)).items():
            stored = await tables.stored_state(partition)
            at = end = stored.offset or 0
            while end in markers:
                end += 1
            if end > at:
                if stored.offset is None:
                    await _open(tables, partition)
                state = PartitionState(partition, stored.topic_id or DIRECTLY, at)
                await tables.add_once(state, BatchVerdict(), end)
        await tables.close()


async def _open(tables: CountTable, partition: int) -> None:
    opened = await tables.open(
        partition, await tables.stored_state(partition), offset=0, topic_id=DIRECTLY,
        released_through=-1, lost=0, unreleased=[],
    )  # fmt: skip
    assert opened


def url_table(folder: Path, epochs: int = 8) -> dict[str, str]:
    """The setting that names a file with the URLs of `some_records`: the first epoch, which has no
    earlier head list to take them from, then draws a graph too."""
    path = folder / "urls.tsv"
    pairs = [(epoch, n) for epoch in range(epochs) for n in range(12)]
    path.write_text("".join(f"query {e} {n}\thttps://site-{n}.example/\n" for e, n in pairs))
    return {"click_graph__url_table_file": str(path)}


def with_graph(shares: dict) -> dict:
    """Add records of the graph subgroup that pass any threshold."""
    return shares | {OptinSubgroup.GRAPH: Counter(dict.fromkeys(shares[OptinSubgroup.T], 90))}


def some_records(epoch: int, rng: np.random.Generator, users: int = 400) -> dict:
    """Records that any threshold lets through, and a few that none does."""
    texts = [b"query %d %d\thttps://site-%d.example/" % (epoch, n, n) for n in range(12)]
    drawn = rng.integers(0, len(texts), users)
    counts = Counter(texts[n] for n in drawn)
    rare = Counter({b"rare %d %d\thttps://rare.example/" % (epoch, n): 1 for n in range(20)})
    return {
        OptinSubgroup.S: counts + rare,
        OptinSubgroup.T: Counter(texts[n] for n in drawn[: users // 3]),
    }
