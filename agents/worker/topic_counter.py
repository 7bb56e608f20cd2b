"""Count the partitions of one topic that are assigned to this worker, concurrently.

    assign, resume    set this worker's partitions, and the offset at which each starts
    count             messages of several partitions: validates one while Redis stores another
    check             every second, the idle ones
    ready, stalled    health checks

A partition that cannot continue without an operator is *halted*: the worker counts nothing of it,
logs the reason once and is not ready, and the other partitions continue. The worker resumes it when
its counts were rebuilt, or when the broker whose stale response halted it responds correctly; after
every other repair the worker must be restarted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from blendstream.agents.worker import halt_reasons, metrics
from blendstream.agents.worker.frame_batches import Message
from blendstream.agents.worker.partition_counter import (
    BatchValidator,
    PartitionCounter,
    PartitionInactive,
    TopicContext,
)
from blendstream.agents.worker.store_retry import StoreAvailability
from blendstream.streams.epoch_keys import KeyRing
from blendstream.streams.errors import StoreMismatch, StoreUnavailable
from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.kafka.topics import Topic
from blendstream.streams.names import InputStream
from blendstream.streams.releases.reader import LogFollower
from blendstream.streams.tables.batch_verdict import DeadLetter
from blendstream.streams.tables.count_table import CountTable
from blendstream.streams.telemetry.structured_logs import SafeText

__all__ = ["OnRefused", "TopicCounter"]

log = logging.getLogger(__name__)

#: Receives a partition and the dead-letter records of its refused entries.
OnRefused = Callable[[int, Sequence[DeadLetter]], Awaitable[None]]


class TopicCounter:
    """Counts the topic of one input stream. `seek` moves the consumer within a partition."""

    def __init__(
        self,
        stem: InputStream,
        topic: Topic,
        *,
        judge: BatchValidator,
        tables: CountTable,
        release_log: LogFollower,
        kafka: KafkaInspector,
        keys: KeyRing,
        seek: Callable[[int, int], Awaitable[None]],
    ) -> None:
        self.stem = stem
        self.topic = topic
        self._tables = tables
        self._kafka = kafka
        self._availability = StoreAvailability(stem)
        self._topic_context = TopicContext(
            stem, topic, judge, tables, release_log, kafka, keys, seek, self._availability
        )
        self._assigned: dict[int, PartitionCounter] = {}

    # --- health checks --------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """True if Redis and Kafka responded to the last requests and no partition is halted."""
        return self._availability.available and not self.halted

    @property
    def halted(self) -> dict[int, halt_reasons.HaltReason]:
        """The halted partitions with their reasons."""
        return {n: p.halted for n, p in self._assigned.items() if p.halted is not None}

    @property
    def assigned(self) -> set[int]:
        """The partitions that this worker counts, including halted ones."""
        return set(self._assigned)

    def offset(self, partition: int) -> int | None:
        """Return the next offset to count, or None before the state was read."""
        assigned = self._assigned.get(partition)
        return assigned.state.offset if assigned is not None and assigned.state else None

    def stalled_for_s(self) -> float:
        """Return how long a partition with lag has not moved while Redis and Kafka responded."""
        if not self._availability.available:
            return 0.0
        # Reading the state of many large partitions takes minutes, and a batch waits for all of its
        # partitions.
        resumed = max((p.resumed_at for p in self._assigned.values()), default=-math.inf)
        since = [
            max(p.moved_at, resumed, self._availability.since)
            for p in self._assigned.values()
            if (p.lag > 0 or p.state is None) and p.halted is None
        ]
        return time.monotonic() - min(since) if since else 0.0

    # --- assignment -----------------------------------------------------------------------------

    def revoke(self, partitions: Sequence[int]) -> None:
        """Retire the counters of partitions that Kafka revoked; calls in flight end soon."""
        for number in partitions:
            if (partition := self._assigned.pop(number, None)) is not None:
                partition.revoke()
        self._update_gauges()

    def assign(self, partitions: Sequence[int]) -> None:
        """Set the assigned partitions; the caller then calls `resume` for the new ones."""
        self.revoke([number for number in self._assigned if number not in partitions])
        for number in partitions:
            if number not in self._assigned:
                self._assigned[number] = PartitionCounter(number, self._topic_context)
        self._update_gauges()

    async def resume(self, partition: int) -> int | None:
        """Read a partition's state. Return the offset to seek to, None if halted or revoked."""
        assigned = self._assigned.get(partition)
        if assigned is None:
            return None
        async with self._lock_partition(assigned):
            state = assigned.state or await assigned.read_state()
            return state.offset
        return None

    # --- counting -------------------------------------------------------------------------------

    async def count(
        self,
        messages: Mapping[int, Sequence[Message]],
        refused: OnRefused | None = None,
    ) -> Counter[str]:
        """Count the fetched messages of each partition; return the numbers of entries by result.

        Afterwards the consumer may drop these messages: each was counted or skipped, will be
        fetched again, or belongs to a partition of another worker.
        """
        summary: Counter[str] = Counter()
        # Describe the topic after the fetch: if the topic was recreated before the fetch, these
        # offsets belong to another topic than the counted one. `PartitionCounter` awaits the
        # description before it stores anything.
        asked = asyncio.create_task(
            self._availability.retry_until_available(self._topic_context.description)
        )

        async def one(partition: PartitionCounter, fetched: Sequence[Message]) -> None:
            async with self._lock_partition(partition):
                async for verdict in partition.count(fetched, asked):
                    summary.update(verdict.summary())
                    if verdict.letters and refused is not None:
                        await refused(partition.number, verdict.letters)

        due = [
            (partition, fetched)
            for number, fetched in messages.items()
            if (partition := self._assigned.get(number)) is not None and partition.halted is None
        ]
        try:
            await asyncio.gather(*(one(partition, fetched) for partition, fetched in due))
        finally:
            asked.cancel()
        return summary

    # --- every second ---------------------------------------------------------------------------

    async def check(self) -> None:
        """Compare every idle partition with Redis and Kafka; never wait for a busy one."""
        try:
            for partition in [p for p in self._assigned.values() if p.halted is not None]:
                if not partition.revoked:
                    partition.update_lag_metrics()
                async with self._lock_partition(partition):
                    if await partition.can_resume() and not partition.revoked:
                        log.info(
                            "partition_halt_ended",
                            extra={"stem": self.stem, "partition": partition.number},
                        )
                        partition.revoke()
                        self._assigned[partition.number] = PartitionCounter(
                            partition.number, self._topic_context
                        )
            partitions = {n: p for n, p in self._assigned.items() if p.halted is None}
            description = await self._topic_context.description()
            ends = await self._kafka.ends(self.topic.name, list(partitions)) if partitions else {}
            for number, partition in partitions.items():
                try:
                    totals = await self._tables.totals(number)
                except StoreMismatch as error:  # Halts this one alone: check the others too.
                    self._halt(partition, halt_reasons.store_refused(str(error)))
                    continue
                if partition.revoked:
                    continue
                metrics.ENTRY_TOTALS.set(self.stem, number, totals)
                partition.note_end(ends[number])
                if partition.lock.locked():
                    continue
                async with self._lock_partition(partition):
                    await partition.check(ends[number], description)
                    if partition.lag <= 0:
                        metrics.ENTRY_TOTALS.settle(self.stem, number)
        except StoreUnavailable:
            self._availability.mark_unavailable()
        else:
            self._availability.mark_available()
        self._update_gauges()

    # --- helpers --------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _lock_partition(self, partition: PartitionCounter) -> AsyncIterator[None]:
        """Hold the partition's lock; halt the partition if the block raises a reason to."""
        async with partition.lock:
            try:
                yield
            except PartitionInactive:
                pass
            except StoreMismatch as error:
                self._halt(partition, halt_reasons.store_refused(str(error)))
            except halt_reasons.PartitionHalt as halt:
                self._halt(partition, halt)

    def _halt(self, partition: PartitionCounter, halt: halt_reasons.PartitionHalt) -> None:
        """Halt a partition and log the reason, once."""
        if partition.revoked or partition.halted is not None:
            return
        partition.halt(halt)
        text = SafeText(f"partition {partition.number} of {self.topic.name} {halt}")
        log.error(
            "partition_halted",
            extra={
                "stem": self.stem,
                "partition": partition.number,
                "reason": halt.reason,
                "advice": text,
            },
        )
        self._update_gauges()

    def _update_gauges(self) -> None:
        halted = list(self.halted.values())
        for reason in halt_reasons.HaltReason:
            metrics.PARTITIONS_HALTED.labels(self.stem, reason).set(halted.count(reason))
        metrics.PARTITIONS_ASSIGNED.labels(self.stem).set(len(self._assigned))
