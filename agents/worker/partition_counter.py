"""Counts one partition: every message exactly once, however the consumer delivers it.

The consumer may deliver a message twice, out of order after a seek, or from a partition that now
belongs to another worker. A message is counted if its offset is the one that Redis expects next,
skipped if its offset is lower, and requested again if it is higher.

    read_state   read the offset, then the fingerprints, from Redis
    count        messages: judge, store once, retry in place while Redis or Kafka is away
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

#: After a seek the consumer first delivers what it had buffered. Seeking again sooner than this
#: would discard what is on its way, again and again; later would only lose time.
_SEEK_AGAIN_S: Final = 1.0
#: How long a partition waits for the release log, delaying the others, before it is stopped.
_LOG_WAIT_S: Final = 10.0
_LOG_AGAIN_S: Final = 0.5
#: How often a stopped partition is checked again, if it may resume by itself.
_OVER_AGAIN_S: Final = 2.0
#: If nothing arrives for this long although the topic has more: check whether it has records there.
_IDLE_S: Final = 2.0


class BatchValidator(Protocol):
    """`judge_reports` or `judge_optin_records`."""

    def __call__(
        self,
        partition: int,
        deliveries: Sequence[Delivery],
        log_state: ReleaseLogState,
        keys: Mapping[int, EpochKeys],
        seen: Mapping[int, FingerprintTable],
    ) -> BatchVerdict: ...


class PartitionInactive(Exception):
    """The partition was taken away, or stopped, while we worked on it."""


@dataclass(frozen=True, slots=True)
class TopicContext:
    """What the partitions of one topic share. `seek` moves the consumer within a partition."""

    stem: InputStream
    topic: Topic
    judge: BatchValidator
    tables: CountTable
    release_log: LogFollower
    kafka: KafkaInspector
    keys: KeyRing
    seek: Callable[[int, int], Awaitable[None]]
    reach: StoreAvailability

    async def description(self) -> TopicDescription:
        """The topic's id and partitions, as the cluster knows them now."""
        found = (await self.kafka.describe([self.topic.name]))[self.topic.name]
        if found is None:
            raise StoreUnavailable(f"topic {self.topic.name} is not there")
        return found

    def check_partitions(self, description: TopicDescription) -> None:
        """Stop where there are more or fewer partitions than people were spread over."""
        if description.partitions != self.topic.partitions:
            raise halt_reasons.partitions_changed(self.topic.partitions, description.partitions)


class PartitionCounter:
    """A partition that is assigned to this worker."""

    def __init__(self, number: int, of: TopicContext) -> None:
        self.number = number
        self.lock = asyncio.Lock()
        #: What was in Redis when it was last read or written; None: it must be read (again).
        self.state: PartitionState | None = None
        self.stopped: halt_reasons.StopReason | None = None
        self._over: Callable[[], Awaitable[bool]] | None = None
        self._over_asked_at = -math.inf
        #: Another worker has it now, or it starts again. This object is then not used any more: a
        #: new one takes its place.
        self.given_up = False
        #: The mark of the last rebuild, as it was when Redis was last read.
        self._rebuilt: str | None = None
        self.lag = 0
        self.moved_at = time.monotonic()
        self.taken_up_at = -math.inf
        self._topic_context = of
        #: No record lies between the state's offset and this one.
        self._next_record = -1
        self._sought_at = -math.inf
        self._probed_at = -math.inf
        #: The append time of the last frame counted, or when nothing was left to count: the later.
        self._counted_s = time.time()
        self.update_lag_metrics()

    def give_up(self) -> None:
        """Another worker has it now. Calls that are still running for it end by themselves."""
        self.given_up = True
        stem = self._topic_context.stem
        metrics.ENTRY_TOTALS.forget(stem, self.number)
        metrics.LAG.remove(stem, str(self.number))
        metrics.BEHIND_SECONDS.remove(stem, str(self.number))

    def stop(self, stop: halt_reasons.PartitionHalt) -> None:
        self.stopped, self.state, self._over = stop.reason, None, stop.over
        self._over_asked_at = time.monotonic()

    def note_end(self, end: int) -> None:
        """Note where the topic ends now, for a busy partition too: it may have stalled."""
        if self.state is not None:  # Without a state it is not known how much is counted.
            self.lag = end - self.state.offset
            if self.lag <= 0:
                self._counted_s = time.time()
        self.update_lag_metrics()

    def update_lag_metrics(self) -> None:
        """Update the metrics of how far it is behind; the time grows while it is stopped."""
        labels = self._topic_context.stem, str(self.number)
        metrics.LAG.labels(*labels).set(max(0, self.lag))
        metrics.BEHIND_SECONDS.labels(*labels).set(max(0.0, time.time() - self._counted_s))

    async def read_state(self) -> PartitionState:
        """Read from Redis and the log where to resume counting."""
        of = self._topic_context
        metrics.RELOADS.labels(of.stem).inc()
        self.state = None
        self._rebuilt = await of.tables.rebuilt(self.number)
        await of.release_log.refresh_to_end()
        description = await of.description()
        of.check_partitions(description)
        state = await resume_state(
            of.stem, of.topic, self.number, description.id,
            tables=of.tables, release_log=of.release_log, kafka=of.kafka,
        )  # fmt: skip
        self._still_ours()
        self.state, self._next_record = state, -1
        self.moved_at = self.taken_up_at = time.monotonic()
        log.info(
            "partition_taken_up",
            extra={"stem": of.stem, "partition": self.number, "offset": state.offset},
        )
        return state

    async def can_go_on(self) -> bool:
        """Whether it may resume: its counts were rebuilt, or a broker answers again."""
        if await self._topic_context.tables.rebuilt(self.number) != self._rebuilt:
            return True
        now = time.monotonic()
        if self._over is None or now - self._over_asked_at < _OVER_AGAIN_S:
            return False
        self._over_asked_at = now
        return await self._over()

    # --- counting -------------------------------------------------------------------------------

    async def count(
        self, messages: Sequence[Message], asked: asyncio.Task[TopicDescription]
    ) -> AsyncIterator[BatchVerdict]:
        """Count what is due among the messages; `asked` describes the topic they came from."""
        while True:
            state = self.state
            if state is None:
                state = await self._until_answered(self.read_state)
            messages = [message for message in messages if message.offset >= state.offset]
            if not messages:
                return
            if messages[0].offset not in (state.offset, self._next_record):
                if not await self._until_answered(partial(self._pass_gap, messages[0].offset)):
                    return
                continue
            run = first_run(messages)
            if isinstance(run, NewerFrame):
                raise halt_reasons.newer_frame(run.version, messages[0].offset)
            try:
                verdict = await self._store(state, run, asked)
            except BaseException:
                # Judging added fingerprints that may not be stored now: read them again.
                self.state = None
                raise
            if verdict is not None:
                yield verdict

    async def _pass_gap(self, next_offset: int) -> bool:
        """True when counting can continue; False when the messages came out of order."""
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
        self._still_ours()
        await self._seek(state.offset)
        return False

    async def _store(
        self, state: PartitionState, run: list[Delivery], asked: asyncio.Task[TopicDescription]
    ) -> BatchVerdict | None:
        """Judge and store one run of messages; None when the state must be read again."""
        stem = self._topic_context.stem
        started = time.monotonic()
        verdict = await self._until_answered(partial(self._judged, state, run))
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

        outcome = await self._until_answered(store)
        if isinstance(outcome, HalfApplied):
            raise halt_reasons.half_applied(outcome.offset)
        if not isinstance(outcome, Applied):
            self.state = None  # Also throws away what judging added to the fingerprints.
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

    async def _judged(self, state: PartitionState, run: list[Delivery]) -> BatchVerdict:
        of = self._topic_context
        await self._read_log_for(run)
        # The same log state for keys and judging. With a newer one the judge could accept an entry
        # of an epoch that opened after the keys were made.
        log_state = of.release_log.stable_state
        unreleased = {epoch.epoch: epoch for epoch in log_state.unreleased(of.stem)}
        try:
            keys = {n: of.keys.epoch(e.parameters.plan.key_id, n) for n, e in unreleased.items()}
        except LookupError as error:
            raise halt_reasons.key_missing(str(error)) from error
        for number in unreleased.keys() - state.seen.keys():
            state.seen[number] = await of.tables.load_seen(self.number, number)
        for number in state.seen.keys() - unreleased.keys():
            del state.seen[number]
        seen = {number: contributors.table for number, contributors in state.seen.items()}
        return of.judge(self.number, run, log_state, keys, seen)

    async def _read_log_for(self, run: list[Delivery]) -> None:
        """Read the release log until all that a run names is known, or known not to exist.

        If that takes too long the partition is stopped, so that the others can continue.
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
            self._still_ours()
            if time.monotonic() > deadline:
                over = partial(release_log.read_for, unknown)
                raise halt_reasons.log_behind(furthest.offset, furthest.log_position, over)
            await asyncio.sleep(_LOG_AGAIN_S)

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
        """The topic has grown and nothing came: skip offsets without a record, or seek again."""
        of = self._topic_context
        bounds = await of.kafka.bounds(of.topic.name, self.number)
        if bounds.begin > state.offset:
            state = await self.read_state()
            await of.seek(self.number, state.offset)
            return
        first = await of.kafka.next_record(of.topic.name, self.number, state.offset)
        if first > state.offset:
            passed = first - state.offset
            outcome = await of.tables.add_once(state, BatchVerdict(), first)
            if isinstance(outcome, Applied):
                metrics.GAPS.labels(of.stem).inc(passed)
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

    async def _until_answered(self, call: Callable[[], Awaitable[T]]) -> T:
        return await self._topic_context.reach.retry_until_available(call, self._still_ours)

    def _still_ours(self) -> None:
        if self.given_up or self.stopped is not None:
            raise PartitionInactive

    def _check_topic(self, state: PartitionState, description: TopicDescription) -> None:
        self._topic_context.check_partitions(description)
        if state.topic_id != description.id:
            raise halt_reasons.topic_recreated()
