"""One report on one head list, from the first fetch of the list to the server's 202.

    fetch the current list ─▶ check ─▶ draw a time in its reporting window, store it
    at that time: fetch the list again by id ─▶ check ─▶ draw a record for each of m_C answers
    (⋆ without any), randomise ─▶ write budget entry and bytes, durably ─▶ delete the raw records
    ─▶ send, and retry

Paper: the device's side of LocalAlg (Figure 6).
Promises: whether, when and how often this device sends, and how many bytes, does not depend on its
records: a device without records behaves in the same way. The device draws noise once per head
list; after that it sends only the stored bytes.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import replace

from blendstream.blender.paper.local import local_alg
from blendstream.blender.values.interfaces import DeviceRandomizer
from blendstream.blender.values.random_source import RandomSource
from blendstream.localclient.budget import add_entry, check_entry, check_follows
from blendstream.localclient.delivering import deliver, remove_expired
from blendstream.localclient.errors import HeadListRefused, StorageRefused
from blendstream.localclient.exchange import (
    Context,
    DeviceRequest,
    Exchange,
    Outcome,
    Response,
    ResultCode,
    check_clock,
)
from blendstream.localclient.head_list_checks import check_head_list, read_head_list
from blendstream.localclient.randomizer_check import build_randomizer, check_answer
from blendstream.localclient.sent_log import describe_answers, note_submission
from blendstream.localclient.state import (
    BudgetEntry,
    Mode,
    PendingSubmission,
    ScheduledSend,
    State,
    Submission,
)
from blendstream.localclient.store import draw_for_answers
from blendstream.streams.wire.head_list_document import HeadListDocument
from blendstream.streams.wire.submissions import write_report

__all__ = ["draw_send_time", "report_exchange"]


def report_exchange(context: Context, *, at_once: bool = False) -> Exchange:
    """Run the next step of this device; `at_once` does not wait for the scheduled time."""
    pending = remove_expired(context, Mode.REPORT)
    if pending is not None:
        return (yield from deliver(context, pending))

    scheduled = _stored_schedule(context)
    if scheduled is None:
        found = yield from _fetch_current_list(context)
        if isinstance(found, Outcome):
            return found
        scheduled = found
    if not at_once and context.now_s() < scheduled.send_at_s:
        return Outcome(
            ResultCode.WAITING,
            scheduled.epoch,
            scheduled.send_at_s,
            "this device reports at a random time in the reporting window",
        )

    response = yield _get_list(context, scheduled.subject)
    if response is None or response.status != 200:
        return context.try_later(scheduled.epoch, response)
    check_clock(response, context.now_s(), context.limits)
    document = read_head_list(response, context.limits)
    if document.id != scheduled.subject:
        raise HeadListRefused(
            f"the server must serve the head list of epoch {scheduled.epoch} that it first "
            "showed, but its bytes have another hash. Nothing was spent or sent."
        )
    pending = _spend(context, document)
    if pending is None:
        return context.nothing_new(document.epoch, "this window was answered by another process")
    return (yield from deliver(context, pending))


def _stored_schedule(context: Context) -> ScheduledSend | None:
    with context.store.locked() as state:
        scheduled = state.scheduled_send
    if (
        scheduled is None
        or scheduled.mode is not Mode.REPORT
        or context.now_s() >= scheduled.until_s
    ):
        return None
    return scheduled


def _get_list(context: Context, which: str) -> DeviceRequest:
    # No If-None-Match: a hostile server could recognise a device by the list that it names.
    return DeviceRequest(
        "GET", f"/v1/head-lists/{which}", max_bytes=context.limits.max_head_list_bytes
    )


def _fetch_current_list(
    context: Context,
) -> Generator[DeviceRequest, Response | None, ScheduledSend | Outcome]:
    response = yield _get_list(context, "current")
    if response is not None and response.status == 404:
        return context.nothing_new(None, "no head list has been published yet")
    if response is None or response.status != 200:
        return context.try_later(None, response)
    check_clock(response, context.now_s(), context.limits)
    return _schedule(context, read_head_list(response, context.limits))


def _schedule(context: Context, document: HeadListDocument) -> ScheduledSend | Outcome:
    """Check the list, and draw the time of its report, once."""
    store, limits, now_s, epoch = context.store, context.limits, context.now_s(), document.epoch
    with store.locked() as stored:
        last = stored.budget_entries[-1] if stored.budget_entries else None
        if last and document.id == last.subject:
            return context.nothing_new(epoch, "this window was already answered")
        if last and last.mode is Mode.OPT_IN and document.window_start_s < last.window_end_s:
            return context.nothing_new(epoch, "this window was answered in opt-in mode")
        check_follows(stored, _budget_entry(document, now_s))
        check_head_list(document, limits, now_s)
        state = _with_cohort(context, stored, document.cohorts)
        not_asked = _skip_window(context, state, document)
        if not_asked:
            return context.nothing_new(epoch, not_asked)
        if now_s >= document.reports_until_s:
            return context.nothing_new(epoch, "its reporting window has ended")
        check_entry(state, _budget_entry(document, now_s), limits)
        if document.window_end_s <= state.forget_before_s:
            # The window's records are deleted. If the server now names another R, the device could
            # only report ⋆, and would spend ε on it.
            return context.nothing_new(epoch, "this window was skipped before")
        # Build the randomizer now too, so that the device schedules no list that it cannot answer.
        build_randomizer(document.head_list, context.dice)
        start_s = max(now_s, document.window_end_s)
        until_s = min(document.reports_until_s, now_s + limits.max_wait_s)
        scheduled = ScheduledSend(
            Mode.REPORT,
            epoch,
            document.id,
            document.window_start_s,
            document.window_end_s,
            document.head_list.randomizer.answers,
            _missed_send_time(state, document) or draw_send_time(start_s, until_s, context.dice),
            until_s,
            document.head_list.randomizer.epsilon,
            document.head_list.randomizer.delta,
            document.head_list.listed,
        )
        store.save(replace(state, scheduled_send=scheduled))
        return scheduled


def _with_cohort(context: Context, state: State, cohorts: int) -> State:
    """Return the state with a cohort out of this many: the stored one, or a new one if R changed.

    The cohort is random and never derived from a constant of the device: otherwise its cohorts for
    every R that a server may name would together identify it
    (docs/decisions/0040-a-device-that-trusts-nobody.md).
    """
    if cohorts == state.cohorts:
        return state
    moved = replace(state, cohorts=cohorts, cohort=context.dice.below(cohorts))
    context.store.save(moved)
    return moved


def _skip_window(context: Context, state: State, document: HeadListDocument) -> str | None:
    """Skip a window that this device is not asked about, and delete its records; return why."""
    if document.head_list.listed == 0:
        # Every answer could only be ⋆, and would cost as much as an informative one.
        why = "its head list asks about no record"
    elif document.epoch % state.cohorts != state.cohort:
        why = "another cohort takes part"
    else:
        return None
    if document.window_end_s > state.forget_before_s:
        context.store.save(replace(state, forget_before_s=document.window_end_s))
        context.store.forget(document.window_end_s)
    return why


def _missed_send_time(state: State, document: HeadListDocument) -> int | None:
    """Return the time already drawn for this list, if the device missed it."""
    missed = state.scheduled_send
    return missed.send_at_s if missed and missed.subject == document.id else None


def draw_send_time(start_s: int, until_s: int, dice: RandomSource) -> int:
    """Draw a second in [start_s, until_s), without the last tenth, which is left for retries."""
    return start_s + dice.below(max(1, (until_s - start_s) * 9 // 10))


def _spend(context: Context, document: HeadListDocument) -> PendingSubmission | None:
    """Randomise and store the report; the only place that spends this device's budget."""
    store, limits, now_s = context.store, context.limits, context.now_s()
    check_head_list(document, limits, now_s)
    if now_s >= document.reports_until_s:
        raise HeadListRefused(f"the reporting window of epoch {document.epoch} has ended")
    randomizer = build_randomizer(document.head_list, context.dice)
    with store.locked() as state:
        scheduled = state.scheduled_send
        if scheduled is None or scheduled.subject != document.id or state.pending is not None:
            return None
        charged = add_entry(state, _budget_entry(document, now_s), limits)
        start_s = max(document.window_start_s, state.forget_before_s)
        records = store.records(start_s, document.window_end_s)
        drawn = draw_for_answers(records, randomizer.spec.answers, context.dice)
        contributor = f"{context.dice.below(1 << 128):032x}"
        answers = _answers(local_alg(drawn, randomizer, context.dice), randomizer)
        body = write_report(document.id, contributor, answers, cells=len(randomizer.cells))
        pending = PendingSubmission(
            Mode.REPORT, document.epoch, body.decode(), document.reports_until_s
        )
        charged = note_submission(charged, _submission(document, answers))
        # The noise is drawn: the server will see these bytes or none.
        forget_before_s = max(state.forget_before_s, document.window_end_s)
        store.save(
            replace(charged, scheduled_send=None, pending=pending, forget_before_s=forget_before_s)
        )
        with suppress(StorageRefused):  # the next call repeats it before anything else
            store.forget(forget_before_s)
    return pending


def _answers(
    answers: tuple[tuple[int, ...], ...], randomizer: DeviceRandomizer
) -> tuple[tuple[int, ...], ...]:
    for answer in answers:
        check_answer(randomizer, answer)
    return answers


def _submission(document: HeadListDocument, answers: Sequence[Sequence[int]]) -> Submission:
    head_list = document.head_list
    named = describe_answers(answers, head_list.cells)
    return Submission(
        head_list.randomizer.name, head_list.listed, len(head_list.cells), named, searches=0
    )


def _budget_entry(document: HeadListDocument, now_s: int) -> BudgetEntry:
    spec = document.head_list.randomizer
    return BudgetEntry(
        Mode.REPORT,
        document.epoch,
        document.id,
        document.window_start_s,
        document.window_end_s,
        now_s,
        spec.epsilon,
        spec.delta,
    )
