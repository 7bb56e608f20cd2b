"""The check of an installation on three brokers and a replicated Redis, node by node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from blendstream.agents.local import LocalCluster, LocalRedisCluster, LocalSentinels
from blendstream.agents.operations.findings import Grade
from blendstream.agents.operations.installation_checks import examine
from blendstream.agents.process import reach_servers
from blendstream.agents.tokens import add_token
from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.kafka.topics import ensure_topics
from blendstream.streams.settings import Settings

pytestmark = [pytest.mark.integration, pytest.mark.more]

Replicated = LocalRedisCluster | LocalSentinels


@pytest.fixture(scope="module")
def brokers() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


@pytest.fixture
def settings(
    brokers: LocalCluster, make_settings: Callable[..., Settings], tmp_path: Path
) -> Callable[[Replicated], Settings]:
    add_token(tmp_path / "tokens.txt", "news-app")

    def of(nodes: Replicated) -> Settings:
        return make_settings(
            {
                "kafka.url": brokers.url,
                "kafka.request_timeout_s": 60,
                "redis.url": nodes.url,
                "redis.timeout_s": 2,
                "topics.allow_single_broker": False,
                "topics.replication": 3,
                "topics.min_insync_replicas": 2,
                "gateway.token_file": str(tmp_path / "tokens.txt"),
            }
        )

    return of


async def to_fix(settings: Settings) -> dict[str, str]:
    """What must be fixed, and what is said of it."""
    found = [finding async for finding in examine(settings)]
    return {f.what: f.found for f in found if f.grade is Grade.FIX}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kind", "nodes"), [(LocalRedisCluster, 6), (LocalSentinels, 2)], ids=["cluster", "sentinel"]
)
async def test_every_redis_node_is_asked_also_those_that_only_follow(
    kind: type[Replicated], nodes: int, settings: Callable[[Replicated], Settings]
) -> None:
    """A replica that evicts, or keeps no file, loses counts on the day it takes over."""
    with kind() as redis:
        chosen = settings(redis)
        kafka = KafkaInspector(chosen.kafka)
        await ensure_topics(chosen, kafka)
        await kafka.close()
        found = [finding async for finding in examine(chosen)]
        assert [f for f in found if f.grade is Grade.FIX] == []
        assert f"{nodes} nodes" in next(f.found for f in found if f.what == "redis")

        replica = next(node for node in redis.nodes if not node.is_master)
        replica.ask("CONFIG SET", "maxmemory-policy", "allkeys-lru")
        wrong = await to_fix(chosen)
        assert wrong.keys() == {"eviction"}
        assert "found allkeys-lru" in wrong["eviction"]
        replica.ask("CONFIG SET", "maxmemory-policy", "noeviction")

        replica.ask("CONFIG SET", "appendonly", "no")
        assert (await to_fix(chosen)).keys() == {"persistence"}


@pytest.mark.timeout(300)
async def test_a_silent_replica_is_reported_but_stops_no_process_from_starting(
    settings: Callable[[Replicated], Settings],
) -> None:
    """It could not take over; the primary serves as before."""
    with LocalSentinels() as redis:
        chosen = settings(redis)
        replica = next(node for node in redis.nodes if not node.is_master)
        replica.kill()
        kafka, _, client = await reach_servers(chosen)
        await client.aclose()
        await kafka.close()
        assert "1 did not" in (await to_fix(chosen))["replicas"]
        await asyncio.to_thread(replica.start)
        assert not await to_fix(chosen)
