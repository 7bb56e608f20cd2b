"""A sample of the random schedules; `make chaos SEEDS=a-b` runs as many as there is time for.

CHAOS_BROKER_KILLS=5 is the weight of killing the broker: nearly every schedule then does (it takes
seconds each time, so usually it is 0.3).
"""

from __future__ import annotations

import pytest

from blendstream.agents.local import LocalKafka, LocalRedis, LocalRedisCluster
from tests.faults.breakable_servers import OneNode
from tests.faults.counting_schedules import world
from tests.faults.peer_links import LinkedCluster
from tests.faults.three_brokers import WithRedisCluster

pytestmark = [pytest.mark.faults, pytest.mark.timeout(3600)]


async def test_no_schedule_of_faults_loses_or_doubles_an_entry(
    fault_kafka: LocalKafka, single_redis: LocalRedis, thorough: bool
) -> None:
    async with world(OneNode(fault_kafka, single_redis)) as made:
        for seed in range(1, 21 if thorough else 4):
            await made.run(seed)


@pytest.mark.more
async def test_nor_does_one_on_three_brokers_and_a_redis_cluster(
    fault_cluster: LinkedCluster, thorough: bool
) -> None:
    with LocalRedisCluster() as nodes:
        async with world(WithRedisCluster(fault_cluster, nodes)) as made:
            for seed in range(4, 14 if thorough else 5):
                await made.run(seed)
