"""Who leads a partition, by each broker's own account.

A broker that was cut off from its peers takes itself for the leader as before, and a client that
asks it hears nothing else. Every election raises the partition's leader epoch, so of two answers
the one with the higher epoch is newer: no clock and no majority is needed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from aiokafka.errors import KafkaError

from blendstream.streams.kafka.aiokafka_internals import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
    create_conn,
    request_type,
)
from blendstream.streams.kafka.kafka_clients import aiokafka_settings
from blendstream.streams.settings.sections import KafkaSettings

__all__ = ["Leadership", "newest_leadership"]

#: How long a broker may take to answer.
_EACH_S: Final = 5.0
#: Where a broker listens whose address names no port.
_PORT: Final = 9092

_TAGS = ("tags", TaggedFields)
_STRING = CompactString()
_NUMBERS = CompactArray(Int32)
#: Version 9, which Kafka has since 2.4: aiokafka's own ends before leader epochs.
_METADATA = request_type(
    "Metadata", 3, 9,
    Schema(
        ("topics", CompactArray(("topic", _STRING), _TAGS)), ("create", Boolean),
        ("cluster_operations", Boolean), ("topic_operations", Boolean), _TAGS,
    ),
    Schema(
        ("throttle_ms", Int32),
        ("brokers", CompactArray(
            ("broker", Int32), ("host", _STRING), ("port", Int32), ("rack", _STRING), _TAGS,
        )),
        ("cluster", _STRING), ("controller", Int32),
        ("topics", CompactArray(
            ("error", Int16), ("topic", _STRING), ("internal", Boolean),
            ("partitions", CompactArray(
                ("error", Int16), ("partition", Int32), ("leader", Int32), ("epoch", Int32),
                ("replicas", _NUMBERS), ("in_sync", _NUMBERS), ("offline", _NUMBERS), _TAGS,
            )),
            ("operations", Int32), _TAGS,
        )),
        ("operations", Int32), _TAGS,
    ),
)  # fmt: skip


class _Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Leadership:
    """The newest election of a partition that any broker knows of."""

    epoch: int
    #: The brokers that know of it, as clients take them.
    known_by: str
    #: Whether every broker that answered does.
    agreed: bool


async def newest_leadership(
    kafka: KafkaSettings, topic: str, partition: int = 0
) -> Leadership | None:
    """Ask every broker, each by a connection of its own; None if none knows the partition."""
    asked: set[_Address] = set()
    left = {_address(named) for named in kafka.bootstrap.split(",")}
    epochs: dict[_Address, int] = {}
    while left:
        asked |= left
        answers = await asyncio.gather(*(_ask(kafka, at, topic) for at in left))
        for at, answer in zip(left, answers, strict=True):
            epoch = None if answer is None else _epoch_of(answer, partition)
            if epoch is not None:
                epochs[at] = epoch
        others = {_Address(b[1], b[2]) for answer in answers if answer for b in answer.brokers}
        left = others - asked
    if not epochs:
        return None
    newest = max(epochs.values())
    informed = sorted(str(at) for at, epoch in epochs.items() if epoch == newest)
    return Leadership(newest, ",".join(informed), len(informed) == len(epochs))


async def _ask(kafka: KafkaSettings, at: _Address, topic: str) -> Any:
    options = aiokafka_settings(kafka)
    del options["bootstrap_servers"]
    try:
        async with asyncio.timeout(min(_EACH_S, kafka.request_timeout_s)):
            connection = await create_conn(at.host, at.port, **options)
            try:
                return await connection.send(_METADATA([(topic, {})], False, False, False, {}))
            finally:
                connection.close()
    except (KafkaError, OSError, TimeoutError):
        return None


def _epoch_of(answer: Any, partition: int) -> int | None:
    for topic in answer.topics:
        for _, number, leader, epoch, *_ in topic[3]:
            if number == partition and leader >= 0:
                return int(epoch)
    return None


def _address(named: str) -> _Address:
    at = urlsplit(f"//{named}")
    return _Address(at.hostname or "", at.port or _PORT)
