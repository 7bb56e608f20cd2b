"""What a counter must know of epochs and head lists, folded from the release log's entries.

The release log (topic `releases`, one partition, written in transactions) holds whole documents
and small entries. Counting needs only the small ones: Kafka messages with the key `entry` whose
value is a JSON array of objects, those of one commit. Messages with any other key, and entries of
any other name, are passed over here, so that the log can carry more than counting has use for. All
times are milliseconds since 1970 by the brokers' clock; bounds list one offset for each partition.

    {"entry": "epoch_opened", "epoch": 41, "window_start_ms": …, "window_end_ms": …,
     "grace_ms": …, "skew_ms": …, "records_per_user": 1, "key_id": "k1",
     "shares_ppm": {"S": 950000, "T": 50000, "graph": 0},
     "optin_partitions": 64, "report_partitions": 64}
    {"entry": "records_sealed", "epoch": 41, "bounds": [120, 98, …]}
    {"entry": "head_list_released", "epoch": 41, "head_list_id": "<64 hex digits>",
     "cells": 501, "cells_per_answer": 9, "answers": 1, "wildcard_alone": false,
     "reports_until_ms": …}
    {"entry": "reports_sealed", "epoch": 41, "bounds": [7001, 6998, …]}
    {"entry": "estimate_released", "epoch": 41}
    {"entry": "epoch_abandoned", "epoch": 41}
    {"entry": "log_trimmed", "topic": "optin_records" | "client_reports", "topic_version": 1,
     "bounds": [80, 75, …]}

`head_list_released` ends the opt-in records of its epoch, `estimate_released` its reports too, and
`epoch_abandoned` both: from there on an entry of that epoch is late, whenever it was sent.
`log_trimmed` says that everything below the bounds was removed on purpose, after its release; it
is about one version of the topic, since in another the offsets begin again.

Promises: states only move forward; folding the same entries again changes nothing. What the book
holds does not grow with the log: an epoch is forgotten when it and all before it are released, and
from there on its number alone says that it is past. So a book folded from a checkpoint on, which
leaves out only such epochs, judges as one folded from the beginning.
Assumes: epochs open in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from blender.user_groups import PARTS
from streams.errors import StoreMismatch
from streams.releases.entries import ENTRY_KEY, decode
from streams.stems import Share, Stem
from streams.wire.frames import HEAD_LIST_ID_BYTES, MAX_EPOCH

__all__ = [
    "ENTRY_KEY",
    "Directory",
    "Epoch",
    "EpochBook",
    "HeadListShape",
    "LogEntryError",
    "UnknownFrame",
]


class LogEntryError(StoreMismatch):
    """The release log holds an entry that no release of this project writes."""


@dataclass(frozen=True, slots=True)
class HeadListShape:
    """A head list as the counter sees it: how many cells, and how many of them make a report."""

    id: bytes
    epoch: int
    cells: int
    cells_per_answer: int
    answers: int
    reports_until_ms: int
    #: ⋆, the last cell, may only be answered with the first cells, which fill the answer up.
    wildcard_alone: bool = False

    @property
    def cells_per_report(self) -> int:
        """w cells in each of m_C answers."""
        return self.cells_per_answer * self.answers


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch: its parameters, fixed when it opened, and how far it has come."""

    number: int
    window_start_ms: int
    window_end_ms: int
    grace_ms: int
    skew_ms: int
    records_per_user: int
    key_id: str
    shares_ppm: Mapping[Share, int]
    optin_partitions: int
    report_partitions: int
    head_list: HeadListShape | None = None
    seals: Mapping[Stem, tuple[int, ...]] = field(default_factory=dict)
    released: frozenset[Stem] = frozenset()

    def late_from_ms(self, stem: Stem) -> int | None:
        """Append times at or after this are late; None while nobody can report yet."""
        if stem is Stem.OPTIN_RECORDS:
            return self.window_end_ms + self.grace_ms
        if self.head_list is None:
            return None
        return self.head_list.reports_until_ms + self.grace_ms

    def early_before_ms(self, stem: Stem) -> int:
        """Append times before this are early.

        A report cannot be: the id of its head list is a hash of noise that nobody could foresee.
        """
        return self.window_start_ms - self.skew_ms if stem is Stem.OPTIN_RECORDS else 0

    def beyond_seal(self, stem: Stem, partition: int, offset: int) -> bool:
        """Whether an offset lies at or beyond what was sealed for its partition."""
        bounds = self.seals.get(stem)
        return bounds is not None and (partition >= len(bounds) or offset >= bounds[partition])


class UnknownFrame(NamedTuple):
    """A frame that names an epoch or head list that a book does not have (yet)."""

    offset: int
    append_ms: int
    #: The release log below it has what the frame names, the frame says; 0: it does not say.
    log_position: int


class Directory(Protocol):
    """Where counters look epochs and head lists up."""

    @property
    def book(self) -> EpochBook:
        """What was read so far. It stays as it is: after a refresh there is another one."""
        ...

    async def refresh_to_end(self, *, furthest: bool = False) -> None:
        """Read the release log to the end it has now, or to the furthest that any broker tells."""
        ...

    async def read_for(self, frames: Sequence[UnknownFrame]) -> bool:
        """Read the log for frames that name something unknown.

        True: far enough to believe that what the book lacks then is not in the log. False: not yet.
        """
        ...


class EpochBook:
    """The fold of the release log's entries."""

    def __init__(self, entries: Iterable[Mapping[str, Any]] = ()) -> None:
        self._epochs: dict[int, Epoch] = {}
        self._head_lists: dict[bytes, HeadListShape] = {}
        self._trimmed: dict[tuple[Stem, int], tuple[int, ...]] = {}
        #: This epoch and all before it are released in full, and were forgotten.
        self._forgotten_through = -1
        for entry in entries:
            self.apply(entry)

    def copy(self) -> EpochBook:
        """The same book, which does not change when this one does."""
        copied = EpochBook()
        copied._epochs = self._epochs.copy()
        copied._head_lists = self._head_lists.copy()
        copied._trimmed = self._trimmed.copy()
        copied._forgotten_through = self._forgotten_through
        return copied

    def epoch(self, number: int) -> Epoch | None:
        return self._epochs.get(number)

    def head_list(self, head_list_id: bytes) -> HeadListShape | None:
        return self._head_lists.get(head_list_id)

    def unreleased(self, stem: Stem) -> list[Epoch]:
        """Epochs whose counts of this stem are still needed, lowest first."""
        return [e for _, e in sorted(self._epochs.items()) if stem not in e.released]

    def released_through(self, stem: Stem) -> int:
        """No epoch up to this one needs its counts of this stem any more; -1 when there is none.

        What lies before the first epoch that the log was read from is long released.
        """
        for number, epoch in sorted(self._epochs.items()):
            if stem not in epoch.released:
                return number - 1
        return max(self._epochs, default=self._forgotten_through)

    def is_past(self, number: int, stem: Stem) -> bool:
        """Whether an epoch, known or not, is over for this stem, and so are all before it."""
        return number <= self.released_through(stem)

    def trimmed(self, stem: Stem, version: int, partition: int) -> int:
        """In this version of the topic, offsets below this were removed after their release."""
        bounds = self._trimmed.get((stem, version), ())
        return bounds[partition] if partition < len(bounds) else 0

    def apply_message(self, key: bytes | None, value: bytes | None) -> None:
        """Fold one Kafka message of the release log."""
        if key != ENTRY_KEY or value is None:
            return
        try:
            together = decode(value)
        except StoreMismatch as error:
            raise LogEntryError(str(error)) from error
        for entry in together:
            self.apply(entry)

    def apply(self, entry: Mapping[str, Any]) -> None:
        """Fold one entry. Entries of other names are for others."""
        name = entry.get("entry")
        try:
            if name == "epoch_opened":
                self._open(entry)
            elif name == "log_trimmed":
                version = int(entry.get("topic_version", 1))  # Not always written.
                self._trimmed[Stem(entry["topic"]), version] = _bounds(entry)
            elif name == "records_sealed":
                self._seal(entry, Stem.OPTIN_RECORDS)
            elif name == "reports_sealed":
                self._seal(entry, Stem.CLIENT_REPORTS)
            elif name == "head_list_released":
                self._publish(entry)
            elif name == "estimate_released":
                # An epoch with too little data is published without a head list: both end.
                self._release(entry, Stem.OPTIN_RECORDS, Stem.CLIENT_REPORTS)
            elif name == "epoch_abandoned":
                self._release(entry, Stem.OPTIN_RECORDS, Stem.CLIENT_REPORTS)
        except (KeyError, TypeError, ValueError) as error:
            raise LogEntryError(
                f"release-log entry {name!r} is not as this release writes it: "
                f"{type(error).__name__} {error}"
            ) from error

    def _open(self, entry: Mapping[str, Any]) -> None:
        number = _integer(entry, "epoch", 0, MAX_EPOCH)
        if number in self._epochs or number <= self._forgotten_through:
            return
        shares = {Share(name): int(ppm) for name, ppm in entry["shares_ppm"].items()}
        if sum(shares.values()) != PARTS or min(shares.values()) < 0:
            raise ValueError(f"shares_ppm must be ≥ 0 and sum to {PARTS}")
        self._epochs[number] = Epoch(
            number=number,
            window_start_ms=_integer(entry, "window_start_ms"),
            window_end_ms=_integer(entry, "window_end_ms"),
            grace_ms=_integer(entry, "grace_ms"),
            skew_ms=_integer(entry, "skew_ms"),
            records_per_user=_integer(entry, "records_per_user", 1, 1 << 16),
            key_id=str(entry["key_id"]),
            shares_ppm=shares,
            optin_partitions=_integer(entry, "optin_partitions", 1),
            report_partitions=_integer(entry, "report_partitions", 1),
        )

    def _seal(self, entry: Mapping[str, Any], stem: Stem) -> None:
        epoch = self._epochs.get(entry["epoch"])
        if epoch is not None and stem not in epoch.seals:
            self._epochs[epoch.number] = replace(epoch, seals={**epoch.seals, stem: _bounds(entry)})

    def _publish(self, entry: Mapping[str, Any]) -> None:
        epoch = self._epochs.get(entry["epoch"])
        if epoch is None or epoch.head_list is not None:
            return
        head_list = HeadListShape(
            id=bytes.fromhex(entry["head_list_id"]),
            epoch=epoch.number,
            cells=_integer(entry, "cells", 1, 1 << 24),
            cells_per_answer=_integer(entry, "cells_per_answer", 1, 1 << 16),
            answers=_integer(entry, "answers", 1, 1 << 16),
            reports_until_ms=_integer(entry, "reports_until_ms"),
            wildcard_alone=bool(entry.get("wildcard_alone", False)),
        )
        if len(head_list.id) != HEAD_LIST_ID_BYTES:
            raise ValueError("head_list_id must have 64 hex digits")
        self._head_lists[head_list.id] = head_list
        self._epochs[epoch.number] = replace(
            epoch, head_list=head_list, released=epoch.released | {Stem.OPTIN_RECORDS}
        )

    def _release(self, entry: Mapping[str, Any], *stems: Stem) -> None:
        epoch = self._epochs.get(entry["epoch"])
        if epoch is not None:
            self._epochs[epoch.number] = replace(epoch, released=epoch.released | set(stems))
            self._forget()

    def _forget(self) -> None:
        through = min(self.released_through(stem) for stem in Stem)
        for number in [number for number in self._epochs if number <= through]:
            epoch = self._epochs.pop(number)
            if epoch.head_list is not None:
                self._head_lists.pop(epoch.head_list.id, None)
            self._forgotten_through = max(self._forgotten_through, number)


def _integer(entry: Mapping[str, Any], name: str, low: int = 0, high: int = MAX_EPOCH) -> int:
    value = entry[name]
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} must be a whole number in {low}…{high}")
    return value


def _bounds(entry: Mapping[str, Any]) -> tuple[int, ...]:
    bounds = entry["bounds"]
    if not isinstance(bounds, list) or any(not isinstance(b, int) or b < 0 for b in bounds):
        raise ValueError("bounds must be a list of offsets")
    return tuple(bounds)
