"""One step of a job that releases: look, fence, read, draw, commit, publish.

`release_step` is that order, once for all kinds of releases. What differs between head lists,
estimates and click graphs is a `ReleaseSpec`.

Promises: noise is drawn once for a release that anyone sees. Nothing follows from a commit before
the job has read it back. What a failure means is the table in `release_failures`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from blendstream.agents.jobs.epoch_schedule import (
    BuildClickGraph,
    BuildEstimates,
    BuildHeadList,
    Positions,
    Wait,
)
from blendstream.agents.jobs.job_context import AbandonedRelease, JobContext
from blendstream.agents.jobs.metrics import finalized
from blendstream.agents.jobs.release_failures import (
    FailureAction,
    Progress,
    ReleaseFailed,
    rule_for,
)
from blendstream.streams.kafka.topics import Topics
from blendstream.streams.names import InputStream
from blendstream.streams.releases import entries
from blendstream.streams.releases.compacted_topics import read_publications
from blendstream.streams.releases.documents import DocumentReference, StoredDocument
from blendstream.streams.releases.entries import Entry, IncompleteReason, Kind
from blendstream.streams.releases.epoch_state import EpochState, ReleaseLogState, Seal
from blendstream.streams.releases.sealed_counts import SealedCounts
from blendstream.streams.telemetry.structured_logs import SafeText

__all__ = [
    "CommitContents",
    "PendingRelease",
    "ReleaseSpec",
    "publish_committed",
    "record_abandonment",
    "release_step",
]

log = logging.getLogger(__name__)

Move = TypeVar("Move", bound=BuildHeadList | BuildEstimates | BuildClickGraph)
Inputs = TypeVar("Inputs")

#: Why an epoch was given up, as an operator reads it.
_GIVEN_UP: Mapping[IncompleteReason, str] = {
    IncompleteReason.COMMIT_REFUSED: "Kafka refused the release for good; see the log of the jobs",
    IncompleteReason.DRAW_FAILED: "the draw failed and is not repeated; see the log of the jobs",
    IncompleteReason.JOB_FAILED: "the job failed until the deadline; see the log of the jobs",
}
#: An epoch with a published document, while the log has no release of it.
_SEEN = "a document of this epoch is published and its release is not in the log; not drawn again"


# --- one kind of release -------------------------------------------------------------------------


@dataclass(slots=True)
class PendingRelease(Generic[Move]):
    """A release that is due: what to do, for which epoch, from which entries and counts."""

    move: Move
    #: All that is in the log.
    log_state: ReleaseLogState
    state: EpochState
    #: Of the epoch's entries that the release is made of.
    seal: Seal
    counts: SealedCounts
    #: How many people's entries were read, once they were.
    participants: int = 0

    @property
    def complete(self) -> bool:
        """Whether every partition is counted up to the seal."""
        return IncompleteReason.NOT_ALL_COUNTED not in self.move.reasons


@dataclass(frozen=True, slots=True)
class CommitContents:
    """What one commit adds to the log."""

    entries: Sequence[Entry]
    documents: Sequence[StoredDocument] = ()


def _abandon_epoch(state: EpochState, failed: AbandonedRelease) -> CommitContents:
    """End the epoch, because its release failed for good."""
    return CommitContents([entries.epoch_abandoned(state.epoch, _GIVEN_UP[failed.reason])])


@dataclass(frozen=True, slots=True)
class ReleaseSpec(Generic[Move, Inputs]):
    """What differs between the kinds of releases."""

    kind: Kind
    #: Whose counts it is made of.
    stem: InputStream
    #: What is due, or why nothing is.
    next_move: Callable[[ReleaseLogState, Positions, int], Move | Wait]
    #: Whether an epoch still owes this release.
    is_owed: Callable[[EpochState], bool]
    #: Everything it is made of; or what to commit, if there is too little to draw from.
    read: Callable[[JobContext, PendingRelease[Move]], Awaitable[Inputs | CommitContents]]
    #: The only function that touches noise; never called twice for a release that anyone sees.
    draw: Callable[[JobContext, PendingRelease[Move], Inputs], Awaitable[CommitContents]]
    #: The committed document that is to be published, if there is one, and where.
    document: Callable[[EpochState], DocumentReference | None]
    topic: Callable[[Topics], str]
    #: What to write to the log when this release failed for good.
    give_up: Callable[[EpochState, AbandonedRelease], CommitContents] = _abandon_epoch
    #: Whether people's privacy rests on noise that this release draws.
    draws_noise: bool = True


# --- the step ------------------------------------------------------------------------------------


async def release_step(context: JobContext, release: ReleaseSpec[Move, Inputs]) -> bool:
    """Make the release of this kind that is due, if one is; whether it did."""
    kind = release.kind
    await record_abandonment(context, release)

    # A look first: a fenced session aborts its kind's open transactions, so none starts to look.
    counts = context.counts(release.stem, kind)
    log_state = await context.read_log()
    if isinstance(release.next_move(log_state, await counts.positions(), context.now_ms()), Wait):
        return False

    # Fence the other jobs of this kind, read the log up to our own record, and look again.
    async with context.log.fenced_session(kind, context.observe) as session:
        move = release.next_move(session.log_state, await counts.positions(), context.now_ms())
        if isinstance(move, Wait):
            return False
        state = session.log_state.epochs[move.epoch]
        seal = (
            state.reports_sealed
            if release.stem is InputStream.CLIENT_REPORTS
            else state.records_sealed
        )
        assert seal is not None
        due = PendingRelease(move, session.log_state, state, seal, counts)
        if release.draws_noise and await _is_published(context, release, due):
            await session.commit([entries.epoch_abandoned(move.epoch, _SEEN)])
            log.error("epoch_abandoned", extra={"epoch": move.epoch, "kind": kind})
            return False

        progress = Progress.NOTHING_DRAWN
        try:
            # Read the counts and what was released before.
            inputs = await release.read(context, due)
            # Draw, once, outside any transaction.
            if isinstance(inputs, CommitContents):
                made = inputs
            else:
                await context.observe(f"{kind.value}.before_drawing")
                if release.draws_noise:
                    progress = Progress.DRAWING
                made = await release.draw(context, due, inputs)
                await context.observe(f"{kind.value}.drawn")
            # Commit, and read the commit back.
            await session.commit(made.entries, made.documents)
        except Exception as error:
            if session.committed:
                progress = Progress.COMMITTED
            await _fail(context, release, due, error, progress)
            raise
        finalized(kind, seal, context.now_ms())
        entry = made.entries[0]
        log.info(
            "entry_committed",
            extra={
                "kind": SafeText(entry["entry"]),
                "epoch": move.epoch,
                "status": SafeText(entry.get("outcome", "released")),
            },
        )

    # Publish the committed bytes; this may be repeated.
    await publish_committed(context, release)
    await context.observe(f"{kind.value}.published")
    return True


async def _fail(
    context: JobContext,
    release: ReleaseSpec[Move, Inputs],
    due: PendingRelease[Move],
    error: Exception,
    progress: Progress,
) -> None:
    """Do what the table says. Returns if the failure is to be raised as it is."""
    rule = rule_for(error, progress)
    deadline_ms = due.seal.at_ms + due.state.parameters.counting_deadline_ms
    if rule.reason is None or (
        rule.then is FailureAction.TRY_AGAIN and context.now_ms() < deadline_ms
    ):
        return
    epoch = due.state.epoch
    log.error(
        "release_given_up",
        extra={"kind": release.kind, "epoch": epoch, "reason": rule.reason},
        exc_info=error,
    )
    context.given_up[release.kind] = AbandonedRelease(epoch, rule.reason, due.participants)
    await record_abandonment(context, release)
    raise ReleaseFailed(
        f"the release of epoch {epoch} failed and was given up; the next epoch continues"
    ) from error


async def record_abandonment(context: JobContext, release: ReleaseSpec[Move, Inputs]) -> None:
    """Commit that a release was given up, if that is still to be done."""
    failed = context.given_up.get(release.kind)
    if failed is None:
        return
    async with context.log.fenced_session(release.kind) as session:
        state = session.log_state.epochs.get(failed.epoch)
        # Another job may have released it while this one failed, or the epoch is long over.
        if state is not None and release.is_owed(state):
            made = release.give_up(state, failed)
            await session.commit(made.entries, made.documents)
            if made.entries[0]["entry"] == "epoch_abandoned":
                log.error("epoch_abandoned", extra={"epoch": failed.epoch, "kind": release.kind})
    del context.given_up[release.kind]


async def _is_published(
    context: JobContext, release: ReleaseSpec[Move, Inputs], due: PendingRelease[Move]
) -> bool:
    """Whether the release's topic, or Redis, has a document of this epoch already.

    A release that the log lacks and its topic has was drawn before: Kafka may lose an entry that it
    acknowledged, or someone restored an older log. A broker that is cut off may not show it. That
    does no harm: the log decides, and this is for a log that itself has lost something.
    """
    epoch, topic = due.state.epoch, release.topic(context.topics)
    if epoch in await context.published_marks(topic).all():
        return True
    kafka, since_ms = context.settings.kafka, due.seal.at_ms
    return epoch in await read_publications(kafka, topic, [epoch], since_ms)


async def publish_committed(context: JobContext, release: ReleaseSpec[Move, Inputs]) -> bool:
    """Write every committed document that may not be in its topic yet; whether there was one.

    Releases of one topic may be committed by two kinds of jobs and in any order, and any of them
    may have died before publishing: so not only the last one is looked at.
    """
    topic = release.topic(context.topics)
    log_state = await context.log.catch_up()
    marks = context.published_marks(topic)
    marked = await marks.all()
    pending = [
        (epoch, document)
        for epoch, state in sorted(log_state.epochs.items())
        if (document := release.document(state)) is not None and marked.get(epoch) != document.id
    ]
    for epoch, document in pending:
        data = await context.log.read_document(document)
        await context.publisher.publish(topic, epoch, data)
        await marks.add(epoch, document.id)
        log.info("document_published", extra={"epoch": epoch, "topic": SafeText(topic)})
    # The log state forgets epochs that are over; their marks are not needed again. A mark beyond
    # its last epoch tells that the log is an older copy (`older_log`).
    last = max(log_state.epochs, default=-1)
    await marks.drop([e for e in marked if e not in log_state.epochs and e <= last])
    return bool(pending)
