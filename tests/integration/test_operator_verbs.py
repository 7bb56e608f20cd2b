"""The operator's verbs against a real log, Redis and topics; and a click graph end to end."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from functools import partial

import numpy as np
import pytest
from confluent_kafka.admin import AdminClient
from jsonschema import Draft202012Validator

from blendstream.agents.commands.epoch_listing import list_epochs, outcome_text, watch_epochs
from blendstream.agents.commands.epochs import _abandon
from blendstream.agents.commands.ledger import _run as ledger
from blendstream.agents.commands.ledger import show
from blendstream.agents.commands.rebuild import _run as rebuild_verb
from blendstream.agents.commands.rebuild import rebuild
from blendstream.agents.commands.verify import _run as verify
from blendstream.agents.commands.verify import differences
from blendstream.agents.local import LocalRedis
from blendstream.blender.registry import randomizer_for
from blendstream.blender.values.errors import ParameterError
from blendstream.streams.errors import StoreMismatch, StoreUnavailable, TopicMismatch
from blendstream.streams.names import InputStream, OptinSubgroup
from blendstream.streams.releases.compacted_topics import read_publications
from blendstream.streams.releases.entries import EpochOutcome, Kind
from blendstream.streams.releases.epoch_state import Stage
from blendstream.streams.releases.log import Fenced
from tests.service.epochs import EpochService, epoch_service
from tests.service.jobs import Clock, JobBench, bench, count_records, count_reports, some_records
from tests.service.processes import Part
from tests.service.settings import ROOT
from tests.streams.wire.exact_schemas import exact_schema


def verb(made: EpochService, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `blendstream ...` as an operator does."""
    return subprocess.run(
        [sys.executable, "-m", "blendstream.agents.cli", *words],
        cwd=ROOT, env=made.environment(), capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip


@pytest.mark.more
@pytest.mark.timeout(240)
async def test_operators_see_states_and_ledger_can_abandon_verify_and_rebuild(
    kafka, redis_server, capsys: pytest.CaptureFixture[str]
):
    """One service, from open to verified."""
    rng, clock = np.random.default_rng(21), Clock()
    async with epoch_service(kafka.url, redis_server.url) as made, bench(made, clock) as jobs:
        await jobs.keep()
        await count_records(made, 0, some_records(0, rng))
        clock.now_ms = (await made.log_state()).epochs[0].parameters.records_sealable_at_ms
        await jobs.keep()
        assert await jobs.run(Kind.HEAD_LISTS)
        state = (await made.log_state()).epochs[0]
        assert state.head_list is not None
        head_list, _ = await made.head_list(state)
        width = randomizer_for(head_list).cells_per_answer
        await count_reports(made, 0, state.head_list.cells, 500, rng, width)
        await _changed_cells_are_found(made, jobs, width)
        clock.now_ms = state.head_list.reports_until_ms + 360_000
        await jobs.keep()
        assert await jobs.run(Kind.ESTIMATES)
        await jobs.keep()

        shown = await asyncio.to_thread(verb, made, "epochs")
        assert shown.returncode == 0, shown.stderr
        assert "published" in shown.stdout
        assert "complete" in shown.stdout

        await _programs_read_the_same(made, capsys)

        with pytest.raises(ParameterError, match="must be one of the recent epochs"):
            await _abandon(made.settings, 99, "a drill")
        await _nothing_follows_an_abandonment(made, jobs, rng)
        await _abandon(made.settings, 3, "a drill")
        assert (
            "raw data is removed when the epochs before it (2) have ended too"
            in capsys.readouterr().out
        )
        again = await asyncio.to_thread(verb, made, "epochs", "abandon", "0", "--reason", "no")
        assert again.returncode == 1
        assert "already published" in again.stderr

        lines = "\n".join(show(made.settings, await made.log_state(), clock.now_ms))
        assert "replace-one" in lines
        assert "opt-in users: ε=" in lines
        assert "state: running" in lines

        # Verified; then each kind of difference is found.
        await jobs.keep()
        found = await differences(jobs.context)
        # Counts were put in directly, so Redis is ahead of an empty Kafka: that is seen.
        assert found
        assert all("this Redis belongs to another Kafka" in f or "another topic" in f
                   for f in found), found  # fmt: skip
        await jobs.context.publisher.publish(made.topics.estimates.name, 0, b'{"other": "bytes"}')
        assert any("has other bytes" in line for line in await differences(jobs.context))
        estimates = made.topics.estimates.name
        asked = await read_publications(made.settings.kafka, estimates, [1])
        assert asked == {}, "of an old topic only the epochs asked for are held"
        assert not any(
            text in line for line in await differences(jobs.context) for text in ("query 0",)
        )


async def test_a_service_that_never_was_is_refused_and_no_topic_is_made(
    kafka, redis_server, make_settings, name_prefix
):
    """A mistyped prefix made eight topics and showed an empty ledger, as if all were well."""
    settings = make_settings({"kafka.url": kafka.url, "redis.url": redis_server.url})
    for look in (list_epochs, ledger, verify, partial(rebuild_verb, wait_s=1)):
        with pytest.raises(
            TopicMismatch, match=r"\.releases does not exist; correct topics.prefix"
        ):
            await look(settings)
    made = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=10).topics
    assert [name for name in made if name_prefix in name] == []


async def _programs_read_the_same(made: EpochService, capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` of each verb, and the list that is printed again at each change."""
    capsys.readouterr()
    await list_epochs(made.settings, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["epochs"][0]["stage"] == "published"
    assert found["epochs"][0]["outcome"] == "complete"
    assert set(found["waits"]) == {stem.value for stem in InputStream}
    assert "of this period spent" in found["budget"]
    await ledger(made.settings, as_json=True)
    assert json.loads(capsys.readouterr().out)["epochs"][0]["epoch"] == 0
    assert await verify(made.settings, as_json=True) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["agree"]
    assert found["differences"]

    watching = asyncio.create_task(watch_epochs(made.settings))
    seen: list[str] = []
    await made.until(lambda: seen.append(capsys.readouterr().out) or "budget: " in seen[-1], 30)
    watching.cancel()
    assert "published" in seen[-1]


async def _changed_cells_are_found(made: EpochService, jobs: JobBench, width: int) -> None:
    """A hand in Redis, among reports that were counted as sent."""
    cells = jobs.context.tables(InputStream.CLIENT_REPORTS).key(0, 0, "cells")
    held = f"counted 500 reports of {width} cells, the tables hold"
    assert not any(held in line for line in await differences(jobs.context))
    for more in (1, -1):
        await jobs.context.redis.execute_command("BITFIELD", cells, "INCRBY", "i64", "#2", more)
        found = any(
            f"{held} {500 * width + 1}:" in line for line in await differences(jobs.context)
        )
        assert found is (more == 1)


async def _nothing_follows_an_abandonment(
    made: EpochService, jobs: JobBench, rng: np.random.Generator
) -> None:
    """A job that has drawn already does not get its release in any more."""
    await count_records(made, 1, some_records(1, rng))
    jobs.clock.now_ms = (await made.log_state()).epochs[1].parameters.records_sealable_at_ms
    await jobs.keep()
    jobs.stop_at("head-lists.drawn")
    drawing = asyncio.create_task(jobs.run(Kind.HEAD_LISTS))
    await jobs.stopped.wait()
    # The reason may come before the epoch.
    abandoned = await asyncio.to_thread(verb, made, "epochs", "abandon", "--reason", "a drill", "1")
    assert abandoned.returncode == 0, abandoned.stderr
    assert "its raw data is removed within one pass of the jobs" in abandoned.stdout
    assert (await made.log_state()).epochs[1].abandoned == "a drill"
    jobs.go_on.set()
    with pytest.raises(Fenced):
        await drawing
    _, committed = await jobs.context.log.read_all()
    assert ("head_list_released", 1) not in committed


@pytest.mark.timeout(180)
async def test_rebuild_counts_everything_unreleased_again_and_the_workers_go_on(kafka, own_redis):
    """When counts differ, or half a batch stayed in Redis and the partition stands still, Kafka is
    where they come from: with the worker that stopped as with one that somebody restarted."""
    rng, clock = np.random.default_rng(22), Clock()
    origin = str(clock.now_ms // 1000 - 5)
    async with (
        epoch_service(kafka.url, own_redis.url, epoch__origin_unix_s=origin) as made,
        bench(made, clock) as jobs,
    ):
        await jobs.keep()
        state = (await made.log_state()).epochs[0]
        worker = made.start_worker()
        made.send_optin(state, 200, rng)
        await made.until(partial(_counted_as_sent, made), 40)
        assert await differences(jobs.context) == []

        # Somebody's hand in Redis is found, and mended.
        tables = await made.tables(InputStream.OPTIN_RECORDS)
        key = tables.key(0, 0, "S")
        await jobs.context.redis.append(key, b"query\thttps://made-up.example/\t3\n")
        await tables.close()
        assert any("the tables hold 203" in line for line in await differences(jobs.context))
        await rebuild(jobs.context, 60)
        assert await _counted_as_sent(made)
        assert await differences(jobs.context) == []

        # So is a script that failed half-way.
        for restarted in (False, True):
            said = worker.output().count("partition_halted")
            _allow(own_redis, "-append")
            made.send_optin(state, 200, rng)
            await made.until(partial(_said, worker, "partition_halted", said + made.partitions), 40)
            _allow(own_redis, "+append")
            found = await differences(jobs.context)
            assert sum("a script failed half-way" in line for line in found) == made.partitions
            if restarted:
                worker.kill()
                worker = made.start_worker()
                await made.until(partial(_said, worker, "reason=half_applied", made.partitions), 40)
            await rebuild(jobs.context, 60)
            assert await _counted_as_sent(made)
            assert await differences(jobs.context) == []
        # What comes after is counted too.
        made.send_optin(state, 200, rng)
        await made.until(partial(_counted_as_sent, made), 40)


async def _counted_as_sent(made: EpochService) -> bool:
    found = await made.counted(0)
    return all(found[share] == dict(made.sent.get((0, share), {})) for share in OptinSubgroup)


def _said(part: Part, words: str, times: int) -> bool:
    return part.output().count(words) == times


def _allow(redis: LocalRedis, command: str) -> None:
    """Take a command from everybody, so that the script fails at it, or give it back."""
    with redis.client() as client:
        client.execute_command(f"ACL SETUSER default {command}")


@pytest.mark.more
@pytest.mark.timeout(120)
async def test_rebuild_says_when_it_fails_half_way_again_and_when_nobody_counts(kafka, own_redis):
    """Waiting an hour for what cannot come helps nobody."""
    clock = Clock()
    async with epoch_service(kafka.url, own_redis.url) as made, bench(made, clock) as jobs:
        await jobs.keep()
        made.send_raw(InputStream.OPTIN_RECORDS, 0, b"not read by anyone")
        with pytest.raises(StoreUnavailable, match=r"1 are done so far; is `blendstream worker`"):
            await rebuild(jobs.context, 0.1)
        tables = await made.tables(InputStream.OPTIN_RECORDS)

        async def fails_again() -> None:
            await asyncio.sleep(1)
            await jobs.context.redis.hset(tables.key(0, "state"), "applying", 1)

        failing = asyncio.create_task(fails_again())
        with pytest.raises(StoreMismatch, match="failed half-way again: repair Redis"):
            await rebuild(jobs.context, 30)
        await failing
        await tables.close()
        told = await asyncio.to_thread(verb, made, "rebuild", "--help")
        assert "default: 3600" in told.stdout


@pytest.mark.timeout(180)
async def test_a_click_graph_is_released_once_from_its_own_share_before_the_head_list(
    kafka, redis_server
):
    """Its URL table is the last published head list; the first epoch has none and says so."""
    rng, clock = np.random.default_rng(23), Clock()
    async with (
        epoch_service(
            kafka.url, redis_server.url, click_graph__share="0.2", click_graph__epsilon="3",
            click_graph__delta="0.001",
        ) as made,
        bench(made, clock) as jobs,
        bench(made, clock) as other,
    ):  # fmt: skip
        await jobs.keep()
        for epoch in range(2):
            counts = some_records(0, rng)  # The same queries, so that the table knows them.
            counts[OptinSubgroup.GRAPH] = Counter(dict.fromkeys(counts[OptinSubgroup.T], 90))
            await count_records(made, epoch, counts)
            clock.now_ms = (await made.log_state()).epochs[epoch].parameters.records_sealable_at_ms
            await jobs.keep()
            assert not await jobs.run(Kind.HEAD_LISTS), "the head list must wait for the graph"
            results = await asyncio.gather(
                jobs.run(Kind.CLICK_GRAPHS), other.run(Kind.CLICK_GRAPHS), return_exceptions=True
            )
            assert True in results
            assert await jobs.run(Kind.HEAD_LISTS)
        log_state = await made.log_state()
        first, second = log_state.epochs[0].click_graph, log_state.epochs[1].click_graph
        assert first is not None
        assert second is not None
        assert first.outcome is EpochOutcome.EMPTY
        assert [r.value for r in first.reasons] == ["no_url_table"]
        assert second.outcome is EpochOutcome.COMPLETE
        graph = json.loads(await made.document(second.document))
        Draft202012Validator(exact_schema("click-graph")).validate(graph)
        assert len(graph["queries"]) >= 8
        assert all(query["clicks"] for query in graph["queries"])
        assert graph["privacy"]["charged"]["epsilon"] == 6.0
        assert log_state.epochs[0].parameters.charge.optin.epsilon == 6.0
        published = await made.published(made.topics.click_graphs.name)
        assert published[1] == await made.document(second.document)
        assert log_state.epochs[1].stage is Stage.REPORTING
        assert outcome_text(log_state.epochs[0]) == "-; click graph empty (no_url_table)"
        assert outcome_text(log_state.epochs[1]) == "-; click graph complete"
