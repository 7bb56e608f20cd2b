"""Brokers, Redis and whole processes going away in the middle of a release: still one release."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from blendstream.agents.jobs.click_graphs import mechanism_parameters, read_url_table
from blendstream.agents.jobs.job_context import RandomnessSources
from blendstream.agents.local import LocalKafka
from blendstream.agents.local.ports import free_port
from blendstream.blender.paper.click_graph import release_data
from blendstream.blender.profiles import build_head_list
from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.names import InputStream, OptinSubgroup
from blendstream.streams.releases.entries import Kind
from blendstream.streams.releases.epoch_state import ReleasedDocument, ReleaseLogState, Stage
from blendstream.streams.releases.log import CommitInDoubt
from blendstream.streams.settings import Settings
from blendstream.streams.wire.estimates_document import EstimatesDocument
from tests.doubles_jobs import RepeatableNoise
from tests.faults.tcp_proxy import CuttingProxy
from tests.service.epochs import EpochService, epoch_service, optin_counts
from tests.service.jobs import (
    Clock,
    JobBench,
    bench,
    count_records,
    count_reports,
    some_records,
    url_table,
    with_graph,
)
from tests.service.released import RELEASES, releases, same_bytes_everywhere
from tests.service.settings import GRAPHS

#: In the order in which an epoch owes them.
RELEASED = (Kind.CLICK_GRAPHS, Kind.HEAD_LISTS, Kind.ESTIMATES)


@pytest.mark.more
@pytest.mark.timeout(240)
async def test_a_lost_commit_reply_is_found_in_the_log_and_not_drawn_again(
    redis_server, thorough: bool, tmp_path: Path
):
    """The broker committed and the response was lost: the job discards the draw, the log decides.

    Every kind of release in `make chaos`, the head list before that.
    """
    lost = RELEASED if thorough else (Kind.HEAD_LISTS,)
    clock = Clock()
    proxy = CuttingProxy()
    # The ports must be known before the broker starts: it is told where to say it listens.
    port, controller = free_port(), free_port()
    options = dict(proxy.broker_options(port, controller))
    options["controller.quorum.voters"] = f"1@127.0.0.1:{controller}"
    with LocalKafkaOn(port, controller, options) as broker:
        async with epoch_service(
            broker.url, redis_server.url, **GRAPHS, **url_table(tmp_path)
        ) as made:
            values = made.values | {
                "kafka.url": f"kafka://127.0.0.1:{proxy.port}", "kafka.request_timeout_s": "3",
            }  # fmt: skip
            async with (
                bench(made, clock) as direct,
                bench(made, clock, settings=Settings.from_values(values)) as proxied,
            ):
                await direct.keep()
                for kind in RELEASED:
                    await _make_due(made, direct, kind)
                    if kind not in lost:
                        await _all_done(made, proxied, kind)
                        continue
                    await proxied.context.log.catch_up()
                    proxy.arm()
                    with pytest.raises(CommitInDoubt):
                        await proxied.run(kind)
                    assert proxy.cut.is_set()
                    proxy.mend()
                    await _all_done(made, proxied, kind)
                    assert proxied.steps.count(f"{kind.value}.drawn") == 1
            await _one_of_each(made)
    proxy.close()


@pytest.mark.more
@pytest.mark.timeout(240)
async def test_a_broker_restarted_in_the_middle_of_a_commit_leaves_one_release(
    fault_kafka, redis_server, thorough: bool, tmp_path: Path
):
    """Killed between send and commit; the transaction ends one way or the other.

    Every kind of release in `make chaos`, the head list before that.
    """
    disturbed = RELEASED if thorough else (Kind.HEAD_LISTS,)
    clock = Clock()
    async with (
        epoch_service(fault_kafka.url, redis_server.url, **GRAPHS, **url_table(tmp_path)) as made,
        bench(made, clock) as jobs,
    ):
        await jobs.keep()
        for kind in RELEASED:
            await _make_due(made, jobs, kind)
            if kind not in disturbed:
                await _all_done(made, jobs, kind)
                continue
            jobs.stop_at(f"{kind.value}.sent")
            task = asyncio.create_task(jobs.run(kind))
            await asyncio.wait_for(jobs.stopped.wait(), 30)
            await asyncio.to_thread(fault_kafka.kill)
            jobs.go_on.set()
            await asyncio.sleep(0.5)
            await asyncio.to_thread(fault_kafka.start)
            with_or_without = await asyncio.gather(task, return_exceptions=True)
            assert isinstance(with_or_without[0], bool | StoreUnavailable), with_or_without
            await _all_done(made, jobs, kind)
        await _one_of_each(made)


async def _make_due(made: EpochService, jobs: JobBench, kind: Kind) -> None:
    """All that epoch 0 needs for this kind of release."""
    rng = np.random.default_rng(12)
    log_state: ReleaseLogState = await made.until(
        made.log_state
    )  # The broker may just have come back.
    state = log_state.epochs[0]
    if kind is Kind.CLICK_GRAPHS:
        await count_records(made, 0, with_graph(some_records(0, rng)))
        jobs.clock.now_ms = state.parameters.records_sealable_at_ms
    elif kind is Kind.ESTIMATES:
        assert state.head_list is not None
        await count_reports(made, 0, state.head_list.cells, 500, rng)
        jobs.clock.now_ms = state.head_list.reports_until_ms + 360_000
    await jobs.keep()


async def _all_done(made: EpochService, jobs: JobBench, kind: Kind) -> None:
    """Do what a job does whose server may just have come back, until nothing is left to do."""

    async def nothing_left() -> bool:
        return not await jobs.take_over(kind)

    await made.until(nothing_left, 60, f"the end of {kind.value}")


async def _one_of_each(made: EpochService) -> None:
    """Epoch 0 has one release of every kind, and every reader reads the same."""
    await made.until_stage(0, Stage.PUBLISHED)
    for name in RELEASES:
        assert releases(made, name) == Counter({0: 1}), name
    await same_bytes_everywhere(made, range(1))


@pytest.mark.timeout(240)
async def test_redis_flushed_or_rolled_back_at_each_state_changes_nothing_that_is_published(
    kafka, single_redis, tmp_path: Path
):
    """Counts come from Kafka, states from the log; the publication is the undisturbed one."""
    rng, clock = np.random.default_rng(14), Clock()
    origin = int(time.time()) - 5
    dice = RandomnessSources(RepeatableNoise(5), lambda: np.random.default_rng(5))
    urls = tmp_path / "urls.tsv"
    urls.write_text("".join(f"query 0 {n:03}\thttps://site-{n:03}.example/0\n" for n in range(41)))
    async with (
        epoch_service(
            kafka.url,
            single_redis.url,
            epoch__origin_unix_s=str(origin),
            click_graph__url_table_file=str(urls),
            **GRAPHS,
        ) as made,
        bench(made, clock, dice=dice) as jobs,
    ):
        made.start_worker()
        await jobs.keep()
        state = (await made.log_state()).epochs[0]
        made.send_optin(state, 400, rng)
        await _counted(made, InputStream.OPTIN_RECORDS)
        early = await asyncio.to_thread(single_redis.snapshot)
        made.send_optin(state, 400, rng)
        await _counted(made, InputStream.OPTIN_RECORDS)

        # Collecting: rolled back to before half of it was counted.
        await asyncio.to_thread(single_redis.rollback, early)
        await _counted(made, InputStream.OPTIN_RECORDS)
        clock.now_ms = state.parameters.records_sealable_at_ms
        await jobs.keep()

        # Sealed: flushed whole, before the click graph and before the head list.
        await made.flush_redis()
        await _click_graph_is_what_was_sent(made, jobs, urls)
        await made.flush_redis()
        head_list = await _until_released(made, jobs, Kind.HEAD_LISTS, Stage.REPORTING)
        expected = build_head_list(
            "sharp", optin_counts(made, 0), state.parameters.plan.privacy, RepeatableNoise(5)
        )
        assert head_list == expected.head_list

        # Reporting: rolled back to a state that still has the raw counts of the epoch.
        state = (await made.log_state()).epochs[0]
        assert state.head_list is not None
        made.send_reports(state, head_list, 600, rng)
        await _counted(made, InputStream.CLIENT_REPORTS)
        await asyncio.to_thread(single_redis.rollback, early)
        await _counted(made, InputStream.CLIENT_REPORTS)
        await jobs.keep()
        held = b"".join(k + v for k, v in (await made.redis_keys()).items())
        assert not any(text.encode() in held for text in made.texts), "raw counts came back"

        # Reports sealed: flushed whole.
        clock.now_ms = state.head_list.reports_until_ms + 120_000
        await jobs.keep()
        await made.flush_redis()
        await _until_released(made, jobs, Kind.ESTIMATES, Stage.PUBLISHED)
        state = (await made.log_state()).epochs[0]
        assert state.estimates is not None
        document = EstimatesDocument.from_bytes(await made.document(state.estimates.document))
        assert document.participants.clients == 600
        assert document.outcome == "complete"

        # Published: flushed, and rolled back once more.
        await made.flush_redis()
        await asyncio.to_thread(single_redis.rollback, early)
        await jobs.keep()
        await same_bytes_everywhere(made, range(1))
        for name in RELEASES:
            assert releases(made, name) == Counter({0: 1}), name
        held = b"".join(k + v for k, v in (await made.redis_keys()).items())
        assert not any(text.encode() in held for text in made.texts), "raw counts came back"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("hung", [pytest.param("kafka", marks=pytest.mark.more), "redis"])
async def test_a_stop_ends_within_its_deadline_with_a_server_hung(
    request: pytest.FixtureRequest, hung: str
):
    """An operator's SIGTERM must not wait for a server that will never answer."""
    kafka = request.getfixturevalue("own_kafka" if hung == "kafka" else "kafka")
    redis = request.getfixturevalue("own_redis" if hung == "redis" else "redis_server")
    server = kafka if hung == "kafka" else redis
    async with epoch_service(kafka.url, redis.url, jobs__stop_deadline_s="4") as made:
        jobs = made.start_jobs()
        await made.until_stage(0, Stage.COLLECTING, timeout_s=40)
        server.pause()
        try:
            await asyncio.sleep(1)
            jobs.terminate()
            # The deadline, and what a busy machine needs to notice.
            await asyncio.to_thread(jobs.wait, 4 + 6)
        finally:
            server.resume()


class LocalKafkaOn(LocalKafka):
    """A broker whose ports are chosen before it starts."""

    def __init__(self, port: int, controller: int, options: dict[str, str]) -> None:
        self._chosen = port, controller
        super().__init__(options=options)

    def _prepare(self) -> None:
        self.port, self._controller_port = self._chosen
        super()._prepare()


async def _click_graph_is_what_was_sent(made: EpochService, jobs: JobBench, urls: Path) -> None:
    """Check that the release is what `blender` draws from the sent records, with the same noise."""

    async def released() -> ReleasedDocument | None:
        await jobs.run(Kind.CLICK_GRAPHS)
        return (await made.log_state()).epochs[0].click_graph

    graph: ReleasedDocument = await made.until(released, 40)
    document = json.loads(await made.document(graph.document))
    sent = made.sent[0, OptinSubgroup.GRAPH]
    assert document["participants"] == sent.total()
    clicks = {record: sent[record] for record in sorted(sent)}
    queries: Counter[str] = Counter()
    for record, n in clicks.items():
        queries[record.query] += n
    parameters = mechanism_parameters((await made.log_state()).epochs[0])
    drawn = release_data(queries, clicks, read_url_table(urls), parameters, RepeatableNoise(5))
    assert drawn.queries
    assert {row["query"]: row["count"] for row in document["queries"]} == drawn.queries


async def _counted(made: EpochService, stem: InputStream) -> None:
    tables = await made.tables(stem)

    async def caught_up() -> bool:
        ends = await made.kafka.ends(made.topics.of(stem).name, range(made.partitions))
        for partition, end in ends.items():
            if end and (await tables.stored_state(partition)).offset != end:
                return False
        return True

    await made.until(caught_up, 40, f"the end of {stem}")
    await tables.close()


async def _until_released(made: EpochService, jobs, kind: Kind, stage: Stage):
    async def released() -> bool:
        await jobs.run(kind)
        return (await made.log_state()).epochs[0].stage is stage

    await made.until(released, 40)
    return (await made.head_list((await made.log_state()).epochs[0]))[0]
