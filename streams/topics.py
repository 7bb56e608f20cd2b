"""The topics, in the order data flows, and what each must be like.

    optin_records ─┐                       ┌─▶ head_lists
                   ├─▶ (counts) ─▶ releases ┤
    client_reports ┘                       └─▶ estimates        dead_letters ◀── refused entries

`ensure_topics` creates what is missing and checks what is there: a topic with another number of
partitions would send one contributor's entries to two places, one that is compacted would lose
records, one whose times are the sender's would let a sender choose when it was late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from streams.epochs import Stem
from streams.errors import StoreUnavailable, TopicMismatch
from streams.kafka import KafkaLog, TopicDescription, librdkafka_settings
from streams.settings import Settings
from streams.settings.sections import TopicsSettings

__all__ = ["Topic", "Topics", "ensure_topics"]

FOR_EVER = "-1"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic's name, its partitions, and the settings that must hold."""

    name: str
    partitions: int
    config: Mapping[str, str]


class Topics:
    """Every topic of one installation, by stem."""

    def __init__(self, settings: TopicsSettings) -> None:
        prefix, version = settings.prefix, settings.version
        durable = {"min.insync.replicas": str(settings.min_insync_replicas)}
        log = durable | {
            "cleanup.policy": "delete",
            "message.timestamp.type": "LogAppendTime",
            "retention.ms": str(settings.retention_s * 1000),
            "retention.bytes": FOR_EVER,
            "segment.ms": str(settings.segment_s * 1000),
        }
        compacted = durable | {"cleanup.policy": "compact"}
        kept = durable | {"cleanup.policy": "delete", "retention.ms": FOR_EVER}
        kept |= {"retention.bytes": FOR_EVER, "message.timestamp.type": "LogAppendTime"}
        letters = durable | {"cleanup.policy": "delete"}
        many = settings.partitions
        self.optin_records = Topic(f"{prefix}.optin-records.v{version}", many, log)
        self.client_reports = Topic(f"{prefix}.client-reports.v{version}", many, log)
        self.releases = Topic(f"{prefix}.releases", 1, kept)
        self.head_lists = Topic(f"{prefix}.head-lists", 1, compacted)
        self.estimates = Topic(f"{prefix}.estimates", 1, compacted)
        self.dead_letters = Topic(f"{prefix}.dead-letters", 1, letters)

    def of(self, stem: Stem) -> Topic:
        """The topic that a stem's entries arrive in."""
        return self.optin_records if stem is Stem.OPTIN_RECORDS else self.client_reports

    def all(self) -> tuple[Topic, ...]:
        return (
            self.optin_records,
            self.client_reports,
            self.releases,
            self.head_lists,
            self.estimates,
            self.dead_letters,
        )


async def ensure_topics(settings: Settings, log: KafkaLog) -> Topics:
    """Create the topics that are missing, check the others, and say at once all that is wrong."""
    topics = Topics(settings.topics)
    admin = AdminClient(librdkafka_settings(settings.kafka))
    timeout_s = settings.kafka.request_timeout_s
    found = await log.describe([topic.name for topic in topics.all()])
    missing = [topic for topic in topics.all() if found[topic.name] is None]
    if missing:
        await _create(admin, missing, settings.topics.replication, timeout_s)
        found = await _described(log, topics, timeout_s)
    problems = []
    configs = await _configs(admin, [topic.name for topic in topics.all()], timeout_s)
    for topic in topics.all():
        description = found[topic.name]
        assert description is not None, "_described waits until every topic is there"
        if description.partitions != topic.partitions:
            problems.append(
                f"topic {topic.name} must have {topic.partitions} partitions, found "
                f"{description.partitions}; set topics.partitions to that, or raise "
                "topics.version to move to a new topic"
            )
        for name, wanted in topic.config.items():
            if configs[topic.name].get(name) != wanted:
                problems.append(
                    f"topic {topic.name} must have {name}={wanted}, found "
                    f"{configs[topic.name].get(name)}; alter the topic or the setting"
                )
    if problems:
        raise TopicMismatch("; ".join(problems))
    return topics


async def _create(
    admin: AdminClient, topics: Sequence[Topic], replication: int, timeout_s: float
) -> None:
    wanted = [
        NewTopic(t.name, num_partitions=t.partitions, replication_factor=replication,
                 config=dict(t.config))
        for t in topics
    ]  # fmt: skip
    futures = admin.create_topics(wanted, operation_timeout=timeout_s, request_timeout=timeout_s)
    for name, future in futures.items():
        try:
            await asyncio.wrap_future(future)
        except KafkaException as error:
            # Another process may have made it in the same moment; it is checked like any other.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise TopicMismatch(
                    f"topic {name} could not be created: {error.args[0].str()}; create it by "
                    "hand, or mend topics.replication"
                ) from error


async def _described(
    log: KafkaLog, topics: Topics, timeout_s: float
) -> dict[str, TopicDescription | None]:
    """What was created shows in every broker's metadata a moment later."""
    names = [topic.name for topic in topics.all()]
    for _ in range(max(1, round(timeout_s * 10))):
        found = await log.describe(names)
        if None not in found.values():
            return found
        await asyncio.sleep(0.1)
    raise StoreUnavailable("Kafka does not show the topics it has just created; try again")


async def _configs(
    admin: AdminClient, names: Sequence[str], timeout_s: float
) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    futures = admin.describe_configs(resources, request_timeout=timeout_s)
    found = {}
    for resource, future in futures.items():
        try:
            config = await asyncio.wrap_future(future)
        except KafkaException as error:
            raise StoreUnavailable(
                f"Kafka did not answer about topic {resource.name} ({error.args[0].name()})"
            ) from error
        found[resource.name] = {name: entry.value for name, entry in config.items()}
    return found
