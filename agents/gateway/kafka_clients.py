"""How the gateway connects to Kafka: one idempotent producer, one reader of committed records."""

from __future__ import annotations

import ssl
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

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
    sasl = kafka.sasl_mechanism != "none"
    options: dict[str, Any] = {
        "bootstrap_servers": kafka.bootstrap,
        "request_timeout_ms": round(kafka.request_timeout_s * 1000),
        "security_protocol": ("SASL_" if sasl else "") + ("SSL" if kafka.tls else "PLAINTEXT"),
    }
    if kafka.tls:
        context = ssl.create_default_context(cafile=kafka.tls_ca_file)
        if kafka.tls_certificate_file is not None:
            password = kafka.tls_key_password.reveal() or None
            context.load_cert_chain(kafka.tls_certificate_file, kafka.tls_key_file, password)
        options["ssl_context"] = context
    if sasl:
        options |= {
            "sasl_mechanism": kafka.sasl_mechanism,
            "sasl_plain_username": kafka.user,
            "sasl_plain_password": kafka.password.reveal(),
        }
    return options
