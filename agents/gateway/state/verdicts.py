"""Verdicts on entries: accepted, refused or retry, with the reason and advice to the sender.

Promises: accepted means that Kafka acknowledged the entry within the deadline, with an append time
by which the workers will count it as in time; only the workers detect duplicates. A detail states
what must hold and never quotes the entry. While a request waits for Kafka, it stores only verdicts
and their indexes: no id, text or report.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from blendstream.agents.gateway.http.request_types import EpochNumber
from blendstream.agents.gateway.http.responses import JSON, HttpResponse, problem
from blendstream.agents.gateway.state.frame_writer import Delivered
from blendstream.streams.wire.submissions import EntryStatus

__all__ = [
    "ACCEPTED",
    "ONE_ACCEPTED",
    "QUEUED_ENTRY_BYTES",
    "QueuedSlice",
    "Reason",
    "Verdict",
    "VerdictRule",
    "refusal",
    "response_to",
    "retry",
    "wait_for_all_verdicts",
]

#: Upper bound on the memory of one entry while it waits for Kafka: its index, twice.
QUEUED_ENTRY_BYTES = 64


class Reason(enum.StrEnum):
    """Reasons for not accepting an entry; each is a metric's label and a code for programs."""

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
    """The result of one entry: accepted, refused (a retry cannot succeed) or retry."""

    status: EntryStatus
    reason: Reason | None = None
    detail: str | None = None


class Verdicts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Body of the response to a readable request: one verdict per entry, in the order sent."""

    verdicts: list[Verdict]
    #: The epoch assigned to entries that state none: a retry must state it.
    epoch: EpochNumber | None = None


ACCEPTED = Verdict(EntryStatus.ACCEPTED)

_encode = msgspec.json.Encoder().encode
_ACCEPTED_JSON = _encode(ACCEPTED)


@functools.lru_cache(maxsize=1024)
def refusal(reason: Reason, detail: str) -> Verdict:
    """Return a permanent refusal: a retry cannot succeed. Cached, as many entries share one."""
    return Verdict(EntryStatus.REFUSED, reason, detail)


def retry(reason: Reason, detail: str) -> Verdict:
    """Return a verdict that asks the sender to send the same entry again."""
    return Verdict(EntryStatus.RETRY, reason, detail)


NOT_ACKNOWLEDGED = retry(
    Reason.NOT_ACKNOWLEDGED,
    "the entry was not acknowledged in time; send the same entry again, it counts once",
)
NO_ADMISSION = retry(
    Reason.NO_ADMISSION,
    "reports of this epoch must pass an admission hook, and this gateway has none; send the same "
    "entry again, another gateway may accept it (operator: set gateway.admission and restart)",
)
BUSY = retry(Reason.BUSY, "too many entries are waiting; send the same entry again later")


class VerdictRule(Protocol):
    """Decides a queued entry's verdict from the broker's append time."""

    def verdict(self, append_ms: int | None) -> Verdict:
        """Return the verdict on an entry with this append time; `None`: it may not be in time."""


@dataclass(slots=True)
class QueuedSlice:
    """The verdicts of one slice of a request, and the frames that some of them wait for."""

    verdicts: list[Verdict]
    #: A future of a frame's append time, the rule that decides by it, and the indexes in `verdicts`
    #: of the frame's entries.
    waiting: list[tuple[Delivered, VerdictRule, Iterable[int]]] = field(default_factory=list)

    async def wait_for_verdicts(self) -> list[Verdict]:
        """Return the verdicts, after Kafka acknowledged the frames or the deadline passed."""
        verdicts = self.verdicts
        for delivered, judge, places in self.waiting:
            verdict = judge.verdict(await delivered)
            if verdict is not ACCEPTED:
                for place in places:
                    verdicts[place] = verdict
        return verdicts


async def wait_for_all_verdicts(slices: Sequence[QueuedSlice]) -> list[Verdict]:
    """Return the verdicts of all slices of a request, in order."""
    if len(slices) == 1:
        return await slices[0].wait_for_verdicts()
    return [verdict for queued in slices for verdict in await queued.wait_for_verdicts()]


def _accepted(entries: int) -> HttpResponse:
    body = b'{"verdicts":[' + b",".join([_ACCEPTED_JSON] * entries) + b"]}"
    return HttpResponse(202, body, JSON, [(b"cache-control", b"no-store")])


ONE_ACCEPTED = _accepted(1)


def response_to(
    verdicts: Sequence[Verdict],
    *,
    retry_after_s: float,
    epoch: int | None = None,
    resumes_s: int | None = None,
) -> HttpResponse:
    """Return the HTTP response that states `verdicts`.

    - 202 if any entry was accepted;
    - 503 if none was accepted and some should be sent again;
    - 422 if all were refused;
    - 200 if all were refused because they are of another cohort, which is not an error.
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
        return HttpResponse(status, _encode(Verdicts(list(verdicts), epoch)), JSON, headers)
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
