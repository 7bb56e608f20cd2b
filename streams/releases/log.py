"""The release log on Kafka: what anyone has seen is never drawn again.

Order is the proof. A *turn* of one kind of job

    1. starts a new transactional producer, which fences every earlier one of its kind and aborts
       its open transaction;
    2. commits a small record with a random id, the turn record. Its acknowledgement needs the
       in-sync replicas, so a leader that was cut off from its peers cannot give it;
    3. reads committed records until it sees that id. A server with an old copy of the log never
       shows it, so all that lies before it in the log has been read;
    4. hands out the log state. If nothing is released there, the caller may draw, outside any
       transaction;
    5. commits, once: begin, send the documents, then all entries in one record, commit;
    6. reads until it sees that record. Only then does anything follow from it.

Had an earlier producer committed, its record lies before ours and step 3 reads it; had it not,
step 1 made sure that it never will. A later one fences us, and step 5 fails. Where the log ends
is never asked: a leader that was cut off answers that from its frozen copy.

Promises: after `commit` returns, the log holds all of it and this process has read it. After it
raises `Fenced` or `CommitInDoubt` nothing is known, and the draw must be thrown away: the next
turn's reading decides. `CommitRefused` means that the broker will never accept this: the epoch must
stop, because drawing again until a draw is accepted would make the release depend on the draw.
Assumes: one transactional id for each kind of job, used by no other program. The topic is
replicated with `min.insync.replicas` above half of its replicas and without unclean elections
(`blendstream doctor` checks), so that what was acknowledged survives, and a leader that was cut off
cannot acknowledge. Every writer is of this release: one of version 0.1.0 writes no turn records.

Decision: docs/decisions/0052-the-release-log-uses-librdkafka.md

Decision: docs/decisions/0053-a-transaction-that-hangs.md
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from confluent_kafka import Producer

from blendstream.streams.errors import StoreMismatch, StoreUnavailable
from blendstream.streams.kafka.kafka_clients import discard_producer, producer_settings
from blendstream.streams.releases import entries
from blendstream.streams.releases.commit_failures import (
    CommitInDoubt,
    CommitRefused,
    Fenced,
    opening,
    translate_commit_errors,
)
from blendstream.streams.releases.documents import DocumentReference, StoredDocument
from blendstream.streams.releases.entries import Entry, Kind
from blendstream.streams.releases.epoch_state import ReleaseLogState
from blendstream.streams.releases.log_consumer import LogConsumer
from blendstream.streams.releases.reader import LogReader
from blendstream.streams.settings.sections import KafkaSettings

__all__ = [
    "CommitInDoubt",
    "CommitRefused",
    "Fenced",
    "FencedSession",
    "ReleaseLog",
    "StepObserver",
    "no_op_observer",
]

#: Called at each step of a release, as "head-lists.drawn", in order. Tests stop a job there;
#: production passes `no_op_observer`.
StepObserver = Callable[[str], Awaitable[None]]

#: Entries of which the log must never hold two for one epoch.
ONCE = ("epoch_opened", "head_list_released", "estimate_released", "click_graph_released")


async def no_op_observer(_step: str) -> None:
    """The observer of every real job."""


class ReleaseLog:
    """One process's view of the log, and its way to add to it."""

    def __init__(
        self,
        kafka: KafkaSettings,
        topic: str,
        *,
        transaction_timeout_s: float = 60.0,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        on_committed: Callable[[Sequence[Entry]], None] = lambda _entries: None,
    ) -> None:
        """`on_committed` gets entries that were committed and read back, for a metric."""
        self._reader = LogReader(kafka, topic, now_ms=now_ms)
        self._producer_settings = producer_settings(kafka)
        self._timeout_s = kafka.request_timeout_s
        self._transaction_timeout_s = transaction_timeout_s
        self._topic = topic
        self.on_committed = on_committed

    @property
    def log_state(self) -> ReleaseLogState:
        """What was read so far."""
        return self._reader.log_state

    async def catch_up(self) -> ReleaseLogState:
        """Read to the committed end by one server's answer: enough to look, never to decide."""
        return await self._reader.catch_up()

    async def read_document(self, reference: DocumentReference) -> bytes:
        """The committed bytes of a document, checked against their hash."""
        return await self._reader.with_dedicated_consumer(
            lambda consumer: consumer.read_document(reference)
        )

    async def read_all(self) -> tuple[ReleaseLogState, Counter[tuple[str, int]]]:
        """Read the whole log from its start: its state, and how often each epoch has each entry."""
        return await self._reader.with_dedicated_consumer(_fold_all)

    async def fence_and_read(self, kind: Kind) -> ReleaseLogState:
        """A turn in which nothing is decided: what it leaves behind is a log that can be read.

        A job killed between send and commit leaves a transaction behind which readers wait, until
        it times out or, as here, a new producer of its kind ends it. One that hangs is committed by
        the turn record: both are the same transaction to the partition.
        """
        async with self.fenced_session(kind) as session:
            return session.log_state

    @contextlib.asynccontextmanager
    async def fenced_session(
        self, kind: Kind, observe: StepObserver = no_op_observer
    ) -> AsyncIterator[FencedSession]:
        """Steps 1 to 4; the caller decides, draws, and commits at most once."""
        producer = await asyncio.to_thread(self._start_producer, kind)
        try:
            session = FencedSession(self, self._topic, kind, producer, self._timeout_s, observe)
            await session.begin()
            yield session
        finally:
            # No abort: the next turn's producer does that, and waiting here could hang a stop.
            await asyncio.to_thread(discard_producer, producer)

    async def read_until(self, fence_id: str) -> ReleaseLogState:
        """Read until this record of ours is seen."""
        patience_s = self._transaction_timeout_s + 2 * self._timeout_s
        return await self._reader.read_until(fence_id, patience_s)

    async def close(self) -> None:
        await self._reader.close()

    def _start_producer(self, kind: Kind) -> Producer:
        producer = Producer(
            {
                **self._producer_settings,
                "transactional.id": f"{self._topic}.{kind.value}",
                "transaction.timeout.ms": round(self._transaction_timeout_s * 1000),
                "linger.ms": 0,
                "compression.type": "none",  # Documents are compressed already.
            },
            logger=logging.getLogger(__name__),  # Else it writes to standard error by itself.
        )
        try:
            with opening():
                producer.init_transactions(self._timeout_s)
        except StoreUnavailable:
            discard_producer(producer)
            raise
        return producer


@dataclass(eq=False)
class FencedSession:
    """The right to add to the log once, knowing all that is in it."""

    _log: ReleaseLog
    _topic: str
    _kind: Kind
    _producer: Producer
    _timeout_s: float
    _observe: StepObserver
    _used: bool = False
    committed: bool = False

    @property
    def log_state(self) -> ReleaseLogState:
        """All that is in the log, as of this turn's own record and of its commit."""
        return self._log.log_state

    async def begin(self) -> None:
        """Write the turn record, and read the log up to it."""
        fence_id, record = self._record([])
        await asyncio.to_thread(self._send, [record])
        await asyncio.to_thread(self._commit)
        await self._observe(f"{self._kind.value}.fence")
        await self._log.read_until(fence_id)

    async def commit(
        self, added: Sequence[Entry], documents: Sequence[StoredDocument] = ()
    ) -> None:
        """Documents first, then one record of the entries that name them, in one transaction."""
        if self._used:
            raise StoreMismatch("a turn commits once; start another to commit again")
        self._used = True
        parts = [
            (entries.part_key(document.id, number), part)
            for document in documents
            for number, part in enumerate(document.parts)
        ]
        fence_id, record = self._record(added)
        await asyncio.to_thread(self._send, [*parts, record])
        await self._observe(f"{self._kind.value}.sent")
        await asyncio.to_thread(self._commit)
        await self._observe(f"{self._kind.value}.acknowledged")
        try:
            await self._log.read_until(fence_id)
        except StoreUnavailable as error:
            # Acknowledged, and perhaps lost all the same: nothing may follow from it yet.
            raise CommitInDoubt(
                "a commit that Kafka acknowledged could not be read back; the next turn decides"
            ) from error
        self.committed = True
        self._log.on_committed(added)
        await self._observe(f"{self._kind.value}.committed")

    def _record(self, added: Sequence[Entry]) -> tuple[str, tuple[bytes, bytes]]:
        """One record of entries, and the random id by which its writer knows it again."""
        fence_id = secrets.token_hex(16)
        value = entries.encode([entries.fence(fence_id, self._kind), *added])
        return fence_id, (entries.ENTRY_KEY, value)

    def _send(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        # No callback asks for each record's fate: the commit fails if any of them failed, and a
        # callback that runs while the client raises a fatal error would turn it into another one.
        with translate_commit_errors():
            self._producer.begin_transaction()
            for key, value in records:
                self._producer.produce(self._topic, value=value, key=key, partition=0)
                self._producer.poll(0)
            left = self._producer.flush(self._timeout_s + len(records) * 0.1)
        if left:
            raise CommitInDoubt("Kafka did not take the release in time")

    def _commit(self) -> None:
        with translate_commit_errors():
            self._producer.commit_transaction(self._timeout_s)


def _fold_all(consumer: LogConsumer) -> tuple[ReleaseLogState, Counter[tuple[str, int]]]:
    log_state, seen = ReleaseLogState(), Counter[tuple[str, int]]()
    for record in consumer.to_end(0):
        log_state.apply(*record)
        for entry in entries.of_record(record.key, record.value):
            if entry.get("entry") in ONCE:
                seen[str(entry["entry"]), int(entry["epoch"])] += 1
    return log_state, seen
