"""A reader of the release log whose server is cut off from its peers, and goes on answering it."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time

import pytest
from confluent_kafka import Producer

from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.releases import reader as log_reader
from blendstream.streams.releases.reader import LogFollower
from blendstream.streams.settings.fields import Url
from blendstream.streams.settings.sections import KafkaSettings
from tests.faults.peer_links import LinkedCluster
from tests.kafka_topics import create_topic
from tests.service.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.more]

#: A new consumer begins with any of three brokers, and one of them is wrong: six wrong choices in a
#: row, once in 700 runs, and a machine that does ten other things.
READ_WITHIN_S = 7 * log_reader.RENEW_AFTER_S + 30.0


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
    """It answers from its frozen copy, without an error, and says that it leads: a reader that
    believed it read nothing new for as long as the cut lasted."""
    topic = f"releases-{secrets.token_hex(4)}"
    config = {"min.insync.replicas": "2"}
    create_topic(fault_cluster.bootstrap, topic, replication=3, config=config)
    kafka = KafkaSettings(url=Url(fault_cluster.url))
    await asyncio.to_thread(append, fault_cluster.bootstrap, topic)
    reader = LogFollower(kafka, KafkaInspector(kafka), topic)
    following = asyncio.create_task(follow(reader))
    try:
        await asyncio.wait_for(reader.reached(1), 60)
        await isolate_leader(fault_cluster, topic)
        others = fault_cluster.bootstrap_of(fault_cluster.others)
        await asyncio.to_thread(append, others, topic)
        written = time.monotonic()
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


async def isolate_leader(cluster: LinkedCluster, topic: str) -> None:
    """Cut off the topic's leader so that it still claims to lead.

    On a busy machine the leadership may move just before the cut; then another try is needed.
    """
    for _ in range(4):
        await asyncio.to_thread(cluster.wait_until_whole)
        leader = (await asyncio.to_thread(cluster.view, 1)).partitions[topic, 0].leader
        cluster.cut(leader)
        await until(cluster.others_lead, "other leaders", 90)
        if (await asyncio.to_thread(cluster.view, leader)).partitions[topic, 0].leader == leader:
            return
        cluster.heal()
    raise AssertionError("no isolated broker claims to lead")


async def follow(reader: LogFollower) -> None:
    """Read every entry as a gateway does."""
    while True:
        await reader.step()
