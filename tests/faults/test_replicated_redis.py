"""The loss of a Redis node: another takes its place, perhaps without the newest writes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest

from blendstream.agents.local import LocalKafka, LocalRedisCluster, LocalSentinels
from blendstream.streams.names import InputStream
from tests.service.builder import STARTED_S
from tests.service.counting import Installation, contributors, installation

pytestmark = pytest.mark.more

Replicated = LocalRedisCluster | LocalSentinels
EPOCH = 1


@pytest.fixture(params=[LocalRedisCluster, LocalSentinels], ids=["cluster", "sentinel"])
def replicated(request: pytest.FixtureRequest) -> Iterator[Replicated]:
    with request.param() as nodes:
        yield nodes


def send(made: Installation, rng: np.random.Generator) -> None:
    """Reports to every partition, so that every master has something to lose."""
    for partition in range(made.partitions):
        made.send_reports(EPOCH, partition, contributors(rng, 40), rng)
    made.flush()


async def test_a_lost_master_is_replaced_and_every_report_is_counted_once(
    replicated: Replicated, fault_kafka: LocalKafka, name_prefix: str, thorough: bool
) -> None:
    """Killed with writes that its replica lacks: the workers recount the missing frames."""
    rng = np.random.default_rng(191)
    async with installation(fault_kafka.url, replicated.url, name_prefix, partitions=6) as made:
        made.open_epoch(EPOCH)
        made.publish_head_list(EPOCH)
        send(made, rng)
        worker = made.start_worker()
        await made.until_counted(InputStream.CLIENT_REPORTS, timeout_s=STARTED_S)
        # Replicas stop to follow, so what is counted from now on is lost with its master.
        replicas = [node for node in replicated.nodes if not node.is_master]
        master = next(node for node in replicated.nodes if node.is_master)
        for node in replicas:
            node.pause()
        send(made, rng)
        await made.until_counted(InputStream.CLIENT_REPORTS)
        master.kill()
        for node in replicas:
            node.resume()
        send(made, rng)
        await made.until_counted(InputStream.CLIENT_REPORTS, timeout_s=60)
        await made.assert_exact()
        assert worker.running
        if not thorough:
            return
        await asyncio.to_thread(master.start)
        await asyncio.to_thread(replicated.wait_until_whole)
        send(made, rng)
        await made.until_counted(InputStream.CLIENT_REPORTS)
        await made.assert_exact()
