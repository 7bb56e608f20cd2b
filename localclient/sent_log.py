"""Record for the device's owner: what it sent, how much that can reveal, and the next send.

The record is part of the budget entries: the client writes both in one step and stores them equally
long. Reading needs no network.

Promises:
- The client writes an entry with the budget entry, before it sends the first byte.
- The entry contains the randomised answers, in the texts of the published list, and never a raw
  record: of opt-in records only their number.
- `forget` removes the answers.
- All stored answers take at most `MAX_ANSWER_BYTES`; beyond it the client removes the oldest first.
Assumes: the state is the one on disk.
Symbols: e^ε is the factor by which a report can change anybody's odds between two sets of searches.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from blendstream.blender.values.cells import Cells
from blendstream.localclient.budget import next_fit_s, total_left, total_spent
from blendstream.localclient.limits import Limits
from blendstream.localclient.state import BudgetEntry, ScheduledSend, SentCell, State, Submission

__all__ = [
    "DROPPED",
    "MAX_ANSWER_BYTES",
    "PENDING",
    "SentLog",
    "describe_answers",
    "finish_last",
    "note_submission",
    "odds_factor",
    "read_sent_log",
    "without_answers",
]

SCHEMA = "blendstream/sent/1"
#: The result of opt-in records that the person withdrew before they were sent.
DROPPED = "dropped"
#: The result until the server's final response.
PENDING = "pending"

#: Maximum bytes of stored answers. With fewer, the client would remove the answers of a year's
#: reports sooner; with more, each save of the state would be slower. A default service's report
#: takes about 1 KB.
MAX_ANSWER_BYTES = 256 * 1024
#: Bytes that a cell takes in addition to its texts.
_CELL_BYTES = 16


@dataclass(frozen=True, slots=True)
class SentLog:
    """Everything that the device sent and still remembers, its budget, and the next send."""

    at_s: int
    limits: Limits
    spent: tuple[float, float]
    left: tuple[float, float]
    #: The second from which on a report at this device's own limit fits into the budget.
    next_fit_s: int
    entries: tuple[BudgetEntry, ...]
    scheduled_send: ScheduledSend | None

    def to_document(self) -> dict[str, Any]:
        """Return the log as `blendstream/sent/1`, which docs/localclient.md describes."""
        names = ("epsilon_per_report", "delta_per_report", "epsilon_per_period")
        limits = {name: getattr(self.limits, name) for name in names}
        limits |= {"delta_per_period": self.limits.delta_per_period}
        return {
            "schema": SCHEMA,
            "at_s": self.at_s,
            "limits": {**limits, "period_s": self.limits.period_s},
            "spent": dict(zip(("epsilon", "delta"), self.spent, strict=True)),
            "left": dict(zip(("epsilon", "delta"), self.left, strict=True)),
            "next_fit_s": self.next_fit_s,
            "sent": [_document(entry) for entry in self.entries],
            "next": self.scheduled_send and asdict(self.scheduled_send),
        }

    def to_json(self) -> str:
        """Return the document as indented JSON, for a file."""
        return json.dumps(self.to_document(), indent=2, ensure_ascii=False) + "\n"


def read_sent_log(state: State, limits: Limits, now_s: int) -> SentLog:
    """Return the log that this state contains."""
    spent, left = total_spent(state, limits, now_s), total_left(state, limits, now_s)
    return SentLog(
        now_s,
        limits,
        (float(spent[0]), float(spent[1])),
        (float(left[0]), float(left[1])),
        next_fit_s(state, limits, now_s),
        state.budget_entries,
        state.scheduled_send,
    )


def odds_factor(epsilon: float) -> float | None:
    """Return e^ε to three digits; `None` if it is too large for a float."""
    return float(f"{math.exp(epsilon):.3g}") if epsilon < 700 else None


def describe_answers(
    answers: Iterable[Iterable[int]], cells: Cells
) -> tuple[tuple[SentCell, ...], ...]:
    """Return each answer's cells with the texts that they stand for."""
    return tuple(tuple((number, *cells.cell(number)) for number in answer) for answer in answers)


def note_submission(state: State, submission: Submission) -> State:
    """Add the submission to the last budget entry; drop the oldest answers above the size limit."""
    *earlier, last = state.budget_entries
    entries = (*earlier, replace(last, submission=submission))
    return replace(state, budget_entries=_bounded(entries))


def finish_last(state: State, result: str, now_s: int | None) -> State:
    """Return the state with the result of the last entry's delivery."""
    *earlier, last = state.budget_entries
    if last.submission is None:
        return state
    done = replace(last.submission, result=result, finished_at_s=now_s)
    return replace(state, budget_entries=(*earlier, replace(last, submission=done)))


def without_answers(state: State) -> State:
    """Return the state without the text of anything sent; the rest of each entry stays."""
    return replace(state, budget_entries=tuple(map(_without_answers, state.budget_entries)))


def _bounded(entries: tuple[BudgetEntry, ...]) -> tuple[BudgetEntry, ...]:
    """Return the entries with the newest answers that fit into `MAX_ANSWER_BYTES`."""
    left, kept = MAX_ANSWER_BYTES, []
    for entry in reversed(entries):
        left -= _size(entry.submission)
        kept.append(entry if left >= 0 else _without_answers(entry))
    return tuple(reversed(kept))


def _without_answers(entry: BudgetEntry) -> BudgetEntry:
    if entry.submission is None or entry.submission.answers is None:
        return entry
    return replace(entry, submission=replace(entry.submission, answers=None))


def _size(submission: Submission | None) -> int:
    answers = submission.answers if submission else None
    cells = [cell for answer in answers or () for cell in answer]
    return sum(
        _CELL_BYTES + len((query or "").encode()) + len((url or "").encode())
        for _, query, url in cells
    )


def _document(entry: BudgetEntry) -> dict[str, Any]:
    fields = asdict(entry)
    sent = fields.pop("submission") or {}
    if sent.get("answers") is not None:
        names = ("cell", "query", "url")
        sent["answers"] = [
            [dict(zip(names, cell, strict=True)) for cell in answer] for answer in sent["answers"]
        ]
    return {**fields, "odds": odds_factor(entry.epsilon), **sent}
