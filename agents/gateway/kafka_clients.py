"""How the gateway connects to Kafka: one idempotent producer, one reader of committed records."""

from __future__ import annotations

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from streams.settings.sections import KafkaSettings
from streams.stores.kafka import aiokafka_settings
from streams.wire.frames import MAX_FRAME_BYTES

__all__ = ["make_producer", "make_reader"]

#: Two frames to a request and partition: a partition that fell behind catches up faster, and one
#: request stays below the brokers' usual limit of 1 MB.
_BATCH_BYTES = 2 * MAX_FRAME_BYTES + 4096


def make_producer(kafka: KafkaSettings) -> AIOKafkaProducer:
    """Acknowledged by every in-sync replica, written once however often it is sent."""
    return AIOKafkaProducer(
        **aiokafka_settings(kafka),
        acks="all",
        enable_idempotence=True,
        linger_ms=0,
        max_batch_size=_BATCH_BYTES,
        max_request_size=_BATCH_BYTES,
    )


def make_reader(kafka: KafkaSettings) -> AIOKafkaConsumer:
    """Reads what was committed, from wherever it is told to, in no group."""
    return AIOKafkaConsumer(
        **aiokafka_settings(kafka),
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
