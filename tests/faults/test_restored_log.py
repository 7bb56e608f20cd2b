"""A release log restored from an older copy: the operator's action, and a check that it is enough.

The copy is the folder of a stopped broker, as docs/change-and-restore.md says. After it was made an
epoch's head list was released, and further epochs were opened; the restored log knows nothing of
that.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from blendstream.agents.commands.epochs import go_on_with_restored
from blendstream.agents.commands.ledger import show
from blendstream.agents.jobs.leases import Lease
from blendstream.agents.local import LocalKafka, LocalRedis
from blendstream.blender.values.errors import ParameterError
from blendstream.streams.releases.entries import Kind
from blendstream.streams.releases.epoch_state import Stage
from tests.service.epochs import EpochService
from tests.service.jobs import JOBS, Clock, JobBench, bench, count_records, some_records

pytestmark = pytest.mark.more


@asynccontextmanager
async def running(
    folder: Path, redis: LocalRedis, prefix: str, clock: Clock
) -> AsyncIterator[tuple[EpochService, JobBench]]:
    """Start the same installation on the state in a folder's broker."""
    broker = await asyncio.to_thread(LocalKafka, folder)
    made = EpochService(broker.url, redis.url, prefix)
    try:
        await made.create()
        async with bench(made, clock) as jobs:
            yield made, jobs
    finally:
        await made.close()
        await asyncio.to_thread(broker.close)  # SIGTERM: a named folder is closed in order.


@pytest.mark.timeout(300)
async def test_a_restored_log_draws_nothing_again_and_counts_what_it_lost_as_spent(
    tmp_path: Path, own_redis: LocalRedis
) -> None:
    """Without its record a release would be drawn a second time, and cost people twice; without its
    charge an epoch opened after the copy would be paid for from a budget that is spent."""
    prefix, clock = f"test-{secrets.token_hex(6)}", Clock()
    live, backup = tmp_path / "live", tmp_path / "backup"
    async with running(live, own_redis, prefix, clock) as (made, jobs):
        await jobs.keep()
        await count_records(made, 0, some_records(0, np.random.default_rng(41)))
        clock.now_ms = (await made.log_state()).epochs[0].parameters.records_sealable_at_ms
        await jobs.keep()
        known = max((await made.log_state()).epochs)
        snapshot = own_redis.snapshot()
    shutil.copytree(live, backup)
    async with running(live, own_redis, prefix, clock) as (made, jobs):
        # Released after the copy: one epoch that the copy knows, and one that it does not.
        assert await jobs.run(Kind.HEAD_LISTS)
        lost = known + 1
        for epoch in range(1, lost + 1):
            await count_records(made, epoch, some_records(epoch, np.random.default_rng(epoch)))
            clock.now_ms = (await made.log_state()).epochs[epoch].parameters.records_sealable_at_ms
            await jobs.keep()
            assert await jobs.run(Kind.HEAD_LISTS)
        before = await made.log_state()
        assert before.epochs[lost].head_list is not None
        spent = before.ledger
        stopped_ms = clock.now_ms

    own_redis.rollback(snapshot)
    clock.now_ms += 50 * 3_600_000  # Finding and copying the backup took two days.
    async with running(backup, own_redis, prefix, clock) as (made, jobs):
        restored = await made.log_state()
        assert restored.epochs[0].stage is Stage.SEALED, "the log has forgotten the head list"
        assert lost not in restored.epochs
        assert restored.ledger.epochs() < spent.epochs(), "and what the later ones cost"

        await _refuses_what_would_do_harm(made, jobs, stopped_ms)
        assert any(b":0:S" in key for key in await made.redis_keys())
        await go_on_with_restored(jobs.context, "log restored", stopped_ms)
        assert not any(b":0:S" in key for key in await made.redis_keys()), "raw counts stay"
        log_state = await made.log_state()
        assert log_state.ledger == spent, "the ledger is what it was"
        assert show(made.settings, log_state, stopped_ms) == show(made.settings, before, stopped_ms)
        assert not log_state.unfinished()
        await go_on_with_restored(jobs.context, "log restored", stopped_ms)
        assert (await made.log_state()).ledger == spent, "repeating it changes nothing"

        for kind in JOBS:
            assert not await jobs.run(kind)
        await jobs.keep()
        after = await made.log_state()
        assert after.epochs[0].abandoned == "log restored"
        assert all(after.epochs[epoch].head_list is None for epoch in range(lost + 1))
        assert min(state.epoch for state in after.unfinished()) > max(before.epochs), (
            "the service goes on, with numbers that nobody has seen"
        )


async def _refuses_what_would_do_harm(made: EpochService, jobs: JobBench, stopped_ms: int) -> None:
    """While jobs run, or with a time that has not come; nothing changes."""
    before = (await made.log_state()).epochs
    held = Lease(jobs.context.redis, made.settings.topics.prefix, Kind.KEEPER, 60)
    assert await held.hold()
    with pytest.raises(ParameterError, match="no jobs process may run"):
        await go_on_with_restored(jobs.context, "log restored", stopped_ms)
    await held.leave()
    with pytest.raises(ParameterError, match="a time that has passed"):
        await go_on_with_restored(jobs.context, "log restored", jobs.clock.now_ms + 1)
    assert (await made.log_state()).epochs == before
