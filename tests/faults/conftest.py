"""A broker and Redis servers that fault tests may disturb; each is whole again after every test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.service.counting import Installation, installation

if TYPE_CHECKING:
    from blendstream.agents.local import LocalKafka, LocalRedis
    from tests.faults.peer_links import LinkedCluster


@pytest.fixture(scope="session")
def _broken_kafka() -> Iterator[LocalKafka]:
    from blendstream.agents.local import LocalKafka
    from tests.kafka_topics import SOON_BACK

    with LocalKafka(options=SOON_BACK) as broker:
        yield broker


@pytest.fixture(scope="session")
def _broken_redis() -> Iterator[LocalRedis]:
    from blendstream.agents.local import LocalRedis

    with LocalRedis() as server:
        yield server


@pytest.fixture(scope="session")
def _broken_cluster() -> Iterator[LocalRedis]:
    from blendstream.agents.local import LocalRedis

    with LocalRedis(cluster=True) as server:
        yield server


@pytest.fixture
def fault_kafka(_broken_kafka: LocalKafka) -> Iterator[LocalKafka]:
    """A broker to pause, kill and restart."""
    yield _broken_kafka
    _whole_again(_broken_kafka)


@pytest.fixture(params=["single", "cluster"])
def fault_redis(request: pytest.FixtureRequest) -> Iterator[LocalRedis]:
    """A Redis to pause, kill, restart, roll back and flush; once single, once cluster-enabled."""
    name = "_broken_redis" if request.param == "single" else "_broken_cluster"
    server: LocalRedis = request.getfixturevalue(name)
    yield server
    _whole_again(server)


@pytest.fixture
def single_redis(_broken_redis: LocalRedis) -> Iterator[LocalRedis]:
    """The same, single only."""
    yield _broken_redis
    _whole_again(_broken_redis)


def _whole_again(part: LocalKafka | LocalRedis) -> None:
    if part.server.running:
        part.resume()
    part.start()


@pytest.fixture
def cluster_redis(_broken_cluster: LocalRedis) -> Iterator[LocalRedis]:
    """The same, cluster-enabled."""
    yield _broken_cluster
    _whole_again(_broken_cluster)


@pytest.fixture
async def made(
    fault_kafka: LocalKafka, single_redis: LocalRedis, name_prefix: str
) -> AsyncIterator[Installation]:
    """An installation on servers that may be disturbed."""
    async with installation(fault_kafka.url, single_redis.url, name_prefix) as it:
        yield it


# Of a module, not of the session: three brokers would slow down every test after it.
@pytest.fixture(scope="module")
def _linked_cluster() -> Iterator[LinkedCluster]:
    from tests.faults.peer_links import LinkedCluster

    with LinkedCluster() as cluster:
        yield cluster


@pytest.fixture
def fault_cluster(_linked_cluster: LinkedCluster) -> Iterator[LinkedCluster]:
    """Three brokers to kill, pause, restart and cut off from each other."""
    yield _linked_cluster
    _linked_cluster.heal()
    for node in _linked_cluster.nodes.values():
        _whole_again(node)
    _linked_cluster.wait_until_whole()
