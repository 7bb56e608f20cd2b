"""One report on one head list, from the first look at the list to the server's 202.

    look at the current list ─▶ check ─▶ draw a time in its reporting window, keep it
    at that time: fetch the list again by id ─▶ check ─▶ draw a record for each of m_C answers
    (⋆ without any), randomise ─▶ write budget entry and bytes, durably ─▶ forget the raw records
    ─▶ send, and send again

Paper: the device's side of LocalAlg (Figure 6).
Promises: when, whether and how often this device sends, and how many bytes, does not depend on its
records: one without records does the same. Noise is drawn once per head list; after that only the
stored bytes are sent.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from dataclasses import replace

from blendstream.blender.paper.local import local_alg
from blendstream.blender.values.dice import RandomSource
from blendstream.blender.values.interfaces import DeviceRandomizer
from blendstream.localclient.budget import add_claim, check_follows, within_limits
from blendstream.localclient.conversation import (
    Context,
    DeviceRequest,
    Outcome,
    Response,
    Talk,
    What,
    check_clock,
)
from blendstream.localclient.delivering import deliver, tidy
from blendstream.localclient.errors import HeadListRefused, StorageRefused
from blendstream.localclient.head_list_checks import check_head_list, read_head_list
from blendstream.localclient.randomizer_check import build_randomizer, check_answer
from blendstream.localclient.state import Appointment, Claim, Mode, Outgoing, State
from blendstream.localclient.store import draw_for_answers
from blendstream.streams.wire.head_list_document import HeadListDocument
from blendstream.streams.wire.submissions import write_report

__all__ = ["appointed_time", "report_talk"]


def report_talk(context: Context, *, at_once: bool = False) -> Talk:
    """Do the next step of this device; `at_once` does not wait for the appointed time."""
    outgoing = tidy(context, Mode.REPORT)
    if outgoing is not None:
        return (yield from deliver(context, outgoing))

    appointment = _kept_appointment(context)
    if appointment is None:
        found = yield from _look(context)
        if isinstance(found, Outcome):
            return found
        appointment = found
    if not at_once and context.now_s() < appointment.act_at_s:
        return Outcome(
            What.WAITING,
            appointment.epoch,
            appointment.act_at_s,
            "this device reports at a time it drew in the reporting window",
        )

    response = yield _get_list(context, appointment.subject)
    if response is None or response.status != 200:
        return context.try_later(appointment.epoch, response)
    check_clock(response, context.now_s(), context.limits)
    document = read_head_list(response, context.limits)
    if document.id != appointment.subject:
        raise HeadListRefused(
            f"the server must serve the head list of epoch {appointment.epoch} that it first "
            "showed, but its bytes have another hash. Nothing was spent or sent."
        )
    outgoing = _spend(context, document)
    if outgoing is None:
        return context.nothing_new(document.epoch, "this window was answered by another process")
    return (yield from deliver(context, outgoing))


def _kept_appointment(context: Context) -> Appointment | None:
    with context.store.locked() as state:
        appointment = state.appointment
    if (
        appointment is None
        or appointment.mode is not Mode.REPORT
        or context.now_s() >= appointment.until_s
    ):
        return None
    return appointment


def _get_list(context: Context, which: str) -> DeviceRequest:
    # No If-None-Match: a hostile server could recognise a device by the list it names.
    return DeviceRequest(
        "GET", f"/v1/head-lists/{which}", max_bytes=context.limits.max_head_list_bytes
    )


def _look(
    context: Context,
) -> Generator[DeviceRequest, Response | None, Appointment | Outcome]:
    response = yield _get_list(context, "current")
    if response is not None and response.status == 404:
        return context.nothing_new(None, "no head list has been published yet")
    if response is None or response.status != 200:
        return context.try_later(None, response)
    check_clock(response, context.now_s(), context.limits)
    return _appoint(context, read_head_list(response, context.limits))


def _appoint(context: Context, document: HeadListDocument) -> Appointment | Outcome:
    """Check the list and draw when to report on it, once for good."""
    store, limits, now_s, epoch = context.store, context.limits, context.now_s(), document.epoch
    with store.locked() as stored:
        last = stored.claims[-1] if stored.claims else None
        if last and document.id == last.subject:
            return context.nothing_new(epoch, "this window was already answered")
        if last and last.mode is Mode.OPT_IN and document.window_start_s < last.window_end_s:
            return context.nothing_new(epoch, "this window was answered in opt-in mode")
        check_follows(stored, _claim(document, now_s))
        check_head_list(document, limits, now_s)
        state = _placed(context, stored, document.cohorts)
        not_asked = _pass_over(context, state, document)
        if not_asked:
            return context.nothing_new(epoch, not_asked)
        if now_s >= document.reports_until_s:
            return context.nothing_new(epoch, "its reporting window has ended")
        within_limits(state, _claim(document, now_s), limits)
        if document.window_end_s <= state.forget_before_s:
            # Its records are removed: a server that now names another R would only get ⋆ for the ε.
            return context.nothing_new(epoch, "this window was passed over before")
        # Built now too, so that a list this device cannot answer gets no appointment.
        build_randomizer(document.head_list, context.dice)
        start_s = max(now_s, document.window_end_s)
        until_s = min(document.reports_until_s, now_s + limits.max_wait_s)
        appointment = Appointment(
            Mode.REPORT,
            epoch,
            document.id,
            document.window_start_s,
            document.window_end_s,
            document.head_list.randomizer.answers,
            _drawn_before(state, document) or appointed_time(start_s, until_s, context.dice),
            until_s,
        )
        store.save(replace(state, appointment=appointment))
        return appointment


def _placed(context: Context, state: State, cohorts: int) -> State:
    """The state with a place among this many cohorts: the stored one, or a new one if R changed.

    Never one derived from anything lasting: the places for all the R that a server may name would
    together identify the device (docs/decisions/0040-a-device-that-trusts-nobody.md).
    """
    if cohorts == state.cohorts:
        return state
    placed = replace(state, cohorts=cohorts, cohort=context.dice.below(cohorts))
    context.store.save(placed)
    return placed


def _pass_over(context: Context, state: State, document: HeadListDocument) -> str | None:
    """Why this device is not asked about the window, if so; it then forgets its records."""
    if document.head_list.listed == 0:
        # Every answer could only be ⋆, and would cost as much as one that tells something.
        why = "its head list asks about no record"
    elif document.epoch % state.cohorts != state.cohort:
        why = "it is another cohort's turn"
    else:
        return None
    if document.window_end_s > state.forget_before_s:
        context.store.save(replace(state, forget_before_s=document.window_end_s))
        context.store.forget(document.window_end_s)
    return why


def _drawn_before(state: State, document: HeadListDocument) -> int | None:
    """The time already drawn for this list, if it was missed: the client is not called often."""
    missed = state.appointment
    return missed.act_at_s if missed and missed.subject == document.id else None


def appointed_time(start_s: int, until_s: int, dice: RandomSource) -> int:
    """A second in [start_s, until_s), leaving the last tenth for sending again."""
    return start_s + dice.below(max(1, (until_s - start_s) * 9 // 10))


def _spend(context: Context, document: HeadListDocument) -> Outgoing | None:
    """Randomise and store the report; the one place where this device's budget is spent."""
    store, limits, now_s = context.store, context.limits, context.now_s()
    check_head_list(document, limits, now_s)
    if now_s >= document.reports_until_s:
        raise HeadListRefused(f"the reporting window of epoch {document.epoch} has ended")
    randomizer = build_randomizer(document.head_list, context.dice)
    with store.locked() as state:
        appointment = state.appointment
        if appointment is None or appointment.subject != document.id or state.outgoing is not None:
            return None
        claimed = add_claim(state, _claim(document, now_s), limits)
        start_s = max(document.window_start_s, state.forget_before_s)
        records = store.records(start_s, document.window_end_s)
        drawn = draw_for_answers(records, randomizer.spec.answers, context.dice)
        contributor = f"{context.dice.below(1 << 128):032x}"
        answers = _answers(local_alg(drawn, randomizer, context.dice), randomizer)
        body = write_report(document.id, contributor, answers, cells=len(randomizer.cells))
        outgoing = Outgoing(Mode.REPORT, document.epoch, body.decode(), document.reports_until_s)
        # From here on the noise is drawn: these bytes, or none, are what the server will see.
        forget_before_s = max(state.forget_before_s, document.window_end_s)
        store.save(
            replace(claimed, appointment=None, outgoing=outgoing, forget_before_s=forget_before_s)
        )
        with suppress(StorageRefused):  # tried again, and insisted on, before anything else is done
            store.forget(forget_before_s)
    return outgoing


def _answers(
    answers: tuple[tuple[int, ...], ...], randomizer: DeviceRandomizer
) -> tuple[tuple[int, ...], ...]:
    for answer in answers:
        check_answer(randomizer, answer)
    return answers


def _claim(document: HeadListDocument, now_s: int) -> Claim:
    spec = document.head_list.randomizer
    return Claim(
        Mode.REPORT,
        document.epoch,
        document.id,
        document.window_start_s,
        document.window_end_s,
        now_s,
        spec.epsilon,
        spec.delta,
    )
