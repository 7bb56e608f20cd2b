"""The validation result of one batch of a partition: the counts and refusals to store.

Promises: every entry received is in exactly one place: counted, refused for one reason, or late for
a released epoch. Numbers and lengths only; a record's text occurs only as a key to be counted.
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from blendstream.streams.names import OptinSubgroup
from blendstream.streams.wire.frames import Marker, OptinFrame, RefusedFrame, ReportFrame

__all__ = [
    "MAX_DEAD_LETTERS",
    "SEPARATOR",
    "BatchVerdict",
    "DeadLetter",
    "Delivery",
    "Refusal",
    "Tally",
]

#: Separator of query and URL in a counted record's key; no normalised text contains it.
SEPARATOR: Final = b"\t"
#: Maximum dead letters per batch; a faulty sender must not fill that topic faster than we count.
MAX_DEAD_LETTERS: Final = 100


class Refusal(enum.StrEnum):
    """Reason for refusing an entry. Every member is a metric's label and a field in Redis."""

    DUPLICATE = "duplicate"  #: the contributor was counted already (in this slot)
    REPEATED = "repeated"  #: the contributor sent this record already, in another slot
    SPARE = "spare"  #: T counts one record per user, the one in slot 0
    OVER_LIMIT = "over_limit"  #: slot at or above the epoch's records per user
    LATE = "late"  #: appended after the grace, or to a released epoch
    BEYOND_SEAL = "beyond_seal"  #: in time by its append time, but beyond the epoch's seal
    EARLY = "early"  #: appended before the window and the allowed skew
    WRONG_EPOCH = "wrong_epoch"  #: an epoch that was never opened, or not its head list's
    UNKNOWN_HEAD_LIST = "unknown_head_list"  #: an id that is not in the release log
    MALFORMED = "malformed"  #: bytes, cells or text that no sender of ours writes
    TOO_LONG = "too_long"  #: a frame, query or URL over its limit


#: Reasons that indicate a fault in a sender or in a clock, for which the worker writes a dead
#: letter. The others happen every day.
_FAULTS: Final = frozenset(
    {
        Refusal.BEYOND_SEAL,
        Refusal.WRONG_EPOCH,
        Refusal.UNKNOWN_HEAD_LIST,
        Refusal.MALFORMED,
        Refusal.TOO_LONG,
    }
)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One decoded Kafka message: its offset, append time and contents."""

    offset: int
    append_ms: int
    frame: OptinFrame | ReportFrame | Marker | RefusedFrame
    size: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Position of a refused entry, and the reason. `entry` None: the whole frame."""

    offset: int
    entry: int | None
    reason: Refusal
    lengths: tuple[int, ...]


@dataclass(slots=True)
class Tally:
    """Counts that one batch adds to one epoch."""

    received: int = 0
    refused: Counter[Refusal] = field(default_factory=Counter)
    cells: NDArray[np.int64] | None = None
    records: dict[OptinSubgroup, Counter[bytes]] = field(default_factory=dict)
    #: People: contributors whose slot 0 was accepted, however many records they sent.
    users: Counter[OptinSubgroup] = field(default_factory=Counter)
    #: Counted entries without a record: they add to `users` only.
    none: int = 0
    fingerprints: list[NDArray[np.uint64]] = field(default_factory=list)

    @property
    def counted(self) -> int:
        """Number of entries that were not refused."""
        return self.received - self.refused.total()


@dataclass(slots=True)
class BatchVerdict:
    """Validation result of one batch. Epoch None: unknown; `late`: entries of released epochs."""

    epochs: dict[int | None, Tally] = field(default_factory=dict)
    late: int = 0
    letters: list[DeadLetter] = field(default_factory=list)

    def tally(self, epoch: int | None) -> Tally:
        """Return the counts of one epoch, empty at first."""
        return self.epochs.setdefault(epoch, Tally())

    def refuse(self, epoch: int | None, delivery: Delivery, reason: Refusal, entries: int) -> None:
        """Refuse all entries of one message."""
        tally = self.tally(epoch)
        tally.received += entries
        tally.refused[reason] += entries
        self.letter(delivery.offset, None, reason, (delivery.size,))

    def letter(
        self, offset: int, entry: int | None, reason: Refusal, lengths: tuple[int, ...]
    ) -> None:
        """Add a dead letter, if the reason indicates a fault and there is room."""
        if reason in _FAULTS and len(self.letters) < MAX_DEAD_LETTERS:
            self.letters.append(DeadLetter(offset, entry, reason, lengths))

    def summary(self) -> Counter[str]:
        """Return the totals for the batch's log line: numbers only."""
        received = sum(tally.received for tally in self.epochs.values()) + self.late
        counted = sum(tally.counted for tally in self.epochs.values())
        return Counter(received=received, counted=counted, refused=received - counted)
