"""What the release log says of one epoch, and how entries of that epoch are judged by it.

Times are milliseconds since 1970 by the brokers' clocks; bounds list one offset for each partition.
`streams.releases.epoch_state` folds the log into these and hands them on: import them from there.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from blendstream.streams.budget.epoch_plan import EpochParameters
from blendstream.streams.names import InputStream, OptinSubgroup
from blendstream.streams.releases.documents import DocumentReference
from blendstream.streams.releases.entries import EpochOutcome, IncompleteReason

__all__ = [
    "EpochState",
    "HeadListRelease",
    "PauseNotice",
    "ReleasedDocument",
    "Seal",
    "Stage",
]


Offset = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]


class Stage(enum.StrEnum):
    """How far an epoch has come, in order."""

    COLLECTING = "collecting"
    SEALED = "sealed"
    REPORTING = "reporting"
    REPORTS_SEALED = "reports_sealed"
    PUBLISHED = "published"
    ABANDONED = "abandoned"

    @property
    def over(self) -> bool:
        """Nothing more happens."""
        return self in (Stage.PUBLISHED, Stage.ABANDONED)


@dataclass(frozen=True, slots=True)
class Seal:
    """End offsets of all partitions, and when they were committed."""

    bounds: tuple[Offset, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class HeadListRelease:
    """A released head list: its documents, what a report on it looks like, and until when."""

    head_list: DocumentReference
    optin: DocumentReference
    cells: Count
    cells_per_answer: Count
    answers: Count
    #: ⋆, the last cell, may only be answered with the first cells, which fill the answer up.
    wildcard_alone: bool
    reports_until_ms: int
    reasons: tuple[IncompleteReason, ...]
    at_ms: int

    @property
    def cells_per_report(self) -> int:
        """w cells in each of m_C answers."""
        return self.cells_per_answer * self.answers


@dataclass(frozen=True, slots=True)
class ReleasedDocument:
    """A released document with how complete it is and why not."""

    document: DocumentReference
    outcome: EpochOutcome
    reasons: tuple[IncompleteReason, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class EpochState:
    """All that the log says about one epoch."""

    parameters: EpochParameters
    opened_offset: int
    shares_ppm: Mapping[OptinSubgroup, int]
    records_sealed: Seal | None = None
    head_list: HeadListRelease | None = None
    reports_sealed: Seal | None = None
    estimates: ReleasedDocument | None = None
    click_graph: ReleasedDocument | None = None
    abandoned: str | None = None
    over_at_ms: int | None = None

    @property
    def epoch(self) -> int:
        return self.parameters.epoch

    @property
    def stage(self) -> Stage:
        """The furthest step taken."""
        if self.abandoned is not None:
            return Stage.ABANDONED
        if self.estimates is not None:
            return Stage.PUBLISHED
        if self.reports_sealed is not None:
            return Stage.REPORTS_SEALED
        if self.head_list is not None:
            return Stage.REPORTING
        return Stage.SEALED if self.records_sealed is not None else Stage.COLLECTING

    @property
    def graph_due(self) -> bool:
        """Whether this epoch still owes a click graph: it comes before the head list or never."""
        return (
            self.parameters.plan.click_graph is not None
            and self.click_graph is None
            and self.stage in (Stage.COLLECTING, Stage.SEALED)
        )

    def released(self, stem: InputStream) -> bool:
        """Whether the epoch's counts of this stem are no longer needed; more entries are late."""
        return self.stage.over or (stem is InputStream.OPTIN_RECORDS and self.head_list is not None)

    def late_from_ms(self, stem: InputStream) -> int | None:
        """Append times at or after this are late; None while there is no list to report on."""
        if stem is InputStream.OPTIN_RECORDS:
            return self.parameters.window_end_ms + self.parameters.plan.grace_ms
        if self.head_list is None:
            return None
        return self.head_list.reports_until_ms + self.parameters.plan.grace_ms

    def early_before_ms(self, stem: InputStream) -> int:
        """Append times before this are early.

        A report cannot be: the id of its head list is a hash of noise that no one could foresee.
        """
        if stem is InputStream.CLIENT_REPORTS:
            return 0
        return self.parameters.window_start_ms - self.parameters.plan.skew_ms

    def beyond_seal(self, stem: InputStream, partition: int, offset: int) -> bool:
        """Whether an offset lies at or beyond what was sealed for its partition."""
        seal = self.records_sealed if stem is InputStream.OPTIN_RECORDS else self.reports_sealed
        return seal is not None and (
            partition >= len(seal.bounds) or offset >= seal.bounds[partition]
        )


@dataclass(frozen=True, slots=True)
class PauseNotice:
    """Why no window is open, and when the next one begins, as epoch `epoch`."""

    epoch: int
    from_ms: int
    resumes_at_ms: int
    reason: str

    @property
    def resumes_s(self) -> int:
        """When, in seconds, as readers are told."""
        return self.resumes_at_ms // 1000

    def holds_at(self, now_ms: float) -> bool:
        """Whether the pause is in force at this moment."""
        return self.from_ms <= now_ms < self.resumes_at_ms
