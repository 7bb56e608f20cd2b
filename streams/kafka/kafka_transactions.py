"""Which transactions keep readers from the end of a partition, and how a hanging one is ended.

A transaction *hangs* when the partition has it open and no coordinator will end it: readers of
committed records stop before it for ever, and restarting clients or brokers does not help. The
Python clients have no calls for this (KIP-664), so four requests are packed here and sent over
aiokafka's connections, with the TLS and SASL settings of every other client of the service:

    DescribeProducers     the partition's leader     who writes, and from which offset on it is open
    ListTransactions      every broker               which transactional id a producer belongs to
    DescribeTransactions  the coordinator            what it knows of that id's transaction
    WriteTxnMarkers       the partition's leader     ends the transaction by an abort marker

Promises: `hanging` is set only for a transaction that the partition had open both before and after
its coordinator was asked: a coordinator forgets a transaction only after its end is in the log. If
no broker names its producer, it is set after the longest time that any transaction may last.
Assumes: brokers of Kafka 3.0 or newer. DescribeProducers takes the right to read the topic,
DescribeTransactions to describe the transactional id, WriteTxnMarkers `ClusterAction` or `Alter` on
the cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError, NoError, for_code

from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.kafka.aiokafka_internals import (  # fmt: skip
    AIOKafkaClient,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
    request_type,
)
from blendstream.streams.kafka.kafka_clients import aiokafka_settings
from blendstream.streams.settings.sections import KafkaSettings

__all__ = ["OpenTransaction", "TransactionAdmin", "transaction_admin"]

#: In these states the coordinator will end the transaction, by itself or by its timeout.
_UNDER_WAY = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
#: The longest that brokers let a transaction live by default (`transaction.max.timeout.ms`).
#: Brokers do not name producers whose transactional id we have no right to describe, so a producer
#: that none names is taken for unknown to them all only after this time.
_LONGEST_MS = 15 * 60_000
#: What a request that must be flexible ends each of its structures with; we have no such fields.
_NO_TAGS: dict[int, bytes] = {}


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that a partition has open."""

    producer_id: int
    producer_epoch: int
    #: Epoch of the coordinator that last ended a transaction of this producer here; -1: none did.
    coordinator_epoch: int
    #: Readers of committed records stop before it.
    first_offset: int
    #: When its producer last wrote to the partition.
    last_write_ms: int
    #: None: no broker names this producer, to us.
    transactional_id: str | None
    #: Whether no coordinator is going to end it.
    hanging: bool


@contextlib.asynccontextmanager
async def transaction_admin(kafka: KafkaSettings) -> AsyncIterator[TransactionAdmin]:
    """Connections for a few questions. Kafka away, or too old, is `StoreUnavailable`."""
    client = AIOKafkaClient(**aiokafka_settings(kafka))
    try:
        with _answering():
            await client.bootstrap()
        yield TransactionAdmin(client, kafka.request_timeout_s)
    finally:
        await client.close()


class TransactionAdmin:
    """Asks for a partition's open transactions and aborts one."""

    def __init__(self, client: Any, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s

    async def open_transactions(
        self, topic: str, partition: int = 0, now_ms: int | None = None
    ) -> list[OpenTransaction]:
        """All that the partition has open, in the order of their first offsets."""
        now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        before = await self._open_producers(topic, partition)
        if not before:
            return []
        known = await self._known([producer["producer_id"] for producer in before.values()])
        after = await self._open_producers(topic, partition)
        open_now = []
        for which, producer in after.items():
            if which not in before:
                continue  # Begun meanwhile: the next call sees it.
            transaction = known.get(producer["producer_id"])
            if transaction is None:
                under_way = now_ms - producer["last_write_ms"] <= _LONGEST_MS
            else:
                under_way = transaction["state"] in _UNDER_WAY and any(
                    of["topic"] == topic and partition in of["partitions"]
                    for of in transaction["topics"]
                )
            open_now.append(
                OpenTransaction(
                    producer_id=producer["producer_id"],
                    producer_epoch=producer["producer_epoch"],
                    coordinator_epoch=producer["coordinator_epoch"],
                    first_offset=producer["first_offset"],
                    last_write_ms=producer["last_write_ms"],
                    transactional_id=None if transaction is None else transaction["id"],
                    hanging=not under_way,
                )
            )
        return sorted(open_now, key=lambda transaction: transaction.first_offset)

    async def abort(self, topic: str, partition: int, hanging: OpenTransaction) -> None:
        """End a hanging transaction: its records are never seen by readers of committed ones."""
        marker = (
            hanging.producer_id,
            hanging.producer_epoch,
            False,
            [(topic, [partition], _NO_TAGS)],
            max(hanging.coordinator_epoch, 0),
            _NO_TAGS,
        )
        leader = await self._leader(topic, partition)
        answer = await self._ask(leader, _WRITE_TXN_MARKERS([marker], _NO_TAGS))
        _check(answer["markers"][0]["topics"][0]["partitions"][0]["error"])

    async def _open_producers(self, topic: str, partition: int) -> dict[tuple[int, int], Any]:
        leader = await self._leader(topic, partition)
        question = _DESCRIBE_PRODUCERS([(topic, [partition], _NO_TAGS)], _NO_TAGS)
        answer = (await self._ask(leader, question))["topics"][0]["partitions"][0]
        _check(answer["error"])
        return {
            (producer["producer_id"], producer["first_offset"]): producer
            for producer in answer["producers"]
            if producer["first_offset"] >= 0
        }

    async def _known(self, producer_ids: list[int]) -> dict[int, dict[str, Any]]:
        """What coordinators know of these producers' transactions."""
        transactions = {}
        for broker in self._client.cluster.brokers():
            node = broker.nodeId
            listed = await self._ask(node, _LIST_TRANSACTIONS([], producer_ids, _NO_TAGS))
            _check(listed["error"])
            ids = [state["id"] for state in listed["states"]]
            if not ids:
                continue
            described = await self._ask(node, _DESCRIBE_TRANSACTIONS(ids, _NO_TAGS))
            for transaction in described["states"]:
                _check(transaction["error"])
                transactions[transaction["producer_id"]] = transaction
        return transactions

    async def _leader(self, topic: str, partition: int) -> int:
        with _answering():
            # Every time: a broker that led a moment ago may have been cut off since.
            await self._client.set_topics([topic])
            await self._client.force_metadata_update()
        leader = self._client.cluster.leader_for_partition(TopicPartition(topic, partition))
        if leader is None or leader < 0:
            raise StoreUnavailable(f"partition {partition} of {topic} has no leader now")
        return int(leader)

    async def _ask(self, node: int, request: Any) -> dict[str, Any]:
        with _answering():
            async with asyncio.timeout(self._timeout_s + 1):
                answer: dict[str, Any] = (await self._client.send(node, request)).to_object()
        return answer


def _check(code: int) -> None:
    error = for_code(code)
    if error is not NoError:
        raise StoreUnavailable(
            f"Kafka refused to describe or to end transactions ({error.__name__})"
        )


@contextlib.contextmanager
def _answering() -> Iterator[None]:
    """Errors by name only: Kafka's texts are not ours."""
    try:
        yield
    except (IncompatibleBrokerVersion, NotImplementedError) as error:
        raise StoreUnavailable(
            "these brokers cannot say who has a transaction open; Kafka 3.0 and newer can"
        ) from error
    except (KafkaError, OSError, TimeoutError) as error:
        raise StoreUnavailable(f"Kafka did not answer ({type(error).__name__})") from error


# --- the four requests, in the one version that every broker since 3.0 takes ----------------------

_STRING = CompactString()
_TAGS = ("tags", TaggedFields)
_TOPICS = CompactArray(("topic", _STRING), ("partitions", CompactArray(Int32)), _TAGS)
_PRODUCERS = CompactArray(
    ("producer_id", Int64), ("producer_epoch", Int32), ("last_sequence", Int32),
    ("last_write_ms", Int64), ("coordinator_epoch", Int32), ("first_offset", Int64), _TAGS,
)  # fmt: skip
_DESCRIBE_PRODUCERS = request_type(
    "DescribeProducers", 61, 0,
    Schema(("topics", _TOPICS), _TAGS),
    Schema(
        ("throttle_ms", Int32),
        ("topics", CompactArray(
            ("topic", _STRING),
            ("partitions", CompactArray(
                ("partition", Int32), ("error", Int16), ("message", _STRING),
                ("producers", _PRODUCERS), _TAGS,
            )),
            _TAGS,
        )),
        _TAGS,
    ),
)  # fmt: skip
_LIST_TRANSACTIONS = request_type(
    "ListTransactions", 66, 0,
    Schema(("states", CompactArray(_STRING)), ("producer_ids", CompactArray(Int64)), _TAGS),
    Schema(
        ("throttle_ms", Int32), ("error", Int16), ("unknown_states", CompactArray(_STRING)),
        ("states", CompactArray(
            ("id", _STRING), ("producer_id", Int64), ("state", _STRING), _TAGS,
        )),
        _TAGS,
    ),
)  # fmt: skip
_DESCRIBE_TRANSACTIONS = request_type(
    "DescribeTransactions", 65, 0,
    Schema(("ids", CompactArray(_STRING)), _TAGS),
    Schema(
        ("throttle_ms", Int32),
        ("states", CompactArray(
            ("error", Int16), ("id", _STRING), ("state", _STRING), ("timeout_ms", Int32),
            ("started_ms", Int64), ("producer_id", Int64), ("producer_epoch", Int16),
            ("topics", _TOPICS), _TAGS,
        )),
        _TAGS,
    ),
)  # fmt: skip
_WRITE_TXN_MARKERS = request_type(
    "WriteTxnMarkers", 27, 1,
    Schema(
        ("markers", CompactArray(
            ("producer_id", Int64), ("producer_epoch", Int16), ("commit", Boolean),
            ("topics", _TOPICS), ("coordinator_epoch", Int32), _TAGS,
        )),
        _TAGS,
    ),
    Schema(
        ("markers", CompactArray(
            ("producer_id", Int64),
            ("topics", CompactArray(
                ("topic", _STRING),
                ("partitions", CompactArray(("partition", Int32), ("error", Int16), _TAGS)),
                _TAGS,
            )),
            _TAGS,
        )),
        _TAGS,
    ),
)  # fmt: skip
