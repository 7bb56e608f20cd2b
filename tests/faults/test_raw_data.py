"""Raw data ends with the release, and neither an older Redis nor other topics bring it back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from blendstream.agents.commands.verify import differences
from blendstream.agents.jobs.click_graphs import CLICK_GRAPHS
from blendstream.agents.jobs.job_context import AbandonedRelease
from blendstream.agents.jobs.release_step import publish_committed, record_abandonment
from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.kafka.topics import Topics
from blendstream.streams.names import InputStream
from blendstream.streams.releases import entries
from blendstream.streams.releases.compacted_topics import PublishedMarks
from blendstream.streams.releases.entries import IncompleteReason, Kind
from blendstream.streams.releases.epoch_state import KEPT_EPOCHS
from blendstream.streams.releases.retention import LogTrimmer
from tests.service.epochs import EpochService, epoch_service
from tests.service.jobs import Clock, JobBench, bench, count_records, some_records
from tests.service.settings import GRAPHS

pytestmark = pytest.mark.more

if TYPE_CHECKING:
    from blendstream.agents.local import LocalRedis

HOUR_MS = 3_600_000
OPTIN = InputStream.OPTIN_RECORDS


async def abandon(jobs: JobBench, *epochs: int) -> None:
    async with jobs.context.log.fenced_session(Kind.OPERATOR) as session:
        await session.commit([entries.epoch_abandoned(epoch, "a drill") for epoch in epochs])


async def raw_keys(made: EpochService) -> set[bytes]:
    """Keys under which queries and URLs lie."""
    return {key for key, held in (await made.redis_keys()).items() if b"query" in held}


async def begins(made: EpochService) -> list[int]:
    """Return the log start offset of each partition of the opt-in topic."""
    name = made.topics.of(OPTIN).name
    return [(await made.kafka.bounds(name, p)).begin for p in range(made.partitions)]


async def counted_to(made: EpochService, partition: int, offset: int) -> None:
    """Leave Redis as a worker does that has counted up to here, without an open epoch."""
    tables = await made.tables(OPTIN)
    assert await tables.open(
        partition, await tables.stored_state(partition), offset=offset, topic_id="moved",
        released_through=-1, lost=0, unreleased=[],
    )  # fmt: skip
    await tables.close()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("fault_redis", ["cluster"], indirect=True)
async def test_a_move_to_other_topics_leaves_nothing_raw_in_redis_and_takes_no_offsets_along(
    kafka, fault_redis: LocalRedis
):
    """The old topics' bounds removed records of the new ones that nobody had counted, and the old
    ones' counts stayed in Redis for ever, as those of epochs did that the log had forgotten."""
    rng, clock = np.random.default_rng(31), Clock()
    async with epoch_service(kafka.url, fault_redis.url, **GRAPHS) as made:
        async with bench(made, clock) as before:
            await before.keep()
            opened = list((await made.log_state()).epochs)
            await count_records(made, 0, some_records(0, rng))
            raw = await raw_keys(made)
            assert raw
            copy = await asyncio.to_thread(fault_redis.snapshot)
            async with before.context.log.fenced_session(Kind.KEEPER) as session:
                await session.commit([entries.log_trimmed(OPTIN, 1, [2, 9])])
            await abandon(before, *opened)
            assert await raw_keys(made) == raw, "no jobs process looks any more"
        made.change(topics__version="2")
        made.topics = Topics(made.settings)
        await made.create()
        for _ in range(3):
            made.send_raw(OPTIN, 0, b"not counted yet")
        async with bench(made, clock) as after:
            found = await differences(after.context)
            assert any("v1 partition 0: epoch 0 is released and still" in line for line in found)
            await after.keep()
            assert await raw_keys(made) == set()
            assert await begins(made) == [0, 0]
            # Counting catches up while nothing else happens: what could not go before goes now.
            await counted_to(made, 0, 3)
            await after.keep()
            assert await begins(made) == [3, 0]
            trimmed = (await made.log_state()).trimmed
            assert trimmed == {(OPTIN, 1): (2, 9), (OPTIN, 2): (3, 0)}

            # Announced, but neither counted nor there: the topics may come from a copy.
            async with after.context.log.fenced_session(Kind.KEEPER) as session:
                await session.commit([entries.log_trimmed(OPTIN, 2, [9, 1])])
            made.send_raw(OPTIN, 1, b"not counted yet")
            await after.keep()
            assert await begins(made) == [3, 0]

            with pytest.raises(StoreUnavailable, match="OFFSET_OUT_OF_RANGE"):
                await LogTrimmer(made.settings.kafka).remove_below(made.topics.of(OPTIN).name, [9])

            # So long ago that the log has forgotten the epoch, and the topics are others.
            await many_epochs_pass(made, after)
            await asyncio.to_thread(fault_redis.rollback, copy)
            assert await raw_keys(made) == raw
            await after.keep()
            assert await raw_keys(made) == set()

            # Nor does anything else that is kept of such an epoch hold the jobs up, or pile up.
            topic = made.topics.click_graphs.name
            marks = PublishedMarks(after.context.redis, made.settings.topics.prefix, topic)
            await marks.add(0, "of an epoch that the log forgets")
            await publish_committed(after.context, CLICK_GRAPHS)
            assert await marks.all() == {}
            owed = after.context.abandoned
            owed[Kind.CLICK_GRAPHS] = AbandonedRelease(
                0, IncompleteReason.DRAW_FAILED, participants=0
            )
            await record_abandonment(after.context, CLICK_GRAPHS)
            assert not owed


async def many_epochs_pass(made: EpochService, jobs: JobBench) -> None:
    """So many that the log keeps none of the epochs that are over now."""
    last = (await made.log_state()).last
    assert last is not None
    added = [entries.epoch_abandoned(last.epoch, "a drill")]
    for n in range(1, KEPT_EPOCHS + 3):
        opened, number = last.parameters, last.epoch + n
        passing = replace(
            opened,
            epoch=number,
            window_start_ms=opened.window_start_ms + n * HOUR_MS,
            window_end_ms=opened.window_end_ms + n * HOUR_MS,
            charge=replace(opened.charge, epoch=number),
        )
        added += [entries.epoch_opened(passing), entries.epoch_abandoned(number, "a drill")]
    async with jobs.context.log.fenced_session(Kind.OPERATOR) as session:
        await session.commit(added)
    await jobs.keep()
    assert 0 not in (await made.log_state()).epochs
