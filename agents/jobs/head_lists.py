"""Epoch job: S and T counts ──▶ create, estimate ──▶ releases ──▶ head_lists.

Promises: the number of participants or the noisy list decides whether an epoch has too little data,
never a raw count. `agents.jobs.release_step` has the order of steps and the action after a failure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from blendstream.agents.jobs.epoch_schedule import BuildHeadList, next_head_list
from blendstream.agents.jobs.estimates import empty_estimates
from blendstream.agents.jobs.filter_memory import report_filter_failure, selection_memory
from blendstream.agents.jobs.job_context import JobContext
from blendstream.agents.jobs.release_step import CommitContents, PendingRelease, ReleaseSpec
from blendstream.blender.epoch_estimates import OptinRelease
from blendstream.blender.over_time.epoch_memory import EpochMemory
from blendstream.blender.profiles import build_head_list, prepare_head_list
from blendstream.blender.registry import randomizer_for
from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.interfaces import OptinCounts
from blendstream.blender.values.record import Record
from blendstream.streams.names import InputStream
from blendstream.streams.releases import entries
from blendstream.streams.releases.documents import split
from blendstream.streams.releases.entries import EpochOutcome, IncompleteReason, Kind
from blendstream.streams.releases.epoch_state import EpochState, ReleaseLogState, Stage
from blendstream.streams.releases.optin_release import SelectionNumbers, write_optin_release
from blendstream.streams.wire.head_list_document import MAX_HEAD_LIST_BYTES, HeadListDocument
from blendstream.streams.wire.statements import head_list_quantity

__all__ = ["HEAD_LISTS"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The inputs of a head list."""

    counts: OptinCounts
    #: Published and not forgotten. These are public, so listing them again costs no δ.
    known: Sequence[Record]
    #: State of the earlier publications; `None` in `paper` and in epochs of an older release.
    memory: EpochMemory | None
    reasons: Sequence[IncompleteReason]


async def _read(
    context: JobContext, pending: PendingRelease[BuildHeadList]
) -> _Inputs | CommitContents:
    """Read the counts of S and T, and the records that are public already."""
    state, plan = pending.state, pending.state.parameters.plan
    if state.graph_due:
        # The raw records are deleted after the head list, so no later click graph is possible.
        log.warning("click_graph_skipped", extra={"epoch": state.epoch})
    read = await pending.counts.read_optin(
        state.epoch, pending.seal.bounds, complete=pending.complete
    )
    counts = read.counts
    pending.participants = counts.selection_users + counts.estimation_users
    reasons = [*pending.move.reasons, *([IncompleteReason.RECORDS_LOST] if read.lost else [])]
    if pending.participants < plan.min_optin_users:
        return _too_few_users(state, counts, reasons)
    known = await _known_records(context, pending.log_state, state)
    rule = None if state.parameters.period is None else state.parameters.period.rule
    memory = None
    if plan.known_records:
        before = await selection_memory(context, pending.log_state, state.epoch)
        memory = EpochMemory(state.epoch, before, plan.known_records, rule)
    await asyncio.to_thread(prepare_head_list, plan.profile, plan.privacy, rule)
    return _Inputs(counts, known, memory, reasons)


async def _draw(
    context: JobContext, pending: PendingRelease[BuildHeadList], inputs: _Inputs
) -> CommitContents:
    """Draw the head list in a thread, since that takes seconds."""
    plan, charged = pending.state.parameters.plan, pending.state.parameters.charge.clients
    release = await asyncio.to_thread(
        build_head_list,
        plan.profile,
        inputs.counts,
        plan.privacy,
        context.dice.noise,
        inputs.known,
        inputs.memory,
    )
    if release.filter_failure is not None:
        # The list is then ranked by this epoch's noisy counts alone, which are published too.
        report_filter_failure(Kind.HEAD_LISTS, pending.state.epoch, release.filter_failure)
    # Devices will spend the head list's budget; it must not exceed the charge.
    asked = release.head_list.randomizer.delta
    if asked > charged.delta:
        raise ParameterError(
            "a head list must ask devices for no more than was charged "
            f"(delta={charged.delta:g}), got delta={asked:g}"
        )
    return _commit_contents(pending.state, release, pending.move.reports_until_ms, inputs.reasons)


async def _known_records(
    context: JobContext, log_state: ReleaseLogState, state: EpochState
) -> tuple[Record, ...]:
    """Return the records of the last published head list, without those that it forgot.

    Each list contains every record known to it, so the last one contains every record that was ever
    published and not forgotten. (Lists of an older release dropped low ones.)
    """
    last = log_state.last_head_list_before(state.epoch)
    if last is None or last.head_list is None:
        return ()
    data = await context.log.read_document(last.head_list.head_list)
    optin = await context.log.read_document(last.head_list.optin)
    forgotten = set(SelectionNumbers.read(optin).forgotten)
    records = HeadListDocument.from_bytes(data).head_list.records
    return tuple(record for place, record in enumerate(records) if place not in forgotten)


def _commit_contents(
    state: EpochState,
    release: OptinRelease,
    reports_until_ms: int,
    reasons: Sequence[IncompleteReason],
) -> CommitContents:
    """Build the entries and documents that commit a drawn head list."""
    parameters = state.parameters
    if release.head_list.listed == 0:
        # Devices could only report ⋆, so nobody reports and the epoch ends here.
        reports_until_ms = parameters.window_end_ms
    names = {k: str(v) for k, v in asdict(release.mechanisms).items()}
    document = HeadListDocument(
        epoch=state.epoch,
        window_start_s=parameters.window_start_ms // 1000,
        window_end_s=parameters.window_end_ms // 1000,
        reports_until_s=reports_until_ms // 1000,
        head_list=release.head_list,
        cohorts=parameters.plan.cohorts,
        mechanisms=tuple(sorted(names.items())),
        quantity=head_list_quantity(parameters.plan.privacy.records_per_optin_user),
    )
    fitting = _fit_to_limit(document)
    # Records that did not fit are forgotten as well: later epochs read known records from here.
    cut = range(len(fitting.head_list.records), len(release.head_list.records))
    forgotten = tuple(sorted({*release.forgotten, *cut}))
    head_list = split("head-list", fitting.to_bytes())
    documents = [
        head_list,
        split("optin", write_optin_release(replace(release, forgotten=forgotten))),
    ]
    randomizer = randomizer_for(release.head_list)
    added = [
        entries.head_list_released(
            state.epoch,
            documents,
            cells=len(release.head_list.cells),
            cells_per_answer=randomizer.cells_per_answer,
            answers=release.head_list.randomizer.answers,
            wildcard_alone=randomizer.wildcard_alone,
            reports_until_ms=reports_until_ms,
            reasons=reasons,
        )
    ]
    if release.head_list.listed == 0:
        why = [*reasons, IncompleteReason.EMPTY_HEAD_LIST]
        empty = split(
            "estimates",
            empty_estimates(
                state, why, release.selection_users, release.noisy.users, head_list.id
            ).to_bytes(),
        )
        documents.append(empty)
        added.append(entries.estimate_released(state.epoch, empty, EpochOutcome.EMPTY, why))
    return CommitContents(added, documents)


def _fit_to_limit(document: HeadListDocument) -> HeadListDocument:
    """Shorten the unlisted tail until the document fits. This is post-processing of the draw.

    The listed part always fits: the keeper checked `MAX_LISTED_RECORDS` when it opened the epoch.
    """
    while len(document.to_bytes()) > MAX_HEAD_LIST_BYTES:
        whole = document.head_list
        tail = len(whole.records) - whole.listed
        keep = whole.listed + tail * 9 // 10
        counts = whole.noisy_counts
        document = replace(
            document,
            head_list=replace(
                whole,
                records=whole.records[:keep],
                noisy_counts=None if counts is None else counts[:keep],
            ),
        )
    return document


def _too_few_users(
    state: EpochState, counts: OptinCounts, reasons: Sequence[IncompleteReason]
) -> CommitContents:
    """Build an empty publication instead of a head list, because too few people took part."""
    why = [*reasons, IncompleteReason.TOO_FEW_OPTIN_USERS]
    document = split(
        "estimates",
        empty_estimates(
            state, why, counts.selection_users, counts.estimation_users, None
        ).to_bytes(),
    )
    return CommitContents(
        [entries.estimate_released(state.epoch, document, EpochOutcome.EMPTY, why)], [document]
    )


#: The head list with the opt-in estimates, or an empty publication. The job publishes only the head
#: list; the opt-in release stays in the log.
HEAD_LISTS = ReleaseSpec(
    kind=Kind.HEAD_LISTS,
    stem=InputStream.OPTIN_RECORDS,
    next_move=next_head_list,
    is_owed=lambda state: state.stage is Stage.SEALED,
    read=_read,
    draw=_draw,
    document=lambda state: None if state.head_list is None else state.head_list.head_list,
    topic=lambda topics: topics.head_lists.name,
)
