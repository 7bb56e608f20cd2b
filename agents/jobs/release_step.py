"""What every epoch job works with: the log, the counts, the publisher, the noise and the clock.

Promises: production noise is exact. Another noise, other dice or an observer of steps can be handed
to the constructor by tests; no setting, file or variable reaches them.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

import numpy as np

from agents.jobs.epoch_schedule import (
    BuildClickGraph,
    BuildEstimates,
    BuildHeadList,
    Positions,
    Wait,
)
from agents.jobs.metrics import count_released
from blender.errors import BlenderError
from blender.noise import ExactNoise, Noise
from blender.opendp_noise import OpenDPNoise
from blender.record import NORMALISATION_VERSION
from streams.errors import StoreMismatch, StoreUnavailable
from streams.releases import entries
from streams.releases.compacted_topics import PublishedMarks, Publisher, read_publications
from streams.releases.documents import DocumentReference
from streams.releases.entries import Kind, Shortfall
from streams.releases.epoch_state import EpochState, ReleaseBook, Seal, Stage
from streams.releases.ledger import Cost, Limit
from streams.releases.log import CommitRefused, ReleaseLog, StepObserver, Turn, nobody_watches
from streams.releases.seal_markers import SealMarkers
from streams.releases.sealed_counts import SealedCounts
from streams.settings import Settings
from streams.stems import Stem
from streams.stores.count_store import Client, CountTables
from streams.stores.kafka import KafkaLog
from streams.telemetry.structured_logs import Known
from streams.topics import Topics
from streams.version import version_of

__all__ = [
    "Due",
    "JobContext",
    "ReleaseDice",
    "ReleaseFailed",
    "as_it_is",
    "limit_from",
    "publish_pending",
    "release_due",
    "stop_epoch",
    "system_clock_ms",
    "versions",
]

log = logging.getLogger(__name__)

Move = TypeVar("Move", BuildHeadList, BuildEstimates, BuildClickGraph)

#: Why an epoch was given up, as an operator reads it.
_GIVEN_UP: Mapping[Shortfall, str] = {
    Shortfall.COMMIT_REFUSED: "Kafka refused the release for good; see the log of the jobs",
    Shortfall.DRAW_FAILED: "the draw failed and is not repeated; see the log of the jobs",
    Shortfall.JOB_FAILED: "the job failed until the deadline; see the log of the jobs",
}
#: An epoch that anybody may have seen a document of, while the log has no release of it.
_SEEN = "a document of this epoch is published and its release is not in the log; not drawn again"
#: How much sooner than its seal a document may seem to be written, by a clock that is off.
_CLOCK_MS = 3_600_000
#: The stage in which an epoch owes what this kind of job releases.
_OWED: Mapping[Kind, Stage] = {
    Kind.HEAD_LISTS: Stage.SEALED,
    Kind.ESTIMATES: Stage.REPORTS_SEALED,
}


class ReleaseFailed(BlenderError):
    """A release failed and was given up; the next epoch goes on. The cause says why."""


def system_clock_ms() -> int:
    """This machine's clock."""
    return time.time_ns() // 1_000_000


def as_it_is(append_ms: int) -> int:
    """A broker's time as the broker gave it."""
    return append_ms


@dataclass(frozen=True, slots=True)
class ReleaseDice:
    """Where randomness comes from: noise for releases, a generator for the agreement test."""

    noise: Noise = field(default_factory=ExactNoise)
    #: Decides a p-value, never anyone's privacy.
    bootstrap: Callable[[], np.random.Generator] = np.random.default_rng


@dataclass(slots=True)
class JobContext:
    """One process's hands and eyes."""

    settings: Settings
    topics: Topics
    log: ReleaseLog
    kafka: KafkaLog
    redis: Client
    publisher: Publisher
    markers: SealMarkers
    now_ms: Callable[[], int] = system_clock_ms
    #: What a broker's append time is on this clock. A test that moves `now_ms` moves the brokers'
    #: clocks with it; here they are as they are.
    brokers_ms: Callable[[int], int] = as_it_is
    observe: StepObserver = nobody_watches
    dice: ReleaseDice = field(default_factory=ReleaseDice)
    #: How to end the release that failed for good, until that is done: nothing of its kind is
    #: drawn before.
    failed: dict[Kind, Callable[[], Awaitable[None]]] = field(default_factory=dict)

    @classmethod
    def build(
        cls,
        settings: Settings,
        topics: Topics,
        redis: Client,
        *,
        now_ms: Callable[[], int] = system_clock_ms,
        brokers_ms: Callable[[int], int] = as_it_is,
        observe: StepObserver = nobody_watches,
        dice: ReleaseDice | None = None,
    ) -> JobContext:
        """Everything from the settings; nothing is asked of a server yet."""
        return cls(
            settings=settings,
            topics=topics,
            log=ReleaseLog(
                settings.kafka,
                topics.releases.name,
                transaction_timeout_s=settings.jobs.transaction_timeout_s,
                now_ms=now_ms,
                on_committed=count_released,
            ),
            kafka=KafkaLog(settings.kafka),
            redis=redis,
            publisher=Publisher(settings.kafka),
            markers=SealMarkers(settings.kafka),
            now_ms=now_ms,
            brokers_ms=brokers_ms,
            observe=observe,
            dice=dice or ReleaseDice(),
        )

    def tables(self, stem: Stem) -> CountTables:
        """The Redis tables of one topic."""
        return CountTables(
            self.redis, self.topics.of(stem).name, prefix=self.settings.topics.prefix
        )

    def counts(self, stem: Stem, kind: Kind) -> SealedCounts:
        """What was counted of one topic, for one kind of job."""
        return SealedCounts(self.tables(stem), self.topics.of(stem).partitions, kind.value)

    async def read_log(self) -> ReleaseBook:
        """The log to its end; stops whoever asks when open epochs are not of these topics."""
        book = await self.log.catch_up()
        topics = self.settings.topics
        wanted = (topics.version, topics.partitions)
        others = [
            state.epoch
            for state in book.unfinished()
            if (state.parameters.plan.topic_version, state.parameters.plan.optin_partitions)
            != wanted
        ]
        if others:
            plan = book.epochs[others[0]].parameters.plan
            raise StoreMismatch(
                f"epochs {', '.join(map(str, others))} are open in topics of version "
                f"{plan.topic_version} with {plan.optin_partitions} partitions, and the settings "
                f"name version {topics.version} with {topics.partitions}: what was accepted would "
                "not be counted. Set topics.version and topics.partitions back until these epochs "
                "are over, or give each up with `blendstream epochs abandon E --reason TEXT`"
            )
        return book

    async def settle_failed(self, kind: Kind) -> None:
        """End the release that failed for good, if that is still to be done."""
        if kind in self.failed:
            await self.failed[kind]()
            del self.failed[kind]

    async def close(self) -> None:
        """Let go of the servers."""
        self.markers.close()
        await self.log.close()
        await self.redis.aclose()


@dataclass(slots=True)
class Due(Generic[Move]):
    """A release that is due, in a turn that may commit it: what to do, for which epoch."""

    turn: Turn
    move: Move
    state: EpochState
    #: Of the epoch's entries that the release is made of.
    seal: Seal
    counts: SealedCounts
    #: Set before the first noise is drawn. From then on a failure ends the release.
    drawing: bool = False
    #: How many people's entries were read, once they were.
    participants: int = 0


@contextlib.asynccontextmanager
async def release_due(
    context: JobContext,
    kind: Kind,
    stem: Stem,
    decide: Callable[[ReleaseBook, Positions, int], Move | Wait],
    give_up: Callable[[JobContext, Due[Move], Shortfall], Awaitable[None]],
) -> AsyncIterator[Due[Move] | None]:
    """What every release begins with: look, and if something is due, fence, read, look again.

    `None` when nothing is due. A turn ends what others of its kind have open, so none is started
    only to look. What every failure means:

        a crash, an outage, doubt    the draw is thrown away, the log decides
        refused by the broker        given up at once
        anything, while drawing      given up at once: a redraw must not depend on the draw
        anything, before             tried again until the counting deadline, then given up

    A release that the log lacks and its topic has was drawn before: Kafka may lose an entry that it
    acknowledged, or somebody restored an older log. Its epoch is abandoned.
    """
    await context.settle_failed(kind)
    counts = context.counts(stem, kind)
    book = await context.read_log()
    if isinstance(decide(book, await counts.positions(), context.now_ms()), Wait):
        yield None
        return
    async with context.log.turn(kind, context.observe) as turn:
        move = decide(turn.book, await counts.positions(), context.now_ms())
        if isinstance(move, Wait):
            yield None
            return
        state = turn.book.epochs[move.epoch]
        seal = state.reports_sealed if kind is Kind.ESTIMATES else state.records_sealed
        assert seal is not None
        if await _seen(context, kind, move.epoch, seal):
            await turn.commit([entries.epoch_abandoned(move.epoch, _SEEN)])
            log.error("epoch_abandoned", extra={"epoch": move.epoch, "kind": kind})
            yield None
            return
        due = Due(turn, move, state, seal, counts)
        try:
            yield due
        except StoreUnavailable:
            raise
        except Exception as error:
            reason = _final(context, due, error)
            if reason is None:
                raise
            log.exception(
                "release_given_up", extra={"kind": kind, "epoch": move.epoch, "reason": reason}
            )
            context.failed[kind] = partial(give_up, context, due, reason)
            await context.settle_failed(kind)
            raise ReleaseFailed(
                f"the release of epoch {move.epoch} failed and was given up; the next epoch goes on"
            ) from error


async def _seen(context: JobContext, kind: Kind, epoch: int, seal: Seal) -> bool:
    """Whether the topic of what this kind draws, or Redis, has a document of this epoch already.

    A broker that is cut off may not tell of one. That is no harm to what the log decides: this is
    for a log that itself has lost something.
    """
    topics = {
        Kind.HEAD_LISTS: context.topics.head_lists.name,
        Kind.CLICK_GRAPHS: context.topics.click_graphs.name,
    }
    topic = topics.get(kind)
    if topic is None:
        return False  # Estimates draw nothing: made again, they say the same.
    marks = PublishedMarks(context.redis, context.settings.topics.prefix, topic)
    if epoch in await marks.all():
        return True
    since_ms = max(0, seal.at_ms - _CLOCK_MS)
    return epoch in await read_publications(context.settings.kafka, topic, [epoch], since_ms)


def _final(context: JobContext, due: Due[Move], error: Exception) -> Shortfall | None:
    """Why the release must not be tried again, or `None` when it may be."""
    if due.turn.committed:
        return None
    if isinstance(error, CommitRefused):
        return Shortfall.COMMIT_REFUSED
    if due.drawing:
        return Shortfall.DRAW_FAILED
    deadline_ms = due.seal.at_ms + due.state.parameters.counting_deadline_ms
    return Shortfall.JOB_FAILED if context.now_ms() >= deadline_ms else None


async def publish_pending(
    context: JobContext,
    topic: str,
    of: Callable[[EpochState], DocumentReference | None],
) -> bool:
    """Write every committed document that may not be in its topic yet; whether there was one.

    Releases of one topic may be committed by two kinds of jobs and in any order, and any of them
    may have died before publishing: so not only the last one is looked at.
    """
    book = await context.log.catch_up()
    marks = PublishedMarks(context.redis, context.settings.topics.prefix, topic)
    marked = await marks.all()
    pending = [
        (epoch, document)
        for epoch, state in sorted(book.epochs.items())
        if (document := of(state)) is not None and marked.get(epoch) != document.id
    ]
    for epoch, document in pending:
        data = await context.log.read_document(document)
        await context.publisher.publish(topic, epoch, data)
        await marks.add(epoch, document.id)
        log.info("document_published", extra={"epoch": epoch, "topic": Known(topic)})
    # The book forgets epochs that are long over; nobody asks for their marks again.
    await marks.drop([epoch for epoch in marked if epoch not in book.epochs])
    return bool(pending)


async def stop_epoch(kind: Kind, context: JobContext, due: Due[Move], reason: Shortfall) -> None:
    """Give an epoch up, so that a failed release is never drawn again."""
    epoch = due.state.epoch
    async with context.log.turn(kind) as turn:
        now = turn.book.epochs.get(epoch)
        # Another job may have released it while this one failed.
        if now is not None and now.stage is _OWED[kind]:
            await turn.commit([entries.epoch_abandoned(epoch, _GIVEN_UP[reason])])
            log.error("epoch_abandoned", extra={"epoch": epoch, "kind": kind})


def limit_from(settings: Settings) -> Limit:
    """What one person may spend in a period."""
    budget = settings.budget
    return Limit(
        budget.period_s,
        optin=Cost(budget.optin_epsilon_limit, budget.optin_delta_limit),
        clients=Cost(budget.client_epsilon_limit, budget.client_delta_limit),
    )


def versions(noise: Noise | None = None) -> dict[str, str]:
    """What made a publication, for those who check it later; `noise`: what drew, if anything."""
    names = ["blendstream", "dp-accounting", "numpy"]
    if isinstance(noise, OpenDPNoise):
        names.append("opendp")
    drawn = {} if noise is None else {"noise": type(noise).__name__}
    found = {name: version_of(name) for name in names}
    return {"normalisation": str(NORMALISATION_VERSION)} | drawn | found
