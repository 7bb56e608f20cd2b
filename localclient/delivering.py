"""Send a stored submission, byte for byte, until the server accepts it or the time is up.

Promises: the device writes bytes durably before it sends them; every attempt sends the same bytes;
after `max_wait_s` the device drops them, so that a server that accepts nothing cannot block it;
it drops opt-in records not yet sent once the person no longer opts in.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from blendstream.localclient.errors import StorageRefused
from blendstream.localclient.exchange import Context, DeviceRequest, Exchange, Response, ResultCode
from blendstream.localclient.sent_log import DROPPED, finish_last
from blendstream.localclient.state import Mode, PendingSubmission
from blendstream.streams.wire.submissions import EntryStatus, MalformedResponse, read_verdicts

__all__ = ["deliver", "remove_expired"]

_PATHS = {Mode.REPORT: "/v1/reports", Mode.OPT_IN: "/v1/optin-records"}

#: The gateway's own responses with these statuses are permanent refusals.
_FINAL = frozenset({400, 404, 409, 410, 413, 422})
#: Maximum length of a gateway's sentence; the device shows no longer text.
_MAX_SENTENCE = 300
#: Texts of at most so many characters are not searched for, because any sentence contains them.
_SHORT_TEXT = 3
#: The gateway's reason for a user whose cohort takes part in another epoch.
_OTHER_COHORT = "other_cohort"


def remove_expired(context: Context, mode: Mode) -> PendingSubmission | None:
    """Delete expired raw records, and return the submission that waits to be sent."""
    store, now_s = context.store, context.now_s()
    with store.locked() as state:
        store.forget(max(state.forget_before_s, now_s - context.limits.keep_records_s))
        if state.pending and state.pending.mode is Mode.OPT_IN and mode is not Mode.OPT_IN:
            store.save(replace(finish_last(state, DROPPED, now_s), pending=None))
            return None
        return state.pending


def deliver(
    context: Context, pending: PendingSubmission, token: Callable[[], str | None] = lambda: None
) -> Exchange:
    """Send the stored bytes once, and drop them if the response is final."""
    epoch = pending.epoch
    if context.now_s() >= pending.until_s:
        _drop(context, pending, ResultCode.EXPIRED)
        return context.finished(
            ResultCode.EXPIRED, epoch, "time for this epoch ran out before delivery"
        )
    headers = {"content-type": "application/json"}
    if pending.mode is Mode.OPT_IN:
        bearer = token()
        if bearer is None:
            return replace(
                context.try_later(epoch, None),
                detail="the application had no token for this person; trying again later",
            )
        headers["authorization"] = f"Bearer {bearer}"
    response = yield DeviceRequest("POST", _PATHS[pending.mode], headers, pending.body.encode())
    code = None if response is None else _final_code(response)
    if response is None or code is None:
        if context.now_s() >= _last_attempt_at_s(context):
            _drop(context, pending, ResultCode.EXPIRED)
            return context.finished(
                ResultCode.EXPIRED, epoch, "the server did not accept it in time"
            )
        if response is not None and response.status in (401, 403):
            detail = f"the server answered {response.status}"
            if pending.mode is Mode.OPT_IN:
                detail += "; check the application's token"
            detail += _refusal_sentence(response, pending, headers.get("authorization", ""))
            return replace(context.try_later(epoch, response), detail=detail)
        return context.try_later(epoch, response)
    noted = _drop(context, pending, code)
    if code is ResultCode.SENT:
        detail = "accepted" if noted else "accepted; the disk is full, so it may be sent once more"
    elif code is ResultCode.NOTHING_NEW:
        detail = "this person's cohort takes part in another epoch; the chosen searches are dropped"
    else:
        detail = f"the server refused it permanently ({response.status}); its budget stays spent"
    return context.finished(code, epoch, detail)


def _refusal_sentence(response: Response, pending: PendingSubmission, authorization: str) -> str:
    """Return the gateway's own sentence about a token, in a form that may be shown and logged.

    A server may write anything. So the sentence must be short and printable, and must repeat
    neither the token nor a text that was sent.
    """
    if not response.headers.get("content-type", "").startswith("application/problem+json"):
        return ""
    try:
        said = json.loads(response.body)["detail"]
    except (ValueError, RecursionError, TypeError, KeyError):
        return ""
    if not (isinstance(said, str) and said.isprintable() and 0 < len(said) <= _MAX_SENTENCE):
        return ""
    texts: list[object] = [authorization.removeprefix("Bearer ")]
    if pending.mode is Mode.OPT_IN:
        texts += [text for entry in json.loads(pending.body) for text in entry.values() if text]
    long = (t.casefold() for t in texts if isinstance(t, str) and len(t) > _SHORT_TEXT)
    if any(text in said.casefold() for text in long):
        return ""
    return f'. The gateway says: "{said}"'


def _last_attempt_at_s(context: Context) -> int:
    """Return the time of the last attempt: `max_wait_s` after the device stored the bytes."""
    with context.store.locked() as state:
        return state.budget_entries[-1].at_s + context.limits.max_wait_s


def _final_code(response: Response) -> ResultCode | None:
    """Return the final result, or `None` if a retry of the same bytes may still be accepted."""
    # Only the gateway's own responses are final: a hotel's login page may also return 403 or 200.
    if response.status in (200, 202):
        try:
            verdicts = read_verdicts(response.body)
        except MalformedResponse:
            verdicts = []
        if not verdicts:
            # 202 means accepted, even without readable verdicts.
            return ResultCode.SENT if response.status == 202 else None
        statuses = {status for status, _ in verdicts}
        if EntryStatus.RETRY in statuses:
            return None
        if EntryStatus.ACCEPTED in statuses:
            return ResultCode.SENT
        # Another cohort takes part: no error, and every retry would get the same response.
        other_cohort = all(reason == _OTHER_COHORT for _, reason in verdicts)
        return ResultCode.NOTHING_NEW if other_cohort else ResultCode.REFUSED_BY_SERVER
    problem = response.headers.get("content-type", "").startswith("application/problem+json")
    return ResultCode.REFUSED_BY_SERVER if response.status in _FINAL and problem else None


def _drop(context: Context, pending: PendingSubmission, code: ResultCode) -> bool:
    try:
        with context.store.locked() as state:
            if state.pending == pending:
                done = finish_last(state, str(code), context.now_s())
                context.store.save(replace(done, pending=None))
    except StorageRefused:
        return False  # the bytes stay and are sent again; the server counts them once
    return True
