"""Make one release: check what is due, fence, read, draw, commit, publish.

`release_step` fixes this order for all kinds of releases. A `ReleaseSpec` contains the parts that
differ between head lists, estimates and click graphs.

Promises: noise is drawn once for a release that anyone sees. The job uses nothing of a commit
before it has read the commit back. The table in `release_failures` gives the action after each
failure.
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
from blendstream.agents.jobs.metrics import observe_release_latency
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

#: Reasons for an abandoned epoch, as sentences for operators.
_ABANDON_REASONS: Mapping[IncompleteReason, str] = {
    IncompleteReason.COMMIT_REFUSED: (
        "Kafka refused the release permanently; see the log of the jobs"
    ),
    IncompleteReason.DRAW_FAILED: "the draw failed and is not repeated; see the log of the jobs",
    IncompleteReason.JOB_FAILED: "the job failed until the deadline; see the log of the jobs",
}
#: Reason for abandoning an epoch whose document is published while the log lacks its release.
_ALREADY_PUBLISHED = (
    "a document of this epoch is published and its release is not in the log; not drawn again"
)


# --- one kind of release -------------------------------------------------------------------------


@dataclass(slots=True)
class PendingRelease(Generic[Move]):
    """A release that is due: the move, its epoch, and the entries and counts it is made from."""

    move: Move
    #: The release log's whole content.
    log_state: ReleaseLogState
    state: EpochState
    #: The seal of the entries that the release is made from.
    seal: Seal
    counts: SealedCounts
    #: Number of people whose entries `ReleaseSpec.read` found; 0 before that.
    participants: int = 0

    @property
    def complete(self) -> bool:
        """True if the workers have counted every partition up to the seal."""
        return IncompleteReason.NOT_ALL_COUNTED not in self.move.reasons


@dataclass(frozen=True, slots=True)
class CommitContents:
    """The entries and documents that one commit appends to the release log."""

    entries: Sequence[Entry]
    documents: Sequence[StoredDocument] = ()


def _abandon_epoch(state: EpochState, failed: AbandonedRelease) -> CommitContents:
    """End the epoch, because its release failed permanently."""
    return CommitContents([entries.epoch_abandoned(state.epoch, _ABANDON_REASONS[failed.reason])])


@dataclass(frozen=True, slots=True)
class ReleaseSpec(Generic[Move, Inputs]):
    """The functions and constants that define one kind of release."""

    kind: Kind
    #: The input stream whose counts the release is made from.
    stem: InputStream
    #: Returns the release that is due, or the reason why none is.
    next_move: Callable[[ReleaseLogState, Positions, int], Move | Wait]
    #: Returns True if an epoch still owes this release.
    is_owed: Callable[[EpochState], bool]
    #: Reads the inputs; returns the contents of an empty release if there is too little data.
    read: Callable[[JobContext, PendingRelease[Move]], Awaitable[Inputs | CommitContents]]
    #: The only function that touches noise; never called twice for a release that anyone sees.
    draw: Callable[[JobContext, PendingRelease[Move], Inputs], Awaitable[CommitContents]]
    #: Returns the committed document to publish, if there is one; `topic` is its topic.
    document: Callable[[EpochState], DocumentReference | None]
    topic: Callable[[Topics], str]
    #: Builds the commit that ends a release that failed permanently.
    abandon: Callable[[EpochState, AbandonedRelease], CommitContents] = _abandon_epoch
    #: True if people's privacy depends on noise that this release draws.
    draws_noise: bool = True


# --- the step ------------------------------------------------------------------------------------


async def release_step(context: JobContext, release: ReleaseSpec[Move, Inputs]) -> bool:
    """Make the release of this kind that is due. Return True if it made one."""
    kind = release.kind
    await record_abandonment(context, release)

    # Check without a fenced session, which would abort the open transaction of another job.
    counts = context.counts(release.stem, kind)
    log_state = await context.read_log()
    if isinstance(release.next_move(log_state, await counts.positions(), context.now_ms()), Wait):
        return False

    # Fence the other jobs of this kind, read the log up to our own record, and check again.
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
        pending = PendingRelease(move, session.log_state, state, seal, counts)
        if release.draws_noise and await _is_published(context, release, pending):
            await session.commit([entries.epoch_abandoned(move.epoch, _ALREADY_PUBLISHED)])
            log.error("epoch_abandoned", extra={"epoch": move.epoch, "kind": kind})
            return False

        progress = Progress.NOTHING_DRAWN
        try:
            # Read the counts and the earlier releases.
            inputs = await release.read(context, pending)
            # Draw once, outside any transaction.
            if isinstance(inputs, CommitContents):
                contents = inputs
            else:
                await context.observe(f"{kind.value}.before_drawing")
                if release.draws_noise:
                    progress = Progress.DRAWING
                contents = await release.draw(context, pending, inputs)
                await context.observe(f"{kind.value}.drawn")
            # Commit, and read the commit back.
            await session.commit(contents.entries, contents.documents)
        except Exception as error:
            if session.committed:
                progress = Progress.COMMITTED
            await _handle_failure(context, release, pending, error, progress)
            raise
        observe_release_latency(kind, seal, context.now_ms())
        entry = contents.entries[0]
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


async def _handle_failure(
    context: JobContext,
    release: ReleaseSpec[Move, Inputs],
    pending: PendingRelease[Move],
    error: Exception,
    progress: Progress,
) -> None:
    """Apply the failure table. Return normally if the caller must raise the failure unchanged."""
    rule = rule_for(error, progress)
    deadline_ms = pending.seal.at_ms + pending.state.parameters.counting_deadline_ms
    if rule.reason is None or (
        rule.action is FailureAction.RETRY and context.now_ms() < deadline_ms
    ):
        return
    epoch = pending.state.epoch
    log.error(
        "release_abandoned",
        extra={"kind": release.kind, "epoch": epoch, "reason": rule.reason},
        exc_info=error,
    )
    context.abandoned[release.kind] = AbandonedRelease(epoch, rule.reason, pending.participants)
    await record_abandonment(context, release)
    raise ReleaseFailed(
        f"the release of epoch {epoch} failed and was abandoned; the next epoch continues"
    ) from error


async def record_abandonment(context: JobContext, release: ReleaseSpec[Move, Inputs]) -> None:
    """Commit the abandonment of a failed release, unless that is done."""
    failed = context.abandoned.get(release.kind)
    if failed is None:
        return
    async with context.log.fenced_session(release.kind) as session:
        state = session.log_state.epochs.get(failed.epoch)
        # Another job may have released the epoch while this one failed, or it ended long ago.
        if state is not None and release.is_owed(state):
            contents = release.abandon(state, failed)
            await session.commit(contents.entries, contents.documents)
            if contents.entries[0]["entry"] == "epoch_abandoned":
                log.error("epoch_abandoned", extra={"epoch": failed.epoch, "kind": release.kind})
    del context.abandoned[release.kind]


async def _is_published(
    context: JobContext, release: ReleaseSpec[Move, Inputs], pending: PendingRelease[Move]
) -> bool:
    """Return True if the release's topic, or Redis, has a document of this epoch already.

    If the topic has a release that the log lacks, it was drawn before: Kafka lost an entry that it
    had acknowledged, or someone restored an older log. An isolated broker may not show the
    document. That is harmless: the log decides, and this check is only for a log that has lost
    entries.
    """
    epoch, topic = pending.state.epoch, release.topic(context.topics)
    if epoch in await context.published_marks(topic).all():
        return True
    kafka, since_ms = context.settings.kafka, pending.seal.at_ms
    return epoch in await read_publications(kafka, topic, [epoch], since_ms)


async def publish_committed(context: JobContext, release: ReleaseSpec[Move, Inputs]) -> bool:
    """Publish every committed document that may not be in its topic. Return True if any was.

    Two kinds of jobs commit releases of one topic, in any order, and either may have ended before
    publishing. So this function checks all epochs, not only the last.
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
    # Drop the marks of old epochs, which the log state no longer contains. Keep marks of epochs
    # after its last one: they show that the log was restored from an older copy (`older_log`).
    last = max(log_state.epochs, default=-1)
    await marks.drop([e for e in marked if e not in log_state.epochs and e <= last])
    return bool(pending)
