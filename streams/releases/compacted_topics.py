"""Published documents on compacted topics: the latest of each epoch, for any reader.

Jobs write them from the committed bytes of the release log, and repeat the write when in doubt, so
a document has the same bytes however often it is written. It is compressed and split as in the log:

    key      "41/0", "41/1", …      the epoch and the part's number
    value    the part
    headers  id (SHA-256 of the document), bytes, parts
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.kafka.kafka_clients import librdkafka_settings
from blendstream.streams.releases.documents import DocumentReference, join, split
from blendstream.streams.settings.sections import KafkaSettings
from blendstream.streams.tables.redis import Client, answered

__all__ = ["PublishedMarks", "Publisher", "read_publications"]

#: Tolerance for documents whose append time is too early, by a wrong clock.
_CLOCK_MS = 3_600_000


class Publisher:
    """Writes documents to their compacted topics."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._settings = librdkafka_settings(kafka)
        self._timeout_s = kafka.request_timeout_s

    async def publish(self, topic: str, epoch: int, data: bytes) -> None:
        """Write a document and wait for the brokers' acknowledgement; idempotent."""
        await asyncio.to_thread(self._publish, topic, epoch, data)

    def _publish(self, topic: str, epoch: int, data: bytes) -> None:
        document = split("publication", data)
        headers: list[tuple[str, str | bytes | None]] = [
            ("id", document.id.encode()),
            ("bytes", str(document.size).encode()),
            ("parts", str(len(document.parts)).encode()),
        ]
        # Not an idempotent producer: a retry may write a part twice or late, which puts the same
        # bytes under the same key. Getting a producer id would take the client half a second.
        producer = Producer(
            {**self._settings, "acks": "all", "linger.ms": 0,
             "message.timeout.ms": round(self._timeout_s * 1000)}
        )  # fmt: skip
        sent: list[KafkaError | None] = []
        try:
            for number, part in enumerate(document.parts):
                producer.produce(
                    topic, key=f"{epoch}/{number}".encode(), value=part, headers=headers,
                    partition=0, on_delivery=lambda error, _message: sent.append(error),
                )  # fmt: skip
                producer.poll(0)
            producer.flush(self._timeout_s + 0.1 * len(document.parts))
        except (KafkaException, BufferError, SystemError) as error:
            raise StoreUnavailable("Kafka did not take a publication") from error
        # `is`: comparing one of confluent's errors with None by `!=` raises TypeError.
        if len(sent) < len(document.parts) or any(error is not None for error in sent):
            raise StoreUnavailable("Kafka did not take a publication in time")


class PublishedMarks:
    """Redis's record of which documents were written to a topic.

    A mark is set after the brokers have the document, so an existing mark is true. If Redis loses
    one, the job writes the same bytes again.
    """

    def __init__(self, client: Client, prefix: str, topic: str) -> None:
        self._client = client
        self._key = f"{prefix}:published:{topic}"

    async def all(self) -> dict[int, str]:
        """Return the ids of the written documents, by epoch."""
        found = await answered(self._client.hgetall(self._key))
        return {int(epoch): document_id.decode() for epoch, document_id in found.items()}

    async def add(self, epoch: int, document_id: str) -> None:
        """Note that the brokers have this document."""
        await answered(self._client.hset(self._key, str(epoch), document_id))

    async def drop(self, epochs: Sequence[int]) -> None:
        """Delete the marks of these epochs."""
        if epochs:
            await answered(self._client.hdel(self._key, *map(str, epochs)))


async def read_publications(
    kafka: KafkaSettings, topic: str, epochs: Collection[int] | None = None, since_ms: int = 0
) -> dict[int, bytes]:
    """Read the documents of these epochs, or of all, that the topic contains completely.

    The topic keeps every epoch's document permanently: only the requested ones are kept in memory,
    and reading fails only when no more records arrive. Documents written an hour or more before
    `since_ms` are left out; the hour allows for wrong clocks.
    """
    return await asyncio.to_thread(_read, kafka, topic, epochs, max(0, since_ms - _CLOCK_MS))


def _read(
    kafka: KafkaSettings, topic: str, epochs: Collection[int] | None, since_ms: int
) -> dict[int, bytes]:
    reader = Consumer(
        {
            **librdkafka_settings(kafka),
            "group.id": "blendstream-publications",  # Required, never joined.
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
        }
    )
    parts: dict[tuple[int, str], dict[int, bytes]] = {}
    about: dict[int, tuple[str, Mapping[str, bytes]]] = {}
    patience_s = 6 * kafka.request_timeout_s
    deadline = time.monotonic() + patience_s
    try:
        position, end = _bounds(reader, topic, since_ms, kafka.request_timeout_s)
        reader.assign([TopicPartition(topic, 0, position)])
        while position < end:
            if time.monotonic() > deadline:
                raise StoreUnavailable("the published documents could not be read in time")
            first = reader.poll(0.25)
            rest = reader.consume(num_messages=500, timeout=0)
            for message in [*([] if first is None else [first]), *rest]:
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        position = max(position, message.offset() or 0)
                    continue
                position = (message.offset() or 0) + 1
                deadline = time.monotonic() + patience_s
                headers: dict[str, Any] = dict(message.headers() or [])
                epoch, number = map(int, (message.key() or b"").split(b"/"))
                if epochs is not None and epoch not in epochs:
                    continue
                document_id = headers["id"].decode()
                about[epoch] = document_id, headers
                parts.setdefault((epoch, document_id), {})[number] = message.value() or b""
    finally:
        reader.close()
    found = {}
    for epoch, (document_id, headers_of) in about.items():
        of_epoch = parts[epoch, document_id]
        reference = DocumentReference(
            "publication", document_id, int(headers_of["bytes"]), int(headers_of["parts"]), 0, 0
        )
        if len(of_epoch) == reference.parts:
            found[epoch] = join(reference, [of_epoch[n] for n in sorted(of_epoch)])
    return found


def _bounds(reader: Consumer, topic: str, since_ms: int, timeout_s: float) -> tuple[int, int]:
    try:
        bounds = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=timeout_s)
        (since,) = reader.offsets_for_times([TopicPartition(topic, 0, since_ms)], timeout=timeout_s)
    except KafkaException as error:
        raise StoreUnavailable(f"Kafka did not answer ({error.args[0].name()})") from error
    if bounds is None:
        raise StoreUnavailable("Kafka did not answer in time")
    begin, end = bounds
    # If no record is that young, Kafka returns the end, or no offset.
    return (max(begin, since.offset) if since.offset >= 0 else end), end
