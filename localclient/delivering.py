"""Sends what is already on disk, byte for byte, until the server has it or time is up.

Promises: nothing is sent that was not durably written first; every attempt sends the same bytes;
after `max_wait_s` they are given up, so that a server that accepts nothing cannot block the device;
opt-in records that are not sent yet are dropped once the person no longer opts in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from blendstream.localclient.conversation import Context, DeviceRequest, Response, Talk, What
from blendstream.localclient.errors import StorageRefused
from blendstream.localclient.state import Mode, Outgoing
from blendstream.streams.wire.submissions import EntryStatus, MalformedResponse, read_verdicts

__all__ = ["deliver", "tidy"]

_PATHS = {Mode.REPORT: "/v1/reports", Mode.OPT_IN: "/v1/optin-records"}

#: Answers after which the same bytes can never be accepted, if the gateway itself gave them.
_FINAL = frozenset({400, 404, 409, 410, 413, 422})
#: The gateway's code for a user whose turn is in another epoch.
_OTHER_COHORT = "other_cohort"


def tidy(context: Context, mode: Mode) -> Outgoing | None:
    """Forget what must not be kept, and return what is still to be sent."""
    store, now_s = context.store, context.now_s()
    with store.locked() as state:
        store.forget(max(state.forget_before_s, now_s - context.limits.keep_records_s))
        if state.outgoing and state.outgoing.mode is Mode.OPT_IN and mode is not Mode.OPT_IN:
            store.save(replace(state, outgoing=None))
            return None
        return state.outgoing


def deliver(
    context: Context, outgoing: Outgoing, token: Callable[[], str | None] = lambda: None
) -> Talk:
    """Send the stored bytes once, and drop them if the answer is final."""
    epoch = outgoing.epoch
    if context.now_s() >= outgoing.until_s:
        _drop(context, outgoing)
        return context.settled(What.EXPIRED, epoch, "time for this epoch ran out before delivery")
    headers = {"content-type": "application/json"}
    if outgoing.mode is Mode.OPT_IN:
        bearer = token()
        if bearer is None:
            return replace(
                context.try_later(epoch, None),
                detail="the application had no token for this person; trying again later",
            )
        headers["authorization"] = f"Bearer {bearer}"
    response = yield DeviceRequest("POST", _PATHS[outgoing.mode], headers, outgoing.body.encode())
    what = None if response is None else _settled_as(response)
    if response is None or what is None:
        if context.now_s() >= _given_up_at_s(context):
            _drop(context, outgoing)
            return context.settled(What.EXPIRED, epoch, "the server did not accept it; given up")
        if response is not None and response.status in (401, 403):
            return replace(
                context.try_later(epoch, response),
                detail=f"the server answered {response.status}; check the application's token",
            )
        return context.try_later(epoch, response)
    noted = _drop(context, outgoing)
    if what is What.SENT:
        detail = "accepted" if noted else "accepted; the disk is full, so it may be sent once more"
    elif what is What.NOTHING_NEW:
        detail = "it is not this person's turn in this epoch; what was chosen for it is dropped"
    else:
        detail = f"the server refused it for good ({response.status}); what it cost stays spent"
    return context.settled(what, epoch, detail)


def _given_up_at_s(context: Context) -> int:
    """When to give up: the bytes are as old as the last claim, which was written with them."""
    with context.store.locked() as state:
        return state.claims[-1].at_s + context.limits.max_wait_s


def _settled_as(response: Response) -> What | None:
    """The final result, or `None` if the same bytes may still be accepted later."""
    # Only answers of the gateway itself are final: a hotel's login page also answers 403 or 200.
    if response.status in (200, 202):
        try:
            verdicts = read_verdicts(response.body)
        except MalformedResponse:
            verdicts = []
        if not verdicts:
            # 202 means accepted, even without readable verdicts.
            return What.SENT if response.status == 202 else None
        statuses = {status for status, _ in verdicts}
        if EntryStatus.RETRY in statuses:
            return None
        if EntryStatus.ACCEPTED in statuses:
            return What.SENT
        # Another cohort's turn is no error, and every later answer would be the same.
        turn = all(reason == _OTHER_COHORT for _, reason in verdicts)
        return What.NOTHING_NEW if turn else What.REFUSED_BY_SERVER
    problem = response.headers.get("content-type", "").startswith("application/problem+json")
    return What.REFUSED_BY_SERVER if response.status in _FINAL and problem else None


def _drop(context: Context, outgoing: Outgoing) -> bool:
    try:
        with context.store.locked() as state:
            if state.outgoing == outgoing:
                context.store.save(replace(state, outgoing=None))
    except StorageRefused:
        return False  # it stays, and the same bytes are sent again: the server counts them once
    return True
