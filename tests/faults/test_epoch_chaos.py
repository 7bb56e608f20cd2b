"""Jobs killed and paused at random steps over real epochs, by real signals: one release each.

Not a failure: an epoch that is published incomplete or empty because nobody was there in time; a
gap in the windows; a draw that was thrown away; jobs that exit and are started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter

import numpy as np
import pytest

from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.releases.epoch_state import Stage
from tests.service.epochs import EpochService, epoch_service
from tests.service.released import RELEASES, STEPS, all_entries, same_bytes_everywhere
from tests.service.settings import GRAPHS, SHORT

KINDS = ("click-graphs", "head-lists", "estimates", "keeper")
EPOCHS = 4


async def _feed(made: EpochService, rng: np.random.Generator, stop: asyncio.Event) -> None:
    """Send records in every window and reports on every head list, as people would."""
    fed: set[int] = set()
    reported: set[int] = set()
    while not stop.is_set():
        with contextlib.suppress(StoreUnavailable):
            log_state = await made.log_state()
            now = time.time_ns() // 1_000_000
            for epoch, state in sorted(log_state.epochs.items()):
                parameters = state.parameters
                inside = parameters.window_start_ms <= now < parameters.window_end_ms - 1_000
                if epoch not in fed and inside:
                    fed.add(epoch)
                    made.send_optin(state, 300, rng)
                if epoch not in reported and state.stage is Stage.REPORTING:
                    reported.add(epoch)
                    head_list, _ = await made.head_list(state)
                    made.send_reports(state, head_list, 300, rng)
        await asyncio.sleep(0.3)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", range(3))
async def test_jobs_killed_and_paused_at_random_steps_release_each_epoch_once(
    kafka, redis_server, seed: int
):
    """Two processes at a time; a paused one wakes up long after its lease is gone."""
    dice, rng = random.Random(seed), np.random.default_rng(seed)
    async with epoch_service(kafka.url, redis_server.url, **SHORT, **GRAPHS) as made:
        made.start_worker()
        stop = asyncio.Event()
        feeding = asyncio.create_task(_feed(made, rng, stop))
        deadline = time.monotonic() + 200
        running = []

        async def enough() -> bool:
            log_state = await made.log_state()
            return sum(s.stage.over for s in log_state.epochs.values()) >= EPOCHS

        while not await enough():
            assert time.monotonic() < deadline, made.logs()
            while len([p for p in running if p.running and not p.paused]) < 2:
                step = f"{dice.choice(KINDS)}.{dice.choice(STEPS)}"
                action = dice.choice(["kill", "pause", "pause"])
                running.append(made.start_jobs("--at", step, action))
            await asyncio.sleep(3)
            for part in running:
                if part.paused and dice.random() < 0.5:
                    part.resume()
        for part in running:
            if part.running:
                part.resume()
        stop.set()
        await feeding
        # Nobody is disturbed any more: what was committed is published, once.
        for part in running:
            part.kill()
        made.start_jobs()
        over = [e for e, s in (await made.log_state()).epochs.items() if s.stage is Stage.PUBLISHED]

        async def all_out() -> bool:
            estimates = await made.published(made.topics.estimates.name)
            graphs = await made.published(made.topics.click_graphs.name)
            epochs = (await made.log_state()).epochs
            owed = {epoch for epoch in over if epochs[epoch].click_graph is not None}
            return set(over) <= estimates.keys() and owed <= graphs.keys()

        await made.until(all_out, 60)
        names = ("epoch_opened", "records_sealed", *RELEASES)
        times = Counter((e["entry"], e["epoch"]) for e in all_entries(made) if e["entry"] in names)
        assert set(times.values()) == {1}, times
        assert {name for name, _ in times} == set(names), times
        for epoch in over:
            await same_bytes_everywhere(made, range(epoch, epoch + 1))
