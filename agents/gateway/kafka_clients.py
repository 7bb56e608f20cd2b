"""How the gateway connects to Kafka: one idempotent producer, one reader of committed records."""

from __future__ import annotations

from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from streams.kafka import security_protocol, ssl_context
from streams.records.frames import MAX_FRAME_BYTES
from streams.settings.sections import KafkaSettings

__all__ = ["make_producer", "make_reader"]

#: Two frames to a request and partition: a partition that fell behind catches up faster, and one
#: request stays below the brokers' usual limit of 1 MB.
_BATCH_BYTES = 2 * MAX_FRAME_BYTES + 4096


def make_producer(kafka: KafkaSettings) -> AIOKafkaProducer:
    """Acknowledged by every in-sync replica, written once however often it is sent."""
    return AIOKafkaProducer(
        **_connection(kafka),
        acks="all",
        enable_idempotence=True,
        linger_ms=0,
        max_batch_size=_BATCH_BYTES,
        max_request_size=_BATCH_BYTES,
    )


def make_reader(kafka: KafkaSettings) -> AIOKafkaConsumer:
    """Reads what was committed, from wherever it is told to, in no group."""
    return AIOKafkaConsumer(
        **_connection(kafka),
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )


def _connection(kafka: KafkaSettings) -> dict[str, Any]:
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
