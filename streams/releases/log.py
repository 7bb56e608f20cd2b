"""Writer of the release log on Kafka: commits a release at most once, so that none is drawn twice.

The order of steps makes this safe. A *fenced session* of one kind of job

    1. starts a new transactional producer, which fences every earlier producer of its kind and
       aborts its open transaction;
    2. commits a *fence record*, a small record with a random id. Kafka acknowledges it only with
       the in-sync replicas, so a zombie leader (isolated from its peers) cannot acknowledge it;
    3. reads committed records until it sees that id. A stale replica never contains it, so by then
       the session has read everything that precedes it in the log;
    4. returns the log state. If it contains no such release, the caller may draw, outside any
       transaction;
    5. commits, once: begin, send the documents, then all entries in one record, commit;
    6. reads until it sees that record. The caller acts on the release only after that.

If an earlier producer committed, its record precedes ours, and step 3 reads it; if it did not,
step 1 ensures that it never will. A later producer fences ours, and step 5 fails. No step relies on
a reported end offset: a zombie leader reports that of its stale replica.

Promises: after `commit` returns, the log contains all of it and this process has read it. After
`Fenced` or `CommitInDoubt` the outcome is unknown, and the caller must discard the draw: the next
session reads the log and decides. `CommitRefused` means that the broker will never accept this
commit: the epoch must stop, because repeating the draw until one is accepted would make the release
depend on the draw.
Assumes: one transactional id per kind of job, used by no other program. The topic is replicated
with `min.insync.replicas` above half of its replicas and without unclean leader elections
(`blendstream doctor` checks both), so that acknowledged records survive and an isolated leader
cannot acknowledge any.

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
    """Do nothing: the step observer of production."""


class ReleaseLog:
    """The release log as one process reads it, and the sessions in which it writes to it."""

    def __init__(
        self,
        kafka: KafkaSettings,
        topic: str,
        *,
        transaction_timeout_s: float = 60.0,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        on_committed: Callable[[Sequence[Entry]], None] = lambda _entries: None,
    ) -> None:
        """Pass entries to `on_committed` after they were committed and read back, for a metric."""
        self._reader = LogReader(kafka, topic, now_ms=now_ms)
        self._producer_settings = producer_settings(kafka)
        self._timeout_s = kafka.request_timeout_s
        self._transaction_timeout_s = transaction_timeout_s
        self._topic = topic
        self.on_committed = on_committed

    @property
    def log_state(self) -> ReleaseLogState:
        """The state folded from all records read so far."""
        return self._reader.log_state

    async def catch_up(self) -> ReleaseLogState:
        """Read to the last stable offset that one broker reports, which is unsafe for releases."""
        return await self._reader.catch_up()

    async def read_document(self, reference: DocumentReference) -> bytes:
        """Read a document's committed bytes and verify their hash."""
        return await self._reader.with_dedicated_consumer(
            lambda consumer: consumer.read_document(reference)
        )

    async def read_all(self) -> tuple[ReleaseLogState, Counter[tuple[str, int]]]:
        """Read the whole log from its start: its state, and how often each epoch has each entry."""
        return await self._reader.with_dedicated_consumer(_fold_all)

    async def fence_and_read(self, kind: Kind) -> ReleaseLogState:
        """Fence earlier producers of this kind and read the log, so that none blocks its readers.

        A job killed between send and commit leaves an open transaction. Readers wait at its first
        record until it times out or, as here, a new producer of its kind aborts it. If a
        transaction hangs, the fence record commits it: to the partition both are one transaction.
        """
        async with self.fenced_session(kind) as session:
            return session.log_state

    @contextlib.asynccontextmanager
    async def fenced_session(
        self, kind: Kind, observe: StepObserver = no_op_observer
    ) -> AsyncIterator[FencedSession]:
        """Open a session with steps 1 to 4; the caller decides, draws, and commits at most once."""
        producer = await asyncio.to_thread(self._start_producer, kind)
        try:
            session = FencedSession(self, self._topic, kind, producer, self._timeout_s, observe)
            await session.begin()
            yield session
        finally:
            # No abort: the next session's producer does that, and waiting here could block a stop.
            await asyncio.to_thread(discard_producer, producer)

    async def read_until(self, fence_id: str) -> ReleaseLogState:
        """Read until the record with this id was read."""
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
            logger=logging.getLogger(__name__),  # Else it writes to standard error.
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
    """Permission to commit to the log once, after reading everything in it."""

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
        """The state of the log up to this session's fence record or, after it, its commit."""
        return self._log.log_state

    async def begin(self) -> None:
        """Commit the fence record, and read the log up to it."""
        fence_id, record = self._record([])
        await asyncio.to_thread(self._send, [record])
        await asyncio.to_thread(self._commit)
        await self._observe(f"{self._kind.value}.fence")
        await self._log.read_until(fence_id)

    async def commit(
        self, added: Sequence[Entry], documents: Sequence[StoredDocument] = ()
    ) -> None:
        """Commit the documents, then one record of the entries that name them, in a transaction."""
        if self._used:
            raise StoreMismatch("a session commits once; start another to commit again")
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
            # Acknowledged, but possibly lost: the caller must not act on it yet.
            raise CommitInDoubt(
                "a commit that Kafka acknowledged could not be read back; the next session decides"
            ) from error
        self.committed = True
        self._log.on_committed(added)
        await self._observe(f"{self._kind.value}.committed")

    def _record(self, added: Sequence[Entry]) -> tuple[str, tuple[bytes, bytes]]:
        """Build a record of entries, with the random id by which its writer recognises it."""
        fence_id = secrets.token_hex(16)
        value = entries.encode([entries.fence(fence_id, self._kind), *added])
        return fence_id, (entries.ENTRY_KEY, value)

    def _send(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        # No delivery callback: the commit fails if any record failed, and a callback that runs
        # while the client raises a fatal error would replace that error by another.
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
