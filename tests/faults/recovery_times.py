"""Times from a fault until the service accepts, counts and releases again, measured from outside.

*Accepting again*: the first request, begun after the fault, from which on every entry of every
request was accepted; 0 when none was refused or unanswered.
*Counting again*: Redis has everything that Kafka had when the service accepted again.
*Releasing again*: the first release after the fault, reckoned from the fault, or from when that
release was due if that is later: releases come once a window.

Sampled every quarter of a second by clients of the test's own, which also fail over.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from blendstream.blender.values.errors import BlenderError
from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.names import InputStream
from blendstream.streams.releases.epoch_state import EpochState
from blendstream.streams.settings import Settings
from blendstream.streams.tables.redis import connect_redis
from blendstream.streams.tables.stage_tables import stage_table
from tests.faults.people_over_http import Round
from tests.service.epochs import EpochService

EVERY_S = 0.25
_SHORT = {"redis.timeout_s": "1"}

Offsets = dict[tuple[InputStream, int], int]


@dataclass(frozen=True, slots=True)
class Recovery:
    """Seconds after a fault; None: not within the time that was given."""

    accepting_s: float | None
    counting_s: float | None
    releasing_s: float | None

    @property
    def whole(self) -> bool:
        return None not in (self.accepting_s, self.counting_s, self.releasing_s)


@dataclass
class RecoveryTimes:
    """Samples of one service, for as long as `watch` runs."""

    made: EpochService
    rounds: Callable[[], list[Round]]
    epochs: Callable[[], dict[int, EpochState]]
    ends: list[tuple[float, Offsets]] = field(default_factory=list)
    counted: list[tuple[float, Offsets]] = field(default_factory=list)

    async def watch(self) -> None:
        """Sample until cancelled."""
        settings = Settings.from_values(self.made.values | _SHORT)
        await asyncio.gather(self._watch_ends(), self._watch_counted(settings))

    async def _watch_ends(self) -> None:
        asked, kafka = None, self.made.kafka
        while True:
            with contextlib.suppress(BlenderError):
                if asked is not self.made.settings:  # The test may look from other brokers.
                    asked = self.made.settings
                    kafka = KafkaInspector(replace(asked.kafka, request_timeout_s=2.0))
                found: Offsets = {}
                for stem in InputStream:
                    topic = self.made.topics.of(stem).name
                    ends = await kafka.ends(topic, range(self.made.partitions))
                    found |= {(stem, partition): end for partition, end in ends.items()}
                self.ends.append((time.monotonic(), found))
            await asyncio.sleep(EVERY_S)

    async def _watch_counted(self, settings: Settings) -> None:
        while True:
            with contextlib.suppress(BlenderError):
                client = await connect_redis(settings.redis)
                try:
                    while True:
                        begun = time.monotonic()
                        found: Offsets = {}
                        for stem in InputStream:
                            tables = stage_table(
                                stem,
                                client,
                                self.made.topics.of(stem).name,
                                prefix=settings.topics.prefix,
                            )
                            for partition in range(self.made.partitions):
                                state = await tables.stored_state(partition)
                                found[stem, partition] = state.offset or 0
                        self.counted.append((begun, found))
                        await asyncio.sleep(EVERY_S)
                finally:
                    await client.aclose()
            await asyncio.sleep(EVERY_S)

    # --- after a fault --------------------------------------------------------------------------

    def since(self, fault_s: float) -> Recovery:
        """Compute the recovery times of a fault at this moment of the monotonic clock."""
        accepting = self._accepting(fault_s)
        counting = None if accepting is None else self._counting(fault_s, fault_s + accepting)
        return Recovery(accepting, counting, self._releasing(fault_s))

    def _accepting(self, fault_s: float) -> float | None:
        after = sorted((r for r in self.rounds() if r.begun_s >= fault_s), key=lambda r: r.begun_s)
        failed = [number for number, r in enumerate(after) if not r.whole]
        if not failed:
            return 0.0 if after else None
        # Four requests in a row (two a round), or it may only have been lucky.
        healthy = after[failed[-1] + 1 :]
        return healthy[0].ended_s - fault_s if len(healthy) >= 4 else None

    def _counting(self, fault_s: float, accepted_s: float) -> float | None:
        target = next((found for at, found in self.ends if at >= accepted_s), None)
        if target is None:
            return None
        for at, found in self.counted:
            if at >= accepted_s and all(found[where] >= end for where, end in target.items()):
                return at - fault_s
        return None

    def _releasing(self, fault_s: float) -> float | None:
        fault_ms = time.time_ns() / 1e6 - (time.monotonic() - fault_s) * 1000
        times = [
            (at_ms, (at_ms - max(fault_ms, due_ms)) / 1000)
            for state in self.epochs().values()
            for due_ms, at_ms in _releases(state)
            if at_ms > fault_ms
        ]
        return max(0.0, min(times)[1]) if times else None


def _releases(state: EpochState) -> list[tuple[int, int]]:
    """Return the due time of each release of an epoch, and its append time in the log."""
    found = []
    plan = state.parameters.plan
    for release in (state.click_graph, state.head_list):
        if release is not None:
            found.append((state.parameters.records_sealable_at_ms, release.at_ms))
    if state.head_list is not None and state.estimates is not None:
        due_ms = state.head_list.reports_until_ms + plan.grace_ms + plan.skew_ms
        found.append((due_ms, state.estimates.at_ms))
    return found
