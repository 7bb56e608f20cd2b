"""The state of one epoch in the release log, and the limits it sets for entries of that epoch.

Times are milliseconds since 1970 by the brokers' clocks; bounds list one offset per partition.
`streams.releases.epoch_state` folds the log into these types; import them from there.
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
    """Stages of an epoch, in order."""

    COLLECTING = "collecting"
    SEALED = "sealed"
    REPORTING = "reporting"
    REPORTS_SEALED = "reports_sealed"
    PUBLISHED = "published"
    ABANDONED = "abandoned"

    @property
    def over(self) -> bool:
        """True if the epoch has ended: nothing more is released for it."""
        return self in (Stage.PUBLISHED, Stage.ABANDONED)


@dataclass(frozen=True, slots=True)
class Seal:
    """End offsets of all partitions, and the time of their commit."""

    bounds: tuple[Offset, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class HeadListRelease:
    """A released head list: its documents, and the form and deadline of reports on it."""

    head_list: DocumentReference
    optin: DocumentReference
    cells: Count
    cells_per_answer: Count
    answers: Count
    #: ⋆, the last cell, may appear in an answer only with the first cells, which complete it.
    wildcard_alone: bool
    reports_until_ms: int
    reasons: tuple[IncompleteReason, ...]
    at_ms: int

    @property
    def cells_per_report(self) -> int:
        """Number of cells in a report, which has m_C answers of w cells each."""
        return self.cells_per_answer * self.answers


@dataclass(frozen=True, slots=True)
class ReleasedDocument:
    """A released document, its completeness, and the reasons if it is incomplete."""

    document: DocumentReference
    outcome: EpochOutcome
    reasons: tuple[IncompleteReason, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class EpochState:
    """The state of one epoch, as folded from the log."""

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
        """Number of the epoch."""
        return self.parameters.epoch

    @property
    def stage(self) -> Stage:
        """The last step taken."""
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
        """True if this epoch still lacks its click graph, which must precede the head list."""
        return (
            self.parameters.plan.click_graph is not None
            and self.click_graph is None
            and self.stage in (Stage.COLLECTING, Stage.SEALED)
        )

    def released(self, stem: InputStream) -> bool:
        """Return True if this stream's counts are no longer needed; further entries are late."""
        return self.stage.over or (stem is InputStream.OPTIN_RECORDS and self.head_list is not None)

    def late_from_ms(self, stem: InputStream) -> int | None:
        """Return the append time from which entries are late; None before there is a head list."""
        if stem is InputStream.OPTIN_RECORDS:
            return self.parameters.window_end_ms + self.parameters.plan.grace_ms
        if self.head_list is None:
            return None
        return self.head_list.reports_until_ms + self.parameters.plan.grace_ms

    def early_before_ms(self, stem: InputStream) -> int:
        """Return the append time before which entries are early.

        A report cannot be early: its head list's id is a hash of noise that no one can predict.
        """
        if stem is InputStream.CLIENT_REPORTS:
            return 0
        return self.parameters.window_start_ms - self.parameters.plan.skew_ms

    def beyond_seal(self, stem: InputStream, partition: int, offset: int) -> bool:
        """Return True if an offset is at or beyond the sealed bound of its partition."""
        seal = self.records_sealed if stem is InputStream.OPTIN_RECORDS else self.reports_sealed
        return seal is not None and (
            partition >= len(seal.bounds) or offset >= seal.bounds[partition]
        )


@dataclass(frozen=True, slots=True)
class PauseNotice:
    """The reason that no window is open, and when the next one begins, as epoch `epoch`."""

    epoch: int
    from_ms: int
    resumes_at_ms: int
    reason: str

    @property
    def resumes_s(self) -> int:
        """Start of the next window in seconds, as published."""
        return self.resumes_at_ms // 1000

    def holds_at(self, now_ms: float) -> bool:
        """Return True if the pause is in force at this time."""
        return self.from_ms <= now_ms < self.resumes_at_ms
