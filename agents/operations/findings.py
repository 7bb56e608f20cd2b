"""The result type of `doctor`'s checks."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import partial

__all__ = ["Finding", "Grade", "fix", "note", "ok"]


class Grade(enum.StrEnum):
    """How serious a finding is."""

    OK = "ok"
    NOTE = "note"  #: works, but is not suitable for production
    FIX = "fix"  #: must be fixed


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's result: its subject (`what`), its grade, and a sentence (`found`)."""

    grade: Grade
    what: str
    found: str


ok = partial(Finding, Grade.OK)
note = partial(Finding, Grade.NOTE)
fix = partial(Finding, Grade.FIX)
