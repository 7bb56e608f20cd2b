"""The doctor looks at what fencing rests on: without it a release can be drawn twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from blendstream.agents.local import LocalKafka
from blendstream.agents.operations.fencing_checks import (
    TRANSACTION_LOG,
    leaders,
    transactions,
    verification,
)
from blendstream.agents.operations.installation_checks import Finding, Grade, examine
from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.kafka.topics import Topics, ensure_topics
from blendstream.streams.settings import Settings

pytestmark = pytest.mark.integration

MakeSettings = Callable[..., Settings]
THREE = {
    "topics.replication": 3,
    "topics.min_insync_replicas": 2,
    "topics.allow_single_broker": False,
}


async def finding(settings: Settings, what: str) -> Finding:
    (found,) = [f async for f in examine(settings) if f.what == what]
    return found


async def test_a_log_of_transactions_with_one_copy_is_to_be_mended(
    own_kafka: LocalKafka, redis_server, make_settings: MakeSettings
) -> None:
    """Topics with three copies looked well, while the fence rested on a single disk."""
    servers = {"kafka.url": own_kafka.url, "redis.url": redis_server.url}
    one, three = make_settings(servers), make_settings(servers | THREE)
    assert (await finding(one, "transactions")).grade is Grade.OK
    few = await finding(three, "transactions")
    assert few.grade is Grade.FIX
    assert "must have 3 copies and min.insync.replicas=2" in few.found
    assert "but it has 1 and 1" in few.found
    assert "kafka-reassign-partitions.sh" in few.found

    # Before the first transaction it is not there: the brokers' settings say how it will be.
    admin = AdminClient({"bootstrap.servers": own_kafka.bootstrap})
    for deleted in admin.delete_topics([TRANSACTION_LOG]).values():
        deleted.result(30)
    assert (await finding(one, "transactions")).found == (
        "__transaction_state will be created with 1 copy and min.insync.replicas=1"
    )
    assert "will be created with 1 and 1" in (await finding(three, "transactions")).found


async def test_brokers_that_do_not_verify_transactions_are_to_be_mended(
    own_kafka: LocalKafka, redis_server, make_settings: MakeSettings
) -> None:
    """Without it a write that arrives late hangs for good, and the release log with it."""
    settings = make_settings({"kafka.url": own_kafka.url, "redis.url": redis_server.url})
    assert (await finding(settings, "verification")).grade is Grade.OK
    off = ConfigResource(
        ConfigResource.Type.BROKER,
        "1",
        incremental_configs=[
            ConfigEntry(
                "transaction.partition.verification.enable",
                "false",
                incremental_operation=AlterConfigOpType.SET,
            )
        ],
    )
    admin = AdminClient({"bootstrap.servers": own_kafka.bootstrap})
    for future in admin.incremental_alter_configs([off]).values():
        future.result(30)
    found = await finding(settings, "verification")
    assert found.grade is Grade.FIX
    assert "must be true on every broker, found false on 1 of 1" in found.found
    assert "--add-config transaction.partition.verification.enable=true" in found.found
    assert verification([None]).grade is Grade.NOTE


async def test_a_topic_that_elects_uncleanly_is_to_be_mended(
    kafka, redis_server, make_settings: MakeSettings
) -> None:
    """A topic's own setting wins over the brokers', which may all be right."""
    settings = make_settings({"kafka.url": kafka.url, "redis.url": redis_server.url})
    await ensure_topics(settings, KafkaInspector(settings.kafka))
    assert (await finding(settings, "leaders")).grade is Grade.OK
    name = Topics(settings).releases.name
    changed = ConfigResource(
        ConfigResource.Type.TOPIC,
        name,
        incremental_configs=[
            ConfigEntry(
                "unclean.leader.election.enable",
                "true",
                incremental_operation=AlterConfigOpType.SET,
            )
        ],
    )
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in admin.incremental_alter_configs([changed]).values():
        future.result(30)
    unclean = await finding(settings, "leaders")
    assert unclean.grade is Grade.FIX
    assert f"found true for {name}:" in unclean.found
    assert (await finding(settings, "elections")).grade is Grade.OK, "the brokers' own are right"


@pytest.mark.parametrize(
    ("copies", "in_sync", "grade"),
    [
        (3, 2, Grade.OK),
        (5, 3, Grade.OK),
        (2, 2, Grade.FIX),
        (3, 1, Grade.FIX),
        (None, 2, Grade.NOTE),
        (3, None, Grade.NOTE),
    ],
)
def test_the_log_of_transactions_must_survive_what_our_topics_survive(
    make_settings: MakeSettings, copies: int | None, in_sync: int | None, grade: Grade
) -> None:
    """Who may not ask is told that nothing is known, not that all is well."""
    assert transactions(make_settings(THREE).topics, "has", copies, in_sync).grade is grade


def test_a_topic_that_does_not_tell_is_noted_and_one_that_is_wrong_comes_first() -> None:
    assert leaders({"a": "false", "b": None}).grade is Grade.NOTE
    assert "for b;" in leaders({"a": "false", "b": None}).found
    assert leaders({"a": "true", "b": None}).grade is Grade.FIX
