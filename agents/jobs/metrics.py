"""The jobs' Prometheus metrics: states, times and budget, nothing about single records.

Most values are published anyway: stages, outcomes, the ledger, the number of participants. The
duration of a draw depends on raw data, so its metric has coarse buckets only.

Only the process with the keeper's lease exports the metrics of the release log (`show`); the other
processes do not follow the log closely enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from blendstream.streams.budget.ledger import GROUPS, Limit
from blendstream.streams.releases.blocked import OpenTransaction
from blendstream.streams.releases.entries import Entry, EpochOutcome, Kind
from blendstream.streams.releases.epoch_state import EpochState, ReleaseLogState, Seal, Stage
from blendstream.streams.tables.redis_files import NotRewritten
from blendstream.streams.telemetry.metrics import Meters, process_registry
from blendstream.streams.wire.estimates_document import EstimatesDocument

__all__ = [
    "CLOCK_SKEW_LIMIT",
    "CLOCK_SKEW_SECONDS",
    "FAILURES",
    "FILES_WITH_TEXT",
    "FILTER_FAILURES",
    "JOBS",
    "STEPS",
    "Finalisation",
    "count_released",
    "observe_release_latency",
    "set_lease_gauge",
    "set_log_blocked",
    "show",
    "show_finalisation",
    "show_publications",
]

JOBS = process_registry()
_LOG_REGISTRY = CollectorRegistry()
_process, _log = Meters(JOBS), Meters(_LOG_REGISTRY)

_KINDS = [kind for kind in Kind if kind is not Kind.OPERATOR]
_WAITING = [stage for stage in Stage if not stage.over]
_ABANDONED = "abandoned"
_ENTRIES = (
    "epoch_opened", "records_sealed", "head_list_released", "reports_sealed", "estimate_released",
    "click_graph_released", "epoch_abandoned", "service_paused", "log_trimmed", "checkpoint",
)  # fmt: skip

STEPS = _process.counter("blender_job_steps", "Steps that jobs completed.", kind=_KINDS)
FAILURES = _process.counter("blender_job_failures", "Steps that failed.", kind=_KINDS)
FILTER_FAILURES = _process.counter(
    "blender_filter_failures",
    "Releases made without the filter over epochs, and publications that it skipped.",
    kind=(Kind.HEAD_LISTS, Kind.ESTIMATES),
)
LEASE_HELD = _process.gauge(
    "blender_job_lease_held", "1 while this process holds the lease.", kind=_KINDS
)
CLOCK_SKEW_SECONDS = _process.gauge(
    "blender_jobs_clock_skew_seconds",
    "Lower bound on the clock offset to the broker that differs most; positive when this clock is "
    "ahead.",
)
CLOCK_SKEW_LIMIT = _process.gauge(
    "blender_jobs_clock_skew_limit_seconds", "Beyond this skew the process leaves its leases."
)
RELEASES = _process.counter(
    "blender_releases", "Entries this process committed to the log.", entry=_ENTRIES
)
LOG_BLOCKED = _process.gauge(
    "blender_release_log_blocked_seconds",
    "Age of the transaction that blocks readers of the release log; 0 while none does.",
    offset=[""],
)
FINALIZE_SECONDS = _process.histogram(
    "blender_release_latency_seconds",
    "From the seal to the committed release.",
    # Coarse on purpose: the duration of a draw depends on raw data.
    buckets=(10, 60, 300, 900, 3600),
    kind=(Kind.HEAD_LISTS, Kind.ESTIMATES, Kind.CLICK_GRAPHS),
)

# --- the release log, exported by the process with the keeper's lease ----------------------------

EPOCHS = _log.gauge("blender_epochs", "Recent epochs in each stage.", stage=Stage)
AGE = _log.gauge(
    "blender_epoch_age_seconds",
    "Time since the oldest epoch in this stage began; 0 when there is none.",
    stage=_WAITING,
)
OVERDUE = _log.gauge(
    "blender_epoch_overdue_seconds",
    "Time by which the most overdue epoch exceeds its deadline in this stage; 0 when none does.",
    stage=_WAITING,
)
OUTCOMES = _log.gauge(
    "blender_epoch_outcomes", "Recent publications by outcome.", outcome=EpochOutcome
)
LAST_OUTCOME = _log.gauge(
    "blender_last_epoch_outcome",
    "1 for the outcome of the epoch that ended last.",
    outcome=(*EpochOutcome, _ABANDONED),
)
LAST_PUBLISHED = _log.gauge(
    "blender_last_published_epoch", "The highest epoch published; -1 before the first."
)
RECORDED_TWICE = _log.gauge(
    "blender_releases_recorded_twice",
    "Releases with a second record in the log; readers use the first. Must be 0.",
)
PAUSED = _log.gauge("blender_service_paused", "1 while the period's budget is spent.")
EPOCH_EPSILON = _log.gauge(
    "blender_epoch_epsilon", "ε that the newest epoch costs a person (replace-one).", group=GROUPS
)
EPSILON = _log.gauge(
    "blender_epsilon_spent",
    "ε spent in the current period in the worst case, at the limit's δ (replace-one).",
    group=GROUPS,
)
EPSILON_LIMIT = _log.gauge(
    "blender_epsilon_limit", "Maximum ε that a person may spend in a period.", group=GROUPS
)
# If δ runs out first, ε at the limit's δ hardly changes, and vice versa. Compare each with its
# limit: the larger fraction shows how close the pause is.
DELTA = _log.gauge(
    "blender_delta_spent",
    "δ spent in the current period in the worst case, at the limit's ε (replace-one).",
    group=GROUPS,
)
DELTA_LIMIT = _log.gauge(
    "blender_delta_limit", "Maximum δ that a person may spend in a period.", group=GROUPS
)
FILES_WITH_TEXT = _log.gauge(
    "blender_redis_servers_not_rewritten",
    "Redis servers whose files may still contain opt-in text of released epochs, by reason.",
    reason=NotRewritten,
)
HEAD_LIST_CELLS = _log.gauge("blender_head_list_cells", "Cells of the newest head list.")
REPORTS = _log.gauge(
    "blender_head_list_reports", "Reports on the newest head list that is published."
)
AGREEMENT = _log.gauge(
    "blender_agreement_p_value",
    "p-value of the agreement test in the newest publication; NaN when it was not tested.",
)
# One publication in a hundred is below 0.01 by chance; two in a row hardly are.
AGREEMENT_BEFORE = _log.gauge(
    "blender_agreement_p_value_before",
    "p-value of the agreement test in the publication before the newest.",
)
# A keeper that hangs keeps its lease, and all its other gauges keep their values.
KEEPER_PASS_AT = _log.gauge(
    "blender_keeper_last_pass_timestamp_seconds",
    "Time of the keeper's last complete pass.",
)

# --- the finalisation of the newest epoch: published values alone (`agents.jobs.finalisation`) ---

THRESHOLD = _log.gauge(
    "blender_head_list_threshold",
    "Noisy count, in people, from which the newest publication lists every new record.",
)
HEAD_LIST_RECORDS = _log.gauge(
    "blender_head_list_records",
    "Records of the newest publication: found by thresholding, listed for reports, newly listed.",
    state=("found", "listed", "new"),
)
HEAD_LIST_RECORDS_BEFORE = _log.gauge(
    "blender_head_list_records_before",
    "Records of the publication before the newest.",
    state=("found", "listed"),
)
PARTICIPANTS = _log.gauge(
    "blender_participants",
    "People in the newest publication: opt-in users of S and of T, and clients.",
    group=("selection", "estimation", "clients"),
)
OPTIN_WEIGHT = _log.gauge(
    "blender_optin_weight",
    "Mean weight of the opt-in group in the blend, over the newest publication's records.",
)
DIFFERENCE = _log.gauge(
    "blender_group_difference",
    "Typical relative difference between the groups, with its 95 % interval.",
    bound=("typical", "low", "high"),
)
DISPUTED = _log.gauge("blender_disputed_records", "Disputed records of the newest publication.")
DISPUTED_BEFORE = _log.gauge(
    "blender_disputed_records_before", "Disputed records of the publication before the newest."
)
RELATIVE_WIDTH = _log.gauge(
    "blender_interval_relative_width",
    "Median width of the newest publication's 95 % intervals, relative to the estimates.",
)
COVERAGE = _log.gauge(
    "blender_interval_coverage",
    "Proportion of the records in both newest publications whose intervals allow no difference.",
)
AGREEMENT.set(math.nan)
AGREEMENT_BEFORE.set(math.nan)


@dataclass(frozen=True, slots=True)
class Finalisation:
    """The values of these gauges; NaN where a number does not exist."""

    threshold: float = math.nan
    records: Mapping[str, float] = field(default_factory=dict)
    records_before: Mapping[str, float] = field(default_factory=dict)
    participants: Mapping[str, float] = field(default_factory=dict)
    optin_weight: float = math.nan
    difference: Mapping[str, float] = field(default_factory=dict)
    disputed: float = math.nan
    disputed_before: float = math.nan
    relative_width: float = math.nan
    coverage: float = math.nan


def show_finalisation(found: Finalisation) -> None:
    """Set the gauges of the finalisation."""
    THRESHOLD.set(found.threshold)
    for name in ("found", "listed", "new"):
        HEAD_LIST_RECORDS.labels(name).set(found.records.get(name, math.nan))
    for name in ("found", "listed"):
        HEAD_LIST_RECORDS_BEFORE.labels(name).set(found.records_before.get(name, math.nan))
    for name in ("selection", "estimation", "clients"):
        PARTICIPANTS.labels(name).set(found.participants.get(name, math.nan))
    OPTIN_WEIGHT.set(found.optin_weight)
    for name in ("typical", "low", "high"):
        DIFFERENCE.labels(name).set(found.difference.get(name, math.nan))
    DISPUTED.set(found.disputed)
    DISPUTED_BEFORE.set(found.disputed_before)
    RELATIVE_WIDTH.set(found.relative_width)
    COVERAGE.set(found.coverage)


show_finalisation(Finalisation())


class _WhileKeeping(Collector):
    """Exports the release log's metrics while this process follows the log."""

    following = False

    def collect(self) -> Iterable[Metric]:
        return _LOG_REGISTRY.collect() if self.following else ()


_KEEPING = _WhileKeeping()
JOBS.register(_KEEPING)


def set_lease_gauge(kind: Kind, *, held: bool) -> None:
    """Set the lease's gauge. Without the keeper's lease, stop exporting the log's metrics."""
    LEASE_HELD.labels(kind).set(held)
    if kind is Kind.KEEPER and not held:
        _KEEPING.following = False


def set_log_blocked(blocked: OpenTransaction | None) -> None:
    """Set the offset at which a transaction blocks the release log's readers, and its age."""
    LOG_BLOCKED.clear()
    if blocked is None:
        LOG_BLOCKED.labels("").set(0)
    else:
        LOG_BLOCKED.labels(blocked.last_stable_offset).set(blocked.open_s)


def count_released(added: Iterable[Entry]) -> None:
    """Count committed entries."""
    for entry in added:
        if entry["entry"] in _ENTRIES:
            RELEASES.labels(entry["entry"]).inc()


def observe_release_latency(kind: Kind, seal: Seal | None, now_ms: int) -> None:
    """Observe the time from a seal to the commit of its release."""
    if seal is not None:
        FINALIZE_SECONDS.labels(kind).observe(max(0, now_ms - seal.at_ms) / 1000)


def show(log_state: ReleaseLogState, limit: Limit, now_ms: int) -> None:
    """Set the gauges from the log, which the keeper has just read to its end."""
    _KEEPING.following = True
    KEEPER_PASS_AT.set(now_ms / 1000)
    states = [state for _, state in sorted(log_state.epochs.items())]
    for stage in Stage:
        EPOCHS.labels(stage).set(sum(s.stage is stage for s in states))
    for stage in _WAITING:
        here = [s for s in states if s.stage is stage]
        began = [now_ms - s.parameters.window_start_ms for s in here]
        late = [now_ms - _due_ms(s) for s in here]
        AGE.labels(stage).set(max([0, *began]) / 1000)
        OVERDUE.labels(stage).set(max([0, *late]) / 1000)
    _show_outcomes(states)
    RECORDED_TWICE.set(log_state.recorded_twice)
    PAUSED.set(log_state.paused_at(now_ms) is not None)
    with_list = [s.head_list for s in states if s.head_list is not None]
    HEAD_LIST_CELLS.set(with_list[-1].cells if with_list else 0)
    _show_budget(log_state, limit)


def show_publications(newest: Sequence[EstimatesDocument | None]) -> None:
    """Set the gauges of the newest two publications; NaN where one is missing or unreadable."""
    last, before = (*newest, None, None)[:2]
    REPORTS.set(math.nan if last is None else last.participants.clients)
    AGREEMENT.set(_p_value(last))
    AGREEMENT_BEFORE.set(_p_value(before))


def _p_value(document: EstimatesDocument | None) -> float:
    agreement = None if document is None else document.agreement
    if agreement is None or agreement.p_value is None:
        return math.nan
    return agreement.p_value


def _due_ms(state: EpochState) -> int:
    """Return the time at which an epoch should leave its stage, without the time of the work."""
    plan = state.parameters.plan
    settles_ms = plan.grace_ms + plan.skew_ms
    if state.head_list is not None:
        return state.head_list.reports_until_ms + settles_ms
    return state.parameters.window_end_ms + settles_ms


def _show_outcomes(states: list[EpochState]) -> None:
    published = [(s.epoch, s.estimates.outcome) for s in states if s.estimates is not None]
    for outcome in EpochOutcome:
        OUTCOMES.labels(outcome).set(sum(found is outcome for _, found in published))
    LAST_PUBLISHED.set(published[-1][0] if published else -1)
    # By end time, not by number: an epoch opened ahead may be abandoned before others end.
    last = max(
        (s for s in states if s.stage.over),
        key=lambda s: (s.over_at_ms or 0, s.epoch),
        default=None,
    )
    ended = ""
    if last is not None:
        ended = _ABANDONED if last.estimates is None else last.estimates.outcome
    for name in (*EpochOutcome, _ABANDONED):
        LAST_OUTCOME.labels(name).set(name == ended)


def _show_budget(log_state: ReleaseLogState, limit: Limit) -> None:
    last = log_state.last
    for group in GROUPS:
        most = limit.of(group)
        EPSILON_LIMIT.labels(group).set(most.epsilon)
        DELTA_LIMIT.labels(group).set(most.delta)
        if last is not None:
            charge = last.parameters.charge
            start_s, end_s = limit.period_of(charge.window_start_s)
            spent = log_state.ledger.spent(group, start_s, end_s, delta=most.delta)
            EPOCH_EPSILON.labels(group).set(charge.of(group).epsilon)
            EPSILON.labels(group).set(max(0.0, spent.epsilon))
            delta = log_state.ledger.delta_spent(group, start_s, end_s, epsilon=most.epsilon)
            DELTA.labels(group).set(max(0.0, delta))
