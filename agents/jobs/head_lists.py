"""Epoch job: S and T counts ──▶ create, estimate ──▶ releases ──▶ head_lists.

Four moves: read what was released, read counts, draw, commit; publishing follows from the
committed bytes and may be repeated.

Promises: noise is drawn once for a release that anyone sees. Whether an epoch has too little data
is judged on participants, or on the noised list, never on raw counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial

from agents.jobs.epoch_schedule import next_head_list
from agents.jobs.estimates import empty_estimates
from agents.jobs.metrics import finalized
from agents.jobs.release_step import JobContext, publish_pending, release_due, stop_epoch
from blender.errors import ParameterError
from blender.interfaces import OptinCounts
from blender.profiles import OptinRelease, build_head_list, prepare_head_list
from blender.record import Record
from blender.registry import randomizer_for
from streams.releases import entries
from streams.releases.documents import StoredDocument, split
from streams.releases.entries import Entry, EpochOutcome, Kind, Shortfall
from streams.releases.epoch_state import EpochState, ReleaseBook
from streams.releases.log import Turn
from streams.releases.optin_release import write_optin_release
from streams.stems import Stem
from streams.telemetry.structured_logs import Known
from streams.wire.head_list_document import MAX_HEAD_LIST_BYTES, HeadListDocument

__all__ = ["draw_head_list", "publish_committed_head_lists", "publish_head_list"]

log = logging.getLogger(__name__)


async def publish_head_list(context: JobContext) -> bool:
    """Release the head list that is due, if one is; whether it did."""
    async with release_due(
        context, Kind.HEAD_LISTS, Stem.OPTIN_RECORDS, next_head_list,
        partial(stop_epoch, Kind.HEAD_LISTS),
    ) as due:  # fmt: skip
        if due is None:
            return False
        turn, move, state = due.turn, due.move, due.state
        if state.graph_due:
            # With the head list its raw records end.
            log.warning("click_graph_passed_over", extra={"epoch": move.epoch})
        read = await due.counts.read_optin(
            move.epoch,
            due.seal.bounds,
            complete=Shortfall.NOT_ALL_COUNTED not in move.reasons,
        )
        reasons = [*move.reasons, *([Shortfall.RECORDS_LOST] if read.lost else [])]
        users = read.counts.selection_users + read.counts.estimation_users
        if users < state.parameters.plan.min_optin_users:
            await _commit_empty(context, turn, state, read.counts, reasons)
        else:
            known = await _known_records(context, turn.book, state)
            plan = state.parameters.plan
            await asyncio.to_thread(prepare_head_list, plan.profile, plan.privacy)
            await context.observe("head-lists.before_drawing")
            due.drawing = True
            release = await draw_head_list(context, state, read.counts, known)
            await context.observe("head-lists.drawn")
            added, documents = _release(state, release, move.reports_until_ms, reasons)
            await _commit(context, turn, state, added, documents)
    await publish_committed_head_lists(context)
    await context.observe("head-lists.published")
    return True


async def publish_committed_head_lists(context: JobContext) -> bool:
    """Write what was committed and may not be in its topic yet, byte for byte."""
    return await publish_pending(
        context,
        context.topics.head_lists.name,
        lambda state: None if state.head_list is None else state.head_list.head_list,
    )


async def draw_head_list(
    context: JobContext, state: EpochState, counts: OptinCounts, known: Sequence[Record]
) -> OptinRelease:
    """The only step that touches raw counts and noise, in a thread: it takes seconds."""
    plan, charged = state.parameters.plan, state.parameters.charge.clients
    release = await asyncio.to_thread(
        build_head_list, plan.profile, counts, plan.privacy, context.dice.noise, known
    )
    # Devices will spend what the head list asks of them; it must not be more than was charged.
    asked = release.head_list.randomizer.delta
    if asked > charged.delta:
        raise ParameterError(
            f"a head list must ask devices for no more than was charged (delta={charged.delta:g}), "
            f"got delta={asked:g}"
        )
    return release


async def _known_records(
    context: JobContext, book: ReleaseBook, state: EpochState
) -> tuple[Record, ...]:
    """The last published head list, whole: public already, so it costs no δ to ask again."""
    last = book.last_head_list_before(state.epoch)
    if last is None or last.head_list is None:
        return ()
    data = await context.log.read_document(last.head_list.head_list)
    return HeadListDocument.from_bytes(data).head_list.records


def _release(
    state: EpochState,
    release: OptinRelease,
    reports_until_ms: int,
    reasons: Sequence[Shortfall],
) -> tuple[list[Entry], list[StoredDocument]]:
    """The entries and documents of a drawn head list."""
    parameters = state.parameters
    if release.head_list.listed == 0:
        # Devices could only answer ⋆: nobody is asked, and the epoch ends here.
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
    )
    head_list = split("head-list", _fitting(document).to_bytes())
    documents = [head_list, split("optin", write_optin_release(release))]
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
        why = [*reasons, Shortfall.EMPTY_HEAD_LIST]
        empty = split(
            "estimates",
            empty_estimates(
                state, why, release.selection_users, release.noisy.users, head_list.id
            ).to_bytes(),
        )
        documents.append(empty)
        added.append(entries.estimate_released(state.epoch, empty, EpochOutcome.EMPTY, why))
    return added, documents


def _fitting(document: HeadListDocument) -> HeadListDocument:
    """The document with as much of the unlisted tail as fits. Post-processing of the draw.

    The listed part always fits: `MAX_LISTED_RECORDS` was checked when the epoch opened.
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


async def _commit_empty(
    context: JobContext,
    turn: Turn,
    state: EpochState,
    counts: OptinCounts,
    reasons: Sequence[Shortfall],
) -> None:
    why = [*reasons, Shortfall.TOO_FEW_OPTIN_USERS]
    document = split(
        "estimates",
        empty_estimates(
            state, why, counts.selection_users, counts.estimation_users, None
        ).to_bytes(),
    )
    entry = entries.estimate_released(state.epoch, document, EpochOutcome.EMPTY, why)
    await _commit(context, turn, state, [entry], [document])


async def _commit(
    context: JobContext,
    turn: Turn,
    state: EpochState,
    added: Sequence[Entry],
    documents: Sequence[StoredDocument],
) -> None:
    await turn.commit(added, documents)
    finalized(Kind.HEAD_LISTS, state.records_sealed, context.now_ms())
    log.info("entry_committed", extra={"kind": Known(added[0]["entry"]), "epoch": state.epoch})
