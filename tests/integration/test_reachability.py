"""Whether Kafka and Redis answer is asked for ever, whatever the answer was."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from blendstream.agents.jobs.leases import Lease
from blendstream.agents.server_probe import ServerWatch
from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.tables.redis import connect_redis
from blendstream.streams.telemetry.metrics import SERVER_UP
from tests.service.waiting import until


def up(server: str) -> float:
    return float(SERVER_UP.labels(server)._value.get())


async def every_call_fails(*calls: Callable[[], Awaitable[object]]) -> None:
    for call in calls:
        with pytest.raises(StoreUnavailable):
            await call()


async def test_a_cluster_that_goes_and_comes_back_is_seen_to_do_so(
    kafka, own_cluster_redis, make_topic, make_settings
):
    """redis-py's error for a cluster without nodes is no RedisError: it ended whoever asked."""
    topic = make_topic()
    settings = make_settings({"kafka.url": kafka.url, "redis.url": own_cluster_redis.url})
    redis = await connect_redis(settings.redis)
    log = KafkaInspector(settings.kafka)
    lease = Lease(redis, "test", "keeper", 60)
    assert await lease.hold()
    watch = ServerWatch(log, topic, redis, prefix="test", every_s=0.05)
    watching = asyncio.create_task(watch.run())
    try:
        await until(lambda: up("kafka") == up("redis") == 1, "both up")
        own_cluster_redis.stop()
        await until(lambda: up("redis") == 0, "Redis down")
        # The second answer is another one than the first, which still had connections.
        for _ in range(3):
            await every_call_fails(lease.hold, lease.taken)
            assert not lease.held
        await asyncio.sleep(0.5)
        assert not watching.done()
        assert up("kafka") == 1

        own_cluster_redis.start()
        await until(lambda: up("redis") == 1, "Redis up")
        assert await lease.hold(), "the holder knows its lease again"
        own_cluster_redis.stop()
        lease.held = True
        await lease.leave()
        assert not watching.done()
    finally:
        watching.cancel()
        await log.close()
        await redis.aclose()
