"""Verdicts: what became of each entry, why, and what its sender should do.

Promises: accepted means that Kafka acknowledged the entry within the deadline, and that the
counters will find it in time by the append time it was given; whether it is a duplicate is
found out when it is counted. A sentence names what must hold and never quotes what was sent.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence

import msgspec

from agents.gateway.responses import JSON, Answer, problem
from agents.gateway.submit.request_types import EpochNumber
from streams.wire.submissions import Status

__all__ = ["ACCEPTED", "Reason", "Verdict", "answer_for", "refused", "retry"]


class Reason(enum.StrEnum):
    """Why an entry was not accepted; each is a label of a metric and a code for programs."""

    MALFORMED = "malformed"
    UNKNOWN_HEAD_LIST = "unknown_head_list"
    WRONG_SHAPE = "wrong_shape"
    WRONG_EPOCH = "wrong_epoch"
    EARLY = "early"
    LATE = "late"
    OVER_LIMIT = "over_limit"
    OTHER_COHORT = "other_cohort"
    PAUSED = "paused"
    BUSY = "busy"
    NOT_ACKNOWLEDGED = "not_acknowledged"


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry's fate: accepted, refused (repeating cannot help) or retry (send it again)."""

    status: Status
    reason: Reason | None = None
    detail: str | None = None


class Verdicts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a body that could be read: one verdict for each entry, in the order sent."""

    verdicts: list[Verdict]
    #: The epoch that entries without one were read as: a retry must state it.
    epoch: EpochNumber | None = None


ACCEPTED = Verdict(Status.ACCEPTED)

_encode = msgspec.json.Encoder().encode
_ACCEPTED_JSON = _encode(ACCEPTED)


@functools.lru_cache(maxsize=1024)
def refused(reason: Reason, detail: str) -> Verdict:
    """A verdict that no repetition changes; those of one sentence are one, as there may be many."""
    return Verdict(Status.REFUSED, reason, detail)


def retry(reason: Reason, detail: str) -> Verdict:
    """A verdict that asks for the same entry again."""
    return Verdict(Status.RETRY, reason, detail)


NOT_ACKNOWLEDGED = retry(
    Reason.NOT_ACKNOWLEDGED,
    "the entry was not acknowledged in time; send the same entry again, it counts once",
)
BUSY = retry(Reason.BUSY, "too much is waiting to be queued; send the same entry again later")


def _accepted(entries: int) -> Answer:
    body = b'{"verdicts":[' + b",".join([_ACCEPTED_JSON] * entries) + b"]}"
    return Answer(202, body, JSON, [(b"cache-control", b"no-store")])


_ONE_ACCEPTED = _accepted(1)


def answer_for(
    verdicts: Sequence[Verdict],
    *,
    retry_after_s: float,
    epoch: int | None = None,
    resumes_s: int | None = None,
) -> Answer:
    """The HTTP answer that sums up `verdicts`.

    202 when any entry was accepted; 503 when none was and some should be sent again; 422 when
    all were refused. Entries of another cohort are nobody's mistake: all of them so is 200.
    """
    if epoch is None and verdicts.count(ACCEPTED) == len(verdicts):
        return _ONE_ACCEPTED if len(verdicts) == 1 else _accepted(len(verdicts))
    statuses = {verdict.status for verdict in verdicts}
    again = Status.RETRY in statuses
    if Status.ACCEPTED in statuses or all(v.reason is Reason.OTHER_COHORT for v in verdicts):
        headers = [(b"cache-control", b"no-store")]
        if again:
            headers.append((b"retry-after", b"%d" % max(1, -int(-retry_after_s // 1))))
        status = 202 if Status.ACCEPTED in statuses else 200
        return Answer(status, _encode(Verdicts(list(verdicts), epoch)), JSON, headers)
    first = next(v for v in verdicts if again is (v.status is Status.RETRY))
    return problem(
        503 if again else 422,
        first.detail or "",
        retry_after_s=retry_after_s if again else None,
        reason=first.reason,
        resumes_s=resumes_s if first.reason is Reason.PAUSED else None,
        epoch=epoch,
        verdicts=list(verdicts),
    )
