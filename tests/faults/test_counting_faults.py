"""The counts equal the accepted entries, whatever is killed, hung, rolled back or flushed.

Each test writes frames while something breaks, lets it mend, and compares Redis with the model,
entry by entry. What stops a partition, or marks an epoch, is in test_counting_stops.py.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import faust
import numpy as np
import pytest

from blendstream.streams.names import InputStream
from tests.kafka_topics import throttle_fetches
from tests.service.builder import STARTED_S
from tests.service.counting import Installation, contributors, installation, optin_entries

if TYPE_CHECKING:
    from blendstream.agents.local import LocalKafka, LocalRedis

pytestmark = pytest.mark.faults


def prepare(made: Installation) -> None:
    made.open_epoch(1)
    made.open_epoch(2, records_per_user=2)
    made.publish_head_list(1, cells=40, w=2)


def send_some(made: Installation, rng: np.random.Generator, frames: int = 4) -> None:
    """Reports and records for every partition, one in ten contributors twice."""
    for _ in range(frames):
        for partition in range(made.partitions):
            keys = contributors(rng, 60)
            made.send_reports(1, partition, keys, rng)
            made.send_reports(1, partition, keys[:6], rng)
            made.send_records(2, partition, optin_entries(rng, keys[:30]))
            made.send_records(2, partition, optin_entries(rng, keys[:10], slot=1, distinct=3))
    made.flush()


async def send_for(made: Installation, rng: np.random.Generator, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        await asyncio.to_thread(send_some, made, rng, 2)
        await asyncio.sleep(0.1)


async def test_a_killed_and_a_paused_worker_lose_and_double_nothing(made: Installation) -> None:
    """kill -9 in the middle of batches; then SIGSTOP beyond the session while another counts on."""
    rng = np.random.default_rng(11)
    prepare(made)
    send_some(made, rng)
    first = made.start_worker()
    await made.until(lambda: made.some_counted(InputStream.CLIENT_REPORTS), STARTED_S)
    second = made.start_worker()
    await made.until(lambda: made.ready(second), STARTED_S, "readiness")
    await send_for(made, rng, 2)
    first.kill()
    await send_for(made, rng, 2)
    second.pause()
    third = made.start_worker()
    await made.until(lambda: made.ready(third), STARTED_S, "readiness")
    await send_for(made, rng, 1)
    second.resume()
    await send_for(made, rng, 1)
    await made.until_counted()
    await made.assert_exact()
    assert third.stop() == 0
    assert second.stop() == 0


async def test_workers_that_join_and_leave_share_the_partitions(made: Installation) -> None:
    """No configuration is touched; each partition is always somebody's."""
    rng = np.random.default_rng(12)
    prepare(made)
    send_some(made, rng)
    workers = [made.start_worker() for _ in range(2)]
    for worker in workers:
        await made.until(lambda worker=worker: made.ready(worker), STARTED_S, "readiness")
    await send_for(made, rng, 3)
    assert workers.pop(0).stop() == 0
    await send_for(made, rng, 1)
    await made.until_counted()
    await made.assert_exact()


async def test_a_killed_broker_comes_back(made: Installation, fault_kafka: LocalKafka) -> None:
    rng = np.random.default_rng(13)
    prepare(made)
    send_some(made, rng)
    made.start_worker()
    await made.until(lambda: made.some_counted(InputStream.CLIENT_REPORTS), STARTED_S)
    send_some(made, rng)
    await asyncio.to_thread(fault_kafka.restart)
    send_some(made, rng)
    await made.until_counted(timeout_s=60)
    await made.assert_exact()


@pytest.mark.parametrize(
    ("how", "fault_redis"),
    [
        ("killed", "single"),
        ("hung", "single"),
        pytest.param("killed", "cluster", marks=pytest.mark.more),
    ],
    indirect=["fault_redis"],
)
async def test_redis_goes_and_comes_back(
    how: str, fault_kafka: LocalKafka, fault_redis: LocalRedis, name_prefix: str
) -> None:
    """Away is unready, not dead: the worker waits, and counts on where it was."""
    rng = np.random.default_rng(14)
    async with installation(fault_kafka.url, fault_redis.url, name_prefix) as made:
        prepare(made)
        send_some(made, rng)
        worker = made.start_worker()
        await made.until(lambda: made.ready(worker), STARTED_S, "readiness")
        send_some(made, rng)
        fault_redis.kill() if how == "killed" else fault_redis.pause()
        send_some(made, rng)
        await made.until(lambda: made.unready(worker), what="a worker that lives and is unready")
        await asyncio.to_thread(fault_redis.start if how == "killed" else fault_redis.resume)
        send_some(made, rng)
        await made.until_counted()
        await made.assert_exact()
        await made.until(lambda: made.ready(worker), 30, "readiness")
        assert worker.running


@pytest.mark.parametrize(
    ("busy", "fault_redis"),
    [(True, "single"), (False, "single"), pytest.param(True, "cluster", marks=pytest.mark.more)],
    indirect=["fault_redis"],
    ids=["busy", "idle", "busy-cluster"],
)
async def test_redis_loses_its_tail(
    busy: bool, fault_kafka: LocalKafka, fault_redis: LocalRedis, name_prefix: str
) -> None:
    """Acknowledged writes vanish; without traffic nobody would compare, so the worker does."""
    rng = np.random.default_rng(15)
    async with installation(fault_kafka.url, fault_redis.url, name_prefix) as made:
        prepare(made)
        send_some(made, rng)
        made.start_worker()
        await made.until_counted(timeout_s=STARTED_S)
        earlier = await asyncio.to_thread(fault_redis.snapshot)
        send_some(made, rng)
        await made.until_counted()
        if busy:
            send_some(made, rng)
        await asyncio.to_thread(fault_redis.rollback, earlier)
        if busy:
            send_some(made, rng)
        await made.until_counted()
        await made.assert_exact()


@pytest.mark.parametrize(
    "fault_redis", ["single", pytest.param("cluster", marks=pytest.mark.more)], indirect=True
)
async def test_a_flushed_redis_is_filled_again_from_the_log(
    fault_kafka: LocalKafka, fault_redis: LocalRedis, name_prefix: str
) -> None:
    rng = np.random.default_rng(16)
    async with installation(fault_kafka.url, fault_redis.url, name_prefix) as made:
        prepare(made)
        send_some(made, rng)
        made.start_worker()
        await made.until_counted(timeout_s=STARTED_S)
        send_some(made, rng)
        with fault_redis.client() as client:
            client.flushall()
        send_some(made, rng)
        await made.until_counted()
        await made.assert_exact()


@pytest.mark.parametrize("hung", ["redis", pytest.param("kafka", marks=pytest.mark.more)])
async def test_a_stop_has_a_deadline_whatever_hangs(
    hung: str, made: Installation, fault_kafka: LocalKafka, single_redis: LocalRedis
) -> None:
    """The orchestrator would kill it later, and until then its partitions stand still."""
    rng = np.random.default_rng(17)
    prepare(made)
    send_some(made, rng)
    worker = made.start_worker()
    await made.until(lambda: made.some_counted(InputStream.CLIENT_REPORTS), STARTED_S)
    part = single_redis if hung == "redis" else fault_kafka
    send_some(made, rng)
    part.pause()
    await asyncio.sleep(0.3)
    worker.terminate()
    started = time.monotonic()
    await asyncio.to_thread(worker.wait, 15)
    took = time.monotonic() - started
    part.resume()
    assert took < float(made.values["worker.stop_deadline_s"]) + 2
    made.start_worker()
    await made.until_counted()
    await made.assert_exact()


@pytest.mark.more
async def test_a_worker_whose_lag_does_not_move_exits_and_its_successor_counts_on(
    fault_kafka: LocalKafka, single_redis: LocalRedis, name_prefix: str
) -> None:
    """The broker answers every question and sends the consumer nothing: throttled to one byte a
    second. A restart is what an orchestrator can do about a consumer that is stuck.
    """
    rng = np.random.default_rng(18)
    async with installation(
        fault_kafka.url, single_redis.url, name_prefix, worker__stall_exit_s="5"
    ) as made:
        prepare(made)
        send_some(made, rng)
        worker = made.start_worker()
        await made.until_counted()
        client_id = f"faust-{faust.__version__}"
        throttle_fetches(fault_kafka.bootstrap, client_id, 1.0)
        try:
            send_some(made, rng)
            # 4, or 3 where leaving the group took longer than a stop may.
            assert await asyncio.to_thread(worker.wait, 60) in (3, 4)
        finally:
            throttle_fetches(fault_kafka.bootstrap, client_id, None)
        assert "has lag and has not moved" in worker.output()
        made.start_worker()
        await made.until_counted()
        await made.assert_exact()
