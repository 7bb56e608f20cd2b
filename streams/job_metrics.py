"""The jobs' Prometheus metrics, declared once: states, times and budget, nothing about records.

What is shown here is published anyway: stages, outcomes, the ledger. Exact functions of raw data
(counts, durations of drawing) are not.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from streams.ledger import GROUPS
from streams.releases.book import ReleaseBook, Stage
from streams.releases.entries import Kind, Outcome

__all__ = ["FAILURES", "LEASE_HELD", "STEPS", "show"]

STEPS = Counter("blender_job_steps", "Steps that jobs have taken.", ["kind"])
FAILURES = Counter("blender_job_failures", "Steps that failed, whatever the reason.", ["kind"])
LEASE_HELD = Gauge("blender_job_lease_held", "1 while this process holds the lease.", ["kind"])
EPOCHS = Gauge("blender_epochs", "Recent epochs in each stage.", ["stage"])
OUTCOMES = Gauge("blender_epoch_outcomes", "Recent publications by outcome.", ["outcome"])
LAST_PUBLISHED = Gauge(
    "blender_last_published_epoch", "The highest epoch published; -1 before the first."
)
OVERDUE_S = Gauge(
    "blender_epoch_overdue_seconds",
    "How long ago the oldest unfinished epoch's reports should have been sealed.",
)
PAUSED = Gauge("blender_service_paused", "1 while the period's budget is spent.")
EPSILON = Gauge("blender_epsilon_spent", "ε spent in the current period, worst person.", ["group"])

for _kind in Kind:
    STEPS.labels(_kind)
    FAILURES.labels(_kind)
    LEASE_HELD.labels(_kind).set(0)
for _stage in Stage:
    EPOCHS.labels(_stage).set(0)
for _outcome in Outcome:
    OUTCOMES.labels(_outcome).set(0)
for _group in GROUPS:
    EPSILON.labels(_group).set(0)


def show(book: ReleaseBook, now_ms: int) -> None:
    """Set the gauges from the log."""
    states = list(book.epochs.values())
    for stage in Stage:
        EPOCHS.labels(stage).set(sum(s.stage is stage for s in states))
    published = [s for s in states if s.estimates is not None]
    for outcome in Outcome:
        OUTCOMES.labels(outcome).set(
            sum(s.estimates is not None and s.estimates.outcome is outcome for s in published)
        )
    LAST_PUBLISHED.set(max((s.epoch for s in published), default=-1))
    PAUSED.set(book.paused_at(now_ms) is not None)
    late = [
        now_ms - (s.parameters.window_end_ms + 2 * s.parameters.window_ms)
        for s in book.unfinished()
    ]
    OVERDUE_S.set(max(0, *late, 0) / 1000)
    last = book.last
    if last is not None:
        charge = last.parameters.charge
        for group in GROUPS:
            spent = book.ledger.spent(group, charge.period_start_s, charge.period_end_s, delta=1e-6)
            EPSILON.labels(group).set(spent.epsilon)
