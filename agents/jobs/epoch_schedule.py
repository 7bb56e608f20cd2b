"""Decide the jobs' next step, as a pure function of the release log, the counts and the clock.

    collecting ──▶ sealed ──▶ reporting ──▶ reports sealed ──▶ published
        └────────────┴────────────┴──────────────┴──────────▶ abandoned (with the reason)

Promises:
- States only move forward, and epochs take each step in order of their number.
- Every open epoch ends, even if no worker counts. Each wait has a deadline, after which the epoch
  continues and its publication states the missing data.
- Nothing here reads a clock, a broker or a count of any record: decisions depend on times, offsets
  and participants only.

Departure: the keeper opens `epochs_ahead` epochs before their windows, so that the gateways refuse
no one during an outage of the jobs. It does not fill a longer gap with empty epochs afterwards
(docs/epochs.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from blendstream.blender.values.errors import ParameterError
from blendstream.streams.budget.budget_period import BudgetPeriod
from blendstream.streams.budget.epoch_plan import EpochParameters, EpochPlan, begin_period
from blendstream.streams.budget.ledger import BudgetExhausted, Ledger, Limit
from blendstream.streams.releases.entries import IncompleteReason
from blendstream.streams.releases.epoch_state import EpochState, ReleaseLogState, Stage

__all__ = [
    "PERIOD_FIELDS",
    "BuildClickGraph",
    "BuildEstimates",
    "BuildHeadList",
    "KeeperMove",
    "Open",
    "Pause",
    "Positions",
    "SealRecords",
    "SealReports",
    "Wait",
    "affordable_epoch",
    "next_click_graph",
    "next_estimates",
    "next_head_list",
    "next_keeper_move",
    "next_period",
    "reports_until_ms",
]

#: The fields of a plan that a budget period keeps from its first epoch to its last.
PERIOD_FIELDS: Final = (
    "privacy", "profile", "graph_share_ppm", "click_graph", "optin_cohorts", "period_epochs",
)  # fmt: skip
#: How many consecutive full periods the search for an affordable epoch skips.
_PERIODS_AHEAD = 8


@dataclass(frozen=True, slots=True)
class Open:
    """Open an epoch: commit its parameters and its charge."""

    parameters: EpochParameters


@dataclass(frozen=True, slots=True)
class Pause:
    """Announce once that the period's budget is spent, with the time of resumption.

    `epoch` is the number of the first epoch after the pause.
    """

    epoch: int
    reason: str
    from_ms: int
    resumes_at_ms: int


@dataclass(frozen=True, slots=True)
class SealRecords:
    """Write a marker to every partition of the opt-in topic, and commit the markers' offsets.

    Markers that a broker appended before `not_before_ms`, by its clock, do not count.
    """

    epoch: int
    not_before_ms: int


@dataclass(frozen=True, slots=True)
class SealReports:
    """Write a marker to every partition of the report topic, and commit the markers' offsets."""

    epoch: int
    not_before_ms: int


@dataclass(frozen=True, slots=True)
class BuildHeadList:
    """Draw and commit the head list; `reasons` states the data that it already lacks."""

    epoch: int
    reports_until_ms: int
    reasons: tuple[IncompleteReason, ...]


@dataclass(frozen=True, slots=True)
class BuildEstimates:
    """Denoise, blend and commit the publication."""

    epoch: int
    reasons: tuple[IncompleteReason, ...]


@dataclass(frozen=True, slots=True)
class BuildClickGraph:
    """Draw and commit the click graph of the epoch's graph subgroup."""

    epoch: int
    reasons: tuple[IncompleteReason, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is due. `until_ms`: the time at which that changes anyway; `why`: for operators."""

    until_ms: int | None
    why: str


KeeperMove = Open | Pause | SealRecords | SealReports | Wait
#: Counted offset of each partition; `None` where the workers have stored nothing yet.
Positions = Sequence[int | None]


def next_keeper_move(
    log_state: ReleaseLogState,
    plan: EpochPlan,
    limit: Limit,
    now_ms: int,
    *,
    epochs_ahead: int = 1,
    origin_ms: int = 0,
) -> KeeperMove:
    """Return the keeper's next move: the lowest seal that is due, otherwise the next opening."""
    for state in log_state.unfinished():
        sealing = _seal_due(state, now_ms)
        if sealing is not None:
            return sealing
    opening = _next_opening(log_state, plan, limit, now_ms, epochs_ahead, origin_ms)
    if not isinstance(opening, Wait):
        return opening
    times = [t for s in log_state.unfinished() if (t := _sealable_at_ms(s)) is not None]
    if opening.until_ms is not None:
        times.append(opening.until_ms)
    return Wait(min(times, default=None), opening.why)


def _seal_due(state: EpochState, now_ms: int) -> SealRecords | SealReports | None:
    due = _sealable_at_ms(state)
    if due is None or now_ms < due:
        return None
    seal = SealRecords if state.stage is Stage.COLLECTING else SealReports
    return seal(state.epoch, due)


def _sealable_at_ms(state: EpochState) -> int | None:
    """Return the time from which every entry that a broker appends is late."""
    if state.stage is Stage.COLLECTING:
        return state.parameters.records_sealable_at_ms
    if state.stage is Stage.REPORTING and state.head_list is not None:
        plan = state.parameters.plan
        return state.head_list.reports_until_ms + plan.grace_ms + plan.skew_ms
    return None


def _next_opening(
    log_state: ReleaseLogState,
    plan: EpochPlan,
    limit: Limit,
    now_ms: int,
    epochs_ahead: int,
    origin_ms: int,
) -> Open | Pause | Wait:
    if epochs_ahead < 1:
        raise ParameterError(f"epochs_ahead must be at least 1, got {epochs_ahead}")
    last = log_state.last
    number = 0 if log_state.ledger.last_epoch is None else log_state.ledger.last_epoch + 1
    if last is None:
        # Windows begin on whole multiples from the origin: daily ones at midnight, not at noon.
        start_ms = origin_ms + (now_ms - origin_ms) // plan.window_ms * plan.window_ms
    else:
        start_ms = last.parameters.window_end_ms
        # The jobs were down for longer than epochs were open ahead. The gateways accepted nothing
        # in the gap, so skip it instead of charging for it.
        if now_ms >= start_ms + plan.window_ms:
            start_ms += (now_ms - start_ms) // plan.window_ms * plan.window_ms
    first_start_ms = start_ms
    plan, period = next_period(*_plan_and_period(last), plan, number)
    parameters, refused = affordable_epoch(log_state.ledger, plan, limit, number, start_ms, period)
    if parameters is None:
        return Wait(None, f"the privacy budget of the next {_PERIODS_AHEAD} periods is spent")
    start_ms = parameters.window_start_ms
    if now_ms >= start_ms - epochs_ahead * plan.window_ms:
        return Open(parameters)
    if refused is not None and (
        log_state.paused is None
        or (log_state.paused.epoch, log_state.paused.resumes_at_ms) != (number, start_ms)
    ):
        return Pause(number, refused.reason, from_ms=first_start_ms, resumes_at_ms=start_ms)
    why = "paused: " + refused.reason if refused else "the next epoch opens ahead of its window"
    return Wait(start_ms - epochs_ahead * plan.window_ms, why)


def next_period(
    begun: EpochPlan | None, period: BudgetPeriod | None, plan: EpochPlan, epoch: int
) -> tuple[EpochPlan, BudgetPeriod | None]:
    """Return the plan of an epoch, and its budget period if it has one.

    `begun` and `period` belong to the epoch before it. A budget period keeps its `PERIOD_FIELDS`
    to its last epoch; changes of these settings wait for its end, all others take effect.
    """
    if begun and period and epoch < period.first_epoch + period.rule.epochs:
        fixed: dict[str, Any] = {name: getattr(begun, name) for name in PERIOD_FIELDS}
        known_records = plan.known_records or begun.known_records
        return replace(plan, **fixed, known_records=known_records), period
    return plan, begin_period(plan, epoch) if plan.period_epochs else None


def _plan_and_period(last: EpochState | None) -> tuple[EpochPlan | None, BudgetPeriod | None]:
    return (None, None) if last is None else (last.parameters.plan, last.parameters.period)


def affordable_epoch(
    ledger: Ledger, plan: EpochPlan, limit: Limit, epoch: int, start_ms: int,
    period: BudgetPeriod | None,
) -> tuple[EpochParameters | None, BudgetExhausted | None]:  # fmt: skip
    """Return the epoch to open, and the budget's refusal if it cannot open at this time.

    The epoch starts at `start_ms` or, after a refusal, in the next period that can pay for it.
    """
    refused: BudgetExhausted | None = None
    for _ in range(_PERIODS_AHEAD):
        charge = plan.charge(ledger, limit, epoch, start_ms // 1000, period)
        paused = ledger.check_charge(charge, limit)
        if paused is None:
            end_ms = start_ms + plan.window_ms
            return EpochParameters(epoch, start_ms, end_ms, plan, charge), refused
        refused = refused or paused
        # Continue with whole windows, so that daily windows which begin at five still do after a
        # pause.
        ahead_ms = paused.resumes_at_s * 1000 - start_ms
        start_ms += -(-ahead_ms // plan.window_ms) * plan.window_ms
    return None, refused


def next_head_list(
    log_state: ReleaseLogState, counted: Positions, now_ms: int
) -> BuildHeadList | Wait:
    """Return the head list of the lowest sealed epoch, once all its partitions are counted."""
    for state in log_state.unfinished():
        if state.stage is Stage.COLLECTING:
            return Wait(state.parameters.records_sealable_at_ms, f"epoch {state.epoch} collects")
        if state.stage is not Stage.SEALED or state.records_sealed is None:
            continue
        parameters = state.parameters
        waiting = _partitions_behind(state.records_sealed.bounds, counted)
        deadline = state.records_sealed.at_ms + parameters.counting_deadline_ms
        if waiting and now_ms < deadline:
            return Wait(deadline, f"epoch {state.epoch} waits for partitions {_listing(waiting)}")
        # The keeper deletes raw records after the head list, so the click graph comes first. The
        # head list waits for it at most one more counting deadline.
        graph_deadline = deadline + parameters.counting_deadline_ms
        if state.graph_due and now_ms < graph_deadline:
            return Wait(graph_deadline, f"epoch {state.epoch} waits for its click graph")
        reasons = [IncompleteReason.NOT_ALL_COUNTED] if waiting else []
        if now_ms > parameters.head_list_deadline_ms:
            reasons.append(IncompleteReason.HEAD_LIST_TOO_LATE)
        return BuildHeadList(state.epoch, reports_until_ms(parameters, now_ms), tuple(reasons))
    return Wait(None, "no epoch is sealed")


def reports_until_ms(parameters: EpochParameters, now_ms: int) -> int:
    """Return the end of reporting for a head list that is published now.

    It is the end of the current window if at least half of that remains, otherwise the end of the
    next one. If devices no longer store the epoch's records, it is the end of the epoch's window,
    so that nobody reports.
    """
    if now_ms > parameters.head_list_deadline_ms:
        return parameters.window_end_ms
    window = parameters.window_ms
    running = max(0, now_ms - parameters.window_end_ms) // window
    end = parameters.window_end_ms + (running + 1) * window
    return end if 2 * (end - now_ms) >= window else end + window


def next_estimates(
    log_state: ReleaseLogState, counted: Positions, now_ms: int
) -> BuildEstimates | Wait:
    """Return the estimates of the lowest open epoch, once its reports are sealed and counted."""
    for state in log_state.unfinished():
        if state.stage is not Stage.REPORTS_SEALED:
            return Wait(None, f"epoch {state.epoch} is {state.stage.value}")
        assert state.reports_sealed is not None
        assert state.head_list is not None
        waiting = _partitions_behind(state.reports_sealed.bounds, counted)
        deadline = state.reports_sealed.at_ms + state.parameters.counting_deadline_ms
        if waiting and now_ms < deadline:
            return Wait(deadline, f"epoch {state.epoch} waits for partitions {_listing(waiting)}")
        reasons = list(state.head_list.reasons)
        if waiting and IncompleteReason.NOT_ALL_COUNTED not in reasons:
            reasons.append(IncompleteReason.NOT_ALL_COUNTED)
        return BuildEstimates(state.epoch, tuple(reasons))
    return Wait(None, "no epoch is open")


def next_click_graph(
    log_state: ReleaseLogState, counted: Positions, now_ms: int
) -> BuildClickGraph | Wait:
    """Return the click graph of the lowest sealed epoch that lacks one, once it is counted."""
    for state in log_state.unfinished():
        if not state.graph_due:
            continue
        if state.records_sealed is None:
            return Wait(state.parameters.records_sealable_at_ms, f"epoch {state.epoch} collects")
        waiting = _partitions_behind(state.records_sealed.bounds, counted)
        deadline = state.records_sealed.at_ms + state.parameters.counting_deadline_ms
        if waiting and now_ms < deadline:
            return Wait(deadline, f"epoch {state.epoch} waits for partitions {_listing(waiting)}")
        return BuildClickGraph(state.epoch, (IncompleteReason.NOT_ALL_COUNTED,) if waiting else ())
    return Wait(None, "no epoch owes a click graph")


def _partitions_behind(bounds: Sequence[int], counted: Positions) -> list[int]:
    """List the partitions not counted up to their bound; empty ones need no counter."""
    return [
        p for p, bound in enumerate(bounds)
        if bound > 0 and ((at := counted[p] if p < len(counted) else None) is None or at < bound)
    ]  # fmt: skip


def _listing(partitions: Sequence[int]) -> str:
    shown = ", ".join(map(str, partitions[:8]))
    return shown if len(partitions) <= 8 else f"{shown} and {len(partitions) - 8} more"
