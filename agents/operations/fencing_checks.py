"""Check the Kafka settings that fencing depends on: transaction log and clean leader elections.

A release is drawn once because a second producer with the same transactional id fences the first.
Kafka stores this in `__transaction_state`. The fence is lost if the only copy of that topic is
lost, or if a broker that lacks its newest records is elected leader. Our own topics would lose
acknowledged records in the same cases.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from blendstream.agents.operations.findings import Finding, fix, note, ok
from blendstream.agents.plurals import counted
from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.kafka.topics import Topics
from blendstream.streams.settings import Settings
from blendstream.streams.settings.sections import TopicsSettings

__all__ = [
    "TRANSACTION_LOG",
    "broker_setting",
    "fencing_checks",
    "leaders",
    "transactions",
    "verification",
]

TRANSACTION_LOG = "__transaction_state"
_UNCLEAN = "unclean.leader.election.enable"
_VERIFIED = "transaction.partition.verification.enable"


async def fencing_checks(
    settings: Settings, kafka: KafkaInspector, admin: AdminClient, brokers: Sequence[int]
) -> AsyncIterator[Finding]:
    """Check Kafka's transaction log, transaction verification, and unclean elections."""
    timeout_s = settings.kafka.request_timeout_s
    names = [TRANSACTION_LOG, *(topic.name for topic in Topics(settings).all())]
    described = await kafka.describe(names)
    there = [name for name in names if described[name] is not None]
    configs = {name: await _described(admin, ResourceType.TOPIC, name, timeout_s) for name in there}
    log = described[TRANSACTION_LOG]
    if log is not None:
        least = (configs[TRANSACTION_LOG] or {}).get("min.insync.replicas")
        yield transactions(
            settings.topics, "has", log.copies, None if least is None else int(least)
        )
    else:
        # Kafka creates it at the first transaction, with the settings of the broker that does so.
        values = [
            await broker_setting(admin, broker, f"transaction.state.log.{name}", timeout_s)
            for name in ("replication.factor", "min.isr")
            for broker in brokers
        ]
        numbers = [None if value is None else int(value) for value in values]
        copies, least_in_sync = numbers[: len(brokers)], numbers[len(brokers) :]
        yield transactions(
            settings.topics, "will be created with", _least(copies), _least(least_in_sync)
        )
    yield verification(
        [await broker_setting(admin, broker, _VERIFIED, timeout_s) for broker in brokers]
    )
    if there:
        yield leaders({name: (configs[name] or {}).get(_UNCLEAN) for name in there})


def transactions(
    wanted: TopicsSettings, has: str, copies: int | None, in_sync: int | None
) -> Finding:
    """Check that the transaction log is as safe as our topics; `None`: Kafka did not report it."""
    if copies is None or in_sync is None:
        return note(
            "transactions",
            f"Kafka did not report how many copies {TRANSACTION_LOG} {has}; let this user describe "
            f"topics and brokers, or check that it has {wanted.replication} copies and "
            f"min.insync.replicas={wanted.min_insync_replicas}",
        )
    if copies < wanted.replication or in_sync < wanted.min_insync_replicas:
        return fix(
            "transactions",
            f"{TRANSACTION_LOG} must have {wanted.replication} copies and "
            f"min.insync.replicas={wanted.min_insync_replicas}, as set by topics.replication and "
            f"topics.min_insync_replicas, but it {has} {copies} and {in_sync}: after the loss of a "
            "broker a release could be drawn twice. Set transaction.state.log.replication.factor "
            "and transaction.state.log.min.isr on all brokers; if the topic exists, add copies "
            "with kafka-reassign-partitions.sh and set min.insync.replicas with kafka-configs.sh",
        )
    return ok(
        "transactions",
        f"{TRANSACTION_LOG} {has} {counted(copies, 'copy', 'copies')} and "
        f"min.insync.replicas={in_sync}",
    )


def verification(enabled: Sequence[str | None]) -> Finding:
    """Check each broker's setting for verifying transactions; `None`: it has no such setting."""
    if "false" in enabled:
        return fix(
            "verification",
            f"{_VERIFIED} must be true on every broker, found false on {enabled.count('false')} of "
            f"{len(enabled)}: a delayed write could leave a transaction open that blocks the "
            "release log; kafka-configs.sh --alter --entity-type brokers --entity-default "
            f"--add-config {_VERIFIED}=true",
        )
    if None in enabled:
        return note(
            "verification",
            f"Kafka did not report whether {_VERIFIED} is on; Kafka 3.6 and later have it, on by "
            "default. Let this user describe the brokers' configuration.",
        )
    return ok("verification", f"transactions are verified by {counted(len(enabled), 'broker')}")


def leaders(unclean: Mapping[str, str | None]) -> Finding:
    """Check each topic's `unclean.leader.election.enable`; `None`: Kafka did not report it."""
    on = sorted(name for name, value in unclean.items() if value == "true")
    if on:
        return fix(
            "leaders",
            f"{_UNCLEAN} must be false for every topic, found true for {', '.join(on)}: a broker "
            "that lacks acknowledged records could become leader, and a release be lost and drawn "
            f"again; kafka-configs.sh --alter --entity-type topics --entity-name TOPIC "
            f"--add-config {_UNCLEAN}=false",
        )
    silent = sorted(name for name, value in unclean.items() if value is None)
    if silent:
        return note(
            "leaders",
            f"Kafka did not report whether unclean elections are off for {', '.join(silent)}; let "
            f"this user describe the topics' configuration, or check that {_UNCLEAN} is false",
        )
    return ok("leaders", f"unclean elections are off for {counted(len(unclean), 'topic')}")


async def broker_setting(
    admin: AdminClient, broker: int, name: str, timeout_s: float
) -> str | None:
    """Return a broker's value of one of its settings; `None` if it does not report it."""
    # One request per broker: librdkafka accepts only one broker in a request.
    config = await _described(admin, ResourceType.BROKER, str(broker), timeout_s)
    return (config or {}).get(name)


async def _described(
    admin: AdminClient, kind: ResourceType, name: str, timeout_s: float
) -> dict[str, str] | None:
    resource = ConfigResource(kind, name)
    futures = admin.describe_configs([resource], request_timeout=timeout_s)
    try:
        config = await asyncio.wrap_future(futures[resource])
    except KafkaException:
        return None
    return {name: entry.value for name, entry in config.items() if entry.value is not None}


def _least(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return min(known) if len(known) == len(values) else None
