"""What the doctor says of one thing that was looked at."""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["Finding", "Grade"]


class Grade(enum.StrEnum):
    """How a finding is to be taken."""

    OK = "ok"
    NOTE = "note"  #: works, but not as production should
    MEND = "mend"  #: must be mended


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    grade: Grade
    what: str
    found: str
