"""Count one partition: every message exactly once, however the consumer delivers it.

The consumer may deliver a message twice, out of order after a seek, or from a partition that now
belongs to another worker. The counter counts a message whose offset is the one that Redis expects
next, skips lower offsets, and requests higher ones again.

    read_state   read the offset, then the fingerprints, from Redis
    count        messages: validate, store once, retry in place while Redis or Kafka is unavailable
    check        every second: has Redis lost writes, has the topic grown without records

The caller must hold the partition's lock. `PartitionInactive` and `PartitionHalt` end the call.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

from blendstream.agents.worker import halt_reasons, metrics
from blendstream.agents.worker.entry_checks import unknown_to
from blendstream.agents.worker.frame_batches import Message, first_run
from blendstream.agents.worker.partition_resume import resume_state
from blendstream.agents.worker.store_retry import StoreAvailability
from blendstream.streams.epoch_keys import EpochKeys, KeyRing
from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.kafka.kafka_clients import KafkaInspector, TopicDescription
from blendstream.streams.kafka.topics import Topic
from blendstream.streams.names import InputStream
from blendstream.streams.releases.epoch_state import ReleaseLogState
from blendstream.streams.releases.reader import LogFollower
from blendstream.streams.tables.batch_verdict import BatchVerdict, Delivery
from blendstream.streams.tables.count_table import Applied, CountTable, HalfApplied, PartitionState
from blendstream.streams.tables.fingerprints import FingerprintTable
from blendstream.streams.wire.frames import NewerFrame

__all__ = ["BatchValidator", "PartitionCounter", "PartitionInactive", "TopicContext"]

log = logging.getLogger(__name__)
T = TypeVar("T")

#: Minimum time between two seeks. After a seek the consumer first delivers its buffered messages,
#: and an early second seek would discard the fetch in flight. A longer time would only delay.
_SEEK_AGAIN_S: Final = 1.0
#: Time that a partition waits for the release log, which delays the others, before it halts.
_LOG_WAIT_S: Final = 10.0
_LOG_RETRY_S: Final = 0.5
#: Interval between checks of a halted partition that may resume automatically.
_RECHECK_S: Final = 2.0
#: If nothing arrives for this long although the topic has grown, check for offsets without records.
_IDLE_S: Final = 2.0


class BatchValidator(Protocol):
    """The signature of `judge_reports` and `judge_optin_records`."""

    def __call__(
        self,
        partition: int,
        deliveries: Sequence[Delivery],
        log_state: ReleaseLogState,
        keys: Mapping[int, EpochKeys],
        seen: Mapping[int, FingerprintTable],
    ) -> BatchVerdict: ...


class PartitionInactive(Exception):
    """Raised when Kafka revokes the partition, or the worker halts it, during a call."""


@dataclass(frozen=True, slots=True)
class TopicContext:
    """Dependencies that one topic's partitions share. `seek` moves the consumer in a partition."""

    stem: InputStream
    topic: Topic
    judge: BatchValidator
    tables: CountTable
    release_log: LogFollower
    kafka: KafkaInspector
    keys: KeyRing
    seek: Callable[[int, int], Awaitable[None]]
    availability: StoreAvailability

    async def description(self) -> TopicDescription:
        """Return the topic's current id and number of partitions."""
        found = (await self.kafka.describe([self.topic.name]))[self.topic.name]
        if found is None:
            raise StoreUnavailable(f"topic {self.topic.name} is not there")
        return found

    def check_partitions(self, description: TopicDescription) -> None:
        """Halt if the number of partitions changed: keys would then be in other partitions."""
        if description.partitions != self.topic.partitions:
            raise halt_reasons.partitions_changed(self.topic.partitions, description.partitions)


class PartitionCounter:
    """Counts one partition that is assigned to this worker."""

    def __init__(self, number: int, context: TopicContext) -> None:
        self.number = number
        self.lock = asyncio.Lock()
        #: Redis's content when last read or written; None: it must be read (again).
        self.state: PartitionState | None = None
        self.halted: halt_reasons.HaltReason | None = None
        self._over: Callable[[], Awaitable[bool]] | None = None
        self._over_checked_at = -math.inf
        #: Kafka revoked the partition, or a new counter replaces this one: not used any more.
        self.revoked = False
        #: The token of the last rebuild when Redis was last read.
        self._rebuilt: str | None = None
        self.lag = 0
        self.moved_at = time.monotonic()
        self.resumed_at = -math.inf
        self._topic_context = context
        #: Offset of the next record: there is none between the state's offset and this one.
        self._next_record = -1
        self._sought_at = -math.inf
        self._probed_at = -math.inf
        #: The append time of the last counted frame or, if later, the last time without any lag.
        self._counted_s = time.time()
        self.update_lag_metrics()

    def revoke(self) -> None:
        """Retire this counter: calls in flight end at their next check. Removes its metrics."""
        self.revoked = True
        stem = self._topic_context.stem
        metrics.ENTRY_TOTALS.forget(stem, self.number)
        metrics.LAG.remove(stem, str(self.number))
        metrics.BEHIND_SECONDS.remove(stem, str(self.number))

    def halt(self, halt: halt_reasons.PartitionHalt) -> None:
        self.halted, self.state, self._over = halt.reason, None, halt.over
        self._over_checked_at = time.monotonic()

    def note_end(self, end: int) -> None:
        """Note the topic's current end, also for a busy partition, which may have stalled."""
        if self.state is not None:  # Without a state it is not known how much is counted.
            self.lag = end - self.state.offset
            if self.lag <= 0:
                self._counted_s = time.time()
        self.update_lag_metrics()

    def update_lag_metrics(self) -> None:
        """Export lag in offsets and in seconds; the seconds grow while the partition is halted."""
        labels = self._topic_context.stem, str(self.number)
        metrics.LAG.labels(*labels).set(max(0, self.lag))
        metrics.BEHIND_SECONDS.labels(*labels).set(max(0.0, time.time() - self._counted_s))

    async def read_state(self) -> PartitionState:
        """Read the state to resume from, from Redis and the release log."""
        context = self._topic_context
        metrics.RELOADS.labels(context.stem).inc()
        self.state = None
        self._rebuilt = await context.tables.rebuilt(self.number)
        await context.release_log.refresh_to_end()
        description = await context.description()
        context.check_partitions(description)
        state = await resume_state(
            context.stem, context.topic, self.number, description.id,
            tables=context.tables, release_log=context.release_log, kafka=context.kafka,
        )  # fmt: skip
        self._check_active()
        self.state, self._next_record = state, -1
        self.moved_at = self.resumed_at = time.monotonic()
        log.info(
            "partition_resumed",
            extra={"stem": context.stem, "partition": self.number, "offset": state.offset},
        )
        return state

    async def can_resume(self) -> bool:
        """Return True if counts were rebuilt, or the halt's own check has passed."""
        if await self._topic_context.tables.rebuilt(self.number) != self._rebuilt:
            return True
        now = time.monotonic()
        if self._over is None or now - self._over_checked_at < _RECHECK_S:
            return False
        self._over_checked_at = now
        return await self._over()

    # --- counting -------------------------------------------------------------------------------

    async def count(
        self, messages: Sequence[Message], asked: asyncio.Task[TopicDescription]
    ) -> AsyncIterator[BatchVerdict]:
        """Count the messages that are due; `asked` describes the topic that they came from."""
        while True:
            state = self.state
            if state is None:
                state = await self._retry(self.read_state)
            messages = [message for message in messages if message.offset >= state.offset]
            if not messages:
                return
            if messages[0].offset not in (state.offset, self._next_record):
                if not await self._retry(partial(self._skip_gap, messages[0].offset)):
                    return
                continue
            run = first_run(messages)
            if isinstance(run, NewerFrame):
                raise halt_reasons.newer_frame(run.version, messages[0].offset)
            try:
                verdict = await self._store(state, run, asked)
            except BaseException:
                # Validation added fingerprints that may not be stored: read the state again.
                self.state = None
                raise
            if verdict is not None:
                yield verdict

    async def _skip_gap(self, next_offset: int) -> bool:
        """Return True if counting can continue, False if the messages arrived out of order."""
        state = self.state
        if state is None:
            return True
        if time.monotonic() - self._sought_at < _SEEK_AGAIN_S:
            return False
        bounds = await self._topic_context.kafka.bounds(self._topic_context.topic.name, self.number)
        if bounds.begin > state.offset:
            self.state = None  # Records were removed before they were counted: read the state.
            return True
        first = await self._topic_context.kafka.next_record(
            self._topic_context.topic.name, self.number, state.offset
        )
        if first == next_offset:
            metrics.GAPS.labels(self._topic_context.stem).inc(next_offset - state.offset)
            self._next_record = next_offset
            return True
        self._check_active()
        await self._seek(state.offset)
        return False

    async def _store(
        self, state: PartitionState, run: list[Delivery], asked: asyncio.Task[TopicDescription]
    ) -> BatchVerdict | None:
        """Validate and store one run of messages. Return None if the state must be read again."""
        stem = self._topic_context.stem
        started = time.monotonic()
        verdict = await self._retry(partial(self._judge, state, run))
        self._check_topic(state, await asyncio.shield(asked))
        next_offset = run[-1].offset + 1
        attempts = 0

        async def store() -> object:
            nonlocal attempts
            attempts += 1
            with metrics.SCRIPT_SECONDS.labels(stem).time():
                return await self._topic_context.tables.add_once(
                    state, verdict, next_offset, again=attempts > 1
                )

        outcome = await self._retry(store)
        if isinstance(outcome, HalfApplied):
            raise halt_reasons.half_applied(outcome.offset)
        if not isinstance(outcome, Applied):
            self.state = None  # Also discards the fingerprints that validation added.
            return None
        self.moved_at = time.monotonic()
        metrics.BATCH_SECONDS.labels(stem).observe(self.moved_at - started)
        entries = sum(t.received for t in verdict.epochs.values()) + verdict.late
        metrics.BATCH_ENTRIES.labels(stem).observe(entries)
        sizes = metrics.FRAME_BYTES.labels(stem)
        for delivery in run:
            sizes.observe(delivery.size)
        self._counted_s = run[-1].append_ms / 1000
        return verdict

    async def _judge(self, state: PartitionState, run: list[Delivery]) -> BatchVerdict:
        context = self._topic_context
        await self._read_log_for(run)
        # Use one log state for keys and validation: with a newer one, validation could accept an
        # entry of an epoch that opened after the keys were derived.
        log_state = context.release_log.stable_state
        unreleased = {epoch.epoch: epoch for epoch in log_state.unreleased(context.stem)}
        try:
            keys = {
                n: context.keys.epoch(e.parameters.plan.key_id, n) for n, e in unreleased.items()
            }
        except LookupError as error:
            raise halt_reasons.key_missing(str(error)) from error
        for number in unreleased.keys() - state.seen.keys():
            state.seen[number] = await context.tables.load_seen(self.number, number)
        for number in state.seen.keys() - unreleased.keys():
            del state.seen[number]
        seen = {number: contributors.table for number, contributors in state.seen.items()}
        return context.judge(self.number, run, log_state, keys, seen)

    async def _read_log_for(self, run: list[Delivery]) -> None:
        """Read the release log until every epoch and list of a run is found or proven missing.

        If that takes too long, the partition halts, so that the others can continue.
        """
        release_log = self._topic_context.release_log
        unknown = unknown_to(release_log.stable_state, run)
        if not unknown or await release_log.read_for(unknown):
            return
        furthest = max(unknown, key=lambda frame: frame.log_position)
        log.warning(
            "release_log_behind",
            extra={
                "stem": self._topic_context.stem,
                "partition": self.number,
                "offset": furthest.offset,
                "log_position": furthest.log_position,
            },
        )
        deadline = time.monotonic() + _LOG_WAIT_S
        while not await release_log.read_for(unknown):
            self._check_active()
            if time.monotonic() > deadline:
                over = partial(release_log.read_for, unknown)
                raise halt_reasons.log_behind(furthest.offset, furthest.log_position, over)
            await asyncio.sleep(_LOG_RETRY_S)

    # --- every second ---------------------------------------------------------------------------

    async def check(self, end: int, description: TopicDescription) -> None:
        """Compare an idle partition with Redis and with the log, which ends at `end`."""
        self._topic_context.check_partitions(description)
        state = self.state
        if state is None:
            state = await self.read_state()
            await self._topic_context.seek(self.number, state.offset)
        stored = await self._topic_context.tables.stored_state(self.number)
        if stored.offset != state.offset or stored.topic_id != state.topic_id:
            state = await self.read_state()
            metrics.SEEKS.labels(self._topic_context.stem).inc()
            await self._topic_context.seek(self.number, state.offset)
        self._check_topic(state, description)
        self.lag = end - state.offset
        now = time.monotonic()
        if self.lag <= 0:
            self.moved_at = now
        elif now - self.moved_at > _IDLE_S and now - self._probed_at > _IDLE_S:
            self._probed_at = now
            await self._move_without_records(state)

    async def _move_without_records(self, state: PartitionState) -> None:
        """Skip offsets without a record, or seek again: the topic has grown and nothing arrived."""
        context = self._topic_context
        bounds = await context.kafka.bounds(context.topic.name, self.number)
        if bounds.begin > state.offset:
            state = await self.read_state()
            await context.seek(self.number, state.offset)
            return
        first = await context.kafka.next_record(context.topic.name, self.number, state.offset)
        if first > state.offset:
            passed = first - state.offset
            outcome = await context.tables.add_once(state, BatchVerdict(), first)
            if isinstance(outcome, Applied):
                metrics.GAPS.labels(context.stem).inc(passed)
                self.moved_at = time.monotonic()
            else:
                self.state = None
        elif time.monotonic() - self._sought_at > _IDLE_S:
            await self._seek(state.offset)

    # --- helpers --------------------------------------------------------------------------------

    async def _seek(self, offset: int) -> None:
        self._sought_at = time.monotonic()
        metrics.SEEKS.labels(self._topic_context.stem).inc()
        await self._topic_context.seek(self.number, offset)

    async def _retry(self, call: Callable[[], Awaitable[T]]) -> T:
        return await self._topic_context.availability.retry_until_available(
            call, self._check_active
        )

    def _check_active(self) -> None:
        if self.revoked or self.halted is not None:
            raise PartitionInactive

    def _check_topic(self, state: PartitionState, description: TopicDescription) -> None:
        self._topic_context.check_partitions(description)
        if state.topic_id != description.id:
            raise halt_reasons.topic_recreated()
