"""The release log on Kafka: what anyone has seen is never drawn again.

Order is the proof. A *turn* of one kind of job

    1. starts a new transactional producer, which fences every earlier one of its kind and aborts
       whatever that one had open;
    2. then asks where the log ends, counting uncommitted records too, and reads committed records
       until it has passed that end, however long somebody else's open transaction holds it up;
    3. hands out the book. Whoever finds nothing there may draw, outside any transaction;
    4. commits, once: begin, send everything, commit.

Had an earlier producer committed, step 2 sees it; had it not, step 1 made sure it never will. A
later one fences us, and step 4 fails.

Promises: after `commit` returns, every reader sees all of it. After it raises `Fenced` or
`CommitInDoubt` nobody knows, and the draw must be thrown away: the next turn's reading decides.
`CommitRefused` means that the broker will not have this, ever: the epoch must stop, because
drawing again until a draw is accepted would make the release depend on the draw.
Assumes: one transactional id for each kind of job, used by nobody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from streams.errors import StoreMismatch, StoreUnavailable
from streams.job_metrics import count_released
from streams.kafka import KafkaLog, librdkafka_settings, producer_settings
from streams.ledger import Ledger
from streams.releases import entries
from streams.releases.book import ReleaseBook
from streams.releases.documents import DocumentReference, StoredDocument, join
from streams.releases.entries import Entry, Kind
from streams.releases.failures import (
    OUTAGES,
    CommitInDoubt,
    CommitRefused,
    Fenced,
    opening,
    releasing,
)
from streams.settings.sections import KafkaSettings

__all__ = [
    "CommitInDoubt",
    "CommitRefused",
    "Fenced",
    "ReleaseLog",
    "StepObserver",
    "Turn",
    "nobody_watches",
]

#: Told of each step of a release, as "head-lists.drawn", in order. Production tells nobody; tests
#: stop a job there.
StepObserver = Callable[[str], Awaitable[None]]

_DAY_MS = 86_400_000

#: Entries of which the log must never hold two for one epoch.
ONCE = ("epoch_opened", "head_list_released", "estimate_released", "click_graph_released")


async def nobody_watches(_step: str) -> None:
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
    ) -> None:
        self._settings = librdkafka_settings(kafka)
        self._producer_settings = producer_settings(kafka)
        self._timeout_s = kafka.request_timeout_s
        self._transaction_timeout_s = transaction_timeout_s
        self._topic = topic
        self._now_ms = now_ms
        self._offsets = KafkaLog(kafka)
        self._book: ReleaseBook | None = None
        self._reader: Consumer | None = None
        self._reading = asyncio.Lock()
        self._closing = False

    @property
    def book(self) -> ReleaseBook:
        """What was read so far."""
        if self._book is None:
            raise StoreUnavailable("the release log was not read yet")
        return self._book

    async def catch_up(self) -> ReleaseBook:
        """Read to the end that the log has now, uncommitted records included."""
        async with self._reading:
            bounds = await self._offsets.bounds(self._topic, 0)
            if self._book is None:
                ledger, start = await asyncio.to_thread(self._find_start, bounds.begin, bounds.end)
                self._book = ReleaseBook(ledger, start)
            if self._book.read_upto < bounds.end:
                await self._read_to(self._book, bounds.end)
            return self._book

    async def find_start(self) -> int:
        """Where a reader must start, by the last checkpoint, to know all that still matters."""
        bounds = await self._offsets.bounds(self._topic, 0)
        _, start = await asyncio.to_thread(self._find_start, bounds.begin, bounds.end)
        return start

    async def read_document(self, reference: DocumentReference) -> bytes:
        """The committed bytes of a document, checked against their hash."""
        return await asyncio.to_thread(self._read_document, reference)

    async def read_all(self) -> tuple[ReleaseBook, Counter[tuple[str, int]]]:
        """The book of the whole log, whatever its age, and how often each epoch has each entry."""
        bounds = await self._offsets.bounds(self._topic, 0)
        return await asyncio.to_thread(self._read_all, bounds.begin, bounds.end)

    def _read_all(self, begin: int, end: int) -> tuple[ReleaseBook, Counter[tuple[str, int]]]:
        book, seen = ReleaseBook(from_offset=begin), Counter[tuple[str, int]]()
        reader = self._open_reader(begin)
        position = begin
        try:
            while position < end and not self._closing:
                for offset, time_ms, key, value in _poll(reader):
                    if key is _END:
                        position = max(position, offset)
                        continue
                    position = offset + 1
                    book.apply(offset, time_ms, key, value)
                    body = entries.decode(value) if key == entries.ENTRY_KEY and value else None
                    if body is not None and str(body.get("entry")) in ONCE:
                        seen[str(body["entry"]), int(body["epoch"])] += 1
        finally:
            reader.close()
        return book, seen

    async def fence(self, kind: Kind) -> None:
        """End whatever an earlier job of this kind left open.

        A job killed between send and commit leaves a transaction behind which readers wait, until
        it times out or, as here, a new producer of its kind aborts it.
        """
        producer = await asyncio.to_thread(self._start_producer, kind)
        await asyncio.to_thread(_discard, producer)

    @contextlib.asynccontextmanager
    async def turn(self, kind: Kind, observe: StepObserver = nobody_watches) -> AsyncIterator[Turn]:
        """Steps 1 and 2; the caller decides, draws, and commits at most once."""
        producer = await asyncio.to_thread(self._start_producer, kind)
        try:
            book = await self.catch_up()
            yield Turn(self._topic, kind, producer, book, self._timeout_s, observe)
        finally:
            # No abort: the next turn's producer does that, and waiting here could hang a stop.
            await asyncio.to_thread(_discard, producer)

    async def close(self) -> None:
        """Let go of the connections."""
        self._closing = True
        if self._reader is not None:
            reader, self._reader = self._reader, None
            await asyncio.to_thread(reader.close)
        await self._offsets.close()

    # --- reading --------------------------------------------------------------------------------

    async def _read_to(self, book: ReleaseBook, end: int) -> None:
        position = book.read_upto
        if self._reader is None:
            self._reader = await asyncio.to_thread(self._open_reader, position)
        try:
            while position < end:
                if self._closing:
                    raise StoreUnavailable("the release log was closed while it was read")
                batch = await asyncio.to_thread(_poll, self._reader)
                for offset, time_ms, key, value in batch:
                    if key is _END:
                        position = max(position, offset)
                    else:
                        book.apply(offset, time_ms, key, value)
                        position = offset + 1
        except BaseException:
            # Whatever was fetched and not folded must be fetched again.
            reader, self._reader = self._reader, None
            await asyncio.to_thread(reader.close)
            raise
        book.read_upto = max(book.read_upto, position)

    def _open_reader(self, offset: int) -> Consumer:
        reader = Consumer(
            {
                **self._settings,
                "group.id": "blendstream-releases",  # Required, never joined.
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
            }
        )
        reader.assign([TopicPartition(self._topic, 0, offset)])
        return reader

    def _find_start(self, begin: int, end: int) -> tuple[Ledger, int]:
        """The last checkpoint, looked for in the last day, then in eight times as much, and so on.

        So that a log of many years costs no more to open than one of a few days.
        """
        lookback_ms = _DAY_MS
        while True:
            reader = self._open_reader(begin)
            try:
                since_ms = self._now_ms() - lookback_ms
                if since_ms <= 0:
                    start = begin
                else:
                    since = TopicPartition(self._topic, 0, since_ms)
                    with opening():
                        (found,) = reader.offsets_for_times([since], timeout=self._timeout_s)
                    start = end if found.offset < 0 else max(found.offset, begin)
                checkpoint = self._last_checkpoint(reader, start, end)
            finally:
                reader.close()
            if checkpoint is not None:
                return checkpoint
            if start == begin:
                return Ledger(), begin
            lookback_ms *= 8

    def _last_checkpoint(self, reader: Consumer, start: int, end: int) -> tuple[Ledger, int] | None:
        last: tuple[Ledger, int] | None = None
        position = start
        if start >= end:
            return None
        reader.assign([TopicPartition(self._topic, 0, start)])
        while position < end:
            if self._closing:
                raise StoreUnavailable("the release log was closed while it was read")
            for offset, _, key, value in _poll(reader):
                if key is _END:
                    position = max(position, offset)
                    continue
                position = offset + 1
                body = entries.decode(value) if key == entries.ENTRY_KEY and value else None
                if body is not None and body.get("entry") == "checkpoint":
                    last = Ledger.from_json(body["ledger"]), int(body["from_offset"])
        return last

    def _read_document(self, reference: DocumentReference) -> bytes:
        wanted = {entries.part_key(reference.id, n): n for n in range(reference.parts)}
        found: dict[int, bytes] = {}
        reader = self._open_reader(reference.first_offset)
        deadline = time.monotonic() + 6 * self._timeout_s
        try:
            position = reference.first_offset
            while position < reference.entry_offset and len(found) < reference.parts:
                if time.monotonic() > deadline or self._closing:
                    raise StoreUnavailable("a released document could not be read in time")
                for offset, _, key, value in _poll(reader):
                    if key is _END:
                        position = max(position, offset)
                    else:
                        position = offset + 1
                        if key in wanted and value is not None:
                            found[wanted[key]] = value
        finally:
            reader.close()
        return join(reference, [found[n] for n in sorted(found)])

    # --- writing --------------------------------------------------------------------------------

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
            _discard(producer)
            raise
        return producer


class Turn:
    """The right to add to the log once, knowing all that is in it."""

    def __init__(
        self,
        topic: str,
        kind: Kind,
        producer: Producer,
        book: ReleaseBook,
        timeout_s: float,
        observe: StepObserver,
    ) -> None:
        self._topic = topic
        self._kind = kind
        self._producer = producer
        self._timeout_s = timeout_s
        self._observe = observe
        self._used = False
        self.committed = False
        self.book = book

    async def commit(
        self, added: Sequence[Entry], documents: Sequence[StoredDocument] = ()
    ) -> None:
        """Documents first, then the entries that name them, in one transaction."""
        if self._used:
            raise StoreMismatch("a turn commits once; start another to commit again")
        self._used = True
        records = [
            (entries.part_key(document.id, number), part)
            for document in documents
            for number, part in enumerate(document.parts)
        ]
        records += [(entries.ENTRY_KEY, entries.encode(entry)) for entry in added]
        await asyncio.to_thread(self._send, records)
        await self._observe(f"{self._kind.value}.sent")
        await asyncio.to_thread(self._commit)
        self.committed = True
        count_released(added)
        await self._observe(f"{self._kind.value}.committed")

    def _send(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        # No callback asks for each record's fate: the commit fails if any of them failed, and a
        # callback that runs while the client raises a fatal error would turn it into another one.
        with releasing():
            self._producer.begin_transaction()
            for key, value in records:
                self._producer.produce(self._topic, value=value, key=key, partition=0)
                self._producer.poll(0)
            left = self._producer.flush(self._timeout_s + len(records) * 0.1)
        if left:
            raise CommitInDoubt("Kafka did not take the release in time")

    def _commit(self) -> None:
        with releasing():
            self._producer.commit_transaction(self._timeout_s)


_END: bytes = b"(end of the partition)"


def _poll(reader: Consumer) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """Some records, or the end of the partition (key `_END`, by identity)."""
    found: list[tuple[int, int, bytes | None, bytes | None]] = []
    # `consume` alone would wait for 500 messages or its whole timeout, whichever comes first.
    first = reader.poll(0.25)
    if first is None:
        return found
    for message in [first, *reader.consume(num_messages=500, timeout=0)]:
        error = message.error()
        if error is None:
            _, time_ms = message.timestamp()
            found.append((message.offset() or 0, time_ms, message.key(), message.value()))
        elif error.code() == KafkaError._PARTITION_EOF:
            found.append((message.offset() or 0, 0, _END, None))
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise StoreMismatch(
                "the release log no longer has the records that were to be read next; it must be "
                "kept for ever. Restore it from a replica or a backup"
            )
        elif not error.retriable() and error.code() not in OUTAGES:
            raise StoreUnavailable(f"the release log could not be read ({error.name()})")
    return found


def _discard(producer: Producer) -> None:
    with contextlib.suppress(KafkaException, SystemError):
        producer.purge(in_queue=True, in_flight=True, blocking=False)
        producer.poll(0)
