"""The three brokers that fault tests disturb behave as three brokers do."""

from __future__ import annotations

import secrets

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.faults.peer_links import LinkedCluster
from tests.kafka_topics import create_topic
from tests.service.waiting import wait_for


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_broker_cut_off_goes_on_saying_that_it_leads_and_follows_when_healed(
    fault_cluster: LinkedCluster,
):
    """Else the tests that cut one off would test something that is easy to survive."""
    topic = f"cut-{secrets.token_hex(4)}"
    create_topic(fault_cluster.bootstrap, topic, replication=3)
    fault_cluster.wait_until_whole()
    leader = fault_cluster.view(1).partitions[topic, 0].leader
    believer = AdminClient({"bootstrap.servers": fault_cluster.bootstrap, "log_level": 0})
    assert _acknowledged(fault_cluster.bootstrap, topic, 5)
    assert _end(believer, topic) == 5

    fault_cluster.cut(leader)
    others = fault_cluster.bootstrap_of(fault_cluster.others)
    one = min(fault_cluster.others)
    wait_for(lambda: _leader(fault_cluster, one, topic) != leader, "another leader")
    assert _acknowledged(others, topic, 7)
    assert _leader(fault_cluster, leader, topic) == leader
    assert _end(believer, topic) == 5, "the end of the copy that it had"
    assert _end(AdminClient({"bootstrap.servers": others, "log_level": 0}), topic) == 12
    assert not _acknowledged(fault_cluster.bootstrap_of({leader}), topic, 1), "nobody has a copy"

    fault_cluster.heal()
    fault_cluster.wait_until_whole()
    assert _leader(fault_cluster, leader, topic) != leader


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_one_broker_may_be_lost_and_two_may_not(fault_cluster: LinkedCluster):
    """Acknowledged means on two brokers."""
    topic = f"lost-{secrets.token_hex(4)}"
    create_topic(fault_cluster.bootstrap, topic, replication=3)
    fault_cluster.nodes[1].kill()
    assert _acknowledged(fault_cluster.bootstrap_of({2, 3}), topic, 3)
    fault_cluster.nodes[2].kill()
    assert not _acknowledged(fault_cluster.bootstrap_of({3}), topic, 3)
    fault_cluster.nodes[2].start()
    fault_cluster.nodes[1].start()
    fault_cluster.wait_until_whole()
    assert _acknowledged(fault_cluster.bootstrap, topic, 3)


def _acknowledged(bootstrap: str, topic: str, records: int) -> bool:
    """Return True if Kafka has the topics on enough brokers."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 8_000, "log_level": 0}
    )
    failed = []
    for _ in range(records):
        producer.produce(topic, b"x", on_delivery=lambda error, _: error and failed.append(error))
    return producer.flush(30) == 0 and not failed


def _end(client: AdminClient, topic: str) -> int:
    (asked,) = client.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()}).values()
    return int(asked.result(20).offset)


def _leader(cluster: LinkedCluster, node: int, topic: str) -> int:
    return cluster.view(node).partitions[topic, 0].leader
