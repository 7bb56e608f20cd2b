"""Opt-in mode: a person who trusts the curator sends some of a window's records as they are.

    ask which epoch is collecting ─▶ check ─▶ draw a time late in its window, soon, keep it
    at that time: draw m_O distinct records, fix their slots (none: say so)
    ─▶ write claim and bytes, durably ─▶ forget the raw records ─▶ send, and send again

Promises: at most m_O records a window, within the device's own limit, each subset of that size as
likely as any other; a retry repeats epoch, slots and bytes. Whether and when this device sends does
not depend on its records: a person without one takes part, and says so. A window answered in this
mode is never reported on as well, and the other way round.
Assumes: the person agreed. The (ε,δ) of what is published of them is the curator's promise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from blendstream.blender.values.errors import ParameterError
from blendstream.localclient.budget import add_claim, within_limits
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
from blendstream.localclient.head_list_checks import check_collecting_epoch
from blendstream.localclient.state import Appointment, Claim, Mode, Outgoing
from blendstream.localclient.store import shuffled
from blendstream.streams.wire.submissions import (
    MAX_USER_ID_BYTES,
    CollectingEpoch,
    MalformedResponse,
    read_collecting_epoch,
    write_optin_records,
)

__all__ = ["OptIn", "opt_in_talk"]

log = logging.getLogger("blendstream.localclient")

#: Records are sent in the last quarter of their window. A smaller part would crowd all devices
#: together; a larger one would miss more of what is searched for after sending.
_LAST_PART = 4


@dataclass(frozen=True, slots=True)
class OptIn:
    """Who opts in (the embedding application's own id for them) and the token to send with.

    An application that people install must not hold its own token: there, `token` is a function
    that gets the person's own, short-lived one from the application's backend (docs/api.md). It is
    called before each sending; where it fails, sending is tried again later.
    """

    user_id: str
    token: str | Callable[[], str]

    def __post_init__(self) -> None:
        """Both must be given; neither is ever printed."""
        try:
            size = len(self.user_id.encode())
        except UnicodeEncodeError:
            size = 0
        if not 0 < size <= MAX_USER_ID_BYTES:
            raise ParameterError(f"user_id must be text of 1 to {MAX_USER_ID_BYTES} bytes of UTF-8")
        if not callable(self.token) and not _is_token(self.token):
            raise ParameterError(
                "token must be a bearer token (printable ASCII), or a function that gets one"
            )

    def current_token(self) -> str | None:
        """The token to send with now; `None` when there is none."""
        if not callable(self.token):
            return self.token
        try:
            token = self.token()
        except Exception as error:  # the application's own code, which may use a network
            log.warning("localclient_no_token: %s", type(error).__name__)
            return None
        return token if _is_token(token) else None

    def __repr__(self) -> str:
        """Without user id and token: representations end up in logs."""
        return "OptIn(…)"


def _is_token(token: object) -> bool:
    return isinstance(token, str) and token != "" and token.isascii() and token.isprintable()


def opt_in_talk(context: Context, opt_in: OptIn, *, at_once: bool = False) -> Talk:
    """Do the next step of this device; `at_once` does not wait for the appointed time."""
    outgoing = tidy(context, Mode.OPT_IN)
    if outgoing is not None:
        return (yield from deliver(context, outgoing, opt_in.current_token))

    appointment = _kept_appointment(context)
    if appointment is None:
        response = yield DeviceRequest("GET", "/v1/epochs")
        if response is None or response.status != 200:
            return context.try_later(None, response)
        found = _appoint(context, response, at_once=at_once)
        if isinstance(found, Outcome):
            return found
        appointment = found
    if not at_once and context.now_s() < appointment.act_at_s:
        return Outcome(
            What.WAITING,
            appointment.epoch,
            appointment.act_at_s,
            "this device sends at a time it drew late in the window",
        )
    outgoing = _fix(context, appointment, opt_in)
    if outgoing is None:
        return context.nothing_new(appointment.epoch, "this window was answered by another process")
    return (yield from deliver(context, outgoing, opt_in.current_token))


def _kept_appointment(context: Context) -> Appointment | None:
    with context.store.locked() as state:
        appointment = state.appointment
    if (
        appointment is None
        or appointment.mode is not Mode.OPT_IN
        or context.now_s() >= appointment.until_s
    ):
        return None
    return appointment


def _appoint(context: Context, response: Response, *, at_once: bool) -> Appointment | Outcome:
    store, limits, now_s = context.store, context.limits, context.now_s()
    check_clock(response, now_s, limits)
    try:
        epoch = read_collecting_epoch(response.body)
    except MalformedResponse as error:
        raise HeadListRefused(f"the server's epochs are malformed: {error}") from None
    if epoch is None:
        return context.nothing_new(None, "no epoch is collecting")
    with store.locked() as state:
        last = state.claims[-1] if state.claims else None
        if last and (last.epoch, last.window_start_s) == (epoch.epoch, epoch.window_start_s):
            return context.nothing_new(epoch.epoch, "this window was already answered")
        check_collecting_epoch(epoch, limits, now_s)
        within_limits(state, _claim(epoch, now_s), limits)
        late_s = epoch.window_end_s - (epoch.window_end_s - epoch.window_start_s) // _LAST_PART
        soon_s = now_s + limits.max_wait_s
        if now_s < late_s and soon_s < epoch.window_end_s and not at_once:
            # Drawn only when the time is near: a device that was shown a window of a month must
            # still be able to answer shorter ones.
            return context.nothing_new(epoch.epoch, "it is early in this long window")
        start_s, end_s = min(max(now_s, late_s), soon_s), min(epoch.window_end_s, soon_s)
        appointment = Appointment(
            Mode.OPT_IN,
            epoch.epoch,
            "",
            epoch.window_start_s,
            epoch.window_end_s,
            epoch.records_per_user,
            start_s + context.dice.below(max(1, end_s - start_s)),
            epoch.optin_until_s,
        )
        store.save(replace(state, appointment=appointment))
        return appointment


def _fix(context: Context, appointment: Appointment, opt_in: OptIn) -> Outgoing | None:
    """Choose the records and their slots, and write them down."""
    store, now_s = context.store, context.now_s()
    with store.locked() as state:
        if state.appointment != appointment or state.outgoing is not None:
            return None  # another process was faster
        claimed = add_claim(state, _claim(appointment, now_s), context.limits)
        start_s = max(appointment.window_start_s, state.forget_before_s)
        records = store.records(start_s, appointment.window_end_s)
        # In random order, repeats left out: slot 0 is a search of this person's drawn at random,
        # and the m_O records are distinct, which the curator's guarantee is stated for.
        drawn = list(dict.fromkeys(shuffled(records, context.dice)))
        chosen = drawn[: appointment.records]
        # Raw records wait no longer for a server than for a head list.
        until_s = min(appointment.until_s, start_s + context.limits.keep_records_s)
        body = write_optin_records(opt_in.user_id, appointment.epoch, chosen).decode()
        outgoing = Outgoing(Mode.OPT_IN, appointment.epoch, body, until_s)
        forget_before_s = max(state.forget_before_s, min(appointment.window_end_s, now_s + 1))
        store.save(
            replace(claimed, appointment=None, outgoing=outgoing, forget_before_s=forget_before_s)
        )
        with suppress(StorageRefused):  # tried again, and insisted on, before anything else is done
            store.forget(forget_before_s)
    return outgoing


def _claim(window: CollectingEpoch | Appointment, now_s: int) -> Claim:
    # Up to now, and not to the window's end: what comes later is not among what is sent, and a
    # server that calls its window a month long would otherwise rule out a month of others.
    return Claim(
        Mode.OPT_IN,
        window.epoch,
        "",
        window.window_start_s,
        min(window.window_end_s, max(window.window_start_s, now_s) + 1),
        now_s,
        0.0,
        0.0,
    )
