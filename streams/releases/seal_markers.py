"""Seal markers: frames whose acknowledged offsets bound an epoch's entries.

A seal needs each partition's true end. A reported end offset is not enough, because an isolated
broker reports that of its stale replica. A marker is a frame without entries
(`streams.wire.frames`) that every in-sync replica has acknowledged, which an isolated leader cannot
obtain. Records that precede the marker in the log were appended before it.

Promises: `write` returns the markers' offsets and append times, or raises. A marker may be written
twice, or although `write` raised. That is harmless: only a seal that is committed to the release
log gives a marker any meaning.
Assumes: the topic's `min.insync.replicas` is as `streams.kafka.topics` requires.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from blendstream.streams.errors import StoreMismatch, StoreUnavailable
from blendstream.streams.kafka.kafka_clients import (
    append_time_ms,
    discard_producer,
    producer_settings,
)
from blendstream.streams.names import InputStream
from blendstream.streams.settings.sections import KafkaSettings
from blendstream.streams.wire.frames import FrameKind, encode_marker

__all__ = ["AppendedMarker", "SealMarkers"]

_KINDS: Final = {
    InputStream.OPTIN_RECORDS: FrameKind.OPTIN_RECORDS,
    InputStream.CLIENT_REPORTS: FrameKind.CLIENT_REPORTS,
}
_NOT_ALLOWED: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)


class AppendedMarker(NamedTuple):
    """Offset of a marker in its partition, and its append time by the broker's clock."""

    offset: int
    append_ms: int


class SealMarkers:
    """Writes markers with a plain idempotent producer, and replaces it after any failure."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._settings = producer_settings(kafka) | {
            "linger.ms": 0,
            "message.timeout.ms": round(kafka.request_timeout_s * 1000),
        }
        self._timeout_s = kafka.request_timeout_s
        self._producer: Producer | None = None

    async def write(
        self, stem: InputStream, topic: str, partitions: int, epoch: int
    ) -> list[AppendedMarker]:
        """Write one marker to each partition and wait until every in-sync replica has them."""
        value = encode_marker(_KINDS[stem], epoch, secrets.token_bytes(16))
        return await asyncio.to_thread(self._write, topic, partitions, value)

    def close(self) -> None:
        """Close the connections, abandoning writes that were not acknowledged."""
        producer, self._producer = self._producer, None
        if producer is not None:
            discard_producer(producer)

    def _write(self, topic: str, partitions: int, value: bytes) -> list[AppendedMarker]:
        deliveries: dict[int, tuple[KafkaError | None, Message]] = {}

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            deliveries[message.partition() or 0] = error, message

        if self._producer is None:
            # Without a logger it writes to standard error.
            self._producer = Producer(self._settings, logger=logging.getLogger(__name__))
        try:
            for partition in range(partitions):
                self._producer.produce(topic, value, partition=partition, on_delivery=on_delivery)
            self._producer.flush(self._timeout_s + 1)
            return _appended(topic, [deliveries.get(partition) for partition in range(partitions)])
        except KafkaException as error:
            self.close()
            raise StoreUnavailable(
                f"a marker could not be written ({error.args[0].name()})"
            ) from error
        except (StoreUnavailable, StoreMismatch):
            # It may still use a former leader. A new producer looks up the leader.
            self.close()
            raise


def _appended(
    topic: str, deliveries: Sequence[tuple[KafkaError | None, Message] | None]
) -> list[AppendedMarker]:
    found = []
    for partition, delivery in enumerate(deliveries):
        error = delivery[0] if delivery else None
        if error is not None and error.code() in _NOT_ALLOWED:
            raise StoreMismatch(
                f"jobs must be allowed to write to {topic}, because a seal is a marker in every "
                f"partition, but Kafka refused it ({error.name()}); give this user WRITE on it"
            )
        if delivery is None or error is not None:
            raise StoreUnavailable(
                f"a marker for partition {partition} of {topic} was not acknowledged in time"
                + (f" ({error.name()})" if error is not None else "")
            )
        append_ms, offset = append_time_ms(delivery[1]), delivery[1].offset()
        if append_ms is None or offset is None or offset < 0:
            # The response of a broker that appended it before and no longer knows the offset.
            raise StoreUnavailable(f"Kafka did not return the offset of a marker in {topic}")
        found.append(AppendedMarker(offset, append_ms))
    return found
