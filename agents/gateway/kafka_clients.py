"""How the gateway writes to Kafka: one idempotent producer."""

from __future__ import annotations

from aiokafka import AIOKafkaProducer

from streams.settings.sections import KafkaSettings
from streams.stores.kafka import aiokafka_settings
from streams.wire.frames import MAX_FRAME_BYTES

__all__ = ["make_producer"]

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
