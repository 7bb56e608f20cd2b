"""Opt-in mode: a person who trusts the curator sends some of a window's records unchanged.

    fetch the collecting epoch ─▶ check ─▶ draw a time late in its window, store it
    at that time: draw m_O distinct records and their slots (an entry without text if there is none)
    ─▶ write budget entry and bytes, durably ─▶ delete the raw records ─▶ send, and retry

Promises: at most m_O records per window, within the device's own limit, each subset of that size
equally likely; a retry repeats epoch, slots and bytes. Whether and when this device sends does not
depend on its records: a person without one sends an entry without text. A window answered in this
mode is never reported on, and vice versa.
Assumes: the person agreed. The (ε,δ) of publications about them is the curator's promise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from blendstream.blender.values.errors import ParameterError
from blendstream.localclient.budget import add_entry, check_entry
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
from blendstream.localclient.head_list_checks import check_collecting_epoch
from blendstream.localclient.sent_log import note_submission
from blendstream.localclient.state import (
    BudgetEntry,
    Mode,
    PendingSubmission,
    ScheduledSend,
    Submission,
)
from blendstream.localclient.store import shuffled
from blendstream.streams.wire.submissions import (
    MAX_USER_ID_BYTES,
    CollectingEpoch,
    MalformedResponse,
    read_collecting_epoch,
    write_optin_records,
)

__all__ = ["OptIn", "opt_in_exchange"]

log = logging.getLogger("blendstream.localclient")

#: The device sends in the last quarter of the window. A smaller part would crowd all devices
#: together; a larger one would miss more of the searches that follow.
_LAST_PART = 4


@dataclass(frozen=True, slots=True)
class OptIn:
    """The person who opts in (the application's own id for them) and the token to send with.

    An application that people install must not contain the application's token. In it, `token` is a
    function that gets a short-lived token for this person from the application's backend
    (docs/api.md). The client calls it before each sending; if it fails, the client retries later.
    """

    user_id: str
    token: str | Callable[[], str]

    def __post_init__(self) -> None:
        """Refuse an unusable user id or token, without printing either."""
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
        """Return the token to send with now; `None` if there is none."""
        if not callable(self.token):
            return self.token
        try:
            token = self.token()
        except Exception as error:  # the application's own code, which may use a network
            log.warning("localclient_no_token: %s", type(error).__name__)
            return None
        return token if _is_token(token) else None

    def __repr__(self) -> str:
        """Leave out user id and token: representations end up in logs."""
        return "OptIn(…)"


def _is_token(token: object) -> bool:
    return isinstance(token, str) and token != "" and token.isascii() and token.isprintable()


def opt_in_exchange(context: Context, opt_in: OptIn, *, at_once: bool = False) -> Exchange:
    """Run the next step of this device; `at_once` does not wait for the scheduled time."""
    pending = remove_expired(context, Mode.OPT_IN)
    if pending is not None:
        return (yield from deliver(context, pending, opt_in.current_token))

    scheduled = _stored_schedule(context)
    if scheduled is None:
        response = yield DeviceRequest("GET", "/v1/epochs")
        if response is None or response.status != 200:
            return context.try_later(None, response)
        found = _schedule(context, response, at_once=at_once)
        if isinstance(found, Outcome):
            return found
        scheduled = found
    if not at_once and context.now_s() < scheduled.send_at_s:
        return Outcome(
            ResultCode.WAITING,
            scheduled.epoch,
            scheduled.send_at_s,
            "this device sends at a random time late in the window",
        )
    pending = _store_records(context, scheduled, opt_in)
    if pending is None:
        return context.nothing_new(scheduled.epoch, "this window was answered by another process")
    return (yield from deliver(context, pending, opt_in.current_token))


def _stored_schedule(context: Context) -> ScheduledSend | None:
    with context.store.locked() as state:
        scheduled = state.scheduled_send
    if (
        scheduled is None
        or scheduled.mode is not Mode.OPT_IN
        or context.now_s() >= scheduled.until_s
    ):
        return None
    return scheduled


def _schedule(context: Context, response: Response, *, at_once: bool) -> ScheduledSend | Outcome:
    store, limits, now_s = context.store, context.limits, context.now_s()
    check_clock(response, now_s, limits)
    try:
        epoch = read_collecting_epoch(response.body)
    except MalformedResponse as error:
        raise HeadListRefused(f"the server's epochs are malformed: {error}") from None
    if epoch is None:
        return context.nothing_new(None, "no epoch is collecting")
    with store.locked() as state:
        last = state.budget_entries[-1] if state.budget_entries else None
        if last and (last.epoch, last.window_start_s) == (epoch.epoch, epoch.window_start_s):
            return context.nothing_new(epoch.epoch, "this window was already answered")
        check_collecting_epoch(epoch, limits, now_s)
        check_entry(state, _budget_entry(epoch, now_s), limits)
        late_s = epoch.window_end_s - (epoch.window_end_s - epoch.window_start_s) // _LAST_PART
        soon_s = now_s + limits.max_wait_s
        if now_s < late_s and soon_s < epoch.window_end_s and not at_once:
            # Drawn only when the time is near: a device that was shown a window of a month must
            # still be able to answer shorter ones.
            return context.nothing_new(epoch.epoch, "it is early in this long window")
        start_s, end_s = min(max(now_s, late_s), soon_s), min(epoch.window_end_s, soon_s)
        scheduled = ScheduledSend(
            Mode.OPT_IN,
            epoch.epoch,
            "",
            epoch.window_start_s,
            epoch.window_end_s,
            epoch.records_per_user,
            start_s + context.dice.below(max(1, end_s - start_s)),
            epoch.optin_until_s,
        )
        store.save(replace(state, scheduled_send=scheduled))
        return scheduled


def _store_records(
    context: Context, scheduled: ScheduledSend, opt_in: OptIn
) -> PendingSubmission | None:
    """Choose the records and their slots, and store them for sending."""
    store, now_s = context.store, context.now_s()
    with store.locked() as state:
        if state.scheduled_send != scheduled or state.pending is not None:
            return None  # another process was faster
        charged = add_entry(state, _budget_entry(scheduled, now_s), context.limits)
        start_s = max(scheduled.window_start_s, state.forget_before_s)
        records = store.records(start_s, scheduled.window_end_s)
        # In random order, without repeats: slot 0 is a random search of this person, and the m_O
        # records are distinct, as the curator's guarantee assumes.
        drawn = list(dict.fromkeys(shuffled(records, context.dice)))
        chosen = drawn[: scheduled.records]
        # Raw records wait for a server at most as long as they would for a head list.
        until_s = min(scheduled.until_s, start_s + context.limits.keep_records_s)
        body = write_optin_records(opt_in.user_id, scheduled.epoch, chosen).decode()
        charged = note_submission(charged, Submission("", 0, 0, None, len(chosen)))
        pending = PendingSubmission(Mode.OPT_IN, scheduled.epoch, body, until_s)
        forget_before_s = max(state.forget_before_s, min(scheduled.window_end_s, now_s + 1))
        store.save(
            replace(charged, scheduled_send=None, pending=pending, forget_before_s=forget_before_s)
        )
        with suppress(StorageRefused):  # the next call repeats it before anything else
            store.forget(forget_before_s)
    return pending


def _budget_entry(window: CollectingEpoch | ScheduledSend, now_s: int) -> BudgetEntry:
    # The entry covers the window only up to now, not to its end: later searches are not among those
    # sent, and otherwise a server that names a window of a month would rule out a month of others.
    return BudgetEntry(
        Mode.OPT_IN,
        window.epoch,
        "",
        window.window_start_s,
        min(window.window_end_s, max(window.window_start_s, now_s) + 1),
        now_s,
        0.0,
        0.0,
    )
