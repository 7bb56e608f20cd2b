"""Faults that halt a partition, faults that mark an epoch, and records that are skipped.

The counter runs in this process, on a real broker and a real Redis, fed by hand: so a test can
deliver messages twice, late, out of turn, or not at all, as Faust does on a bad day.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import numpy as np
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka.admin import AdminClient, NewPartitions

from blendstream.agents.worker import metrics
from blendstream.agents.worker.halt_reasons import HaltReason
from blendstream.streams.names import InputStream
from blendstream.streams.releases import entries
from blendstream.streams.releases.sealed_counts import SealedCounts
from blendstream.streams.tables.batch_verdict import Refusal
from tests.kafka_topics import create_topic, delete_records, delete_topics
from tests.release_entries import estimates_entry
from tests.report_frames import encode_reports
from tests.service.counting import Installation, contributors, installation, optin_entries

if TYPE_CHECKING:
    from blendstream.agents.local import LocalKafka, LocalRedis
from tests.service.counting_in_process import REPORTS, Bench, send

pytestmark = pytest.mark.faults


@pytest.fixture
async def bench(made: Installation) -> AsyncIterator[Bench]:
    tables = await made.tables(REPORTS)
    made.open_epoch(1)
    made.publish_head_list(1, cells=40)
    yield Bench(made, tables)
    await tables.close()


async def test_messages_delivered_again_or_out_of_turn_change_nothing(bench: Bench) -> None:
    send(bench.made)
    log = bench.log()
    await bench.count(log[:2])
    await bench.count(log[:3])  # Again, with one that is new.
    await bench.count(log[4:])  # Out of turn: asked for again, not counted, not skipped.
    assert bench.sought == [(0, 3)]
    assert await bench.stored() == 3
    await bench.count(log[4:])  # What was buffered before the seek took hold.
    await bench.count(log[3:])
    bench.counter.revoke([0])
    await bench.count(log)  # Another worker's now.
    bench.counter.assign([0, 1])
    await bench.count(log)  # And ours again.
    assert await bench.stored() == 5
    await bench.made.assert_exact()


async def test_an_older_worker_is_fenced_by_the_offset(bench: Bench) -> None:
    """It was paused, lost its partition, and wakes up in the middle of a batch."""
    send(bench.made)
    log = bench.log()
    await bench.count(log[:1])
    old, bench.counter = bench.counter, bench.new_counter()
    await bench.count(log[:4])
    await old.count({0: log[1:3]})
    await old.count({0: log[3:]})
    await bench.count(log[4:])
    await bench.made.assert_exact()


async def test_control_records_are_passed_over_also_at_the_end(bench: Bench) -> None:
    """Transactions leave offsets without records; sealing waits for the offset to pass them."""
    made = bench.made
    send(made, frames=1)
    producer = AIOKafkaProducer(
        bootstrap_servers=made.settings.kafka.bootstrap, transactional_id=made.topics.releases.name
    )
    await producer.start()
    frame = (bench.log())[0].value
    for _ in range(2):
        async with producer.transaction():
            await producer.send_and_wait(made.topics.client_reports.name, frame, partition=0)
    await producer.stop()
    made.expect_refused(REPORTS, 1, Refusal.DUPLICATE, 40)
    log = bench.log()
    end = (await made.ends(REPORTS))[0]
    assert [message.offset for message in log] == [0, 1, 3]
    assert end == 5
    await bench.count(log)
    assert await bench.stored() == 4
    await made.until(lambda: _checked(bench, end), 15, "the offset past the last control record")
    await made.assert_exact()


async def _checked(bench: Bench, end: int) -> bool:
    await bench.counter.check()
    return await bench.stored() == end


async def test_a_newer_frame_stops_the_partition_and_counts_what_lies_before(bench: Bench) -> None:
    """And where no upgrade helps, because nobody wrote that version, the runbook's way leads on."""
    made = bench.made
    send(made, frames=2)
    newer = b"bF" + bytes([3, 1]) + (20).to_bytes(4, "little") + bytes(12)
    made.send(REPORTS, 0, newer)
    made.flush()
    await bench.count(bench.log())
    assert bench.counter.halted == {0: HaltReason.NEWER_FRAME}
    assert not bench.counter.ready
    assert await bench.stored() == 2
    await made.assert_exact()
    before = told("blender_partition_lag_seconds")
    await bench.counter.check()
    assert told("blender_partition_lag_seconds") > before, "it stands, and time goes on"

    send(made, frames=1, seed=2)
    _delete_records(made, 3)
    bench.counter = bench.new_counter()
    await bench.count(bench.log(start=3))
    assert bench.counter.halted == {}
    assert await bench.stored() == 4
    made.of(REPORTS, 1).incomplete = 1
    await made.assert_exact()


def told(name: str) -> float:
    """Return a metric of partition 0 in this process."""
    stem = {} if REPORTS in name else {"stem": REPORTS}
    found = metrics.WORKER.get_sample_value(name, {"partition": "0", **stem})
    assert found is not None, name
    return found


async def test_a_flushed_redis_is_no_counter_that_began_anew(
    bench: Bench, single_redis: LocalRedis
) -> None:
    """Prometheus takes a counter that falls for one that was born, and all of it for new."""
    received = "blender_client_reports_received_total"
    send(bench.made)
    log = bench.log()
    await bench.count(log)
    await bench.counter.check()
    assert told(received) == 100
    with single_redis.client() as client:
        client.flushall()
    await bench.counter.check()
    assert told(received) == 100
    await bench.count(log)
    await bench.counter.check()
    assert told(received) == 100
    send(bench.made, frames=1, seed=2)
    await bench.count(bench.log(start=5))
    await bench.counter.check()
    assert told(received) == 120
    await bench.made.assert_exact()


async def test_a_partition_whose_state_is_not_read_yet_has_no_lag_to_tell(bench: Bench) -> None:
    """The whole log's length would look like an alarm at every start."""
    send(bench.made)
    await bench.count(bench.log())
    bench.counter.revoke([0])
    bench.counter = bench.new_counter()
    await bench.counter.check()
    assert told("blender_partition_lag") == 0
    await bench.counter.check()
    assert told("blender_partition_lag") == 0


async def test_a_script_that_fails_half_way_counts_nothing_twice(
    bench: Bench, single_redis: LocalRedis
) -> None:
    """Redis does not roll back; the mark of the first write bars every later batch."""
    made = bench.made
    send(made, frames=3)
    log = bench.log()
    await bench.count(log[:1])
    before = await bench.tables.totals(0, 1)
    with single_redis.client() as client:
        client.execute_command("ACL SETUSER default -append")
        try:
            await bench.count(log[1:2])
            assert bench.counter.halted == {0: HaltReason.STORE_REFUSED}
        finally:
            client.execute_command("ACL SETUSER default +append")
    assert (await bench.tables.totals(0, 1))["received"] > before[
        "received"
    ]  # Half of it is there.
    half = await bench.tables.totals(0, 1)
    bench.counter = bench.new_counter()  # Restarted by somebody who did not look.
    await bench.count(log)
    assert bench.counter.halted == {0: HaltReason.HALF_APPLIED}
    assert await bench.tables.totals(0, 1) == half
    assert await bench.stored() == 1


async def test_a_key_of_another_type_stops_before_anything_is_written(
    bench: Bench, single_redis: LocalRedis
) -> None:
    made = bench.made
    send(made, frames=2)
    log = bench.log()
    await bench.count(log[:1])
    with single_redis.client() as client:
        client.set(bench.tables.key(0, "unknown", "totals"), "not a hash")
        made.send(REPORTS, 0, b"not a frame")
        made.flush()
        await bench.count(bench.log(start=1))
        assert bench.counter.halted == {0: HaltReason.STORE_REFUSED}
        assert await bench.stored() == 1
        client.delete(bench.tables.key(0, "unknown", "totals"))
    bench.counter = bench.new_counter()
    await bench.count(bench.log())
    made.expect_refused(REPORTS, "unknown", Refusal.MALFORMED)
    await made.assert_exact()


async def test_totals_of_another_type_stop_their_partition_and_no_other(
    bench: Bench, single_redis: LocalRedis
) -> None:
    """Nobody had looked at the others any more, however far behind they were."""
    for partition in range(bench.made.partitions):
        send(bench.made, frames=1, partition=partition, seed=partition)
    with single_redis.client() as client:
        client.set(bench.tables.key(0, "totals"), "not a hash")
        await bench.counter.check()
        assert bench.counter.halted == {0: HaltReason.STORE_REFUSED}
        assert bench.counter.offset(1) == 0
        client.delete(bench.tables.key(0, "totals"))


async def test_a_recreated_topic_stops_even_when_its_offsets_fit(bench: Bench) -> None:
    """200 of 300 new records would be taken for counted ones, the others for the next."""
    made = bench.made
    send(made, frames=3)
    await bench.count(bench.log()[:2])
    topic = made.topics.client_reports
    delete_topics(made.settings.kafka.bootstrap, [topic.name])
    await _recreate(made, topic.name, made.partitions)
    before = await bench.tables.totals(0, 1)
    send(made, frames=5, seed=2)
    log = bench.log()
    await bench.count(log[2:])  # Exactly the offset that is due, of another log.
    assert bench.counter.halted == {0: HaltReason.TOPIC_RECREATED}
    bench.counter = bench.new_counter()
    await bench.counter.resume(0)
    assert bench.counter.halted == {0: HaltReason.TOPIC_RECREATED}
    assert await bench.tables.totals(0, 1) == before


async def _recreate(made: Installation, name: str, partitions: int) -> None:
    await made.until(lambda: _gone(made, name), 20, "the topic's end")
    create_topic(made.settings.kafka.bootstrap, name, partitions=partitions,
                 config={"message.timestamp.type": "LogAppendTime"})  # fmt: skip


async def _gone(made: Installation, name: str) -> bool:
    return (await made.kafka.describe([name]))[name] is None


async def test_partitions_added_stop_the_topic(bench: Bench) -> None:
    """A contributor would hash to another partition and be counted again there."""
    made = bench.made
    send(made, frames=2)
    await bench.count(bench.log()[:1])
    admin = AdminClient({"bootstrap.servers": made.settings.kafka.bootstrap})
    name = made.topics.client_reports.name
    admin.create_partitions([NewPartitions(name, made.partitions + 1)])[name].result(20)
    await made.until(lambda: _partitions_are(made, made.partitions + 1), 10)
    await bench.count(bench.log()[1:])
    assert bench.counter.halted == {0: HaltReason.PARTITIONS_CHANGED}
    assert await bench.stored() == 1


async def _partitions_are(made: Installation, n: int) -> bool:
    name = made.topics.client_reports.name
    found = (await made.kafka.describe([name]))[name]
    return found is not None and found.partitions == n


@pytest.mark.parametrize("running", [True, False], ids=["running", "restarted"])
async def test_a_moved_log_start_marks_open_epochs_incomplete(bench: Bench, running: bool) -> None:
    """Records left the log before they were counted: count on, and mark the epochs."""
    made = bench.made
    send(made, frames=5)
    await bench.count(bench.log()[:1])
    made.open_epoch(3)
    _delete_records(made, 3)
    if not running:
        bench.counter = bench.new_counter()
    await bench.count(bench.log(start=3))
    assert await bench.stored() == 5
    assert bench.counter.halted == {}
    for epoch in (1, 3):
        assert (await bench.tables.totals(0, epoch))["incomplete"] == 2
    assert (await bench.tables.totals(0, 1))["received"] == 3 * 20


@pytest.mark.parametrize(("version", "missed"), [(1, 0), (2, 3)])
async def test_records_removed_after_their_release_are_not_missed(
    bench: Bench, version: int, missed: int
) -> None:
    """A flushed Redis whose log starts at 3 because everything before was released; in another
    version of the topic, whose offsets are its own, that says nothing of this one."""
    made = bench.made
    send(made, frames=5)
    made.publish(entries.log_trimmed("client_reports", version, [3, 0]))
    _delete_records(made, 3)
    await bench.count(bench.log(start=3))
    assert await bench.stored() == 5
    assert (await bench.tables.totals(0, 1)).get("incomplete", 0) == missed


def _delete_records(made: Installation, before: int) -> None:
    delete_records(made.settings.kafka.bootstrap, made.topics.client_reports.name, 0, before)


async def test_an_offset_beyond_the_end_is_another_clusters_redis(
    bench: Bench, single_redis: LocalRedis
) -> None:
    send(bench.made, frames=1)
    await bench.count(bench.log())
    with single_redis.client() as client:
        client.hset(bench.tables.key(0, "state"), "offset", 9)
    bench.counter = bench.new_counter()
    await bench.counter.resume(0)
    assert bench.counter.halted == {0: HaltReason.OFFSET_BEYOND_END}


async def test_a_missing_master_secret_stops(bench: Bench) -> None:
    bench.made.open_epoch(9, key_id="k9")
    send(bench.made, frames=1)
    await bench.count(bench.log())
    assert bench.counter.halted == {0: HaltReason.KEY_MISSING}


async def test_a_released_epoch_takes_nothing_more_and_leaves_no_keys(
    bench: Bench, single_redis: LocalRedis
) -> None:
    """Raw data ends with the release; what comes after is a number in the late counter."""
    made = bench.made
    send(made, frames=2)
    log = bench.log()
    await bench.count(log[:1])
    # Released behind the worker's back: the script refuses, the worker reads the log, judges anew.
    made.publish(estimates_entry(1))
    await bench.tables.release_epoch(0, 1)
    await bench.count(log[1:])
    assert (await bench.tables.totals(0, "late")) == {"received": 20}
    with single_redis.client() as client:
        left = sorted(
            key for key in client.keys("*") if f"{{{made.topics.client_reports.name}/0}}" in key
        )
    assert left == [bench.tables.key(0, name) for name in ("late", "state", "totals")]
    # A flushed Redis replays the whole log and still counts nothing of it.
    with single_redis.client() as client:
        client.flushall()
    bench.counter = bench.new_counter()
    await bench.count(log)
    assert (await bench.tables.totals(0, "late")) == {"received": 40}
    assert await bench.tables.totals(0, 1) == {}


async def test_no_count_has_a_time_to_live_and_a_contributor_costs_at_most_12_bytes(
    bench: Bench, single_redis: LocalRedis
) -> None:
    """Stated in streams/tables/count_table.py; measured on 300 000 contributors of a partition."""
    made = bench.made
    rng = np.random.default_rng(3)
    for _ in range(30):
        made.send(REPORTS, 0, encode_reports(1, made.head_list_id(1), rng.bytes(160_000),
                                             rng.integers(0, 40, (10_000, 1)), 1))  # fmt: skip
    made.flush()
    await bench.count(bench.log())
    key = bench.tables.key(0, 1, "seen", 0)
    with single_redis.client() as client:
        assert client.strlen(key) == 300_000 * 8
        assert client.memory_usage(key, samples=0) / 300_000 <= 12
    # A job reads, and removes its mark; the keeper leaves one.
    await SealedCounts(bench.tables, 1, "estimates").read_reports(1, [30], 40, complete=True)
    await bench.tables.put_token(0, "swept", "through 0", None)
    with single_redis.client() as client:
        lives = {
            name.partition("}:")[2]: client.ttl(name)
            for name in client.keys("*")
            if made.topics.client_reports.name in name
        }
    assert not [name for name in lives if name.startswith("token:estimates-")]
    assert lives.keys() >= {"state", "totals", "1:totals", "1:cells", "1:seen:0", "token:swept"}
    assert set(lives.values()) == {-1}


async def test_the_model_sees_what_was_not_sent_wherever_it_is(
    bench: Bench, single_redis: LocalRedis
) -> None:
    """All tests here rest on `assert_exact`: one number more anywhere must fail it."""
    made = bench.made
    send(made, frames=2)
    await bench.count(bench.log())
    await made.assert_exact()
    records = await made.tables(InputStream.OPTIN_RECORDS)
    await records.close()
    with single_redis.client() as client:
        for key, name in [
            (bench.tables.key(0, 1, "totals"), "incomplete"),
            (bench.tables.key(0, 1, "totals"), "users:S"),
            (bench.tables.key(0, 1, "totals"), "refused:duplicate"),
            (bench.tables.key(1, "unknown", "totals"), "received"),
            (bench.tables.key(1, "late"), "received"),
            (bench.tables.key(1, "totals"), "counted"),
            (bench.tables.key(1, 2, "totals"), "received"),
            (bench.tables.key(0, "state"), "applying"),
            (records.key(0, 1, "totals"), "users:T"),
            (records.key(0, "totals"), "received"),
        ]:
            client.hincrby(key, name, 1)
            with pytest.raises(AssertionError):
                await made.assert_exact()
            client.hdel(key, name)
        client.append(records.key(0, 1, "S"), b"query\turl\t1\n")
        with pytest.raises(AssertionError):
            await made.assert_exact()
        client.unlink(records.key(0, 1, "S"))
        client.append(bench.tables.key(0, 1, "seen", 0), bytes(8))
        with pytest.raises(AssertionError):
            await made.assert_exact()


async def test_a_contributor_chunk_is_followed_by_another(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And all of them are read back on assignment."""
    monkeypatch.setattr("blendstream.streams.tables.count_table.CHUNK_BYTES", 400)
    made = bench.made
    send(made, frames=5)
    log = bench.log()
    for message in log:
        await bench.count([message])
    assert (await bench.tables.totals(0, 1))["chunks"] == 3
    rng = np.random.default_rng(1)
    made.send_reports(1, 0, contributors(rng, 20), rng)  # The same contributors again.
    made.flush()
    bench.counter = bench.new_counter()
    await bench.count(bench.log(start=5))
    assert (await bench.tables.totals(0, 1))["refused:duplicate"] == 20
    await made.assert_exact()


async def test_an_unknown_head_list_is_looked_up_before_it_is_refused(bench: Bench) -> None:
    """The report overtook the release log: the worker reads it to its end first."""
    made = bench.made
    send(made, frames=1)
    await bench.count(bench.log())
    made.open_epoch(2)
    made.publish_head_list(2, cells=7)
    rng = np.random.default_rng(4)
    made.send_reports(2, 0, contributors(rng, 10), rng)
    stranger = encode_reports(2, bytes(32), contributors(rng, 5), np.zeros((5, 1), int), 1)
    made.send(REPORTS, 0, stranger)
    made.flush()
    made.expect_refused(REPORTS, "unknown", Refusal.UNKNOWN_HEAD_LIST, 5)
    await bench.count(bench.log(start=1))
    await made.assert_exact()


@pytest.mark.more
async def test_records_and_reports_take_the_plain_path_on_a_cluster(
    fault_kafka: LocalKafka, cluster_redis: LocalRedis, name_prefix: str
) -> None:
    """Every kind of key in one script on a server that checks slots."""
    rng = np.random.default_rng(5)
    async with installation(fault_kafka.url, cluster_redis.url, name_prefix) as made:
        made.open_epoch(1, records_per_user=2)
        made.open_epoch(2)
        made.publish_head_list(2, cells=300, w=3, answers=2)
        for partition in range(made.partitions):
            keys = contributors(rng, 200)
            for slot in (0, 1, 2):
                entries = optin_entries(rng, keys, slot=slot, distinct=10)
                made.send_records(1, partition, entries)
            made.send_reports(2, partition, keys, rng)
            made.send_reports(2, partition, keys[:20], rng)
        for stem in InputStream:
            made.send(stem, 1, b"")
            made.expect_refused(stem, "unknown", Refusal.MALFORMED)
        made.flush()
        worker = made.start_worker()
        await made.until_counted()
        await made.assert_exact()
        for stem in InputStream:
            await made.until(
                lambda stem=stem: _has_metric(made, worker, stem), 10, "the refusal's metric"
            )


async def _has_metric(made: Installation, worker: object, stem: InputStream) -> bool:
    _, text = await made.get(worker, "/metrics")  # type: ignore[arg-type]
    return f'blender_{stem}_refused_total{{partition="1",reason="malformed"}} 1.0' in text


async def test_a_batch_cancelled_before_it_was_stored_is_counted_when_it_comes_again(
    bench: Bench, single_redis: LocalRedis
) -> None:
    """Judging remembers contributors; forgetting to forget them would drop them as duplicates."""
    send(bench.made)
    log = bench.log()
    await bench.count(log[:1])
    single_redis.pause()
    try:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.7):
                await bench.count(log[1:])
    finally:
        single_redis.resume()
    await bench.count(log)
    await bench.made.assert_exact()


async def test_epochs_barred_by_redis_and_open_in_the_log_stop_the_partition(
    bench: Bench, single_redis: LocalRedis
) -> None:
    """Judging and storing would otherwise refuse each other for ever."""
    send(bench.made)
    log = bench.log()
    await bench.count(log[:1])
    with single_redis.client() as client:
        client.hset(bench.tables.key(0, "state"), "released_through", 5)
    await bench.count(log[1:])
    assert bench.counter.halted == {0: HaltReason.STORE_REFUSED}
    assert await bench.stored() == 1


async def test_a_damaged_release_log_stops_instead_of_guessing(bench: Bench) -> None:
    """Every partition: the second to ask was once served what lies behind the damage."""
    made = bench.made
    for partition in range(made.partitions):
        send(made, partition=partition, seed=partition)
        await bench.count(bench.log(partition)[:1], partition)
    made.publish({"entry": "epoch_opened", "epoch": "not a number"})
    made.open_epoch(2)
    bench.counter = bench.new_counter()
    for partition in range(made.partitions):
        await bench.count(bench.log(partition)[1:], partition)
    assert bench.counter.halted == dict.fromkeys(range(made.partitions), HaltReason.STORE_REFUSED)


async def test_lag_that_does_not_move_is_a_stall_unless_a_server_is_away(
    bench: Bench, single_redis: LocalRedis
) -> None:
    """Counted from when both answered last: an outage must not kill every worker at once."""
    send(bench.made, frames=1)
    bench.tables = await bench.made.tables(REPORTS, timeout_s=3.0)  # It has to be waited for once.
    counter = bench.new_counter()
    await counter.check()
    await asyncio.sleep(1.1)
    await counter.check()
    assert counter.ready
    assert counter.stalled_for_s() > 1

    # Many large partitions take minutes to load, and none is counted meanwhile.
    counter.revoke([1])
    counter.assign([0, 1])
    await counter.resume(1)
    assert counter.stalled_for_s() < 1

    single_redis.pause()
    await counter.check()
    assert not counter.ready
    assert counter.stalled_for_s() == 0

    single_redis.resume()
    await counter.check()
    assert counter.ready
    assert counter.stalled_for_s() < 1
    await bench.tables.close()
