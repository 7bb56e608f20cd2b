"""Epochs that lack something, through the jobs on real servers: each ends and says why."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from blendstream.agents.commands.epoch_listing import outcome_text
from blendstream.agents.jobs.job_context import RandomnessSources
from blendstream.streams.names import InputStream, OptinSubgroup
from blendstream.streams.releases.entries import Kind
from blendstream.streams.releases.epoch_state import EpochState, Stage
from blendstream.streams.wire.estimates_document import EstimatesDocument
from blendstream.streams.wire.head_list_document import HeadListDocument
from tests.doubles_jobs import RepeatableNoise
from tests.service.epochs import EpochService, epoch_service
from tests.service.jobs import Clock, JobBench, bench, count_records, count_reports, some_records
from tests.service.settings import GRAPHS

pytestmark = pytest.mark.more


async def _head_list(
    made: EpochService, jobs: JobBench, epoch: int, later_ms: int = 0
) -> EpochState:
    """Seal an epoch and release its head list, so much later than it could be."""
    state = (await made.log_state()).epochs[epoch]
    jobs.clock.now_ms = state.parameters.records_sealable_at_ms
    await jobs.keep()
    jobs.clock.now_ms += later_ms
    assert await jobs.run(Kind.HEAD_LISTS)
    return (await made.log_state()).epochs[epoch]


async def _publish(made: EpochService, jobs: JobBench, state: EpochState) -> EpochState:
    assert state.head_list is not None
    jobs.clock.now_ms = max(jobs.clock.now_ms, state.head_list.reports_until_ms + 360_000)
    await jobs.keep()
    assert await jobs.run(Kind.ESTIMATES)
    await jobs.keep()
    return (await made.log_state()).epochs[state.epoch]


async def _says(made: EpochService, state: EpochState, outcome: str, *reasons: str) -> None:
    """The same in the log, in the document and in the operator's list."""
    assert state.stage is Stage.PUBLISHED
    assert state.estimates is not None
    document = EstimatesDocument.from_bytes(await made.document(state.estimates.document))
    assert (document.outcome, sorted(document.reasons)) == (outcome, sorted(reasons))
    assert state.estimates.outcome == outcome
    assert [reason.value for reason in state.estimates.reasons] == sorted(reasons)
    told = f"{outcome} ({', '.join(sorted(reasons))}); no click graph: not ready in time"
    assert outcome_text(state) == told


@pytest.mark.timeout(120)
async def test_an_epoch_that_lacks_something_is_published_and_says_what(kafka, redis_server):
    """None hangs, and nobody takes half an epoch for a whole one.

    The jobs' clock runs ahead of the broker's, by which a seal's deadlines are set: they have all
    passed when a job looks, the click graph's too.
    """
    rng, clock = np.random.default_rng(31), Clock()
    dice = RandomnessSources(RepeatableNoise(1), lambda: np.random.default_rng(1))
    async with (
        epoch_service(
            kafka.url, redis_server.url, epoch__counting_deadline_s="1", **GRAPHS
        ) as made,
        bench(made, clock, dice=dice) as jobs,
    ):
        await jobs.keep()
        # 0: people enough, but no two of them share a record.
        rare = Counter({b"rare %d\thttps://rare.example/" % n: 1 for n in range(30)})
        await count_records(made, 0, {OptinSubgroup.S: rare})
        state = await _head_list(made, jobs, 0)
        await _says(made, state, "empty", "empty_head_list")
        assert state.head_list is not None
        head_list = HeadListDocument.from_bytes(await made.document(state.head_list.head_list))
        assert head_list.reports_until_s == head_list.window_end_s, "no device is asked"
        await jobs.keep()

        # 1: Kafka had lost records before they were counted.
        await count_records(made, 1, some_records(1, rng))
        tables = jobs.context.tables(InputStream.OPTIN_RECORDS)
        await jobs.context.redis.hincrby(tables.key(0, 1, "totals"), "incomplete", 3)
        state = await _head_list(made, jobs, 1)
        assert state.head_list is not None
        await count_reports(made, 1, state.head_list.cells, 500, rng)
        made.send_raw(
            InputStream.OPTIN_RECORDS, 1, b"counted by nobody"
        )  # Sealed with the next epoch.
        await _says(made, await _publish(made, jobs, state), "incomplete", "records_lost")

        # 2: nobody counted one of the partitions.
        await count_records(made, 2, some_records(2, rng))
        state = await _head_list(made, jobs, 2)
        assert state.head_list is not None
        await count_reports(made, 2, state.head_list.cells, 500, rng)
        await _says(made, await _publish(made, jobs, state), "incomplete", "not_all_counted")

        # 3: the jobs were away until no device held its records any more.
        await count_records(made, 3, some_records(3, rng), partition=1)
        state = await _head_list(made, jobs, 3, later_ms=3 * 3_600_000)
        assert state.head_list is not None
        assert state.head_list.reports_until_ms == state.parameters.window_end_ms
        state = await _publish(made, jobs, state)
        await _says(made, state, "incomplete", "head_list_too_late", "too_few_reports")
