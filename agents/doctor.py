"""Look at everything the service stands on, and say how to mend what is wrong.

Reads only: no topic is created, no key written. The one exception is a byte on the clock topic,
where that topic exists, because only a broker's answer tells its time.
"""

from __future__ import annotations

import asyncio
import enum
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from blender.errors import BlenderError
from streams.kafka import KafkaLog, librdkafka_settings, producer_settings
from streams.settings import Settings
from streams.tables import Client, check_redis, connect_redis
from streams.topics import Topics, topic_problems

__all__ = ["Finding", "Grade", "examine"]

_LIBRARIES = (
    "blendstream", "faust-streaming", "aiokafka", "confluent-kafka", "redis", "opendp",
    "dp-accounting", "numpy",
)  # fmt: skip
_OLDEST_REDIS = (6, 2)


class Grade(enum.StrEnum):
    """How a finding is to be taken."""

    OK = "ok"
    NOTE = "note"  #: works, but not as production should
    MEND = "mend"  #: must be mended


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    grade: Grade
    what: str
    found: str


async def examine(
    settings: Settings, clock: Callable[[], float] = time.time
) -> AsyncIterator[Finding]:
    """Every finding as it is made. `clock` is this machine's."""
    yield _versions()
    kafka = KafkaLog(settings.kafka)
    answers = True
    async for finding in _brokers(settings):
        answers = answers and finding.grade is not Grade.MEND
        yield finding
    if answers:
        async for finding in _topics(settings, kafka):
            yield finding
        yield await _broker_clock(settings, kafka, clock)
    await kafka.close()
    async for finding in _redis(settings):
        yield finding


def _versions() -> Finding:
    found = []
    for name in _LIBRARIES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            return Finding(
                Grade.MEND,
                "versions",
                f"{name} is not installed; install the service: pip install blendstream[server]",
            )
    python = ".".join(map(str, sys.version_info[:3]))
    return Finding(Grade.OK, "versions", f"Python {python}, " + ", ".join(found))


async def _brokers(settings: Settings) -> AsyncIterator[Finding]:
    admin = AdminClient(librdkafka_settings(settings.kafka))
    timeout_s = settings.kafka.request_timeout_s
    try:
        cluster = await asyncio.to_thread(admin.list_topics, timeout=timeout_s)
    except KafkaException as error:
        yield Finding(
            Grade.MEND,
            "kafka",
            f"no broker at {settings.kafka.bootstrap} answered within {timeout_s:g} s "
            f"({error.args[0].name()}); start Kafka, or mend kafka.url, TLS or SASL settings",
        )
        return
    brokers = len(cluster.brokers)
    yield Finding(Grade.OK, "kafka", f"{brokers} broker(s) answer")
    wanted = settings.topics.replication
    if brokers < wanted:
        yield Finding(
            Grade.MEND,
            "replication",
            f"topics.replication is {wanted} and there are {brokers} brokers; add brokers, or say "
            "topics.one_node = true for a set-up whose data may be lost",
        )
    elif settings.topics.one_node:
        yield Finding(
            Grade.NOTE,
            "replication",
            "topics.one_node is set: losing one disk loses everything; not for production",
        )
    else:
        yield Finding(Grade.OK, "replication", f"{wanted} copies, {brokers} brokers")
    unclean = await _broker_setting(admin, cluster, "unclean.leader.election.enable", timeout_s)
    if unclean == "true":
        yield Finding(
            Grade.MEND,
            "elections",
            "unclean.leader.election.enable is true: accepted records may be lost; set it to false",
        )
    else:
        yield Finding(Grade.OK, "elections", "unclean elections are off")


async def _broker_setting(admin: AdminClient, cluster: Any, name: str, timeout_s: float) -> str:
    broker = ConfigResource(ConfigResource.Type.BROKER, str(next(iter(cluster.brokers))))
    futures = admin.describe_configs([broker], request_timeout=timeout_s)
    try:
        config = await asyncio.wrap_future(futures[broker])
    except KafkaException:
        return "unknown"
    entry = config.get(name)
    return "unknown" if entry is None or entry.value is None else str(entry.value)


async def _topics(settings: Settings, kafka: KafkaLog) -> AsyncIterator[Finding]:
    try:
        problems = await topic_problems(settings, kafka)
    except BlenderError as error:
        yield Finding(Grade.MEND, "topics", str(error))
        return
    for problem in problems:
        yield Finding(Grade.NOTE if "not there yet" in problem else Grade.MEND, "topics", problem)
    if not problems:
        yield Finding(Grade.OK, "topics", f"all {len(Topics(settings).all())} are as they must be")


async def _broker_clock(settings: Settings, kafka: KafkaLog, clock: Callable[[], float]) -> Finding:
    topic = Topics(settings).clock.name
    allowed_s = settings.epoch.allowed_skew_s
    if (await kafka.describe([topic]))[topic] is None:
        return Finding(Grade.NOTE, "clock", "not compared yet: the topics are not there")
    appended_ms: list[int] = []
    producer = Producer(producer_settings(settings.kafka))
    sent_s = clock()
    producer.produce(topic, b"?", on_delivery=lambda _e, m: appended_ms.append(m.timestamp()[1]))
    await asyncio.to_thread(producer.flush, settings.kafka.request_timeout_s)
    acknowledged_s = clock()
    if not appended_ms or appended_ms[0] <= 0:
        return Finding(Grade.MEND, "clock", "the broker did not tell its time; see kafka above")
    append_s = appended_ms[0] / 1000
    skew = max(0.0, sent_s - append_s, append_s - acknowledged_s)
    if skew > allowed_s:
        return Finding(
            Grade.MEND,
            "clock",
            f"this clock and the broker's must be within epoch.allowed_skew_s = {allowed_s:g} s, "
            f"found at least {skew:.1f} s; run NTP on both",
        )
    return Finding(Grade.OK, "clock", f"within {allowed_s:g} s of the broker's")


async def _redis(settings: Settings) -> AsyncIterator[Finding]:
    try:
        client = await connect_redis(settings.redis)
    except BlenderError as error:
        yield Finding(
            Grade.MEND,
            "redis",
            f"{error}; start Redis, or mend redis.url (user, password, TLS) or redis.timeout_s",
        )
        return
    try:
        async for finding in _redis_server(client, settings):
            yield finding
    except BlenderError as error:
        yield Finding(Grade.MEND, "redis", str(error))
    finally:
        await client.aclose()


async def _redis_server(client: Client, settings: Settings) -> AsyncIterator[Finding]:
    server = _first(await client.info("server"))
    name = "Valkey" if "valkey_version" in server else "Redis"
    found = str(server.get("valkey_version") or server.get("redis_version", "0.0"))
    if tuple(int(part) for part in found.split(".")[:2]) < _OLDEST_REDIS:
        yield Finding(
            Grade.MEND, "redis", f"version 6.2 or newer is needed, found {found}; upgrade"
        )
    else:
        yield Finding(Grade.OK, "redis", f"{name} {found} answers")
    await check_redis(client)
    yield Finding(Grade.OK, "eviction", "noeviction: no count is dropped when memory is short")
    persistence = _first(await client.info("persistence"))
    if int(persistence.get("aof_enabled", 0)):
        yield Finding(Grade.OK, "persistence", "append-only file is on")
    else:
        yield Finding(
            Grade.NOTE if settings.topics.one_node else Grade.MEND,
            "persistence",
            "appendonly is off: a restart of Redis counts everything again from Kafka; set "
            "`appendonly yes` in redis.conf, or `CONFIG SET appendonly yes`",
        )


def _first(info: Mapping[str, Any]) -> Mapping[str, Any]:
    """A cluster answers node by node; one node's word is enough here."""
    values = list(info.values())
    return values[0] if values and all(isinstance(v, dict) for v in values) else info
