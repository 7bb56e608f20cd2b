"""A reader of the release log whose server is cut off from its peers, and goes on answering it."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time

import pytest
from confluent_kafka import Producer

from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.kafka.partition_leaders import newest_leadership
from blendstream.streams.releases import leader_watch
from blendstream.streams.releases.reader import LogFollower
from blendstream.streams.settings.fields import Url
from blendstream.streams.settings.sections import KafkaSettings
from tests.faults.peer_links import LinkedCluster
from tests.kafka_topics import create_topic

pytestmark = [pytest.mark.faults, pytest.mark.more]

#: One look, one question and a new consumer, on a machine that does ten other things.
READ_WITHIN_S = leader_watch.LOOK_EVERY_S + 5.0 + 15.0


def append(bootstrap: str, topic: str) -> None:
    """One more record that two brokers have. (No entry: the reader passes over it.)"""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    producer.produce(topic, b"x", b"part", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(60) == 0
    assert failed == [None]


@pytest.mark.timeout(300)
async def test_what_the_others_write_is_read_although_the_old_leader_still_answers(
    fault_cluster: LinkedCluster,
):
    """It answers from its frozen copy, without an error, and says that it leads: a reader that was
    told of no other broker read nothing new for as long as the cut lasted."""
    topic = f"releases-{secrets.token_hex(4)}"
    config = {"min.insync.replicas": "2"}
    create_topic(fault_cluster.bootstrap, topic, replication=3, config=config)
    await asyncio.to_thread(fault_cluster.wait_until_whole)
    leader = fault_cluster.view(1).partitions[topic, 0].leader
    # The reader is told of the leader alone. What else it knows, it heard from there.
    kafka = KafkaSettings(url=Url(f"kafka://{fault_cluster.bootstrap_of({leader})}"))
    await asyncio.to_thread(append, fault_cluster.bootstrap, topic)
    reader = LogFollower(kafka, KafkaInspector(kafka), topic)
    following = asyncio.create_task(follow(reader))
    try:
        await asyncio.wait_for(reader.reached(1), 60)
        before = await newest_leadership(kafka, topic)
        assert before is not None
        assert before.agreed

        fault_cluster.cut(leader)
        await asyncio.to_thread(wait_for_others, fault_cluster)
        others = fault_cluster.bootstrap_of(fault_cluster.others)
        await asyncio.to_thread(append, others, topic)
        written = time.monotonic()
        now = await newest_leadership(kafka, topic)
        assert now is not None
        assert now.epoch > before.epoch
        assert not now.agreed, "the old leader must still say that it leads: else this is easy"
        assert set(now.known_by.split(",")) == set(others.split(","))

        await asyncio.wait_for(reader.reached(2), READ_WITHIN_S)
        print(f"read {time.monotonic() - written:.1f} s after it was written")
        # It stays with the new leader.
        await asyncio.to_thread(append, others, topic)
        await asyncio.wait_for(reader.reached(3), READ_WITHIN_S)
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        await reader.close()


async def follow(reader: LogFollower) -> None:
    """As a gateway does: read whatever comes."""
    while True:
        await reader.step()


def wait_for_others(cluster: LinkedCluster) -> None:
    deadline = time.monotonic() + 90
    while not cluster.others_lead():
        assert time.monotonic() < deadline, "no other broker leads"
        time.sleep(0.2)
