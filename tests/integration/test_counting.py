"""The plain path through the real broker, the real worker process and the real Redis."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from aiokafka.cluster import ClusterMetadata
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource
from faust.assignor.partition_assignor import PartitionAssignor

from blendstream.agents.local.ports import free_port
from blendstream.agents.process import warn_of_risks
from blendstream.agents.worker.counting_process import Worker
from blendstream.streams.errors import StoreMismatch, StoreUnavailable, TopicMismatch
from blendstream.streams.kafka.topics import ensure_topics
from blendstream.streams.names import InputStream
from blendstream.streams.settings import Settings
from blendstream.streams.tables.batch_verdict import Refusal
from blendstream.streams.tables.redis import check_redis, connect_redis
from blendstream.streams.wire.frames import OptinEntry, encode_optin_records
from tests.kafka_topics import create_topic
from tests.service.counting import Installation, contributors, installation, optin_entries
from tests.service.settings import ROOT

if TYPE_CHECKING:
    from blendstream.agents.local import GivenServer, LocalKafka, LocalRedis

OPTIN, REPORTS = InputStream.OPTIN_RECORDS, InputStream.CLIENT_REPORTS


@pytest.fixture
async def made(
    kafka: LocalKafka | GivenServer, redis_server: LocalRedis | GivenServer, name_prefix: str
) -> AsyncIterator[Installation]:
    async with installation(kafka.url, redis_server.url, name_prefix) as it:
        yield it


async def test_every_entry_ends_in_exactly_one_place_and_none_is_told(made: Installation) -> None:
    """Counts, refusals, metrics and dead letters of one run; and nothing sent is in any of its
    logs, metrics or letters."""
    rng = np.random.default_rng(1)
    made.open_epoch(1)
    made.open_epoch(2, records_per_user=3)
    made.publish_head_list(1, cells=300, w=3, answers=2)
    for partition in range(made.partitions):
        for _ in range(5):
            keys = contributors(rng, 100)
            made.send_reports(1, partition, keys, rng)
            made.send_reports(1, partition, keys[:10], rng)
            for slot in (1, 0, 3):
                entries = optin_entries(rng, keys[:50], slot=slot, distinct=4)
                made.send_records(2, partition, entries)
    secret = OptinEntry(bytes(16), 0, b"a very private query\x00", b"https://private.example/")
    made.send(OPTIN, 0, encode_optin_records(2, [secret], log_position=1))
    made.expect_refused(OPTIN, 2, Refusal.MALFORMED)
    made.flush()
    worker = made.start_worker()
    await made.until_counted()
    await made.assert_exact()
    await made.until(lambda: made.ready(worker), 10, "readiness")
    refused = 'blender_optin_records_refused_total{partition="0",reason="malformed"} 1.0'
    await made.until(lambda: _in_metrics(made, worker, refused), 10, "the refusal's metric")

    letters = await asyncio.to_thread(_dead_letters, made)
    assert [json.loads(letter) for letter in letters] == [
        {"topic": made.topics.optin_records.name, "partition": 0, "offset": 15, "entry": 0,
         "reason": "malformed", "lengths": [21, 24]}
    ]  # fmt: skip
    _, metrics = await made.get(worker, "/metrics")
    assert worker.stop() == 0
    told = worker.output() + letters[0].decode() + metrics
    for text in ("private", "query 1", "example.org", bytes(16).hex(), keys[0].hex()):
        assert text not in told


async def test_markers_lie_between_frames_and_count_as_nothing(made: Installation) -> None:
    """They move the position, also where several lie at the very end."""
    rng = np.random.default_rng(3)
    made.open_epoch(1)
    made.open_epoch(2, records_per_user=2)
    made.publish_head_list(1, cells=30, w=2)
    keys = [contributors(rng, 40) for _ in range(made.partitions)]
    for _ in range(2):
        for partition in range(made.partitions):
            mine = keys[partition]
            none = [OptinEntry(key, slot, b"", b"") for key in mine[:10] for slot in (0, 1)]
            made.send_reports(1, partition, [*mine, *contributors(rng, 10)], rng)
            made.send_records(2, partition, [*optin_entries(rng, contributors(rng, 10)), *none])
            for stem in (OPTIN, REPORTS):
                made.send_marker(stem, 1, partition)
                made.send_marker(stem, 77, partition)
    made.flush()
    worker = made.start_worker()
    await made.until_counted()
    await made.assert_exact()
    assert made.of(OPTIN, 2).none == 10 * made.partitions
    assert worker.stop() == 0


async def _in_metrics(made: Installation, worker: object, line: str) -> bool:
    return line in (await made.get(worker, "/metrics"))[1]  # type: ignore[arg-type]


def _dead_letters(made: Installation) -> list[bytes]:
    reader = Consumer(
        {
            "bootstrap.servers": made.settings.kafka.bootstrap,
            "group.id": "letters",
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition(made.topics.dead_letters.name, 0, 0)])
    found: list[bytes] = []
    try:
        while (message := reader.poll(10)) is not None and message.error() is None:
            found.append(message.value() or b"")
        return found
    finally:
        reader.close()


async def test_a_topic_with_other_partitions_or_policy_is_refused_in_one_line(
    made: Installation, name_prefix: str
) -> None:
    values = made.values | {"topics.prefix": f"{name_prefix}-wrong"}
    settings = Settings.from_values(values)
    bootstrap = settings.kafka.bootstrap
    create_topic(bootstrap, f"{name_prefix}-wrong.optin-records.v1", partitions=3,
                 config={"compression.type": "zstd"})  # fmt: skip
    with pytest.raises(TopicMismatch) as refused:
        await ensure_topics(settings, made.kafka)
    message = str(refused.value)
    assert "optin-records.v1 must have 2 partitions, found 3; set topics.partitions" in message
    assert "must have message.timestamp.type=LogAppendTime, found CreateTime" in message
    assert "must have compression.type=producer, found zstd" in message
    assert "\n" not in message


async def test_the_clock_topic_is_made_small_and_an_older_one_will_do(
    made: Installation, name_prefix: str
) -> None:
    """It gets a byte every few seconds for ever, and Kafka deletes closed segments alone."""

    def kept_ms(name: str) -> list[str]:
        topic = ConfigResource(ConfigResource.Type.TOPIC, name)
        admin = AdminClient({"bootstrap.servers": made.settings.kafka.bootstrap})
        (found,) = admin.describe_configs([topic]).values()
        return [found.result()[key].value for key in ("retention.ms", "segment.ms")]

    assert kept_ms(made.topics.clock.name) == ["300000", "300000"]
    older = Settings.from_values(made.values | {"topics.prefix": f"{name_prefix}-older"})
    config = {"retention.ms": "3600000", "message.timestamp.type": "LogAppendTime"}
    create_topic(older.kafka.bootstrap, f"{name_prefix}-older.clock", config=config)
    topics = await ensure_topics(older, made.kafka)
    assert kept_ms(topics.clock.name)[0] == "3600000"


async def test_servers_that_do_not_answer_are_told_in_one_line(made: Installation) -> None:
    """No half-started worker: the verb exits with 1 and says which server it was."""
    for name, url in (("kafka", "kafka://127.0.0.1:9"), ("redis", "redis://127.0.0.1:9/0")):
        worker = made.start_worker(**{f"{name}__url": url, "kafka__request_timeout_s": "1"})
        assert await asyncio.to_thread(worker.wait, 40) == 1
        last = worker.output().strip().splitlines()[-1]
        assert last.startswith("blendstream: ")
        assert name.capitalize() in last


async def test_a_port_that_is_taken_is_told_in_one_line(made: Installation) -> None:
    """A second worker on one host: it hung for its stop's deadline and named neither the port nor
    the setting."""
    taken = free_port()
    with socket.create_server(("127.0.0.1", taken)):
        started = {
            verb: subprocess.Popen(
                [sys.executable, "-m", "blendstream.agents.cli", verb],
                cwd=ROOT,
                env=made.environment() | {f"BLENDSTREAM_{verb.upper()}_METRICS_PORT": str(taken)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for verb in ("worker", "jobs")
        }
        for verb, process in started.items():
            said, _ = await asyncio.to_thread(process.communicate, timeout=60)
            assert process.returncode == 1, said
            assert said.strip().splitlines()[-1] == (
                f"  - metrics.host and {verb}.metrics_port must be an address that this process "
                f"may listen on, got 127.0.0.1:{taken} (Address already in use); stop what listens "
                "there, or choose another"
            )
            assert "not_for_production" in said
            assert "topics.allow_single_broker is set" in said
            assert "crashed" not in said


async def test_risks_that_production_should_not_take_are_one_warning(
    own_redis: LocalRedis, made: Installation, written_logs: io.StringIO
) -> None:
    """Whoever starts it by hand does not run the doctor first."""
    careful = {"topics.allow_single_broker": "false", "topics.replication": "3",
               "topics.min_insync_replicas": "2"}  # fmt: skip
    values = made.values | {"redis.url": own_redis.url}
    client = await connect_redis(Settings.from_values(values).redis)
    await warn_of_risks(Settings.from_values(values), made.kafka, client)
    await client.config_set("appendonly", "no")
    await warn_of_risks(Settings.from_values(values | careful), made.kafka, client)
    await client.aclose()
    allow_single_broker, copies = [
        json.loads(line)["advice"]
        for line in written_logs.getvalue().splitlines()
        if "not_for_production" in line
    ]
    assert "topics.allow_single_broker is set" in allow_single_broker
    assert "appendonly" not in allow_single_broker
    assert "8 topics have fewer than topics.replication = 3 copies" in copies
    assert "appendonly off" in copies


async def test_a_redis_that_evicts_is_refused(own_redis: LocalRedis, made: Installation) -> None:
    """It would throw counts away when memory is short, and nobody would know."""
    values = made.values | {"redis.url": own_redis.url}
    client = await connect_redis(Settings.from_values(values).redis)
    await check_redis(client)
    await client.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(StoreMismatch, match="noeviction, found allkeys-lru"):
        await check_redis(client)
    await client.aclose()


async def test_a_hung_redis_is_unavailable_within_the_timeout(
    own_redis: LocalRedis, made: Installation
) -> None:
    settings = Settings.from_values(made.values | {"redis.url": own_redis.url}).redis
    client = await connect_redis(settings)
    own_redis.pause()
    try:
        async with asyncio.timeout(settings.timeout_s + 2):
            with pytest.raises(StoreUnavailable):
                await check_redis(client)
    finally:
        own_redis.resume()
        await client.aclose()


async def test_a_dead_coordinator_ends_the_worker(made: Installation) -> None:
    """aiokafka tells nobody; without an exit the worker would wait for partitions for ever."""
    values = made.values | {"worker.metrics_port": str(free_port())}
    worker = await Worker.connect(Settings.from_values(values))
    life = asyncio.create_task(worker.run())
    try:
        await made.until(lambda: worker.counters[0].offset(0) is not None, 90, "an assignment")
        thread = worker.app.consumer._thread
        thread.thread_loop.call_soon_threadsafe(
            thread._consumer._coordinator._coordination_task.cancel
        )
        async with asyncio.timeout(10):
            assert await life == "the group coordinator's task has died"
    finally:
        life.cancel()
        async with asyncio.timeout(20):
            await worker.close()


async def test_an_assignment_that_is_never_handed_on_ends_the_worker(made: Installation) -> None:
    """Found by random schedules on a machine with forty times its load: after a rebalance Faust
    called nobody. The worker kept its place in the group, ready, and its partitions stood still."""
    values = made.values | {
        "worker.metrics_port": str(free_port()), "worker.stall_exit_s": "5",
    }  # fmt: skip
    worker = await Worker.connect(Settings.from_values(values))
    life = asyncio.create_task(worker.run())

    async def lost(*_: object) -> None:
        """What Faust would tell of the next assignment."""

    try:
        await made.until(lambda: worker.counters[0].offset(0) is not None, 90, "an assignment")
        assert worker.app.unhandled_for_s() == 0.0
        worker.app.tables.recovery.on_rebalance = lost
        # A fetch that was under way when the rebalance began would hand it on as well.
        worker.app.consumer.perform_seek = lost
        thread = worker.app.consumer._thread
        thread.thread_loop.call_soon_threadsafe(thread._consumer._coordinator.request_rejoin)
        async with asyncio.timeout(60):
            assert (
                await life == "the group has assigned this worker other partitions than it counts"
            )
    finally:
        life.cancel()
        async with asyncio.timeout(20):
            await worker.close()


async def test_checks_go_on_until_a_slow_start_is_over_and_one_that_ends_ends_the_worker(
    made: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Faust's consumer was there the checks died of asking it; idle partitions were compared
    with nothing any more, and an outage left the worker unready for ever."""
    values = made.values | {"worker.metrics_port": str(free_port())}
    worker = await Worker.connect(Settings.from_values(values))
    counter, checked = worker.counters[0], 0
    check = counter.check

    async def counted_check() -> None:
        nonlocal checked
        await check()
        checked += 1

    monkeypatch.setattr(counter, "check", counted_check)
    monkeypatch.setattr(worker.app, "start", asyncio.Event().wait)
    life = asyncio.create_task(worker.run())
    try:
        await made.until(lambda: checked >= 2, 30, "a second check")
        worker._tasks[0].cancel()
        async with asyncio.timeout(10):
            assert "looks after the partitions or the servers" in await life
    finally:
        life.cancel()
        async with asyncio.timeout(20):
            await worker.close()


async def test_a_group_that_was_given_no_partitions_asks_again(
    made: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that comes back may not know its topics yet; then nobody counted for minutes."""
    known, divided = threading.Event(), threading.Event()
    partitions_for_topic, assign = ClusterMetadata.partitions_for_topic, PartitionAssignor.assign

    def hide(cluster: ClusterMetadata, topic: str) -> set[int] | None:
        return partitions_for_topic(cluster, topic) if known.is_set() else None

    def divide(assignor: PartitionAssignor, *members: Any) -> Any:
        try:
            return assign(assignor, *members)
        finally:
            divided.set()

    monkeypatch.setattr(ClusterMetadata, "partitions_for_topic", hide)
    monkeypatch.setattr(PartitionAssignor, "assign", divide)
    values = made.values | {"worker.metrics_port": str(free_port())}
    worker = await Worker.connect(Settings.from_values(values))
    life = asyncio.create_task(worker.run())
    try:
        assert await asyncio.to_thread(divided.wait, 60)
        known.set()
        await made.until(lambda: worker.counters[0].offset(0) is not None, 40, "an assignment")
    finally:
        life.cancel()
        async with asyncio.timeout(20):
            await worker.close()
