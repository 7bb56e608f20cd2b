"""The device's persistent state, in memory and on disk: budget, schedule, pending submission.

    line 1   SHA-256 of line 2, in hexadecimal
    line 2   JSON of the state

Promises: `State.from_bytes(s.to_bytes()) == s`; bytes damaged anywhere raise.
Assumes: the bytes are this device's own. The hash detects accidental damage, not attacks: someone
who can write to the person's files can also read them.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from blendstream.localclient.errors import StateUnreadable

__all__ = [
    "BudgetEntry",
    "Mode",
    "PendingSubmission",
    "ScheduledSend",
    "SentCell",
    "State",
    "Submission",
]

#: Version 1 had other names.
_VERSION = 2


class Mode(StrEnum):
    """Mode of taking part in a window: a device uses exactly one of the two."""

    REPORT = "report"  # randomised on the device
    OPT_IN = "opt-in"  # unchanged, to a curator whom the person trusts


#: A cell that an answer named: its number, query and URL; `None` is ⋆.
SentCell = tuple[int, str | None, str | None]


@dataclass(frozen=True, slots=True)
class Submission:
    """What this device sent for one window, so that its owner can read it later.

    `answers` are the randomised answers themselves, with the texts of the published list; `None` in
    opt-in mode, and once they are removed. `searches` counts the opt-in records sent, whose text is
    not kept. `result` is "pending", "dropped" or the `ResultCode` of the delivery.
    """

    randomizer: str
    listed: int
    cells: int
    answers: tuple[tuple[SentCell, ...], ...] | None
    searches: int
    result: str = "pending"
    finished_at_s: int | None = None

    def __repr__(self) -> str:
        """Leave out the answers, which may name a search; representations end up in logs."""
        return f"Submission({self.result})"


@dataclass(frozen=True, slots=True)
class BudgetEntry:
    """A window that this device has answered: mode, time, and the (ε, δ) spent.

    `subject` is the id of the head list answered, or empty in opt-in mode.
    ε and δ of an opt-in window are 0 here: its privacy is the curator's promise, not the device's.
    """

    mode: Mode
    epoch: int
    subject: str
    window_start_s: int
    window_end_s: int
    at_s: int
    epsilon: float
    delta: float
    submission: Submission | None = None


@dataclass(frozen=True, slots=True)
class ScheduledSend:
    """The time at which this device will answer an epoch, drawn once, independent of its records.

    `subject` is the head list's id, or empty in opt-in mode; `records` is m_C or m_O. ε, δ and
    `listed` (M) are those of the head list; 0 in opt-in mode.
    """

    mode: Mode
    epoch: int
    subject: str
    window_start_s: int
    window_end_s: int
    records: int
    send_at_s: int
    until_s: int
    epsilon: float = 0.0
    delta: float = 0.0
    listed: int = 0


@dataclass(frozen=True, slots=True)
class PendingSubmission:
    """The exact bytes to send; the device repeats them unchanged until the server accepts them."""

    mode: Mode
    epoch: int
    body: str
    until_s: int

    def __repr__(self) -> str:
        """Leave out the body: opt-in bytes contain searches, and representations end up in logs."""
        return f"PendingSubmission({self.mode}, epoch={self.epoch}, {len(self.body)} characters)"


@dataclass(frozen=True, slots=True)
class State:
    """Everything that must survive a crash. Budget entries are in the order of their times."""

    #: R cohorts, and this device's own: it reports in epochs e with e mod R = `cohort`.
    cohorts: int = 1
    cohort: int = 0
    budget_entries: tuple[BudgetEntry, ...] = ()
    scheduled_send: ScheduledSend | None = None
    pending: PendingSubmission | None = None
    #: Raw records from before this time were answered or skipped: no report draws from them.
    forget_before_s: int = 0

    def to_bytes(self) -> bytes:
        """Return the state in its form on disk."""
        body = json.dumps({"version": _VERSION, **asdict(self)}, sort_keys=True).encode()
        return hashlib.sha256(body).hexdigest().encode() + b"\n" + body

    @classmethod
    def from_bytes(cls, data: bytes) -> State:
        """Return the state that `to_bytes` wrote, or raise `StateUnreadable`."""
        seal, _, body = data.partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != seal:
            raise StateUnreadable(_unreadable("damaged"))
        try:
            fields = json.loads(body)
            if fields.pop("version") != _VERSION:
                raise StateUnreadable(_unreadable("of another version of the client"))
            return _state(fields)
        except (KeyError, TypeError, ValueError):
            raise StateUnreadable(_unreadable("damaged")) from None


def _state(fields: dict[str, Any]) -> State:
    scheduled, pending = fields["scheduled_send"], fields["pending"]
    return State(
        cohorts=fields["cohorts"],
        cohort=fields["cohort"],
        budget_entries=tuple(_entry(entry) for entry in fields["budget_entries"]),
        scheduled_send=scheduled
        and ScheduledSend(**{**scheduled, "mode": Mode(scheduled["mode"])}),
        pending=pending and PendingSubmission(**{**pending, "mode": Mode(pending["mode"])}),
        forget_before_s=fields["forget_before_s"],
    )


def _entry(fields: dict[str, Any]) -> BudgetEntry:
    sent = fields["submission"]
    if sent and sent["answers"] is not None:
        sent["answers"] = tuple(tuple(_cell(*cell) for cell in each) for each in sent["answers"])
    submission = sent and Submission(**sent)
    return BudgetEntry(**{**fields, "mode": Mode(fields["mode"]), "submission": submission})


def _cell(number: int, query: str | None, url: str | None) -> SentCell:
    return number, query, url


def _unreadable(what: str) -> str:
    return (
        f"the file that remembers what this device has spent must be whole, but it is {what}; "
        "nothing is reported without it. Restore the file, or delete the whole folder once a full "
        "budget period has passed since the last report: a new folder starts with nothing spent."
    )
