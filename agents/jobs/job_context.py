"""Dependencies of every epoch job: the log, the counts, the publisher, the noise and the clock.

Promises: production noise is exact. A program that embeds the jobs may pass other random sources,
and a test also a clock or an observer of steps; no setting, file or variable changes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypedDict, TypeVar, Unpack

import numpy as np

from blendstream.agents.jobs.file_rewriting import FileRewriting
from blendstream.agents.jobs.metrics import count_released
from blendstream.blender.noise.exact_noise import ExactNoise, Noise
from blendstream.blender.noise.opendp_noise import OpenDPNoise
from blendstream.blender.over_time.publication_filter import RecordFilter
from blendstream.blender.values.record import NORMALISATION_VERSION
from blendstream.streams.budget.ledger import Cost, Limit
from blendstream.streams.errors import StoreMismatch
from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.kafka.topics import Topics
from blendstream.streams.names import InputStream
from blendstream.streams.releases.compacted_topics import PublishedMarks, Publisher
from blendstream.streams.releases.entries import IncompleteReason, Kind
from blendstream.streams.releases.epoch_state import ReleaseLogState
from blendstream.streams.releases.filtered_estimates import FilterMemory
from blendstream.streams.releases.log import ReleaseLog, StepObserver, no_op_observer
from blendstream.streams.releases.seal_markers import SealMarkers
from blendstream.streams.releases.sealed_counts import SealedCounts
from blendstream.streams.settings import Settings
from blendstream.streams.tables.redis import Client
from blendstream.streams.tables.stage_tables import StageTable, stage_table
from blendstream.streams.version import version_of

__all__ = [
    "AbandonedRelease",
    "ContextOverrides",
    "FilterProgress",
    "JobContext",
    "RandomnessSources",
    "limit_from",
    "versions",
]

State = TypeVar("State")


def system_clock_ms() -> int:
    """Return this machine's time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class RandomnessSources:
    """Noise for releases, and a generator for the agreement test."""

    noise: Noise = field(default_factory=ExactNoise)
    #: Affects a p-value, never anyone's privacy.
    bootstrap: Callable[[], np.random.Generator] = np.random.default_rng


@dataclass(frozen=True, slots=True)
class AbandonedRelease:
    """A release that must not be retried, and the reason."""

    epoch: int
    reason: IncompleteReason
    #: Number of people whose entries were read; 0 if the release failed before that.
    participants: int


class ContextOverrides(TypedDict, total=False):
    """Optional overrides for `JobContext.build`; all except `dice` are for tests."""

    now_ms: Callable[[], int]
    brokers_ms: Callable[[int], int]
    observe: StepObserver
    dice: RandomnessSources


@dataclass(frozen=True, slots=True)
class FilterProgress(Generic[State]):
    """State of a filter over published documents, and the ids of those that it has processed."""

    state: State
    ids: tuple[str, ...] = ()


@dataclass(slots=True)
class JobContext:
    """The log, counts, publisher, noise and clock that all jobs of a process share."""

    settings: Settings
    topics: Topics
    log: ReleaseLog
    kafka: KafkaInspector
    redis: Client
    publisher: Publisher
    markers: SealMarkers
    file_rewriting: FileRewriting
    now_ms: Callable[[], int] = system_clock_ms
    #: Converts a broker's append time to this clock. A test that moves `now_ms` moves the brokers'
    #: clocks with it; in production this is the identity.
    brokers_ms: Callable[[int], int] = lambda append_ms: append_ms
    observe: StepObserver = no_op_observer
    dice: RandomnessSources = field(default_factory=RandomnessSources)
    #: Releases that failed permanently and whose abandonment is not in the log yet. Until it is,
    #: the job draws nothing of that kind.
    abandoned: dict[Kind, AbandonedRelease] = field(default_factory=dict)
    #: Caches derived from published documents, rebuilt from them after a restart: see
    #: `agents.jobs.filter_memory`.
    selection: FilterProgress[RecordFilter] = field(
        default_factory=lambda: FilterProgress(RecordFilter.start())
    )
    estimates: FilterProgress[FilterMemory] = field(
        default_factory=lambda: FilterProgress(FilterMemory())
    )

    @classmethod
    def build(
        cls,
        settings: Settings,
        topics: Topics,
        redis: Client,
        **overrides: Unpack[ContextOverrides],
    ) -> JobContext:
        """Build the context from the settings, without a request to any server."""
        return cls(
            settings=settings,
            topics=topics,
            log=ReleaseLog(
                settings.kafka,
                topics.releases.name,
                transaction_timeout_s=settings.jobs.transaction_timeout_s,
                now_ms=overrides.get("now_ms", system_clock_ms),
                on_committed=count_released,
            ),
            kafka=KafkaInspector(settings.kafka),
            redis=redis,
            publisher=Publisher(settings.kafka),
            markers=SealMarkers(settings.kafka),
            file_rewriting=FileRewriting(redis),
            **overrides,
        )

    def tables(self, stem: InputStream) -> StageTable:
        """Return the Redis table of one input stream."""
        prefix = self.settings.topics.prefix
        return stage_table(stem, self.redis, self.topics.of(stem).name, prefix=prefix)

    def published_marks(self, topic: str) -> PublishedMarks:
        """Return Redis's list of the documents that were published to a topic."""
        return PublishedMarks(self.redis, self.settings.topics.prefix, topic)

    def counts(self, stem: InputStream, kind: Kind) -> SealedCounts:
        """Return a reader of one topic's counts for one kind of job."""
        return SealedCounts(self.tables(stem), self.topics.of(stem).partitions, kind.value)

    async def read_log(self) -> ReleaseLogState:
        """Read the log to its end. Raise `StoreMismatch` if open epochs use other topics."""
        log_state = await self.log.catch_up()
        topics = self.settings.topics
        wanted = (topics.version, topics.partitions)
        others = [
            state.epoch
            for state in log_state.unfinished()
            if (state.parameters.plan.topic_version, state.parameters.plan.optin_partitions)
            != wanted
        ]
        if others:
            plan = log_state.epochs[others[0]].parameters.plan
            raise StoreMismatch(
                f"epochs {', '.join(map(str, others))} are open in topics of version "
                f"{plan.topic_version} with {plan.optin_partitions} partitions, and the settings "
                f"name version {topics.version} with {topics.partitions}: what was accepted would "
                "not be counted. Set topics.version and topics.partitions back until these epochs "
                "have ended, or abandon each with `blendstream epochs abandon E --reason TEXT`"
            )
        return log_state

    async def close(self) -> None:
        """Close every connection."""
        await self.file_rewriting.close()
        self.markers.close()
        await self.log.close()
        await self.redis.aclose()


def limit_from(settings: Settings) -> Limit:
    """Return the settings' limit on what one person may spend in a period."""
    budget = settings.budget
    return Limit(
        budget.period_s,
        optin=Cost(budget.optin_epsilon_limit, budget.optin_delta_limit),
        clients=Cost(budget.client_epsilon_limit, budget.client_delta_limit),
    )


def versions(noise: Noise | None = None) -> dict[str, str]:
    """Return the versions of the software that makes a publication; `noise` drew it, if given."""
    names = ["blendstream", "dp-accounting", "numpy"]
    if isinstance(noise, OpenDPNoise):
        names.append("opendp")
    drawn = {} if noise is None else {"noise": type(noise).__name__}
    found = {name: version_of(name) for name in names}
    return {"normalisation": str(NORMALISATION_VERSION)} | drawn | found
