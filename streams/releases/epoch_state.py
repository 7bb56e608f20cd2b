"""The state of every epoch and of the ledger, folded from the release log's entries.

Jobs, subcommands, gateways and workers all use this code to fold the log. Times are milliseconds
since 1970 by the brokers' clocks; a seal's bounds list one offset per partition.

Promises: the log alone decides.
- Folding the same log gives the same state in every process.
- States only move forward, and the first entry for a step wins. An abandoned epoch stays abandoned:
  later entries of it are never published.
- A record that cannot be folded is an error whenever it is read, and is never skipped.
- A state that starts at a checkpoint gives the same decisions as one folded from the beginning:
  once an epoch and all before it have ended, its number alone decides.
- The state does not grow with the log.
Assumes: epochs open in the order of their numbers.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from blendstream.blender.paper.user_groups import PARTS
from blendstream.streams.budget.epoch_plan import EpochParameters
from blendstream.streams.budget.ledger import Ledger
from blendstream.streams.errors import StoreMismatch
from blendstream.streams.names import InputStream, OptinSubgroup
from blendstream.streams.releases import entries
from blendstream.streams.releases.documents import DocumentReference
from blendstream.streams.releases.epoch_stages import (
    EpochState,
    HeadListRelease,
    Offset,
    PauseNotice,
    ReleasedDocument,
    Seal,
    Stage,
)
from blendstream.streams.wire.epoch_numbers import is_epoch

__all__ = [
    "EpochState",
    "HeadListRelease",
    "PauseNotice",
    "ReleaseLogState",
    "ReleasedDocument",
    "Seal",
    "Stage",
]

T = TypeVar("T")

#: Finished epochs kept in memory and behind a checkpoint, for lists of recent states.
KEPT_EPOCHS = 32
#: Entries of which an epoch has at most one, and the field of its state that contains it.
_RELEASES: Final = {
    "head_list_released": "head_list",
    "estimate_released": "estimates",
    "click_graph_released": "click_graph",
}
#: Entries that change an epoch's stage.
_STEPS: Final = {"records_sealed", "reports_sealed", "epoch_abandoned", *_RELEASES}
#: Number of fence ids in memory. A writer whose id was dropped times out and retries.
KEPT_FENCE_IDS = 4096


class _LogPlace(NamedTuple):
    """Offset and append time of a log entry."""

    offset: int
    time_ms: int


class ReleaseLogState:
    """The state folded from the log. `read_upto` is the offset of the first record not folded."""

    def __init__(self, ledger: Ledger | None = None, from_offset: int = 0) -> None:
        self.epochs: dict[int, EpochState] = {}
        self.ledger = ledger or Ledger()
        self.from_offset = self.read_upto = from_offset
        self.checkpoint_epoch: int | None = self.ledger.last_epoch
        self.paused: PauseNotice | None = None
        #: Trimmed offsets, by input stream and version of its topic: another version starts at 0.
        self.trimmed: dict[tuple[str, int], tuple[int, ...]] = {}
        self.last_ms = 0
        #: Number of second entries for one release. The first counts; there must never be two.
        self.recorded_twice = 0
        #: Ids of the last fence entries. A writer waits for its own, which is near the end.
        self.fence_ids: deque[str] = deque(maxlen=KEPT_FENCE_IDS)
        self._parts: dict[str, int] = {}
        #: This epoch and all before it have ended.
        self._over_through = -1
        #: The epoch of each head list, by the list's id, unless it and all before it have ended.
        self._epoch_of_list: dict[bytes, int] = {}

    def copy(self) -> ReleaseLogState:
        """Return a copy that does not change when this state does."""
        copied = copy.copy(self)
        copied.epochs, copied.trimmed = self.epochs.copy(), self.trimmed.copy()
        copied.fence_ids, copied._parts = self.fence_ids.copy(), self._parts.copy()
        copied._epoch_of_list = self._epoch_of_list.copy()
        return copied

    @property
    def last(self) -> EpochState | None:
        """The epoch opened last."""
        return self.epochs[max(self.epochs)] if self.epochs else None

    def unfinished(self) -> list[EpochState]:
        """List the epochs that are not over, lowest first."""
        return [s for _, s in sorted(self.epochs.items()) if not s.stage.over]

    def unreleased(self, stem: InputStream) -> list[EpochState]:
        """List the epochs whose counts of this stream are still needed, lowest first."""
        after = sorted(n for n in self.epochs if n > self._over_through)
        return [s for s in map(self.epochs.__getitem__, after) if not s.released(stem)]

    def released_through(self, stem: InputStream) -> int:
        """Return the number before the lowest epoch whose counts of this stream are still needed.

        If no epoch needs them, return the highest epoch read from the log, or -1 if none was read.
        All epochs before the first one that was read from the log count as released.
        """
        unreleased = self.unreleased(stem)
        return unreleased[0].epoch - 1 if unreleased else max(self.epochs, default=-1)

    def is_past(self, number: int, stem: InputStream) -> bool:
        """Return True if this epoch, known or not, and all before it ended for this stream."""
        return number <= self.released_through(stem)

    def reported_on(self, head_list_id: bytes) -> EpochState | None:
        """Return the epoch of a head list; None also if that epoch and all before it ended."""
        number = self._epoch_of_list.get(head_list_id)
        return None if number is None else self.epochs[number]

    def trimmed_below(self, stem: InputStream, version: int, partition: int) -> int:
        """Return the offset below which this topic version's records were removed on purpose."""
        bounds = self.trimmed.get((stem, version), ())
        return bounds[partition] if partition < len(bounds) else 0

    def last_head_list_before(self, epoch: int) -> EpochState | None:
        """Find the latest earlier epoch with a published head list: its records are known."""
        earlier = [
            s for n, s in self.epochs.items()
            if n < epoch and s.head_list is not None and s.stage is not Stage.ABANDONED
        ]  # fmt: skip
        return max(earlier, key=lambda s: s.epoch, default=None)

    def paused_at(self, now_ms: int) -> PauseNotice | None:
        """Return the pause that is in force at this time, if any."""
        notice = self.paused
        return notice if notice is not None and notice.holds_at(now_ms) else None

    def checkpoint_offset(self) -> int:
        """Return the offset at which a later reader must start to fold every epoch kept here."""
        needed = [s.opened_offset for s in self.epochs.values()]
        return min(needed, default=self.read_upto)

    def apply(self, offset: int, time_ms: int, key: bytes | None, value: bytes | None) -> None:
        """Fold one committed record of the log."""
        if offset < self.read_upto:
            return
        if key is not None and key.startswith(entries.PART_PREFIX):
            self._parts.setdefault(key.split(b" ")[1].decode(), offset)
        try:
            for entry in entries.of_record(key, value):
                self._apply_entry(entry, _LogPlace(offset, time_ms))
        except (KeyError, TypeError, ValueError, IndexError, msgspec.ValidationError) as error:
            raise StoreMismatch(
                f"the release log's entry at offset {offset} must be one that this release "
                f"writes, got {type(error).__name__}; upgrade this process, or restore the log"
            ) from error
        # Only now: a caller that retries must not receive records that follow a damaged one.
        self.read_upto = offset + 1
        self.last_ms = max(self.last_ms, time_ms)

    def _apply_entry(self, body: Mapping[str, Any], at: _LogPlace) -> None:
        name = body.get("entry")
        if name == "fence":
            self.fence_ids.append(str(body["id"]))
        elif name == "epoch_opened":
            self._open(body, at)
        elif name == "service_paused":
            self.paused = msgspec.convert(body, PauseNotice)
            # A checkpoint repeats the notice, in the same step that opens an epoch.
            for opened in self.epochs.values():
                self._end_pause(opened.parameters)
        elif name == "log_trimmed":
            version = int(body.get("topic_version", 1))  # Not always written.
            bounds = msgspec.convert(body["bounds"], tuple[Offset, ...])
            self.trimmed[InputStream(body["topic"]), version] = bounds
        elif name == "checkpoint":
            self.checkpoint_epoch = Ledger.from_json(body["ledger"]).last_epoch
        elif name in _STEPS:
            state = self.epochs.get(int(body["epoch"]))
            if state is not None and state.stage is not Stage.ABANDONED:
                released = _RELEASES.get(str(name))
                self.recorded_twice += released is not None and getattr(state, released) is not None
                self._advance(state, body, at)

    def _open(self, body: Mapping[str, Any], at: _LogPlace) -> None:
        if not is_epoch(body["epoch"]):
            raise ValueError("an epoch must be an integer that every reader can represent")
        if body["epoch"] in self.epochs or body["epoch"] <= self._over_through:
            return
        parameters = EpochParameters.from_json(body)
        # Parts per million of the opt-in group, by subgroup.
        shares = {OptinSubgroup(name): int(ppm) for name, ppm in body["shares_ppm"].items()}
        if sum(shares.values()) != PARTS or min(shares.values()) < 0:
            raise ValueError(f"shares_ppm must be ≥ 0 and sum to {PARTS}")
        period = parameters.period
        if (
            period is not None
            and tuple(shares.get(subgroup, 0) for subgroup in OptinSubgroup) != period.shares
        ):
            raise ValueError("shares_ppm must be those of the budget period")
        # A reader that started at a checkpoint reads epochs that its ledger already contains;
        # charging by number makes that harmless. One that breaks its budget period is an error.
        self.ledger = self.ledger.with_charge(parameters.charge)
        self.epochs[parameters.epoch] = EpochState(parameters, at.offset, shares)
        self._end_pause(parameters)
        self._forget_old()

    def _end_pause(self, parameters: EpochParameters) -> None:
        """Shorten the pause if the epoch that it announced begins sooner, with other settings."""
        notice, start_ms = self.paused, parameters.window_start_ms
        if notice is not None and parameters.epoch >= notice.epoch:
            self.paused = replace(notice, resumes_at_ms=min(notice.resumes_at_ms, start_ms))

    def _update_over_through(self) -> None:
        """Advance the number up to which all epochs have ended, and forget their head lists."""
        for number in sorted(n for n in self.epochs if n > self._over_through):
            state = self.epochs[number]
            if not state.stage.over:
                return
            self._over_through = number
            if state.head_list is not None:
                self._epoch_of_list.pop(bytes.fromhex(state.head_list.head_list.id), None)

    def _forget_old(self) -> None:
        over = sorted(n for n, s in self.epochs.items() if s.stage.over)
        last_list = self.last_head_list_before(max(self.epochs) + 1)
        for number in over[:-KEPT_EPOCHS]:
            if last_list is None or number != last_list.epoch:
                forgotten = self.epochs.pop(number)
                for document in _documents(forgotten):
                    self._parts.pop(document.id, None)

    def _advance(self, state: EpochState, body: Mapping[str, Any], at: _LogPlace) -> None:
        """Take the step that an entry records, if the epoch is in the stage before it."""
        changes: dict[str, Any] = {}
        match body["entry"], state.stage:
            case "records_sealed", Stage.COLLECTING:
                changes["records_sealed"] = _read(body, Seal, at)
            case "click_graph_released", Stage.SEALED if state.click_graph is None:
                changes["click_graph"] = self._publication(body, at)
            case "head_list_released", Stage.SEALED:
                changes["head_list"] = released = self._head_list(body, at)
                self._epoch_of_list[bytes.fromhex(released.head_list.id)] = state.epoch
            case "reports_sealed", Stage.REPORTING:
                changes["reports_sealed"] = _read(body, Seal, at)
            case "estimate_released", Stage.SEALED | Stage.REPORTING | Stage.REPORTS_SEALED:
                changes |= {"estimates": self._publication(body, at), "over_at_ms": at.time_ms}
            case "epoch_abandoned", stage if not stage.over:
                changes |= {"abandoned": str(body["reason"]), "over_at_ms": at.time_ms}
        if changes:
            self.epochs[state.epoch] = replace(state, **changes)
        if "over_at_ms" in changes:
            self._update_over_through()

    def _head_list(self, body: Mapping[str, Any], at: _LogPlace) -> HeadListRelease:
        head_list, optin = self._references(body, at)
        body = {"wildcard_alone": False, **body}  # Not always written.
        return _read(body, HeadListRelease, at, head_list=head_list, optin=optin)

    def _publication(self, body: Mapping[str, Any], at: _LogPlace) -> ReleasedDocument:
        (document,) = self._references(body, at)
        return _read(body, ReleasedDocument, at, document=document)

    def _references(self, body: Mapping[str, Any], at: _LogPlace) -> list[DocumentReference]:
        return [
            DocumentReference.from_json(d, self._parts.get(d["id"], at.offset), at.offset)
            for d in body["documents"]
        ]


def _documents(state: EpochState) -> list[DocumentReference]:
    found = [p.document for p in (state.estimates, state.click_graph) if p is not None]
    if state.head_list is not None:
        found += [state.head_list.head_list, state.head_list.optin]
    return found


def _read(
    body: Mapping[str, Any], kind: type[T], at: _LogPlace, **documents: DocumentReference
) -> T:
    """Convert an entry's validated fields, its documents and its append time to `kind`."""
    return msgspec.convert({**body, **documents, "at_ms": at.time_ms}, kind)
