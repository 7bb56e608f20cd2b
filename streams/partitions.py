"""Counts the partitions of one topic exactly once, whatever the consumer delivers.

The consumer may deliver a message twice, out of turn after a seek, or from a partition that has
gone to another worker. None of that matters here: a message is counted when its offset is the one
that Redis expects next, passed over when it lies before, and asked for again when it lies after.

    take_up   assignment: read the offset, then the fingerprints, from Redis; say where to seek
    count     messages: judge, store once, retry in place while Redis or Kafka is away
    check     every second: has Redis lost its tail, has the log moved on without records

A partition that cannot go on without somebody looking is *stopped*: nothing of it is counted, the
worker says why once, is not ready, and the other partitions go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, TypeVar

from streams import metrics, stops
from streams.deliveries import Message, first_run
from streams.epochs import Directory, EpochBook, Stem
from streams.errors import StoreMismatch, StoreUnavailable
from streams.fingerprints import FingerprintTable
from streams.judging import DeadLetter, Delivery, Verdict, unknown_to
from streams.kafka import KafkaLog, TopicDescription
from streams.keys import EpochKeys, KeyRing
from streams.logs import Known
from streams.records.frames import NewerFrame
from streams.tables import Applied, CountTables, HalfApplied, PartitionState
from streams.taking_up import take_up
from streams.topics import Topic

__all__ = ["Judge", "PartitionCounter"]

log = logging.getLogger(__name__)
T = TypeVar("T")

_BACK_OFF_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
#: After a seek the consumer first delivers what it had buffered. Asking again sooner than this
#: would start the stretch over and over; later would only wait.
_SEEK_AGAIN_S: Final = 1.0
#: Nothing came for so long although the log has more: look whether there are records at all.
_IDLE_S: Final = 2.0


class Judge(Protocol):
    """`judge_reports` or `judge_optin_records`."""

    def __call__(
        self,
        partition: int,
        deliveries: Sequence[Delivery],
        book: EpochBook,
        keys: Mapping[int, EpochKeys],
        seen: Mapping[int, FingerprintTable],
    ) -> Verdict: ...


@dataclass(slots=True)
class _Partition:
    """A partition that is assigned to this worker."""

    state: PartitionState | None = None
    stopped: stops.StopReason | None = None
    #: No record lies between the state's offset and this one.
    next_record: int = -1
    sought_at: float = -math.inf
    probed_at: float = -math.inf
    moved_at: float = field(default_factory=time.monotonic)
    #: The append time of the last frame counted, or when nothing was left to count: the later.
    counted_s: float = field(default_factory=time.time)
    lag: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class _Gone(Exception):
    """The partition was taken away while we worked on it."""


class PartitionCounter:
    """Counts one stem's topic. `seek` moves the consumer within a partition."""

    def __init__(
        self,
        stem: Stem,
        topic: Topic,
        *,
        judge: Judge,
        tables: CountTables,
        directory: Directory,
        kafka: KafkaLog,
        keys: KeyRing,
        seek: Callable[[int, int], Awaitable[None]],
    ) -> None:
        self.stem = stem
        self.topic = topic
        self._judge = judge
        self._tables = tables
        self._directory = directory
        self._kafka = kafka
        self._keys = keys
        self._seek = seek
        self._assigned: dict[int, _Partition] = {}
        self._reachable_since = time.monotonic()
        self._reachable = False

    # --- who asks how it goes -------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Redis and Kafka answered when last asked, and no partition is stopped."""
        return self._reachable and not self.stopped

    @property
    def stopped(self) -> dict[int, stops.StopReason]:
        return {p: a.stopped for p, a in self._assigned.items() if a.stopped is not None}

    def offset(self, partition: int) -> int | None:
        """The next offset to count, as this worker believes."""
        assigned = self._assigned.get(partition)
        return assigned.state.offset if assigned is not None and assigned.state else None

    def stalled_for_s(self) -> float:
        """How long a partition with lag has not moved while Redis and Kafka answered."""
        if not self._reachable:
            return 0.0
        since = [
            max(a.moved_at, self._reachable_since)
            for a in self._assigned.values()
            if a.lag > 0 and a.stopped is None
        ]
        return time.monotonic() - min(since) if since else 0.0

    # --- partitions come and go -----------------------------------------------------------------

    def give_up(self, partitions: Sequence[int]) -> None:
        """These partitions are another worker's now. What is under way for them ends by itself."""
        for partition in partitions:
            if self._assigned.pop(partition, None) is not None:
                metrics.ENTRY_TOTALS.forget(self.stem, partition)
                metrics.LAG.remove(self.stem, str(partition))
                metrics.BEHIND_SECONDS.remove(self.stem, str(partition))
        self._tell()

    def assign(self, partitions: Sequence[int]) -> None:
        """Exactly these partitions are ours from now on; the new ones are still to be taken up."""
        self.give_up([partition for partition in self._assigned if partition not in partitions])
        for partition in partitions:
            self._assigned.setdefault(partition, _Partition())
            metrics.LAG.labels(self.stem, str(partition)).set(0)
            metrics.BEHIND_SECONDS.labels(self.stem, str(partition)).set(0)
        self._tell()

    async def take_up(self, partition: int) -> int | None:
        """Read a partition's state; the offset to seek to, or None if it is stopped or gone."""
        assigned = self._assigned.get(partition)
        if assigned is None:
            return None
        async with assigned.lock:
            with self._leaving(partition, assigned):
                state = assigned.state or await self._read_state(partition, assigned)
                return state.offset
        return None

    async def _read_state(self, partition: int, assigned: _Partition) -> PartitionState:
        metrics.RELOADS.labels(self.stem).inc()
        assigned.state = None
        await self._directory.refresh_to_end()
        description = await self._description()
        self._check_partitions(description)
        state = await take_up(
            self.stem, self.topic.name, partition, description.id,
            tables=self._tables, directory=self._directory, kafka=self._kafka,
        )  # fmt: skip
        self._still_ours(partition, assigned)
        assigned.state, assigned.next_record = state, -1
        assigned.moved_at = time.monotonic()
        log.info(
            "partition_taken_up",
            extra={"stem": self.stem, "partition": partition, "offset": state.offset},
        )
        return state

    # --- counting -------------------------------------------------------------------------------

    async def count(
        self,
        messages: Mapping[int, Sequence[Message]],
        refused: Callable[[int, Sequence[DeadLetter]], Awaitable[None]] | None = None,
    ) -> Counter[str]:
        """Count what is due among these messages, by partition; returns when all are settled.

        Each is then counted, passed over, asked for again, or another worker's: whatever holds,
        the consumer may forget it. Returns the sum of the verdicts' summaries.
        """
        summary: Counter[str] = Counter()
        # Asked after the messages were fetched: had the topic been made anew before that, these
        # offsets would belong to another log than the one that was counted. The answer is waited
        # for before anything is stored.
        asked = asyncio.create_task(self._until_answered(self._description))

        async def one(partition: int, found: Sequence[Message]) -> None:
            assigned = self._assigned.get(partition)
            if assigned is None or assigned.stopped is not None:
                return
            async with assigned.lock:
                with self._leaving(partition, assigned):
                    async for verdict in self._count(partition, assigned, found, asked):
                        summary.update(verdict.summary())
                        if verdict.letters and refused is not None:
                            await refused(partition, verdict.letters)

        # One partition is judged here while Redis stores another.
        try:
            await asyncio.gather(*(one(partition, found) for partition, found in messages.items()))
        finally:
            asked.cancel()
        return summary

    async def _count(
        self,
        partition: int,
        assigned: _Partition,
        messages: Sequence[Message],
        asked: asyncio.Task[TopicDescription],
    ) -> AsyncIterator[Verdict]:
        while True:
            state = assigned.state
            if state is None:
                state = await self._until_answered(
                    partial(self._read_state, partition, assigned), partition, assigned
                )
            messages = [message for message in messages if message.offset >= state.offset]
            if not messages:
                return
            if messages[0].offset not in (state.offset, assigned.next_record):
                gap = partial(self._pass_gap, partition, assigned, messages[0].offset)
                if not await self._until_answered(gap, partition, assigned):
                    return
                continue
            run = first_run(messages)
            if isinstance(run, NewerFrame):
                raise stops.newer_frame(run.version, messages[0].offset)
            try:
                verdict = await self._store(partition, assigned, state, run, asked)
            except BaseException:
                # Judging has added to the fingerprints what may not be stored now: read them anew.
                assigned.state = None
                raise
            if verdict is not None:
                yield verdict

    async def _pass_gap(self, partition: int, assigned: _Partition, found: int) -> bool:
        """True when counting can go on; False when the messages came out of turn."""
        state = assigned.state
        if state is None:
            return True
        now = time.monotonic()
        if now - assigned.sought_at < _SEEK_AGAIN_S:
            return False
        bounds = await self._kafka.bounds(self.topic.name, partition)
        if bounds.begin > state.offset:
            assigned.state = None  # Records were removed before they were counted: take up anew.
            return True
        first = await self._kafka.next_record(self.topic.name, partition, state.offset)
        if first == found:
            metrics.GAPS.labels(self.stem).inc(found - state.offset)
            assigned.next_record = found
            return True
        self._still_ours(partition, assigned)
        assigned.sought_at = now
        metrics.SEEKS.labels(self.stem).inc()
        await self._seek(partition, state.offset)
        return False

    async def _store(
        self,
        partition: int,
        assigned: _Partition,
        state: PartitionState,
        run: list[Delivery],
        asked: asyncio.Task[TopicDescription],
    ) -> Verdict | None:
        """Judge and store one run of messages; None when the state must be read again."""
        started = time.monotonic()
        verdict = await self._until_answered(
            partial(self._judged, partition, state, run), partition, assigned
        )
        self._check_topic(state, await asyncio.shield(asked))
        next_offset = run[-1].offset + 1
        attempts = 0

        async def store() -> object:
            nonlocal attempts
            attempts += 1
            with metrics.SCRIPT_SECONDS.labels(self.stem).time():
                return await self._tables.add_once(state, verdict, next_offset, again=attempts > 1)

        outcome = await self._until_answered(store, partition, assigned)
        if isinstance(outcome, HalfApplied):
            raise stops.half_applied(outcome.offset)
        if not isinstance(outcome, Applied):
            assigned.state = None  # Also throws away what judging added to the fingerprints.
            return None
        assigned.moved_at = time.monotonic()
        metrics.BATCH_SECONDS.labels(self.stem).observe(assigned.moved_at - started)
        entries = sum(t.received for t in verdict.epochs.values()) + verdict.late
        metrics.BATCH_ENTRIES.labels(self.stem).observe(entries)
        sizes = metrics.FRAME_BYTES.labels(self.stem)
        for delivery in run:
            sizes.observe(delivery.size)
        assigned.counted_s = run[-1].append_ms / 1000
        return verdict

    async def _judged(self, partition: int, state: PartitionState, run: list[Delivery]) -> Verdict:
        if unknown_to(self._directory.book, run):
            await self._directory.refresh_to_end()
        book = self._directory.book
        unreleased = {epoch.number: epoch for epoch in book.unreleased(self.stem)}
        try:
            keys = {n: self._keys.epoch(e.key_id, n) for n, e in unreleased.items()}
        except LookupError as error:
            raise stops.key_missing(str(error)) from error
        for number in unreleased.keys() - state.seen.keys():
            state.seen[number] = await self._tables.load_seen(partition, number)
        for number in state.seen.keys() - unreleased.keys():
            del state.seen[number]
        seen = {number: found.table for number, found in state.seen.items()}
        return self._judge(partition, run, book, keys, seen)

    # --- every second ---------------------------------------------------------------------------

    async def check(self) -> None:
        """Compare every idle partition with Redis and the log; never waits for a busy one."""
        partitions = {p: a for p, a in self._assigned.items() if a.stopped is None}
        try:
            description = await self._description()
            ends = await self._kafka.ends(self.topic.name, list(partitions)) if partitions else {}
            for partition, assigned in partitions.items():
                totals = await self._tables.totals(partition)
                if partition not in self._assigned:
                    continue
                metrics.ENTRY_TOTALS.set(self.stem, partition, totals)
                # Of a busy one too: whoever holds the lock and does not move has stalled.
                assigned.lag = ends[partition] - (assigned.state.offset if assigned.state else 0)
                metrics.LAG.labels(self.stem, str(partition)).set(max(0, assigned.lag))
                now_s = time.time()
                if assigned.lag <= 0:
                    assigned.counted_s = now_s
                behind_s = max(0.0, now_s - assigned.counted_s)
                metrics.BEHIND_SECONDS.labels(self.stem, str(partition)).set(behind_s)
                if assigned.lock.locked():
                    continue
                async with assigned.lock:
                    with self._leaving(partition, assigned):
                        await self._check(partition, assigned, ends[partition], description)
        except StoreUnavailable:
            self._reachable = False
        else:
            if not self._reachable:
                self._reachable, self._reachable_since = True, time.monotonic()
        self._tell()

    async def _check(
        self, partition: int, assigned: _Partition, end: int, description: TopicDescription
    ) -> None:
        self._check_partitions(description)
        state = assigned.state
        if state is None:
            state = await self._read_state(partition, assigned)
            await self._seek(partition, state.offset)
        stored = await self._tables.stored_state(partition)
        if stored.offset != state.offset or stored.topic_id != state.topic_id:
            state = await self._read_state(partition, assigned)
            metrics.SEEKS.labels(self.stem).inc()
            await self._seek(partition, state.offset)
        self._check_topic(state, description)
        assigned.lag = end - state.offset
        idle_s = time.monotonic() - assigned.moved_at
        if assigned.lag <= 0:
            assigned.moved_at = time.monotonic()
        elif idle_s > _IDLE_S and time.monotonic() - assigned.probed_at > _IDLE_S:
            assigned.probed_at = time.monotonic()
            await self._move_without_records(partition, assigned, state)

    async def _move_without_records(
        self, partition: int, assigned: _Partition, state: PartitionState
    ) -> None:
        """The log has moved on and nothing came: pass over what holds no record, or ask again."""
        bounds = await self._kafka.bounds(self.topic.name, partition)
        if bounds.begin > state.offset:
            state = await self._read_state(partition, assigned)
            await self._seek(partition, state.offset)
            return
        first = await self._kafka.next_record(self.topic.name, partition, state.offset)
        if first > state.offset:
            passed = first - state.offset
            outcome = await self._tables.add_once(state, Verdict(), first)
            if isinstance(outcome, Applied):
                metrics.GAPS.labels(self.stem).inc(passed)
                assigned.moved_at = time.monotonic()
            else:
                assigned.state = None
        elif time.monotonic() - assigned.sought_at > _IDLE_S:
            assigned.sought_at = time.monotonic()
            metrics.SEEKS.labels(self.stem).inc()
            await self._seek(partition, state.offset)

    # --- helpers --------------------------------------------------------------------------------

    async def _description(self) -> TopicDescription:
        found = (await self._kafka.describe([self.topic.name]))[self.topic.name]
        if found is None:
            raise StoreUnavailable(f"topic {self.topic.name} is not there")
        return found

    async def _until_answered(
        self,
        call: Callable[[], Awaitable[T]],
        partition: int | None = None,
        assigned: _Partition | None = None,
    ) -> T:
        """Retry in place while Redis or Kafka is away; give up when the partition is not ours."""
        attempt = 0
        while True:
            if partition is not None and assigned is not None:
                self._still_ours(partition, assigned)
            try:
                return await call()
            except StoreUnavailable as error:
                self._reachable = False
                metrics.RETRIES.labels(self.stem).inc()
                if attempt == 0:
                    log.warning(
                        "store_unavailable", extra={"stem": self.stem, "advice": Known(error)}
                    )
                await asyncio.sleep(_BACK_OFF_S[min(attempt, len(_BACK_OFF_S) - 1)])
                attempt += 1

    def _still_ours(self, partition: int, assigned: _Partition) -> None:
        if self._assigned.get(partition) is not assigned or assigned.stopped is not None:
            raise _Gone

    def _check_topic(self, state: PartitionState, description: TopicDescription) -> None:
        self._check_partitions(description)
        if state.topic_id != description.id:
            raise stops.topic_recreated()

    def _check_partitions(self, description: TopicDescription) -> None:
        if description.partitions != self.topic.partitions:
            raise stops.partitions_changed(self.topic.partitions, description.partitions)

    @contextlib.contextmanager
    def _leaving(self, partition: int, assigned: _Partition) -> Iterator[None]:
        """Leave what is under way when the partition is gone; stop it where it cannot go on."""
        try:
            yield
        except _Gone:
            pass
        except StoreMismatch as error:
            self._stop(partition, assigned, stops.store_refused(str(error)))
        except stops.Stop as stop:
            self._stop(partition, assigned, stop)

    def _stop(self, partition: int, assigned: _Partition, stop: stops.Stop) -> None:
        """Stop a partition and say so, once."""
        if self._assigned.get(partition) is not assigned or assigned.stopped is not None:
            return
        assigned.stopped, assigned.state = stop.reason, None
        text = Known(f"partition {partition} of {self.topic.name} {stop}")
        log.error(
            "partition_stopped",
            extra={
                "stem": self.stem,
                "partition": partition,
                "reason": stop.reason,
                "advice": text,
            },
        )
        self._tell()

    def _tell(self) -> None:
        stopped = list(self.stopped.values())
        for reason in stops.StopReason:
            metrics.PARTITION_STOPPED.labels(self.stem, reason).set(stopped.count(reason))
        metrics.PARTITIONS_ASSIGNED.labels(self.stem).set(len(self._assigned))
