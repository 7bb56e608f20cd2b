"""A gateway learns who leads, whatever its writes wait for."""

from __future__ import annotations

import asyncio
import secrets

import pytest

from blendstream.agents.gateway.submit.frame_producer import make_producer
from blendstream.streams.settings.fields import Url
from blendstream.streams.settings.sections import KafkaSettings
from tests.faults.peer_links import LinkedCluster
from tests.kafka_topics import create_topic


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_the_question_who_leads_does_not_wait_behind_a_write(fault_cluster: LinkedCluster):
    """A write waits for a replica that is gone, and a broker answers a connection in order: both
    timed out together, and accepting began 16 to 20 s after a broker had been killed."""
    topic = f"leads-{secrets.token_hex(4)}"
    create_topic(fault_cluster.bootstrap, topic, replication=3)
    fault_cluster.wait_until_whole()
    leader = fault_cluster.view(1).partitions[topic, 0].leader
    producer = make_producer(KafkaSettings(url=Url(fault_cluster.url)))
    await producer.start()
    try:
        await producer.send_and_wait(topic, b"x", partition=0)
        gone = next(n for number, n in fault_cluster.nodes.items() if number != leader)
        gone.kill()
        waiting = await producer.send(topic, b"y", partition=0)
        await asyncio.sleep(0.2)
        for _ in range(5):
            assert not waiting.done(), "it must wait for the replica: else this is easy"
            async with asyncio.timeout(1.0):
                assert await producer.client.force_metadata_update()
        await asyncio.wait_for(waiting, 30)
    finally:
        await producer.stop()
