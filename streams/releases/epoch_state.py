"""The state of every epoch and of the ledger, folded from the release log's entries.

Promises: the log alone decides. Folding the same log gives the same state in every process;
states only move forward, the first entry for a step wins, and an abandoned epoch stays so: what
comes after it in the log is never published. A reader that starts at a checkpoint knows the same.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from streams.errors import StoreMismatch
from streams.releases import entries
from streams.releases.documents import DocumentReference
from streams.releases.entries import EpochOutcome, Shortfall
from streams.releases.epoch_plan import EpochParameters
from streams.releases.ledger import Ledger

__all__ = [
    "EpochState",
    "HeadListRelease",
    "PauseNotice",
    "Publication",
    "ReleaseBook",
    "Seal",
    "Stage",
]

#: Finished epochs kept in memory and behind a checkpoint, for lists of recent states.
KEPT_EPOCHS = 32
#: Ids of turns kept in memory. A writer that finds its own gone only waits in vain and tries again.
KEPT_TURNS = 4096


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

    bounds: tuple[int, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class HeadListRelease:
    """A released head list: where its documents lie and until when it is reported against."""

    head_list: DocumentReference
    optin: DocumentReference
    cells: int
    reports_until_ms: int
    reasons: tuple[Shortfall, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class Publication:
    """A released document with how complete it is and why not."""

    document: DocumentReference
    outcome: EpochOutcome
    reasons: tuple[Shortfall, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class EpochState:
    """All that the log says about one epoch."""

    parameters: EpochParameters
    opened_offset: int
    records_sealed: Seal | None = None
    head_list: HeadListRelease | None = None
    reports_sealed: Seal | None = None
    estimates: Publication | None = None
    click_graph: Publication | None = None
    abandoned: str | None = None
    over_at_ms: int | None = None

    @property
    def epoch(self) -> int:
        """Its number."""
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

    @property
    def optin_raw_over(self) -> bool:
        """Whether no job needs the epoch's opt-in counts any more."""
        return self.stage.over or self.head_list is not None

    @property
    def reports_raw_over(self) -> bool:
        """Whether no job needs the epoch's report counts any more."""
        return self.stage.over


@dataclass(frozen=True, slots=True)
class PauseNotice:
    """Why no window is open, and when the next one begins, as epoch `epoch`."""

    epoch: int
    from_ms: int
    resumes_at_ms: int
    reason: str


class ReleaseBook:
    """The fold. `read_upto` is the offset of the first record not folded yet."""

    def __init__(self, ledger: Ledger | None = None, from_offset: int = 0) -> None:
        self.epochs: dict[int, EpochState] = {}
        self.ledger = ledger or Ledger()
        self.read_upto = from_offset
        self.checkpoint_epoch: int | None = self.ledger.last_epoch
        self.paused: PauseNotice | None = None
        #: By stem and version of its topic: in another version offsets begin again.
        self.trimmed: dict[tuple[str, int], tuple[int, ...]] = {}
        self.last_ms = 0
        #: Records of a release that had one already. The first counts; there must never be two.
        self.recorded_twice = 0
        #: Ids of the turns read last. A writer waits for its own, which is near the end.
        self.turns: deque[str] = deque(maxlen=KEPT_TURNS)
        self._parts: dict[str, int] = {}

    @property
    def last(self) -> EpochState | None:
        """The epoch opened last."""
        return self.epochs[max(self.epochs)] if self.epochs else None

    def unfinished(self) -> list[EpochState]:
        """Epochs that are not over, lowest first."""
        return [s for _, s in sorted(self.epochs.items()) if not s.stage.over]

    def last_head_list_before(self, epoch: int) -> EpochState | None:
        """The latest earlier epoch with a published head list: its records are known keys."""
        earlier = [
            s for n, s in self.epochs.items()
            if n < epoch and s.head_list is not None and s.stage is not Stage.ABANDONED
        ]  # fmt: skip
        return max(earlier, key=lambda s: s.epoch, default=None)

    def paused_at(self, now_ms: int) -> PauseNotice | None:
        """The pause that is in force now, if one is."""
        notice = self.paused
        if notice is not None and notice.from_ms <= now_ms < notice.resumes_at_ms:
            return notice
        return None

    def checkpoint_offset(self) -> int:
        """From where a later reader must start to know everything that still matters."""
        needed = [s.opened_offset for s in self.epochs.values()]
        return min(needed, default=self.read_upto)

    def apply(self, offset: int, time_ms: int, key: bytes | None, value: bytes | None) -> None:
        """Fold one committed record of the log."""
        if offset < self.read_upto:
            return
        self.read_upto = offset + 1
        self.last_ms = max(self.last_ms, time_ms)
        if key is None or value is None:
            return
        if key.startswith(entries.PART_PREFIX):
            document_id = key.split(b" ")[1].decode()
            self._parts.setdefault(document_id, offset)
        elif key == entries.ENTRY_KEY:
            try:
                for entry in entries.decode(value):
                    self._apply_entry(entry, offset, time_ms)
            except (KeyError, TypeError, ValueError, IndexError) as error:
                raise StoreMismatch(
                    f"the release log's entry at offset {offset} must be one that this release "
                    f"writes, got {type(error).__name__}; upgrade this process, or restore the log"
                ) from error

    def _apply_entry(self, body: Mapping[str, Any], offset: int, time_ms: int) -> None:
        name = body.get("entry")
        if name == "turn":
            self.turns.append(str(body["id"]))
        elif name == "epoch_opened":
            self._open(EpochParameters.from_json(body), offset)
        elif name == "service_paused":
            self.paused = PauseNotice(
                int(body["epoch"]),
                int(body["from_ms"]),
                int(body["resumes_at_ms"]),
                str(body["reason"]),
            )
            # A checkpoint repeats the notice, in the same step that opens an epoch.
            for opened in self.epochs.values():
                self._end_pause(opened.parameters)
        elif name == "log_trimmed":
            version = int(body.get("topic_version", 1))  # Not always written.
            self.trimmed[str(body["topic"]), version] = _bounds(body)
        elif name == "checkpoint":
            self.checkpoint_epoch = Ledger.from_json(body["ledger"]).last_epoch
        elif name in _STEPS:
            state = self.epochs.get(int(body["epoch"]))
            if state is not None and state.stage is not Stage.ABANDONED:
                self.recorded_twice += name in _RELEASED and _RELEASED[name](state) is not None
                after = _STEPS[name](self, state, body, offset, time_ms)
                if after.stage.over and after.over_at_ms is None:
                    after = replace(after, over_at_ms=time_ms)
                self.epochs[state.epoch] = after

    def _open(self, parameters: EpochParameters, offset: int) -> None:
        if parameters.epoch in self.epochs:
            return
        # A reader that started at a checkpoint meets epochs its ledger already holds; charging
        # by number makes that harmless.
        self.ledger = self.ledger.charged(parameters.charge)
        self.epochs[parameters.epoch] = EpochState(parameters, offset)
        self._end_pause(parameters)
        self._forget_old()

    def _end_pause(self, parameters: EpochParameters) -> None:
        """The epoch that a pause announced may begin sooner, after a change of settings."""
        notice, start_ms = self.paused, parameters.window_start_ms
        if notice is not None and parameters.epoch >= notice.epoch:
            self.paused = replace(notice, resumes_at_ms=min(notice.resumes_at_ms, start_ms))

    def _forget_old(self) -> None:
        over = sorted(n for n, s in self.epochs.items() if s.stage.over)
        last_list = self.last_head_list_before(max(self.epochs) + 1)
        for number in over[:-KEPT_EPOCHS]:
            if last_list is None or number != last_list.epoch:
                gone = self.epochs.pop(number)
                for document in _documents(gone):
                    self._parts.pop(document.id, None)

    def _seal_records(
        self, state: EpochState, body: Mapping[str, Any], offset: int, time_ms: int
    ) -> EpochState:
        if state.stage is not Stage.COLLECTING:
            return state
        return replace(state, records_sealed=Seal(_bounds(body), time_ms))

    def _release_head_list(
        self, state: EpochState, body: Mapping[str, Any], offset: int, time_ms: int
    ) -> EpochState:
        if state.stage is not Stage.SEALED:
            return state
        head_list, optin = self._references(body, offset)
        return replace(
            state,
            head_list=HeadListRelease(
                head_list=head_list,
                optin=optin,
                cells=int(body["cells"]),
                reports_until_ms=int(body["reports_until_ms"]),
                reasons=_reasons(body),
                at_ms=time_ms,
            ),
        )

    def _seal_reports(
        self, state: EpochState, body: Mapping[str, Any], offset: int, time_ms: int
    ) -> EpochState:
        if state.stage is not Stage.REPORTING:
            return state
        return replace(state, reports_sealed=Seal(_bounds(body), time_ms))

    def _release_estimates(
        self, state: EpochState, body: Mapping[str, Any], offset: int, time_ms: int
    ) -> EpochState:
        if state.estimates is not None or state.stage is Stage.COLLECTING:
            return state
        return replace(state, estimates=self._publication(body, offset, time_ms))

    def _release_click_graph(
        self, state: EpochState, body: Mapping[str, Any], offset: int, time_ms: int
    ) -> EpochState:
        if state.click_graph is not None or state.stage is not Stage.SEALED:
            return state
        return replace(state, click_graph=self._publication(body, offset, time_ms))

    def _abandon(
        self, state: EpochState, body: Mapping[str, Any], offset: int, time_ms: int
    ) -> EpochState:
        return state if state.stage.over else replace(state, abandoned=str(body["reason"]))

    def _publication(self, body: Mapping[str, Any], offset: int, time_ms: int) -> Publication:
        (document,) = self._references(body, offset)
        return Publication(document, EpochOutcome(body["outcome"]), _reasons(body), time_ms)

    def _references(self, body: Mapping[str, Any], offset: int) -> list[DocumentReference]:
        return [
            DocumentReference.from_json(d, self._parts.get(d["id"], offset), offset)
            for d in body["documents"]
        ]


def _documents(state: EpochState) -> list[DocumentReference]:
    found = [p.document for p in (state.estimates, state.click_graph) if p is not None]
    if state.head_list is not None:
        found += [state.head_list.head_list, state.head_list.optin]
    return found


def _bounds(body: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(int(b) for b in body["bounds"])


def _reasons(body: Mapping[str, Any]) -> tuple[Shortfall, ...]:
    return tuple(Shortfall(r) for r in body["reasons"])


#: What an epoch already has when a record of its release comes again.
_RELEASED: Mapping[str, Callable[[EpochState], object]] = {
    "head_list_released": lambda state: state.head_list,
    "estimate_released": lambda state: state.estimates,
    "click_graph_released": lambda state: state.click_graph,
}
_STEPS = {
    "records_sealed": ReleaseBook._seal_records,
    "head_list_released": ReleaseBook._release_head_list,
    "reports_sealed": ReleaseBook._seal_reports,
    "estimate_released": ReleaseBook._release_estimates,
    "click_graph_released": ReleaseBook._release_click_graph,
    "epoch_abandoned": ReleaseBook._abandon,
}
