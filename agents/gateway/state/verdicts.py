"""Verdicts: what became of each entry, why, and what its sender should do.

Promises: accepted means that Kafka acknowledged the entry within the deadline, and that the
counters will find it in time by the append time it was given; whether it is a duplicate is
found out when it is counted. A sentence names what must hold and never quotes what was sent.
While Kafka is waited for, only verdicts and their places are kept: no id, no text and no report.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from blendstream.agents.gateway.http.request_types import EpochNumber
from blendstream.agents.gateway.http.responses import JSON, Answer, problem
from blendstream.agents.gateway.state.frame_writer import Delivered
from blendstream.streams.wire.submissions import EntryStatus

__all__ = [
    "ACCEPTED",
    "ONE_ACCEPTED",
    "QUEUED_ENTRY_BYTES",
    "Judge",
    "Queued",
    "Reason",
    "Verdict",
    "all_settled",
    "answer_for",
    "refused",
    "retry",
]

#: What one entry takes at most while Kafka takes its time: its place, twice. Verdicts are shared.
QUEUED_ENTRY_BYTES = 64


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
    OTHER_USER = "other_user"
    PAUSED = "paused"
    NO_ADMISSION = "no_admission"
    BUSY = "busy"
    NOT_ACKNOWLEDGED = "not_acknowledged"


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry's fate: accepted, refused (repeating cannot help) or retry (send it again)."""

    status: EntryStatus
    reason: Reason | None = None
    detail: str | None = None


class Verdicts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a body that could be read: one verdict for each entry, in the order sent."""

    verdicts: list[Verdict]
    #: The epoch that entries without one were read as: a retry must state it.
    epoch: EpochNumber | None = None


ACCEPTED = Verdict(EntryStatus.ACCEPTED)

_encode = msgspec.json.Encoder().encode
_ACCEPTED_JSON = _encode(ACCEPTED)


@functools.lru_cache(maxsize=1024)
def refused(reason: Reason, detail: str) -> Verdict:
    """A verdict that no repetition changes; those of one sentence are one, as there may be many."""
    return Verdict(EntryStatus.REFUSED, reason, detail)


def retry(reason: Reason, detail: str) -> Verdict:
    """A verdict that asks for the same entry again."""
    return Verdict(EntryStatus.RETRY, reason, detail)


NOT_ACKNOWLEDGED = retry(
    Reason.NOT_ACKNOWLEDGED,
    "the entry was not acknowledged in time; send the same entry again, it counts once",
)
NO_ADMISSION = retry(
    Reason.NO_ADMISSION,
    "reports of this epoch must pass an admission hook, and this gateway has none; send the same "
    "entry again, another gateway will take it (operator: set gateway.admission and restart)",
)
BUSY = retry(Reason.BUSY, "too much is waiting to be queued; send the same entry again later")


class Judge(Protocol):
    """Says what the counters will."""

    def verdict(self, append_ms: int | None) -> Verdict:
        """Of an entry that the broker appended at this moment; `None`: not known to be in time."""


@dataclass(slots=True)
class Queued:
    """Verdicts so far, and which entries' frames are on their way."""

    verdicts: list[Verdict]
    #: When the frame was appended, who judges by it, and its entries' places among the verdicts.
    waiting: list[tuple[Delivered, Judge, Iterable[int]]] = field(default_factory=list)

    async def settled(self) -> list[Verdict]:
        """The verdicts, once Kafka has acknowledged or the deadline has passed."""
        verdicts = self.verdicts
        for delivered, judge, places in self.waiting:
            verdict = judge.verdict(await delivered)
            if verdict is not ACCEPTED:
                for place in places:
                    verdicts[place] = verdict
        return verdicts


async def all_settled(slices: Sequence[Queued]) -> list[Verdict]:
    """The verdicts on all slices of a request, one after the other."""
    if len(slices) == 1:
        return await slices[0].settled()
    return [verdict for queued in slices for verdict in await queued.settled()]


def _accepted(entries: int) -> Answer:
    body = b'{"verdicts":[' + b",".join([_ACCEPTED_JSON] * entries) + b"]}"
    return Answer(202, body, JSON, [(b"cache-control", b"no-store")])


ONE_ACCEPTED = _accepted(1)


def answer_for(
    verdicts: Sequence[Verdict],
    *,
    retry_after_s: float,
    epoch: int | None = None,
    resumes_s: int | None = None,
) -> Answer:
    """The HTTP answer that sums up `verdicts`.

    202 when any entry was accepted; 503 when none was and some should be sent again; 422 when
    all were refused, but 200 when all were refused as of another cohort, which is no mistake.
    """
    if epoch is None and verdicts.count(ACCEPTED) == len(verdicts):
        return ONE_ACCEPTED if len(verdicts) == 1 else _accepted(len(verdicts))
    statuses = {verdict.status for verdict in verdicts}
    again = EntryStatus.RETRY in statuses
    if EntryStatus.ACCEPTED in statuses or all(v.reason is Reason.OTHER_COHORT for v in verdicts):
        headers = [(b"cache-control", b"no-store")]
        if again:
            headers.append((b"retry-after", b"%d" % max(1, -int(-retry_after_s // 1))))
        status = 202 if EntryStatus.ACCEPTED in statuses else 200
        return Answer(status, _encode(Verdicts(list(verdicts), epoch)), JSON, headers)
    first = next(v for v in verdicts if again is (v.status is EntryStatus.RETRY))
    return problem(
        503 if again else 422,
        first.detail or "",
        retry_after_s=retry_after_s if again else None,
        reason=first.reason,
        resumes_s=resumes_s if first.reason is Reason.PAUSED else None,
        epoch=epoch,
        verdicts=list(verdicts),
    )
