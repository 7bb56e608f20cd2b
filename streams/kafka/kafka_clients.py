"""Kafka queries beyond the consumer: topic ids, start and end offsets, gaps between records.

They use librdkafka, because aiokafka has no topic ids and no end-of-partition event. Every query
has a deadline; an unreachable Kafka is `StoreUnavailable`, and queries may be retried.

An isolated broker continues to respond from its stale replica, and a client that considers it the
leader continues to use it. So an end offset may be too low, but never too high, and the records
below it are correct. docs/released-once.md explains for every caller why that does no harm.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.settings.sections import KafkaSettings

__all__ = [
    "KafkaInspector",
    "LogBounds",
    "TopicDescription",
    "aiokafka_settings",
    "append_time_ms",
    "discard_producer",
    "librdkafka_settings",
    "producer_settings",
    "security_protocol",
    "ssl_context",
]

T = TypeVar("T")
Isolation = Literal["read_committed", "read_uncommitted"]
#: Kafka's special timestamps for a partition's end and start.
_LATEST: Final = -1
_EARLIEST: Final = -2
#: Errors while the leadership of a partition moves.
_LEADER_MOVED: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError._UNKNOWN_PARTITION,  # librdkafka's own, of a topic that is a moment old
    }
)
_RETRY_S: Final = 0.1
#: Timeout per broker when all are queried.
_EACH_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic's current state. A topic that was deleted and recreated has another id."""

    id: str
    partitions: int
    #: Number of replicas of the partition with the fewest.
    copies: int


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Log start offset and log end offset of a partition."""

    begin: int
    end: int


def librdkafka_settings(kafka: KafkaSettings) -> dict[str, Any]:
    """Return the connection settings for librdkafka."""
    options: dict[str, Any] = {
        "bootstrap.servers": kafka.bootstrap,
        "security.protocol": security_protocol(kafka),
        "socket.timeout.ms": round(kafka.request_timeout_s * 1000),
        "reconnect.backoff.max.ms": 1000,
        # Its default of 5 minutes is too long while an isolated broker still claims to lead.
        "topic.metadata.refresh.interval.ms": 10_000,
        # It would log every reconnection to standard error; ours are in the metrics.
        "log_level": 0,
        "log.connection.close": False,
    }
    if kafka.sasl_mechanism != "none":
        options |= {
            "sasl.mechanism": kafka.sasl_mechanism,
            "sasl.username": kafka.user,
            "sasl.password": kafka.password.reveal(),
        }
    for name, file in (
        ("ssl.ca.location", kafka.tls_ca_file),
        ("ssl.certificate.location", kafka.tls_certificate_file),
        ("ssl.key.location", kafka.tls_key_file),
    ):
        if file is not None:
            options[name] = str(file)
    if kafka.tls_key_password:
        options["ssl.key.password"] = kafka.tls_key_password.reveal()
    return options


def aiokafka_settings(kafka: KafkaSettings) -> dict[str, Any]:
    """Return the connection settings for aiokafka."""
    options: dict[str, Any] = {
        "bootstrap_servers": kafka.bootstrap,
        "request_timeout_ms": round(kafka.request_timeout_s * 1000),
        "security_protocol": security_protocol(kafka),
        "ssl_context": ssl_context(kafka),
    }
    if kafka.sasl_mechanism != "none":
        options |= {
            "sasl_mechanism": kafka.sasl_mechanism,
            "sasl_plain_username": kafka.user,
            "sasl_plain_password": kafka.password.reveal(),
        }
    return options


def security_protocol(kafka: KafkaSettings) -> str:
    """Return Kafka's name of the connection's security protocol."""
    sasl = "SASL_" if kafka.sasl_mechanism != "none" else ""
    return sasl + ("SSL" if kafka.tls else "PLAINTEXT")


def ssl_context(kafka: KafkaSettings) -> ssl.SSLContext | None:
    """Make the TLS context for clients other than librdkafka."""
    if not kafka.tls:
        return None
    context = ssl.create_default_context(cafile=kafka.tls_ca_file)
    if kafka.tls_certificate_file is not None:
        password = kafka.tls_key_password.reveal() or None
        context.load_cert_chain(kafka.tls_certificate_file, kafka.tls_key_file, password)
    return context


def producer_settings(kafka: KafkaSettings) -> dict[str, Any]:
    """Return librdkafka's settings for a producer that appends each acknowledged record once.

    One request in flight, because with several, idempotence alone does not ensure that: see
    docs/decisions/0063-one-request-in-flight.md.
    """
    return librdkafka_settings(kafka) | {
        "enable.idempotence": True,
        "acks": "all",
        "max.in.flight.requests.per.connection": 1,
    }


def append_time_ms(message: Message) -> int | None:
    """Return the append time of an acknowledged message, if the broker reported it."""
    kind, append_ms = message.timestamp()
    return append_ms if kind == TIMESTAMP_LOG_APPEND_TIME else None


def discard_producer(producer: Producer) -> None:
    """Discard a producer's unsent messages, without waiting for a broker that may be down."""
    with contextlib.suppress(KafkaException, SystemError):
        producer.purge(in_queue=True, in_flight=True, blocking=False)
        producer.poll(0)


class KafkaInspector:
    """Queries topics and partitions. A process has one."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = librdkafka_settings(settings)
        self._timeout_s = settings.request_timeout_s
        self._querying_all = asyncio.Lock()
        #: By topic: monotonic time of the last query to every broker, and the result.
        self._max_ends: dict[str, tuple[float, dict[int, int]]] = {}
        self._renew()

    def _renew(self) -> None:
        """Replace the clients, and with them their cached metadata.

        After a failure librdkafka continues to query the former leader, with the old leader epoch,
        even when that broker is down and another leads; a new client looks the leader up.
        """
        self._admin = AdminClient({**self._settings})
        self._readers: dict[Isolation, Consumer] = {}

    async def describe(self, topics: Sequence[str]) -> dict[str, TopicDescription | None]:
        """Return each topic's id, partitions and replicas, or None if it does not exist."""
        futures = self._admin.describe_topics(
            TopicCollection(list(topics)), request_timeout=self._timeout_s
        )
        descriptions: dict[str, TopicDescription | None] = {}
        for name, future in futures.items():
            try:
                topic = await self._answer(asyncio.wrap_future(future))
            except _NoSuchTopic:
                descriptions[name] = None
            else:
                copies = min(len(partition.replicas) for partition in topic.partitions)
                descriptions[name] = TopicDescription(
                    str(topic.topic_id), len(topic.partitions), copies
                )
        return descriptions

    async def leaders(self, topic: str) -> dict[int, int]:
        """Return every broker that leads a partition of a topic, with one such partition."""
        partitions = (await self._metadata(topic)).topics[topic].partitions
        return {
            about.leader: number
            for number, about in sorted(partitions.items(), reverse=True)
            if about.leader >= 0
        }

    async def _metadata(self, topic: str) -> Any:
        return await self._answer(
            asyncio.to_thread(self._admin.list_topics, topic, timeout=self._timeout_s)
        )

    async def bounds(self, topic: str, partition: int) -> LogBounds:
        """Return the current start and end offsets of a partition."""
        begin = await self._offsets(topic, [partition], _EARLIEST)
        return LogBounds(begin[partition], (await self.ends(topic, [partition]))[partition])

    async def ends(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """Return the current end offsets of several partitions, with one request."""
        return await self._offsets(topic, partitions, _LATEST)

    async def last_stable_offset(self, topic: str, partition: int) -> int:
        """Return the last stable offset, at which readers of committed records stop now."""
        ends = await self._offsets(topic, [partition], _LATEST, "read_committed")
        return ends[partition]

    async def max_end_offset(self, topic: str, partition: int) -> int:
        """Return the highest end offset that any broker reports, each queried separately.

        For callers that would otherwise refuse or halt something because an end is too low. The
        result is correct as long as one reachable broker knows the leader. The query is slow, so
        concurrent callers share a result.
        """
        requested_at = time.monotonic()
        async with self._querying_all:
            at, ends = self._max_ends.get(topic, (0.0, {}))
            if at <= requested_at or partition not in ends:
                at = time.monotonic()
                ends = await self._query_all(topic)
                self._max_ends[topic] = at, ends
            return ends[partition]

    async def _query_all(self, topic: str) -> dict[int, int]:
        metadata = await self._metadata(topic)
        partitions = list(metadata.topics[topic].partitions)
        results = await asyncio.gather(
            *(
                asyncio.to_thread(self._ends_by, f"{broker.host}", broker.port, topic, partitions)
                for broker in metadata.brokers.values()
            ),
            return_exceptions=True,
        )
        ends = [result for result in results if isinstance(result, dict)]
        if not ends or not partitions:
            raise StoreUnavailable("no broker reported the end of a partition")
        # A broker may know more than our client, which then uses the wrong one.
        self._renew()
        return {p: max(result[p] for result in ends) for p in partitions}

    def _ends_by(
        self, host: str, port: int, topic: str, partitions: Sequence[int]
    ) -> dict[int, int]:
        """Return the end offsets reported by the brokers that this broker names as leaders."""
        named = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        reader = _offset_reader({**self._settings, "bootstrap.servers": named})
        limit_s = min(_EACH_S, self._timeout_s)
        try:
            return _ask_offsets(reader, topic, partitions, _LATEST, limit_s)
        finally:
            reader.close()

    async def _offsets(
        self,
        topic: str,
        partitions: Sequence[int],
        time_ms: int,
        isolation: Isolation = "read_uncommitted",
        least: int = 0,
    ) -> dict[int, int]:
        """Return per partition the first offset appended at or after a time."""
        reader = self._reader(isolation)
        asked = asyncio.to_thread(
            _ask_offsets, reader, topic, partitions, time_ms, self._timeout_s, least
        )
        return await self._answer(asked)

    def _reader(self, isolation: Isolation) -> Consumer:
        if isolation not in self._readers:
            self._readers[isolation] = _offset_reader(self._settings, isolation)
        return self._readers[isolation]

    async def next_record(self, topic: str, partition: int, offset: int) -> int:
        """Return the offset of the first record from `offset` on; the log's end if none."""
        asked = asyncio.to_thread(self._poll_once, topic, partition, offset)
        return (await self._answer(asked))[0]

    async def append_ms(self, topic: str, partition: int, offset: int) -> int | None:
        """Return the append time of the record at `offset`; None if there is none (any more)."""
        asked = asyncio.to_thread(self._poll_once, topic, partition, offset)
        first, append_ms = await self._answer(asked)
        return append_ms if first == offset else None

    def _poll_once(self, topic: str, partition: int, offset: int) -> tuple[int, int]:
        """Fetch offset and append time of the first record from `offset` on; else the end and 0."""
        reader = Consumer(
            {
                **self._settings,
                "group.id": "blendstream-next-record",  # Required, never joined.
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_uncommitted",
                "fetch.wait.max.ms": 100,
            }
        )
        try:
            reader.assign([TopicPartition(topic, partition, offset)])
            message = reader.poll(self._timeout_s)
            if message is None:
                raise StoreUnavailable("Kafka did not answer a fetch in time")
            error = message.error()
            if error is None:
                return int(message.offset() or 0), message.timestamp()[1]
            if error.code() == KafkaError._PARTITION_EOF:
                return int(message.offset() or 0), 0
            raise StoreUnavailable(f"Kafka did not answer a fetch ({error.name()})")
        finally:
            reader.close()

    async def _answer(self, call: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s + 1):
                return await call
        except KafkaException as error:
            code = error.args[0].code() if error.args else None
            if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
                raise _NoSuchTopic(
                    "a topic does not exist in Kafka; `blendstream doctor` names the missing ones"
                ) from error
            self._renew()
            name = error.args[0].name() if error.args else "unknown"
            raise StoreUnavailable(f"Kafka did not answer ({name})") from error
        except TimeoutError as error:
            self._renew()
            raise StoreUnavailable("Kafka did not answer in time") from error

    async def close(self) -> None:
        """Let the admin client finish its pending callbacks."""
        with contextlib.suppress(Exception):
            await asyncio.to_thread(self._admin.poll, 0)


def _offset_reader(
    settings: Mapping[str, Any], isolation: Isolation = "read_uncommitted"
) -> Consumer:
    """Make a client that queries offsets and reads no records.

    Not the admin client's `list_offsets`: while a leader refuses connections, librdkafka 2.16
    retries such a request immediately, thousands of times per second, until its deadline. A
    consumer waits between two attempts (`reconnect.backoff.ms`).
    """
    return Consumer(
        {
            **settings,
            "group.id": "blendstream-offsets",  # Required, never joined.
            "enable.auto.commit": False,
            "isolation.level": isolation,
        }
    )


def _ask_offsets(
    reader: Consumer,
    topic: str,
    partitions: Sequence[int],
    time_ms: int,
    timeout_s: float,
    least: int = 0,
) -> dict[int, int]:
    deadline = time.monotonic() + timeout_s
    while True:
        left_s = max(deadline - time.monotonic(), 0.001)
        try:
            answers = _offsets_for_time(reader, topic, partitions, time_ms, left_s)
            break
        except KafkaException as error:
            # A new leader may not know yet that it leads; librdkafka looks it up in between.
            if error.args[0].code() not in _LEADER_MOVED or left_s < _RETRY_S:
                raise
            time.sleep(_RETRY_S)
    if any(answer.offset < least for answer in answers):
        # A broker that is recovering: librdkafka raises nothing, and returns -1001. As the log's
        # end, that would mean that everything in the log was read.
        raise StoreUnavailable("Kafka did not return an offset")
    return {answer.partition: answer.offset for answer in answers}


def _offsets_for_time(
    reader: Consumer, topic: str, partitions: Sequence[int], time_ms: int, timeout_s: float
) -> list[TopicPartition]:
    """Return all partitions' offsets, or raise the first error of the request or a partition."""
    wanted = [TopicPartition(topic, partition, time_ms) for partition in partitions]
    answers = reader.offsets_for_times(wanted, timeout=timeout_s)
    for answer in answers:
        if answer.error is not None:
            raise KafkaException(answer.error)
    return answers


class _NoSuchTopic(StoreUnavailable):
    """The topic does not exist (yet)."""
