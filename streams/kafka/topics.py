"""The topics, in the order of the data flow, and the configuration that each must have.

    optin_records ─┐                       ┌─▶ head_lists
                   ├─▶ (counts) ─▶ releases ┼─▶ estimates
    client_reports ┘                       └─▶ click_graphs     dead_letters ◀── refused entries

`ensure_topics` creates missing topics and checks the others; `check_topics` only checks. The checks
have these reasons:
- With another number of partitions, one contributor's entries would be in two partitions.
- A compacted topic would lose records.
- With the senders' timestamps, a sender could decide whether its entries are late.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from blendstream.streams.errors import StoreUnavailable, TopicMismatch
from blendstream.streams.kafka.kafka_clients import (
    KafkaInspector,
    TopicDescription,
    librdkafka_settings,
)
from blendstream.streams.names import InputStream
from blendstream.streams.settings import Settings

__all__ = [
    "Topic",
    "Topics",
    "check_topics",
    "copies_of_topics",
    "ensure_topics",
    "inspect_topics",
]

FOR_EVER = "-1"
#: Number of brokers with which clocks are compared, if there are as many.
CLOCK_PARTITIONS = 6
CLOCK_KEPT_MS = 300_000


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic's name, its partitions, and its required configuration."""

    name: str
    partitions: int
    config: Mapping[str, str]
    #: Only the two counted topics have a version. Offsets of another version start at 0.
    version: int = 1
    #: True: any number of partitions is accepted; `partitions` is for creating the topic.
    any_partitions: bool = False
    #: Further configuration for creating it, which is not required.
    made_with: Mapping[str, str] = field(default_factory=dict)


class Topics:
    """All topics of one installation."""

    def __init__(self, all_settings: Settings) -> None:
        settings = all_settings.topics
        prefix, version = settings.prefix, settings.version
        self._prefix = prefix
        durable = {"min.insync.replicas": str(settings.min_insync_replicas)}
        # A broker that recompresses may use a codec that aiokafka cannot read without further
        # packages: every worker that reads such a batch would crash, again after each restart.
        readable = durable | {"compression.type": "producer"}
        log = readable | {
            "cleanup.policy": "delete",
            "message.timestamp.type": "LogAppendTime",
            "retention.ms": str(settings.retention_s * 1000),
            "retention.bytes": FOR_EVER,
            "segment.ms": str(all_settings.segment_s * 1000),
        }
        compacted = durable | {"cleanup.policy": "compact"}
        never_deleted = readable | {"cleanup.policy": "delete", "retention.ms": FOR_EVER}
        never_deleted |= {"retention.bytes": FOR_EVER, "message.timestamp.type": "LogAppendTime"}
        letters = durable | {"cleanup.policy": "delete"}
        many = settings.partitions
        self.optin_records = Topic(
            self.name(InputStream.OPTIN_RECORDS, version), many, log, version
        )
        self.client_reports = Topic(
            self.name(InputStream.CLIENT_REPORTS, version), many, log, version
        )
        self.releases = Topic(f"{prefix}.releases", 1, never_deleted)
        self.head_lists = Topic(f"{prefix}.head-lists", 1, compacted)
        self.estimates = Topic(f"{prefix}.estimates", 1, compacted)
        self.click_graphs = Topic(f"{prefix}.click-graphs", 1, compacted)
        self.dead_letters = Topic(f"{prefix}.dead-letters", 1, letters)
        # Gateways and jobs send a byte regularly to learn the brokers' time; nobody reads it.
        # Several partitions, because jobs compare with every broker that leads one. Kafka deletes
        # closed segments only, so retention without `segment.ms` would keep a week of it.
        append_time = letters | {"message.timestamp.type": "LogAppendTime"}
        brief = dict.fromkeys(("retention.ms", "segment.ms"), str(CLOCK_KEPT_MS))
        self.clock = Topic(
            f"{prefix}.clock", CLOCK_PARTITIONS, append_time, any_partitions=True, made_with=brief
        )

    def name(self, stem: InputStream, version: int) -> str:
        """Return the name of an input stream's topic in a version of the topics."""
        return f"{self._prefix}.{stem.value.replace('_', '-')}.v{version}"

    def of(self, stem: InputStream) -> Topic:
        """Return the topic of an input stream."""
        return self.optin_records if stem is InputStream.OPTIN_RECORDS else self.client_reports

    def all(self) -> tuple[Topic, ...]:
        """Return all topics."""
        return (
            self.optin_records,
            self.client_reports,
            self.releases,
            self.head_lists,
            self.estimates,
            self.click_graphs,
            self.dead_letters,
            self.clock,
        )


async def ensure_topics(settings: Settings, log: KafkaInspector) -> Topics:
    """Create missing topics and check the others; raise `TopicMismatch` with all problems."""
    topics = Topics(settings)
    admin = AdminClient(librdkafka_settings(settings.kafka))
    timeout_s = settings.kafka.request_timeout_s
    descriptions = await log.describe([topic.name for topic in topics.all()])
    missing = [topic for topic in topics.all() if descriptions[topic.name] is None]
    if missing:
        await _create(admin, missing, settings.topics.replication, timeout_s)
        descriptions = await _described(log, topics, timeout_s)
        await _wait_for_leaders(log, missing, timeout_s)
    problems = await _problems(admin, topics.all(), descriptions, timeout_s)
    if problems:
        raise TopicMismatch("; ".join(problems))
    return topics


async def check_topics(settings: Settings, log: KafkaInspector) -> Topics:
    """Raise `TopicMismatch` for wrong topics or a missing release log; change nothing.

    Topics other than the release log may be missing: an operator may be investigating that.
    """
    topics = Topics(settings)
    missing, problems = await inspect_topics(settings, log)
    if topics.releases.name in missing:
        raise TopicMismatch(
            f"there must be a release log, but topic {topics.releases.name} does not exist; "
            "correct topics.prefix or kafka.url, or start `blendstream jobs` for the first time"
        )
    if problems:
        raise TopicMismatch("; ".join(problems))
    return topics


async def copies_of_topics(settings: Settings, log: KafkaInspector) -> dict[str, int]:
    """Return the number of replicas of each existing topic."""
    described = await log.describe([topic.name for topic in Topics(settings).all()])
    return {name: topic.copies for name, topic in described.items() if topic is not None}


async def inspect_topics(settings: Settings, log: KafkaInspector) -> tuple[list[str], list[str]]:
    """Return the missing topics and the faults of the others, a sentence each; change nothing."""
    topics = Topics(settings).all()
    descriptions = await log.describe([topic.name for topic in topics])
    existing = [topic for topic in topics if descriptions[topic.name] is not None]
    admin = AdminClient(librdkafka_settings(settings.kafka))
    problems = await _problems(admin, existing, descriptions, settings.kafka.request_timeout_s)
    return [topic.name for topic in topics if topic not in existing], problems


async def _problems(
    admin: AdminClient,
    topics: Sequence[Topic],
    descriptions: Mapping[str, TopicDescription | None],
    timeout_s: float,
) -> list[str]:
    problems = []
    configs = await _configs(admin, [topic.name for topic in topics], timeout_s)
    for topic in topics:
        description = descriptions[topic.name]
        assert description is not None, "callers pass existing topics only"
        if description.partitions != topic.partitions and not topic.any_partitions:
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
    return problems


async def _create(
    admin: AdminClient, topics: Sequence[Topic], replication: int, timeout_s: float
) -> None:
    wanted = [
        NewTopic(t.name, num_partitions=t.partitions, replication_factor=replication,
                 config={**t.config, **t.made_with})
        for t in topics
    ]  # fmt: skip
    futures = admin.create_topics(wanted, operation_timeout=timeout_s, request_timeout=timeout_s)
    for name, future in futures.items():
        try:
            await asyncio.wrap_future(future)
        except KafkaException as error:
            # Another process may have created it concurrently; it is then checked as any other.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise TopicMismatch(
                    f"topic {name} could not be created: {error.args[0].str()}; create it by "
                    "hand, or correct topics.replication"
                ) from error


async def _described(
    log: KafkaInspector, topics: Topics, timeout_s: float
) -> dict[str, TopicDescription | None]:
    """Wait until the new topics appear in the metadata, and return all descriptions."""
    names = [topic.name for topic in topics.all()]
    for _ in range(max(1, round(timeout_s * 10))):
        descriptions = await log.describe(names)
        if None not in descriptions.values():
            return descriptions
        await asyncio.sleep(0.1)
    raise StoreUnavailable("Kafka does not show the topics it has just created; retry")


async def _wait_for_leaders(
    log: KafkaInspector, created: Sequence[Topic], timeout_s: float
) -> None:
    """Wait until the leaders of new topics accept writes.

    A topic appears in the metadata shortly before that, and writes in between fill a first start's
    log with warnings. A leader that reports an end offset accepts writes too; the request is
    retried while a broker does not know the new topic yet.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            await asyncio.gather(*(log.ends(t.name, range(t.partitions)) for t in created))
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)
        else:
            return


async def _configs(
    admin: AdminClient, names: Sequence[str], timeout_s: float
) -> dict[str, dict[str, str]]:
    """Read the configuration of existing topics; retry while a broker does not know a new one."""
    if not names:
        return {}
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    deadline = time.monotonic() + timeout_s
    while True:
        futures = admin.describe_configs(resources, request_timeout=timeout_s)
        try:
            return {
                resource.name: {
                    name: entry.value for name, entry in (await asyncio.wrap_future(future)).items()
                }
                for resource, future in futures.items()
            }
        except KafkaException as error:
            code = error.args[0].code()
            if code != KafkaError.UNKNOWN_TOPIC_OR_PART or time.monotonic() > deadline:
                raise StoreUnavailable(
                    f"Kafka did not answer about the topics' configuration ({error.args[0].name()})"
                ) from error
        await asyncio.sleep(0.1)
