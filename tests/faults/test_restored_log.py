"""A release log restored from an older copy: what the operator must do, and that it is enough.

The copy is the folder of a stopped broker, as docs/operations.md says. After it was made an epoch's
head list was released; the restored log knows nothing of that.
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

from agents.commands.epochs import _abandon
from agents.stack import LocalKafka, LocalRedis
from streams.releases.book import Stage
from streams.releases.entries import Kind
from tests.epoch_service import Service
from tests.job_bench import Clock, JobBench, bench, count_records, some_records


@asynccontextmanager
async def running(
    folder: Path, redis: LocalRedis, prefix: str, clock: Clock
) -> AsyncIterator[tuple[Service, JobBench]]:
    """The same installation on whatever a folder's broker remembers."""
    broker = await asyncio.to_thread(LocalKafka, folder)
    made = Service(broker.url, redis.url, prefix)
    try:
        await made.create()
        async with bench(made, clock) as jobs:
            yield made, jobs
    finally:
        await made.close()
        await asyncio.to_thread(broker.close)  # SIGTERM: a named folder is closed in order.


@pytest.mark.timeout(300)
async def test_epochs_open_in_an_older_log_are_abandoned_and_never_drawn_again(
    tmp_path: Path, own_redis: LocalRedis
) -> None:
    """Without its record a release would be drawn a second time, and cost people twice."""
    prefix, clock = f"test-{secrets.token_hex(6)}", Clock()
    live, backup = tmp_path / "live", tmp_path / "backup"
    async with running(live, own_redis, prefix, clock) as (made, jobs):
        await jobs.keep()
        await count_records(made, 0, some_records(0, np.random.default_rng(41)))
        clock.now_ms = (await made.book()).epochs[0].parameters.records_sealable_at_ms
        await jobs.keep()
        snapshot = own_redis.snapshot()
    shutil.copytree(live, backup)
    async with running(live, own_redis, prefix, clock) as (made, jobs):
        assert await jobs.run(Kind.HEAD_LISTS)
        head_list = (await made.book()).epochs[0].head_list
        assert head_list is not None

    own_redis.rollback(snapshot)
    async with running(backup, own_redis, prefix, clock) as (made, jobs):
        before = await made.book()
        still_open = [n for n, state in before.epochs.items() if not state.stage.over]
        assert before.epochs[0].stage is Stage.SEALED, "the log has forgotten the head list"
        assert 0 in still_open
        for epoch in still_open:
            assert await _abandon(made.settings, epoch, "log restored") == 0

        while await jobs.run(Kind.HEAD_LISTS):
            pass
        clock.now_ms = before.epochs[max(still_open)].parameters.window_end_ms
        await jobs.keep()
        after = await made.book()
        assert after.epochs[0].abandoned == "log restored"
        assert after.epochs[0].head_list is None, "nothing was drawn again"
        assert max(after.epochs) > max(still_open), "and the service goes on with new epochs"
