"""Questions to Kafka that the consumer itself cannot answer: which topic this is, where its log
begins and ends, and whether there is a record between two offsets.

Asked through librdkafka, because aiokafka has no topic ids and no end-of-partition event. Every
question has a deadline; an unreachable Kafka is `StoreUnavailable`, and it is safe to ask again.

A broker that was cut off from its peers continues to answer from its frozen copy, and a client that
took it for the leader continues to ask it. So an end may be too low, never too high, and what lies
below it is true. docs/released-once.md says for every caller why that does no harm.
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
#: Kafka's own times for a partition's end and beginning, where a time is asked for.
_LATEST: Final = -1
_EARLIEST: Final = -2
#: What is answered while the leadership of a partition moves.
_LEADER_MOVED: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError._UNKNOWN_PARTITION,  # librdkafka's own, of a topic that is a moment old
    }
)
_LOOK_AGAIN_S: Final = 0.1
#: How long a broker may take to answer when all are asked.
_EACH_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as it is now. A topic that was deleted and recreated has another id."""

    id: str
    partitions: int
    #: Copies of the partition that has the fewest.
    copies: int


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The first offset a partition still has, and the one its next record will get."""

    begin: int
    end: int


def librdkafka_settings(kafka: KafkaSettings) -> dict[str, Any]:
    """Connection settings as librdkafka takes them."""
    options: dict[str, Any] = {
        "bootstrap.servers": kafka.bootstrap,
        "security.protocol": security_protocol(kafka),
        "socket.timeout.ms": round(kafka.request_timeout_s * 1000),
        "reconnect.backoff.max.ms": 1000,
        # Its own 5 minutes is long while a broker that was cut off from its peers still claims to
        # lead.
        "topic.metadata.refresh.interval.ms": 10_000,
        # It logs every reconnection to standard error by itself; ours are in the metrics.
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
    """The same as aiokafka takes them."""
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
    """What Kafka calls the way a connection is secured."""
    sasl = "SASL_" if kafka.sasl_mechanism != "none" else ""
    return sasl + ("SSL" if kafka.tls else "PLAINTEXT")


def ssl_context(kafka: KafkaSettings) -> ssl.SSLContext | None:
    """TLS context for clients other than librdkafka: CA file and optional client certificate."""
    if not kafka.tls:
        return None
    context = ssl.create_default_context(cafile=kafka.tls_ca_file)
    if kafka.tls_certificate_file is not None:
        password = kafka.tls_key_password.reveal() or None
        context.load_cert_chain(kafka.tls_certificate_file, kafka.tls_key_file, password)
    return context


def producer_settings(kafka: KafkaSettings) -> dict[str, Any]:
    """The same for a producer whose every acknowledged record is in the log, once.

    One request in flight, because idempotence alone does not keep that promise with several: see
    docs/decisions/0063-one-request-in-flight.md.
    """
    return librdkafka_settings(kafka) | {
        "enable.idempotence": True,
        "acks": "all",
        "max.in.flight.requests.per.connection": 1,
    }


def append_time_ms(message: Message) -> int | None:
    """When a broker appended a message that it acknowledged, if it said so."""
    kind, append_ms = message.timestamp()
    return append_ms if kind == TIMESTAMP_LOG_APPEND_TIME else None


def discard_producer(producer: Producer) -> None:
    """Drop what a producer has not sent, without waiting for a broker that may be gone."""
    with contextlib.suppress(KafkaException, SystemError):
        producer.purge(in_queue=True, in_flight=True, blocking=False)
        producer.poll(0)


class KafkaInspector:
    """Asks about topics and partitions. One for each process."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = librdkafka_settings(settings)
        self._timeout_s = settings.request_timeout_s
        self._asking_all = asyncio.Lock()
        #: By topic: when every broker was asked last, on the monotonic clock, and the answer.
        self._furthest: dict[str, tuple[float, dict[int, int]]] = {}
        self._renew()

    def _renew(self) -> None:
        """Forget what the client believes of the cluster.

        After a failure librdkafka continues to ask the leader that it knew, with the old epoch,
        even when that broker is gone and another leads; a new client looks the leader up.
        """
        self._admin = AdminClient({**self._settings})
        self._readers: dict[Isolation, Consumer] = {}

    async def describe(self, topics: Sequence[str]) -> dict[str, TopicDescription | None]:
        """Each topic's id, partitions and copies, or None where there is no such topic."""
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
        """Every broker that leads a partition of a topic, and one partition that it leads."""
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
        """Where the log of a partition begins and ends now."""
        begin = await self._offsets(topic, [partition], _EARLIEST)
        return LogBounds(begin[partition], (await self.ends(topic, [partition]))[partition])

    async def ends(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """Where the logs of several partitions end now, in one question."""
        return await self._offsets(topic, partitions, _LATEST)

    async def last_stable_offset(self, topic: str, partition: int) -> int:
        """Where a reader of committed records stops now: before the first open transaction."""
        ends = await self._offsets(topic, [partition], _LATEST, "read_committed")
        return ends[partition]

    async def max_end_offset(self, topic: str, partition: int) -> int:
        """The highest end of a partition that any broker reports, each asked by its own client.

        For callers that would otherwise refuse or stop something because an end is too low. It is
        right as long as one broker can be reached that knows the leader. Slow; callers that ask at
        the same time share an answer.
        """
        asked_at = time.monotonic()
        async with self._asking_all:
            at, ends = self._furthest.get(topic, (0.0, {}))
            if at <= asked_at or partition not in ends:
                at = time.monotonic()
                ends = await self._ask_all(topic)
                self._furthest[topic] = at, ends
            return ends[partition]

    async def _ask_all(self, topic: str) -> dict[int, int]:
        about = await self._metadata(topic)
        partitions = list(about.topics[topic].partitions)
        answers = await asyncio.gather(
            *(
                asyncio.to_thread(self._ends_by, f"{broker.host}", broker.port, topic, partitions)
                for broker in about.brokers.values()
            ),
            return_exceptions=True,
        )
        known = [answer for answer in answers if isinstance(answer, dict)]
        if not known or not partitions:
            raise StoreUnavailable("no broker said where a partition ends")
        # One that knew more than our own client: that client asks the wrong broker.
        self._renew()
        return {p: max(answer[p] for answer in known) for p in partitions}

    def _ends_by(
        self, host: str, port: int, topic: str, partitions: Sequence[int]
    ) -> dict[int, int]:
        """The answers of those brokers that this broker takes for the leaders."""
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
        """By partition the first offset appended at or after a time."""
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
        """The offset of the first record at or after `offset`; the log's end if there is none."""
        asked = asyncio.to_thread(self._poll_once, topic, partition, offset)
        return (await self._answer(asked))[0]

    async def append_ms(self, topic: str, partition: int, offset: int) -> int | None:
        """When the record at `offset` was appended; None when there is none (any more)."""
        asked = asyncio.to_thread(self._poll_once, topic, partition, offset)
        first, append_ms = await self._answer(asked)
        return append_ms if first == offset else None

    def _poll_once(self, topic: str, partition: int, offset: int) -> tuple[int, int]:
        """Offset and append time of the first record from `offset` on; if none, the end and 0."""
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
                    "Kafka does not have a topic that was asked for; `blendstream doctor` names "
                    "those that are missing"
                ) from error
            self._renew()
            name = error.args[0].name() if error.args else "unknown"
            raise StoreUnavailable(f"Kafka did not answer ({name})") from error
        except TimeoutError as error:
            self._renew()
            raise StoreUnavailable("Kafka did not answer in time") from error

    async def close(self) -> None:
        with contextlib.suppress(Exception):
            await asyncio.to_thread(self._admin.poll, 0)


def _offset_reader(
    settings: Mapping[str, Any], isolation: Isolation = "read_uncommitted"
) -> Consumer:
    """A client that asks for offsets, and reads nothing.

    Not the admin client's `list_offsets`: while a leader refuses connections, librdkafka 2.16 tries
    again at once for every such question, thousands of times a second, until the question's
    deadline. A consumer waits between two attempts (`reconnect.backoff.ms`).
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
            # A new leader may not know yet that it leads; librdkafka looks for it in between.
            if error.args[0].code() not in _LEADER_MOVED or left_s < _LOOK_AGAIN_S:
                raise
            time.sleep(_LOOK_AGAIN_S)
    if any(answer.offset < least for answer in answers):
        # A broker that is just coming back: librdkafka raises nothing, and answers -1001.
        # Taken for the log's end, it would make everything in the log read already.
        raise StoreUnavailable("Kafka did not return an offset")
    return {answer.partition: answer.offset for answer in answers}


def _offsets_for_time(
    reader: Consumer, topic: str, partitions: Sequence[int], time_ms: int, timeout_s: float
) -> list[TopicPartition]:
    """All partitions' answers, or the first error: of the question or of a partition."""
    wanted = [TopicPartition(topic, partition, time_ms) for partition in partitions]
    answers = reader.offsets_for_times(wanted, timeout=timeout_s)
    for answer in answers:
        if answer.error is not None:
            raise KafkaException(answer.error)
    return answers


class _NoSuchTopic(StoreUnavailable):
    """The topic is not there (yet)."""
