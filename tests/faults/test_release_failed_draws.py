"""A draw that fails is never repeated: one entry abandons the epoch, and the next one continues.

Whatever made it fail may have depended on the noise. Drawing again until a draw succeeds would then
choose among draws, and no proof covers that. Not a failure: a draw thrown away by a crash or an
outage, which know nothing of the noise.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from blendstream.agents.jobs.job_context import RandomnessSources
from blendstream.agents.jobs.jobs_process import Jobs
from blendstream.agents.jobs.release_failures import ReleaseFailed
from blendstream.agents.local import LocalKafka
from blendstream.blender.paper import optin
from blendstream.blender.values.arrays import IntArray
from blendstream.blender.values.errors import ParameterError
from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.releases.entries import EpochOutcome, Kind
from blendstream.streams.releases.epoch_state import Stage
from tests.doubles_jobs import RepeatableNoise
from tests.service.counting import HOUR_MS
from tests.service.epochs import EpochService, epoch_service
from tests.service.jobs import Clock, JobBench, bench, count_records, some_records, with_graph
from tests.service.released import releases, same_bytes_everywhere
from tests.service.settings import GRAPHS


class FailingNoise(RepeatableNoise):
    """Draws, then fails as often as it has errors left; counts how often it was asked."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__(1)
        self.errors = list(errors)
        self.asked = 0

    def discrete_laplace(self, counts: IntArray, *, scale: float) -> IntArray:
        self.asked += 1
        drawn = super().discrete_laplace(counts, scale=scale)
        if self.errors:
            raise self.errors.pop(0)
        return drawn


async def _ready_to_draw(made: EpochService, jobs: JobBench, epoch: int) -> None:
    """An epoch sealed and counted; with a click graph's share where it owes one."""
    counts = some_records(0, np.random.default_rng(epoch))
    if "click_graph.share" in made.values:
        counts = with_graph(counts)
    await count_records(made, epoch, counts)
    state = (await made.log_state()).epochs[epoch]
    jobs.clock.now_ms = max(jobs.clock.now_ms, state.parameters.records_sealable_at_ms)
    await jobs.keep()


@pytest.mark.timeout(120)
async def test_a_failed_draw_of_a_head_list_abandons_the_epoch_and_is_not_repeated(
    kafka, redis_server
):
    """Whatever the cause, also after a restart; and the next epoch is released."""
    clock, noise = Clock(), FailingNoise()
    errors = [MemoryError(), FloatingPointError(), OSError("getrandom"), ParameterError("no")]
    async with epoch_service(kafka.url, redis_server.url) as made:
        async with bench(made, clock, dice=RandomnessSources(noise)) as jobs:
            await jobs.keep()
            for epoch, error in enumerate(errors):
                await _ready_to_draw(made, jobs, epoch)
                noise.errors = [error]
                with pytest.raises(ReleaseFailed) as failed:
                    await jobs.run(Kind.HEAD_LISTS)
                assert failed.value.__cause__ is error
                assert not await jobs.run(Kind.HEAD_LISTS), "nothing is left to do for this epoch"
                assert noise.asked == epoch + 1
        async with bench(made, clock, dice=RandomnessSources(noise)) as restarted:
            assert not await restarted.run(Kind.HEAD_LISTS)
            assert noise.asked == len(errors), "drawn again after a restart"
            await _ready_to_draw(made, restarted, len(errors))
            assert await restarted.run(Kind.HEAD_LISTS)
        log_state = await made.log_state()
        failed_epochs = range(len(errors))
        for epoch in failed_epochs:
            assert "draw failed and is not repeated" in (log_state.epochs[epoch].abandoned or "")
        assert log_state.epochs[len(errors)].stage is Stage.REPORTING
        assert releases(made, "epoch_abandoned") == Counter(dict.fromkeys(failed_epochs, 1))
        assert releases(made, "head_list_released") == Counter({len(errors): 1})


@pytest.mark.timeout(120)
@pytest.mark.parametrize("profile", ["paper", "sharp"])
async def test_opt_in_estimates_that_fail_abandon_no_epoch(
    kafka, redis_server, monkeypatch: pytest.MonkeyPatch, profile: str
):
    """They are post-processing. The draw computed them and threw them away; an exception in them
    then abandoned an epoch whose budget was charged.
    """
    clock = Clock()
    async with (
        epoch_service(kafka.url, redis_server.url, privacy__profile=profile) as made,
        bench(made, clock) as jobs,
    ):
        await jobs.keep()
        await _ready_to_draw(made, jobs, 0)
        with monkeypatch.context() as broken:
            broken.setattr(optin, "noisy_count_interval", _failing)
            assert await jobs.run(Kind.HEAD_LISTS)
            assert (await made.log_state()).epochs[0].stage is Stage.REPORTING
            clock.now_ms += 3 * HOUR_MS
            await jobs.keep()
            for _ in range(2):
                with pytest.raises(FloatingPointError):
                    await jobs.run(Kind.ESTIMATES)
        assert await jobs.run(Kind.ESTIMATES), "nothing was drawn, so it is tried again"
        assert (await made.log_state()).epochs[0].stage is Stage.PUBLISHED
        assert releases(made, "epoch_abandoned").total() == 0


def _failing(*_: object, **__: object) -> None:
    raise FloatingPointError("no interval")


@pytest.mark.more
@pytest.mark.timeout(120)
async def test_a_failed_draw_of_a_click_graph_is_published_empty_and_is_not_repeated(
    kafka, redis_server
):
    """The epoch goes on without one; the head list is drawn from other people."""
    clock, noise = Clock(), FailingNoise()
    async with epoch_service(kafka.url, redis_server.url, **GRAPHS) as made:
        async with bench(made, clock, dice=RandomnessSources(noise)) as jobs:
            await jobs.keep()
            for epoch in range(3):
                await _ready_to_draw(made, jobs, epoch)
                if epoch == 1:
                    noise.errors = [MemoryError()]
                    asked = noise.asked
                    with pytest.raises(ReleaseFailed):
                        await jobs.run(Kind.CLICK_GRAPHS)
                    assert noise.asked == asked + 1
                    async with bench(made, clock, dice=RandomnessSources(noise)) as restarted:
                        assert not await restarted.run(Kind.CLICK_GRAPHS)
                    assert noise.asked == asked + 1, "drawn again after a restart"
                else:
                    assert await jobs.run(Kind.CLICK_GRAPHS)
                assert await jobs.run(Kind.HEAD_LISTS)
            # What was given up is published as well, at the latest with the next.
            published = await made.published(made.topics.click_graphs.name)
        assert releases(made, "click_graph_released") == Counter({0: 1, 1: 1, 2: 1})
        assert releases(made, "head_list_released") == Counter({0: 1, 1: 1, 2: 1})
        states = (await made.log_state()).epochs
        failed, after = states[1].click_graph, states[2].click_graph
        assert failed is not None
        assert failed.outcome is EpochOutcome.EMPTY
        assert [reason.value for reason in failed.reasons] == ["draw_failed"]
        assert published[1] == await made.document(failed.document)
        assert after is not None
        assert after.outcome is EpochOutcome.COMPLETE


@pytest.mark.timeout(120)
async def test_running_jobs_outlive_a_failed_draw(kafka, redis_server):
    """One kind's failure is no reason to end the others, nor to draw again at every restart."""
    clock, noise = Clock(), FailingNoise(MemoryError())
    async with (
        epoch_service(kafka.url, redis_server.url) as made,
        bench(made, clock) as hands,
    ):
        await hands.keep()
        await _ready_to_draw(made, hands, 0)
        jobs = await Jobs.connect(
            made.settings, dice=RandomnessSources(noise), now_ms=clock, brokers_ms=clock.brokers_ms
        )
        running = asyncio.create_task(jobs.run())
        await made.until_stage(0, Stage.ABANDONED)
        await _ready_to_draw(made, hands, 1)
        await made.until_stage(1, Stage.REPORTING)
        assert not running.done()
        jobs.stop()
        await running
        await jobs.close()
        assert releases(made, "epoch_abandoned") == Counter({0: 1})
        assert releases(made, "head_list_released") == Counter({1: 1})


@pytest.mark.timeout(120)
async def test_nothing_is_drawn_before_a_failed_draw_is_written_down(
    fault_kafka: LocalKafka, redis_server
):
    """Kafka may be unavailable then; the job remembers the entry that it owes the log."""

    class FailingWithKafka(FailingNoise):
        def discrete_laplace(self, counts: IntArray, *, scale: float) -> IntArray:
            if self.errors:
                fault_kafka.pause()
            return super().discrete_laplace(counts, scale=scale)

    clock, noise = Clock(), FailingWithKafka(MemoryError())
    async with (
        epoch_service(fault_kafka.url, redis_server.url, kafka__request_timeout_s="2") as made,
        bench(made, clock, dice=RandomnessSources(noise)) as jobs,
    ):
        await jobs.keep()
        await _ready_to_draw(made, jobs, 0)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await jobs.run(Kind.HEAD_LISTS)
        assert noise.asked == 1
        fault_kafka.resume()

        async def written() -> bool:
            await jobs.run(Kind.HEAD_LISTS)
            return (await made.log_state()).epochs[0].stage is Stage.ABANDONED

        await made.until(written, 30)
        assert noise.asked == 1
        assert releases(made, "epoch_abandoned") == Counter({0: 1})


@pytest.mark.timeout(120)
async def test_a_draw_that_fails_too_late_leaves_the_release_of_another_job_alone(
    kafka, redis_server
):
    """A paused job wakes up, draws, fails: by then the epoch has its head list."""
    clock, noise = Clock(), FailingNoise(MemoryError())
    async with (
        epoch_service(kafka.url, redis_server.url) as made,
        bench(made, clock, dice=RandomnessSources(noise)) as sleeper,
        bench(made, clock) as other,
    ):
        await other.keep()
        await _ready_to_draw(made, other, 0)
        sleeper.stop_at("head-lists.before_drawing")
        sleeping = asyncio.create_task(sleeper.run(Kind.HEAD_LISTS))
        await asyncio.wait_for(sleeper.stopped.wait(), 30)
        assert await other.take_over(Kind.HEAD_LISTS)
        sleeper.go_on.set()
        with pytest.raises(ReleaseFailed):
            await sleeping
        assert (await made.log_state()).epochs[0].stage is Stage.REPORTING
        assert releases(made, "epoch_abandoned").total() == 0
        await same_bytes_everywhere(made, range(1))


@pytest.mark.timeout(120)
async def test_a_failure_before_drawing_is_tried_again_until_the_deadline(
    kafka, redis_server, tmp_path: Path
):
    """Nothing was drawn, so nothing is lost by trying; and no epoch waits for ever."""
    clock, urls = Clock(), tmp_path / "urls.tsv"
    urls.touch()
    async with epoch_service(
        kafka.url, redis_server.url, click_graph__url_table_file=str(urls), **GRAPHS
    ) as made, bench(made, clock) as jobs:  # fmt: skip
        urls.unlink()
        await jobs.keep()
        await _ready_to_draw(made, jobs, 0)
        for _ in range(2):
            with pytest.raises(FileNotFoundError):
                await jobs.run(Kind.CLICK_GRAPHS)
        assert (await made.log_state()).epochs[0].graph_due
        clock.now_ms += made.settings.epoch.counting_deadline_s * 1000
        with pytest.raises(ReleaseFailed):
            await jobs.run(Kind.CLICK_GRAPHS)
        graph = (await made.log_state()).epochs[0].click_graph
        assert graph is not None
        assert [reason.value for reason in graph.reasons] == ["job_failed"]
        assert releases(made, "click_graph_released") == Counter({0: 1})
