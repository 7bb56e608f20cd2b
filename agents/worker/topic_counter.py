"""Counts the partitions of one topic that are assigned to this worker, side by side.

    assign, resume    which partitions are ours; at which offset the consumer starts
    count             messages of several at once: one is judged here while Redis stores another
    check             every second, the idle ones
    ready, stalled    health checks

A partition that cannot continue without an operator is *stopped*: nothing of it is counted, the
worker logs why once and is not ready, and the other partitions continue. It resumes when its counts
were rebuilt, or when the stale answer of a broker that stopped it is corrected; after every other
repair the worker must be restarted.
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

#: Takes a partition and where in it are entries that were refused.
OnRefused = Callable[[int, Sequence[DeadLetter]], Awaitable[None]]


class TopicCounter:
    """Counts one stem's topic. `seek` moves the consumer within a partition."""

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
        self._reach = StoreAvailability(stem)
        self._counted = TopicContext(
            stem, topic, judge, tables, release_log, kafka, keys, seek, self._reach
        )
        self._assigned: dict[int, PartitionCounter] = {}

    # --- health checks --------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Redis and Kafka answered when last asked, and no partition is stopped."""
        return self._reach.answering and not self.stopped

    @property
    def stopped(self) -> dict[int, halt_reasons.StopReason]:
        return {n: p.stopped for n, p in self._assigned.items() if p.stopped is not None}

    @property
    def assigned(self) -> set[int]:
        """The partitions that this worker counts, stopped ones too."""
        return set(self._assigned)

    def offset(self, partition: int) -> int | None:
        """The next offset to count, as this worker knows it."""
        assigned = self._assigned.get(partition)
        return assigned.state.offset if assigned is not None and assigned.state else None

    def stalled_for_s(self) -> float:
        """For how long a partition with lag has not moved although Redis and Kafka answered."""
        if not self._reach.answering:
            return 0.0
        # Reading the state of many large ones takes minutes, and a batch waits for all of its own.
        taken_up = max((p.taken_up_at for p in self._assigned.values()), default=-math.inf)
        since = [
            max(p.moved_at, taken_up, self._reach.since)
            for p in self._assigned.values()
            if (p.lag > 0 or p.state is None) and p.stopped is None
        ]
        return time.monotonic() - min(since) if since else 0.0

    # --- assignment -----------------------------------------------------------------------------

    def give_up(self, partitions: Sequence[int]) -> None:
        """Another worker has these now. Calls that are still running for them end by themselves."""
        for number in partitions:
            if (partition := self._assigned.pop(number, None)) is not None:
                partition.give_up()
        self._tell()

    def assign(self, partitions: Sequence[int]) -> None:
        """Exactly these partitions are ours from now on; call `resume` for the new ones."""
        self.give_up([number for number in self._assigned if number not in partitions])
        for number in partitions:
            if number not in self._assigned:
                self._assigned[number] = PartitionCounter(number, self._counted)
        self._tell()

    async def resume(self, partition: int) -> int | None:
        """Read a partition's state; the offset to seek to, or None if it is stopped or gone."""
        assigned = self._assigned.get(partition)
        if assigned is None:
            return None
        async with self._working_on(assigned):
            state = assigned.state or await assigned.read_state()
            return state.offset
        return None

    # --- counting -------------------------------------------------------------------------------

    async def count(
        self,
        messages: Mapping[int, Sequence[Message]],
        refused: OnRefused | None = None,
    ) -> Counter[str]:
        """Count what is due among these messages, by partition; returns when all are settled.

        Each message is then counted, skipped, requested again or another worker's, so the consumer
        may forget it. Returns the sum of the verdicts' summaries.
        """
        summary: Counter[str] = Counter()
        # Asked after the messages were fetched: if the topic was recreated before that, these
        # offsets belong to another topic than the one that was counted. The answer is awaited
        # before anything is stored.
        asked = asyncio.create_task(self._reach.retry_until_available(self._counted.description))

        async def one(partition: PartitionCounter, fetched: Sequence[Message]) -> None:
            async with self._working_on(partition):
                async for verdict in partition.count(fetched, asked):
                    summary.update(verdict.summary())
                    if verdict.letters and refused is not None:
                        await refused(partition.number, verdict.letters)

        due = [
            (partition, fetched)
            for number, fetched in messages.items()
            if (partition := self._assigned.get(number)) is not None and partition.stopped is None
        ]
        try:
            await asyncio.gather(*(one(partition, fetched) for partition, fetched in due))
        finally:
            asked.cancel()
        return summary

    # --- every second ---------------------------------------------------------------------------

    async def check(self) -> None:
        """Compare every idle partition with Redis and the log; never waits for a busy one."""
        try:
            for partition in [p for p in self._assigned.values() if p.stopped is not None]:
                if not partition.given_up:
                    partition.update_lag_metrics()
                async with self._working_on(partition):
                    if await partition.can_go_on() and not partition.given_up:
                        log.info(
                            "partition_goes_on",
                            extra={"stem": self.stem, "partition": partition.number},
                        )
                        partition.give_up()
                        self._assigned[partition.number] = PartitionCounter(
                            partition.number, self._counted
                        )
            partitions = {n: p for n, p in self._assigned.items() if p.stopped is None}
            description = await self._counted.description()
            ends = await self._kafka.ends(self.topic.name, list(partitions)) if partitions else {}
            for number, partition in partitions.items():
                try:
                    totals = await self._tables.totals(number)
                except StoreMismatch as error:  # Stops this one alone: check the others too.
                    self._stop(partition, halt_reasons.store_refused(str(error)))
                    continue
                if partition.given_up:
                    continue
                metrics.ENTRY_TOTALS.set(self.stem, number, totals)
                partition.note_end(ends[number])
                if partition.lock.locked():
                    continue
                async with self._working_on(partition):
                    await partition.check(ends[number], description)
                    if partition.lag <= 0:
                        metrics.ENTRY_TOTALS.settle(self.stem, number)
        except StoreUnavailable:
            self._reach.lost()
        else:
            self._reach.answered()
        self._tell()

    # --- helpers --------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _working_on(self, partition: PartitionCounter) -> AsyncIterator[None]:
        """Hold the partition's lock; stop the partition if the block says it cannot continue."""
        async with partition.lock:
            try:
                yield
            except PartitionInactive:
                pass
            except StoreMismatch as error:
                self._stop(partition, halt_reasons.store_refused(str(error)))
            except halt_reasons.PartitionHalt as stop:
                self._stop(partition, stop)

    def _stop(self, partition: PartitionCounter, stop: halt_reasons.PartitionHalt) -> None:
        """Stop a partition and say so, once."""
        if partition.given_up or partition.stopped is not None:
            return
        partition.stop(stop)
        text = SafeText(f"partition {partition.number} of {self.topic.name} {stop}")
        log.error(
            "partition_stopped",
            extra={
                "stem": self.stem,
                "partition": partition.number,
                "reason": stop.reason,
                "advice": text,
            },
        )
        self._tell()

    def _tell(self) -> None:
        stopped = list(self.stopped.values())
        for reason in halt_reasons.StopReason:
            metrics.PARTITION_STOPPED.labels(self.stem, reason).set(stopped.count(reason))
        metrics.PARTITIONS_ASSIGNED.labels(self.stem).set(len(self._assigned))
