"""Check everything that the service depends on, and state how to fix each problem.

The checks leave no trace: they create no topic of the service, and the key that tests whether Redis
accepts writes expires within a minute. A broker's time is only visible in a record that it appends,
so a byte or two are written to the clock topic, which nobody reads. Before the first start that
topic does not exist, so a temporary one is created and deleted.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from importlib.metadata import PackageNotFoundError, requires, version

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from blendstream.agents.gateway.http.listening import listening_address, needs_edge
from blendstream.agents.operations.budget_words import budget_use, duration_text
from blendstream.agents.operations.fencing_checks import broker_setting, fencing_checks
from blendstream.agents.operations.findings import Finding, Grade, fix, note, ok
from blendstream.agents.operations.redis_checks import redis_checks, version_numbers
from blendstream.agents.operations.release_log_check import check_release_log
from blendstream.agents.plurals import counted, noun
from blendstream.agents.tokens import TokenFileError, read_tokens
from blendstream.blender.values.errors import BlenderError
from blendstream.streams.budget.ledger import Ledger
from blendstream.streams.kafka.kafka_clients import (
    KafkaInspector,
    librdkafka_settings,
    producer_settings,
)
from blendstream.streams.kafka.topics import Topics, copies_of_topics, inspect_topics
from blendstream.streams.settings import Settings
from blendstream.streams.settings.sections import GatewaySettings, TopicsSettings

__all__ = [
    "Finding",
    "Grade",
    "budget",
    "edge_needed",
    "elections",
    "examine",
    "replication",
    "versions",
]

_LIBRARIES = (
    "blendstream", "faust-streaming", "aiokafka", "confluent-kafka", "redis", "dp-accounting",
    "numpy",
)  # fmt: skip


async def examine(
    settings: Settings, clock: Callable[[], float] = time.time
) -> AsyncIterator[Finding]:
    """Check everything and yield each finding immediately. `clock` is this machine's."""
    yield versions()
    yield _tokens(settings)
    yield edge_needed(settings.gateway)
    yield budget(settings, clock())
    kafka = KafkaInspector(settings.kafka)
    reachable = True
    async for finding in _brokers(settings, kafka):
        # Topics and clock are checked if a broker responds, even if something else is wrong.
        reachable = reachable and (finding.what, finding.grade) != ("kafka", Grade.FIX)
        yield finding
    if reachable:
        async for finding in _topics(settings, kafka):
            yield finding
        grade, sentence = await check_release_log(settings, kafka)
        yield Finding(Grade(grade), "release log", sentence)
        yield await _broker_clock(settings, kafka, clock)
    await kafka.close()
    async for finding in redis_checks(settings):
        yield finding


def versions(installed: Callable[[str], str] = version) -> Finding:
    """Check the versions of the most important libraries, and list those that are too old."""
    try:
        # An upper bound may come first: faust-streaming<0.16,>=0.15.3
        listed = "\n".join(requires("blendstream") or ())
        needed = re.findall(r"(?m)^([\w-]+)[^;\n]*>=([\d.]+)", listed)
        server = {name: least for name, least in needed if name in _LIBRARIES}
        found = {name: installed(name) for name in _LIBRARIES}
    except PackageNotFoundError as error:
        return fix(
            "versions",
            f"{error.name} is not installed; install it: pip install 'blendstream[server]'",
        )
    old = [
        f"{name} {found[name]} is older than {least}"
        for name, least in server.items()
        if version_numbers(found[name], 3) < version_numbers(least, 3)
    ]
    if old:
        return fix(
            "versions",
            f"{', '.join(old)}; install the service again: pip install 'blendstream[server]'",
        )
    python = ".".join(map(str, sys.version_info[:3]))
    listing = ", ".join(f"{name} {number}" for name, number in found.items())
    return ok("versions", f"Python {python}, {listing}")


def _tokens(settings: Settings) -> Finding:
    """Check that an application may send opt-in records; without any, nothing is published."""
    file = settings.gateway.token_file
    how = "`blendstream tokens add APPLICATION --file FILE` creates one"
    if file is None:
        return fix(
            "tokens",
            "gateway.token_file is not set: a gateway refuses every opt-in record, and nothing is "
            f"published; {how} (a host that runs no gateway needs none)",
        )
    try:
        applications = len(read_tokens(file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        return fix(
            "tokens",
            f"gateway.token_file must be a readable text file, got {type(error).__name__}; let the "
            "service's user read it, or name another",
        )
    except TokenFileError as error:
        return fix("tokens", str(error))
    if not applications:
        return fix(
            "tokens",
            f"gateway.token_file names no application: every opt-in record is refused; {how}",
        )
    return ok("tokens", f"{counted(applications, 'application')} may send opt-in records")


def edge_needed(gateway: GatewaySettings) -> Finding:
    """Check whether other machines can connect to the gateway without passing an edge."""
    at = listening_address(gateway)
    if needs_edge(gateway):
        return note(
            "edge",
            f"the gateway listens at {at}, where anyone who reaches this host can bypass the edge: "
            "set gateway.unix_socket behind nginx on this host, or let the firewall admit only the "
            "edge (docs/install.md, The edge)",
        )
    return ok("edge", f"the gateway listens at {at}, which only this host reaches")


def budget(settings: Settings, now_s: float) -> Finding:
    """Check how many epochs of a whole period the limits pay for."""
    period_s, window_s = settings.budget.period_s, settings.epoch.window_s
    start_s = int(now_s) // period_s * period_s
    use = budget_use(settings, Ledger(), start_s)
    period, window = duration_text(period_s), duration_text(window_s)
    if use.whole_period:
        return ok("budget", f"pays for every epoch of {window} in a period of {period}")
    return note(
        "budget",
        f"pays for {counted(use.affordable, 'epoch')} of {window} in a period of {period}: "
        f"collecting then pauses for {duration_text(period_s - use.affordable * window_s)}. To "
        "collect longer raise the budget's limits, lower privacy.epsilon, raise privacy.cohorts or "
        "lengthen epoch.window_s; `blendstream ledger` shows how many epochs are left now",
    )


async def _brokers(settings: Settings, kafka: KafkaInspector) -> AsyncIterator[Finding]:
    admin = AdminClient(librdkafka_settings(settings.kafka))
    timeout_s = settings.kafka.request_timeout_s
    try:
        cluster = await asyncio.to_thread(admin.list_topics, timeout=timeout_s)
    except KafkaException as error:
        yield fix(
            "kafka",
            f"no broker at {settings.kafka.bootstrap} responded within {timeout_s:g} s "
            f"({error.args[0].name()}); start Kafka, or correct kafka.url, TLS or SASL settings",
        )
        return
    brokers = len(cluster.brokers)
    yield ok("kafka", f"answered by {counted(brokers, 'broker')}")
    try:
        copies = await copies_of_topics(settings, kafka)
    except BlenderError as error:
        yield fix("replication", str(error))
        return
    yield replication(settings.topics, brokers, copies)
    yield elections(
        {
            broker: await broker_setting(admin, broker, "unclean.leader.election.enable", timeout_s)
            for broker in sorted(cluster.brokers)
        }
    )
    try:
        async for finding in fencing_checks(settings, kafka, admin, sorted(cluster.brokers)):
            yield finding
    except BlenderError as error:
        yield fix("transactions", str(error))


def replication(wanted: TopicsSettings, brokers: int, copies: Mapping[str, int]) -> Finding:
    """Check that every topic has as many copies as the settings require; `copies` by topic."""
    if brokers < wanted.replication:
        return fix(
            "replication",
            f"topics.replication is {wanted.replication}, found {counted(brokers, 'broker')}; add "
            "brokers, or set topics.allow_single_broker = true for a set-up whose data may be lost",
        )
    few = sorted(name for name, number in copies.items() if number < wanted.replication)
    if few:
        return fix(
            "replication",
            f"every topic must have topics.replication = {wanted.replication} copies, found fewer "
            f"of {counted(len(few), 'topic')} ({', '.join(few)}); the setting applies to topics "
            "when they are created: add copies to these with kafka-reassign-partitions.sh",
        )
    if wanted.allow_single_broker:
        return note(
            "replication",
            "topics.allow_single_broker is set: the loss of one disk loses all data; not for "
            "production",
        )
    return ok("replication", f"{wanted.replication} copies, {counted(brokers, 'broker')}")


def elections(unclean: Mapping[int, str | None]) -> Finding:
    """Check every broker's `unclean.leader.election.enable`; `None`: it did not report it."""
    on = [str(broker) for broker, value in unclean.items() if value == "true"]
    if on:
        return fix(
            "elections",
            f"unclean.leader.election.enable is true on {noun(len(on), 'broker')} {', '.join(on)}: "
            "accepted records may be lost; set it to false",
        )
    silent = [str(broker) for broker, value in unclean.items() if value is None]
    if silent:
        return note(
            "elections",
            f"{noun(len(silent), 'broker')} {', '.join(silent)} did not report whether unclean "
            "elections are off; let this user describe the brokers' configuration, or check that "
            "unclean.leader.election.enable is false",
        )
    return ok("elections", f"unclean elections are off on {counted(len(unclean), 'broker')}")


async def _topics(settings: Settings, kafka: KafkaInspector) -> AsyncIterator[Finding]:
    try:
        missing, problems = await inspect_topics(settings, kafka)
    except BlenderError as error:
        yield fix("topics", str(error))
        return
    for problem in problems:
        yield fix("topics", problem)
    if missing:
        yield note(
            "topics",
            f"{len(missing)} topics do not exist yet ({', '.join(missing)}); the first worker, "
            "gateway or jobs process to start creates them",
        )
    if not problems and not missing:
        yield ok("topics", f"all {len(Topics(settings).all())} have the required settings")


async def _broker_clock(
    settings: Settings, kafka: KafkaInspector, clock: Callable[[], float]
) -> Finding:
    topic = Topics(settings).clock.name
    try:
        exists = (await kafka.describe([topic]))[topic] is not None
    except BlenderError as error:
        return fix("clock", f"not compared: {error}; run this again")
    if exists:
        return await _compared_clocks(settings, kafka, topic, clock)
    topic = f"{settings.topics.prefix}.doctor-{secrets.token_hex(4)}"
    admin = AdminClient(librdkafka_settings(settings.kafka))
    timeout_s = settings.kafka.request_timeout_s
    new_topic = NewTopic(
        topic,
        num_partitions=1,
        replication_factor=1,
        config={"message.timestamp.type": "LogAppendTime", "min.insync.replicas": "1"},
    )
    try:
        created = admin.create_topics(
            [new_topic], operation_timeout=timeout_s, request_timeout=timeout_s
        )
        await asyncio.wrap_future(created[topic])
    except KafkaException as error:
        return note(
            "clock",
            "not compared: the topics do not exist yet, and Kafka refused to create a temporary "
            f"one ({error.args[0].name()}); run this again after the first start",
        )
    finding = await _compared_clocks(settings, kafka, topic, clock)
    try:
        deleted = admin.delete_topics(
            [topic], operation_timeout=timeout_s, request_timeout=timeout_s
        )
        await asyncio.wrap_future(deleted[topic])
    except KafkaException as error:
        sentence = f"{finding.found}; the temporary topic {topic} could not be deleted "
        sentence += f"({error.args[0].name()}): delete it by hand"
        return Finding(max(finding.grade, Grade.NOTE, key=list(Grade).index), "clock", sentence)
    return finding


async def _compared_clocks(
    settings: Settings, kafka: KafkaInspector, topic: str, clock: Callable[[], float]
) -> Finding:
    """Compare this clock with every broker that leads a partition of the topic."""
    allowed_s, timeout_s = settings.epoch.allowed_skew_s, settings.kafka.request_timeout_s
    deliveries: list[tuple[KafkaError | None, int]] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        deliveries.append((error, message.timestamp()[1]))

    limit = {"message.timeout.ms": round(timeout_s * 1000)}
    producer = Producer(producer_settings(settings.kafka) | limit)
    try:
        # The leader of a new topic may not be known yet.
        partitions = sorted((await kafka.leaders(topic)).values()) or [0]
    except BlenderError as error:
        return fix("clock", f"not compared: {error}; run this again")
    skew = 0.0
    # Twice: the first also connects to the broker, the second measures without that delay.
    for partition in [p for p in partitions for _ in range(2)]:
        deliveries.clear()
        sent_s = clock()
        producer.produce(topic, b"?", partition=partition, on_delivery=on_delivery)
        await asyncio.to_thread(producer.flush, timeout_s + 1)
        acknowledged_s = clock()
        if not deliveries or deliveries[0][0] is not None:
            refusal = deliveries[0][0] if deliveries else None
            return fix(
                "clock",
                f"not compared: Kafka must accept a record for topic {topic}, got "
                f"{refusal.name() if refusal else 'no response'}; let this user write there, and "
                "check that topics.min_insync_replicas brokers are in sync",
            )
        append_s = deliveries[0][1] / 1000
        skew = max(skew, sent_s - append_s, append_s - acknowledged_s)
    if skew > allowed_s:
        return fix(
            "clock",
            f"this clock and the brokers' must be within epoch.allowed_skew_s = {allowed_s:g} s, "
            f"found at least {skew:.1f} s; run NTP on all",
        )
    return ok("clock", f"within {allowed_s:g} s of that of {counted(len(partitions), 'broker')}")
