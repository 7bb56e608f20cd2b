"""One release each, the same bytes wherever read, whatever happens to the jobs meanwhile.

Not a failure: a draw that was thrown away before anyone could see it; a job that gives way.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from blendstream.agents.jobs.release_failures import ReleaseFailed
from blendstream.blender.values.errors import HeadListMismatch
from blendstream.streams.errors import StoreMismatch, StoreUnavailable
from blendstream.streams.kafka.topics import ensure_topics
from blendstream.streams.names import InputStream, OptinSubgroup
from blendstream.streams.releases import entries
from blendstream.streams.releases.entries import EpochOutcome, Kind
from blendstream.streams.releases.epoch_state import Stage
from blendstream.streams.releases.log import CommitRefused, Fenced
from tests.service.epochs import EpochService, epoch_service
from tests.service.jobs import (
    JOBS,
    Clock,
    JobBench,
    bench,
    count_records,
    count_reports,
    some_records,
    url_table,
    with_graph,
)
from tests.service.released import RELEASES, STEPS, all_entries, releases, same_bytes_everywhere
from tests.service.settings import GRAPHS

HOUR_MS = 3_600_000


@pytest.mark.timeout(180)
async def test_a_job_paused_at_any_step_wakes_up_to_find_itself_replaced(
    kafka, redis_server, thorough: bool, tmp_path: Path
):
    """Another job takes over meanwhile; every kind of release. Here it is seen what each of the two
    is told; test_release_processes.py does the same to real processes, at every step."""
    rng, clock = np.random.default_rng(3), Clock()
    steps = STEPS if thorough else ("committed",)
    async with (
        epoch_service(kafka.url, redis_server.url, **GRAPHS, **url_table(tmp_path)) as made,
        bench(made, clock) as sleeper,
        bench(made, clock) as other,
    ):
        await other.keep()
        for epoch, step in enumerate(steps):
            await count_records(made, epoch, with_graph(some_records(epoch, rng)))
            state = (await made.log_state()).epochs[epoch]
            clock.now_ms = state.parameters.records_sealable_at_ms
            await other.keep()
            await _paused_and_replaced(sleeper, other, Kind.CLICK_GRAPHS, step)
            await _paused_and_replaced(sleeper, other, Kind.HEAD_LISTS, step)
            state = await made.until_stage(epoch, Stage.REPORTING)

            await count_reports(made, epoch, state.head_list.cells, 500, rng)
            clock.now_ms = state.head_list.reports_until_ms + 3_600_000 // 10
            await other.keep()
            await _paused_and_replaced(sleeper, other, Kind.ESTIMATES, step)
            await made.until_stage(epoch, Stage.PUBLISHED)

        everyone = Counter(dict.fromkeys(range(len(steps)), 1))
        for name in RELEASES:
            assert releases(made, name) == everyone, name
        await same_bytes_everywhere(made, range(len(steps)))


async def _paused_and_replaced(sleeper: JobBench, other: JobBench, kind: Kind, step: str) -> None:
    sleeper.stop_at(f"{kind.value}.{step}")
    sleeping = asyncio.create_task(sleeper.run(kind))
    await asyncio.wait_for(sleeper.stopped.wait(), 30)
    worked = await other.take_over(kind)
    sleeper.go_on.set()
    if step in ("committed", "published"):
        assert not worked, "what was committed was released again"
        assert await sleeping
    else:
        assert worked
        with pytest.raises(Fenced):
            await sleeping


@pytest.mark.timeout(120)
async def test_two_jobs_racing_release_once(kafka, redis_server, tmp_path: Path):
    """Both read, both may draw; one commits."""
    rng, clock = np.random.default_rng(4), Clock()
    async with (
        epoch_service(kafka.url, redis_server.url, **GRAPHS, **url_table(tmp_path)) as made,
        bench(made, clock) as one,
        bench(made, clock) as two,
    ):
        await one.keep()
        for epoch in range(2):
            await count_records(made, epoch, with_graph(some_records(epoch, rng)))
            state = (await made.log_state()).epochs[epoch]
            clock.now_ms = state.parameters.records_sealable_at_ms
            # The keepers race too.
            await asyncio.gather(one.keep(), two.keep(), return_exceptions=True)
            await one.keep()
            await _race(one, two, Kind.CLICK_GRAPHS)
            graph = (await made.log_state()).epochs[epoch].click_graph
            assert graph is not None
            assert graph.outcome is EpochOutcome.COMPLETE
            await _race(one, two, Kind.HEAD_LISTS)
            state = await made.until_stage(epoch, Stage.REPORTING, timeout_s=10)
            assert state.head_list is not None
            await count_reports(made, epoch, state.head_list.cells, 500, rng)
            clock.now_ms = state.head_list.reports_until_ms + HOUR_MS // 10
            await one.keep()
            await _race(one, two, Kind.ESTIMATES)
            await made.until_stage(epoch, Stage.PUBLISHED, timeout_s=10)
        for name in ("epoch_opened", "records_sealed", *RELEASES):
            found = releases(made, name)
            assert all(found[epoch] == 1 for epoch in range(2)), name
        await same_bytes_everywhere(made, range(2))


async def _race(one: JobBench, two: JobBench, kind: Kind) -> None:
    results = await asyncio.gather(one.run(kind), two.run(kind), return_exceptions=True)
    # Fenced while starting, sending or committing: each says so in its own words.
    assert all(isinstance(r, bool | StoreUnavailable) for r in results), results
    await one.run(kind)  # Both may have given way to each other.


@pytest.mark.more
@pytest.mark.timeout(120)
async def test_jobs_that_were_down_for_three_epochs_catch_up_in_order(kafka, redis_server):
    """Epochs were open ahead, so records went on being accepted and counted."""
    rng, clock = np.random.default_rng(5), Clock()
    async with (
        epoch_service(kafka.url, redis_server.url, epoch__epochs_ahead="3") as made,
        bench(made, clock) as jobs,
    ):
        await jobs.keep()
        log_state = await made.log_state()
        assert sorted(log_state.epochs) == [0, 1, 2, 3]
        for epoch in range(3):
            await count_records(made, epoch, some_records(epoch, rng))
        clock.now_ms = log_state.epochs[2].parameters.records_sealable_at_ms
        await jobs.keep()
        for _ in range(3):
            assert await jobs.run(Kind.HEAD_LISTS)
        assert not await jobs.run(Kind.HEAD_LISTS)
        clock.now_ms += 3 * HOUR_MS
        await jobs.keep()
        for _ in range(3):
            assert await jobs.run(Kind.ESTIMATES)
        order = [e["epoch"] for e in all_entries(made) if e["entry"] == "estimate_released"]
        assert order == [0, 1, 2]
        # The topic of estimates has every epoch, though each was published once, in passing.
        await same_bytes_everywhere(made, range(3))


@pytest.mark.timeout(120)
async def test_a_head_list_of_several_megabytes_is_released_and_read_whole(kafka, redis_server):
    """Records with long URLs, more than fit into one Kafka record however well they compress."""
    clock = Clock()
    async with epoch_service(kafka.url, redis_server.url) as made, bench(made, clock) as jobs:
        await jobs.keep()
        texts = [b"q%d\thttps://%s.example/" % (n, secrets.token_hex(450).encode())
                 for n in range(4000)]  # fmt: skip
        counts = Counter(dict.fromkeys(texts, 60))
        await count_records(
            made, 0, {OptinSubgroup.S: counts, OptinSubgroup.T: Counter(texts[:50])}
        )
        clock.now_ms = (await made.log_state()).epochs[0].parameters.records_sealable_at_ms
        await jobs.keep()
        assert await jobs.run(Kind.HEAD_LISTS)
        state = await made.until_stage(0, Stage.REPORTING)
        assert state.head_list is not None
        assert state.head_list.head_list.parts >= 3
        head_list, head_list_id = await made.head_list(state)
        assert len(head_list.records) > 3900
        assert (await made.published(made.topics.head_lists.name))[0] == await made.document(
            state.head_list.head_list
        )
        assert head_list_id == state.head_list.head_list.id


@pytest.mark.timeout(120)
async def test_changed_settings_leave_open_epochs_as_they_were(kafka, redis_server):
    """Devices and gateways have the old ones; the next epoch has the new."""
    rng, clock = np.random.default_rng(6), Clock()
    async with epoch_service(kafka.url, redis_server.url) as made:
        async with bench(made, clock) as before:
            await before.keep()
        await count_records(made, 0, some_records(0, rng))
        opened = (await made.log_state()).epochs[0].parameters
        made.change(privacy__epsilon="2", privacy__head_list_cells="4", epoch__window_s="7200")
        async with bench(made, clock) as after:
            clock.now_ms = opened.records_sealable_at_ms
            await after.keep()
            assert await after.run(Kind.HEAD_LISTS)
        log_state = await made.log_state()
        assert log_state.epochs[0].parameters == opened
        head_list, _ = await made.head_list(log_state.epochs[0])
        assert head_list.randomizer.epsilon == 4.0
        assert head_list.listed == 10
        newest = log_state.epochs[max(log_state.epochs)].parameters
        assert newest.plan.privacy.epsilon == 2.0
        assert newest.window_ms == 2 * HOUR_MS
        assert (
            newest.window_start_ms
            == log_state.epochs[max(log_state.epochs) - 1].parameters.window_end_ms
        )


@pytest.mark.more
@pytest.mark.timeout(120)
async def test_jobs_of_two_versions_side_by_side_release_once(kafka, redis_server):
    """In the middle of an upgrade. Both open, seal and release; each follows the log.

    The newer one opens epochs by other terms, and writes what the older one passes over. Once it
    states a term of privacy that the older one does not know, the older one stops there.
    """
    rng, clock = np.random.default_rng(9), Clock()
    async with epoch_service(kafka.url, redis_server.url) as made, bench(made, clock) as older:
        await older.keep()
        made.change(privacy__epsilon="2", privacy__head_list_cells="4")
        async with bench(made, clock) as newer:
            _append(made, {"entry": "new to the older one", "epoch": 0})
            for epoch in range(3):
                await count_records(made, epoch, some_records(epoch, rng))
                opened = (await made.log_state()).epochs[epoch].parameters
                clock.now_ms = opened.records_sealable_at_ms
                await asyncio.gather(older.keep(), newer.keep(), return_exceptions=True)
                await newer.keep()
                await _race(older, newer, Kind.HEAD_LISTS)
                state = await made.until_stage(epoch, Stage.REPORTING, timeout_s=10)
                assert state.head_list is not None
                await count_reports(made, epoch, state.head_list.cells, 500, rng)
                clock.now_ms = state.head_list.reports_until_ms + HOUR_MS // 10
                await newer.keep()
                await _race(older, newer, Kind.ESTIMATES)
                state = await made.until_stage(epoch, Stage.PUBLISHED, timeout_s=10)
                assert state.parameters == opened
                head_list, _ = await made.head_list(state)
                assert head_list.randomizer.epsilon == opened.plan.privacy.epsilon
            before = all_entries(made)
            opening = [entry for entry in before if entry["entry"] == "epoch_opened"]
            for name in ("head_list_released", "estimate_released"):
                assert releases(made, name) == Counter(range(3))
            assert len({entry["epoch"] for entry in opening}) == len(opening)
            assert {entry["privacy"]["epsilon"] for entry in opening} == {4.0, 2.0}
            await same_bytes_everywhere(made, range(3))

            last = opening[-1]
            _append(
                made,
                {**last, "epoch": last["epoch"] + 1, "privacy": {**last["privacy"], "novel": 1}},
            )
            clock.now_ms += 10 * HOUR_MS
            drawn = len(older.steps)
            for work in (older.keep, *(partial(older.run, kind) for kind in JOBS)):
                with pytest.raises(StoreMismatch, match="upgrade this process"):
                    await work()
            assert not [step for step in older.steps[drawn:] if step.endswith("drawn")]


def _append(made: EpochService, entry: dict) -> None:
    """A committed record of another version."""
    producer = Producer({"bootstrap.servers": made.settings.kafka.bootstrap, "acks": "all"})
    producer.produce(
        made.topics.releases.name, entries.encode([entry]), key=entries.ENTRY_KEY, partition=0
    )
    assert producer.flush(10) == 0


@pytest.mark.more
@pytest.mark.timeout(120)
async def test_jobs_stop_at_epochs_that_are_open_in_other_topics(kafka, redis_server):
    """An epoch's entries stay in the topics it was opened with: in others nothing of it would be
    counted, and it would be published as if few had taken part."""
    clock = Clock()
    async with epoch_service(kafka.url, redis_server.url) as made:
        async with bench(made, clock) as before:
            await before.keep()
        made.change(topics__partitions="4", topics__version="2")
        made.topics = await ensure_topics(made.settings, made.kafka)
        opened = (await made.log_state()).epochs
        clock.now_ms = max(s.parameters.records_sealable_at_ms for s in opened.values())
        async with bench(made, clock) as after:
            for work in (after.keep, *(partial(after.run, kind) for kind in JOBS)):
                with pytest.raises(StoreMismatch, match="are open in topics of version 1 with 2"):
                    await work()
            assert (await made.log_state()).epochs == opened, "nothing was sealed or released"
            async with after.context.log.fenced_session(Kind.OPERATOR) as session:
                await session.commit(
                    [entries.epoch_abandoned(e, "more partitions") for e in opened]
                )
            await after.keep()
            state = (await made.log_state()).last
            assert state is not None
            plan = state.parameters.plan
            assert (plan.topic_version, plan.optin_partitions) == (2, 4)
            assert state.stage is Stage.COLLECTING


@pytest.mark.timeout(120)
async def test_too_little_data_is_published_empty_and_an_abandoned_epoch_is_not(
    kafka, redis_server
):
    """Both end; the service goes on."""
    rng, clock = np.random.default_rng(8), Clock()
    async with epoch_service(kafka.url, redis_server.url) as made, bench(made, clock) as jobs:
        await jobs.keep()
        few = {OptinSubgroup.S: Counter({b"q\tu": 5}), OptinSubgroup.T: Counter()}
        await count_records(made, 0, few)
        clock.now_ms = (await made.log_state()).epochs[0].parameters.records_sealable_at_ms
        await jobs.keep()
        assert await jobs.run(Kind.HEAD_LISTS)
        state = (await made.log_state()).epochs[0]
        assert state.estimates is not None
        assert state.estimates.outcome is EpochOutcome.EMPTY
        assert [r.value for r in state.estimates.reasons] == ["too_few_optin_users"]

        await count_records(made, 1, some_records(1, rng))
        clock.now_ms = (await made.log_state()).epochs[1].parameters.records_sealable_at_ms
        await jobs.keep()
        async with jobs.context.log.fenced_session(Kind.OPERATOR) as session:
            await session.commit([entries.epoch_abandoned(1, "a drill")])
        assert not await jobs.run(Kind.HEAD_LISTS)
        await jobs.keep()
        assert (await made.log_state()).epochs[1].stage is Stage.ABANDONED
        assert not any(b":1:S" in key for key in await made.redis_keys())


@pytest.mark.timeout(120)
async def test_the_limit_pauses_the_service_and_the_next_period_resumes_it(kafka, redis_server):
    """Nothing opens, nothing is released, and the log has the time of resumption."""
    clock = Clock()
    period_s = 6 * 3600
    clock.now_ms = clock.now_ms // (period_s * 1000) * period_s * 1000 + 1_000
    async with (
        epoch_service(
            kafka.url, redis_server.url, budget__period_s=str(period_s),
            budget__optin_epsilon_limit="8", budget__client_epsilon_limit="8",
        ) as made,
        bench(made, clock) as jobs,
    ):  # fmt: skip
        await jobs.keep()
        for _ in range(4):
            clock.now_ms += HOUR_MS
            await jobs.keep()
        log_state = await made.log_state()
        assert sorted(log_state.epochs) == [0, 1]
        notice = log_state.paused_at(clock.now_ms)
        assert notice is not None
        assert notice.resumes_at_ms % (period_s * 1000) == 0
        assert "budget of this period is spent" in notice.reason
        assert releases(made, "service_paused").total() == 1

        clock.now_ms = notice.resumes_at_ms
        await jobs.keep()
        log_state = await made.log_state()
        assert log_state.epochs[2].parameters.window_start_ms == notice.resumes_at_ms
        assert log_state.paused_at(clock.now_ms) is None


@pytest.mark.timeout(120)
async def test_a_release_that_the_broker_refuses_for_good_stops_the_epoch(kafka, redis_server):
    """Drawing again until one is accepted would make the release depend on the draw."""
    clock = Clock()
    async with epoch_service(kafka.url, redis_server.url) as made, bench(made, clock) as jobs:
        await jobs.keep()
        texts = [
            b"q%d\thttps://%s.example/" % (n, secrets.token_hex(60).encode()) for n in range(90)
        ]
        await count_records(
            made,
            0,
            {OptinSubgroup.S: Counter(dict.fromkeys(texts, 60)), OptinSubgroup.T: Counter()},
        )
        clock.now_ms = (await made.log_state()).epochs[0].parameters.records_sealable_at_ms
        await jobs.keep()
        _limit_record_size(made, "1000")
        with pytest.raises(ReleaseFailed) as failed:
            await jobs.run(Kind.HEAD_LISTS)
        assert isinstance(failed.value.__cause__, CommitRefused)
        assert jobs.steps.count("head-lists.drawn") == 1
        assert (await made.log_state()).epochs[0].stage is Stage.ABANDONED
        _limit_record_size(made, "1048588")
        assert not await jobs.run(Kind.HEAD_LISTS)
        assert jobs.steps.count("head-lists.drawn") == 1
        assert releases(made, "head_list_released").total() == 0


@pytest.mark.more
@pytest.mark.timeout(120)
async def test_counts_that_do_not_fit_the_head_list_can_be_mended_until_a_deadline(
    kafka, redis_server
):
    """No honest counter makes them; somebody's hand in Redis may. No epoch waits for ever."""
    rng, clock = np.random.default_rng(9), Clock()
    async with epoch_service(kafka.url, redis_server.url) as made, bench(made, clock) as jobs:
        await jobs.keep()
        for epoch in range(2):
            await count_records(made, epoch, some_records(epoch, rng))
        clock.now_ms = (await made.log_state()).epochs[1].parameters.records_sealable_at_ms
        await jobs.keep()
        key = (await made.tables(InputStream.CLIENT_REPORTS)).key
        for epoch in range(2):
            assert await jobs.run(Kind.HEAD_LISTS)
            state = await made.until_stage(epoch, Stage.REPORTING)
            assert state.head_list is not None
            await count_reports(made, epoch, state.head_list.cells, 500, rng)
            # One device more than there are answers.
            await jobs.context.redis.hincrby(key(0, epoch, "totals"), "counted", 1)
        clock.now_ms = state.head_list.reports_until_ms + HOUR_MS // 10
        await jobs.keep()
        with pytest.raises(HeadListMismatch):
            await jobs.run(Kind.ESTIMATES)
        assert (await made.log_state()).epochs[0].stage is Stage.REPORTS_SEALED
        await jobs.context.redis.hincrby(key(0, 0, "totals"), "counted", -1)
        assert await jobs.run(Kind.ESTIMATES), "mended in time"
        with pytest.raises(HeadListMismatch):
            await jobs.run(Kind.ESTIMATES)
        assert (await made.log_state()).epochs[1].stage is Stage.REPORTS_SEALED

        clock.now_ms += made.settings.epoch.counting_deadline_s * 1000
        with pytest.raises(ReleaseFailed) as failed:
            await jobs.run(Kind.ESTIMATES)
        assert isinstance(failed.value.__cause__, HeadListMismatch)
        state = (await made.log_state()).epochs[1]
        assert state.stage is Stage.ABANDONED
        assert "failed until the deadline" in (state.abandoned or "")
        assert not await jobs.run(Kind.ESTIMATES), "the job goes on to the next epoch"
        assert releases(made, "estimate_released") == Counter({0: 1})
        await jobs.keep()
        assert not any(b":1:cells" in key for key in await made.redis_keys())


def _limit_record_size(made: EpochService, most: str) -> None:
    """Set the maximum record size of the log's topic, as an operator might by mistake."""
    admin = AdminClient({"bootstrap.servers": made.settings.kafka.bootstrap})
    entry = ConfigEntry("max.message.bytes", most, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(
        ConfigResource.Type.TOPIC, made.topics.releases.name, incremental_configs=[entry]
    )
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(10)
