"""What `doctor` reports about one thing that it checked."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import partial

__all__ = ["Finding", "Grade", "fix", "note", "ok"]


class Grade(enum.StrEnum):
    """Whether something must be done about a finding."""

    OK = "ok"
    NOTE = "note"  #: works, but not as production should
    FIX = "fix"  #: must be fixed


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked: `what` it is, and what was `found`, in a sentence."""

    grade: Grade
    what: str
    found: str


ok = partial(Finding, Grade.OK)
note = partial(Finding, Grade.NOTE)
fix = partial(Finding, Grade.FIX)
