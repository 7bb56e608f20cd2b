"""The jobs' metrics of epochs and the budget, from a log in memory."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from prometheus_client import generate_latest

from blendstream.agents.jobs import metrics
from blendstream.agents.jobs.epoch_schedule import Open, next_keeper_move
from blendstream.streams.budget.ledger import Cost, Ledger, Limit
from blendstream.streams.releases import entries
from blendstream.streams.releases.entries import IncompleteReason, Kind
from blendstream.streams.wire.estimates_document import PublishedAgreement
from tests.agents.jobs.model_log import PLENTY, WINDOW_MS, ModelLog, plan
from tests.browser.publications import publications

START = 1_000 * WINDOW_MS
END = START + WINDOW_MS
SETTLED = END + 6_000  # grace and skew


def value(name: str, **labels: str) -> float | None:
    return metrics._LOG_REGISTRY.get_sample_value(name, labels)


@pytest.fixture
def log() -> ModelLog:
    """Epoch 0, whose window is [START, END)."""
    made = ModelLog()
    move = next_keeper_move(made.log_state, plan(), PLENTY, START, epochs_ahead=1)
    assert isinstance(move, Open)
    made.commit(START, entries.epoch_opened(move.parameters))
    return made


def overdue(log: ModelLog, now_ms: int) -> dict[str, float | None]:
    metrics.show(log.log_state, PLENTY, now_ms)
    stages = ("collecting", "sealed", "reporting", "reports_sealed")
    return {s: value("blender_epoch_overdue_seconds", stage=s) for s in stages}


def test_an_epoch_is_overdue_in_the_stage_it_should_have_left(log):
    """The stage shows which process does not do its work."""
    none = dict.fromkeys(("collecting", "sealed", "reporting", "reports_sealed"), 0.0)
    assert overdue(log, SETTLED) == none
    assert overdue(log, SETTLED + 3_000) == none | {"collecting": 3.0}
    assert value("blender_epoch_age_seconds", stage="collecting") == 69.0

    log.commit(SETTLED + 4_000, entries.records_sealed(0, [1, 1]))
    assert overdue(log, SETTLED + 9_000) == none | {"sealed": 9.0}

    log.head_list(0, SETTLED + 9_000, END + WINDOW_MS)
    assert overdue(log, SETTLED + WINDOW_MS) == none
    assert overdue(log, SETTLED + WINDOW_MS + 500) == none | {"reporting": 0.5}

    log.commit(SETTLED + WINDOW_MS + 600, entries.reports_sealed(0, [1, 1]))
    assert overdue(log, SETTLED + WINDOW_MS + 2_000) == none | {"reports_sealed": 2.0}

    log.estimates(0, SETTLED + WINDOW_MS + 3_000)
    assert overdue(log, SETTLED + 99 * WINDOW_MS) == none


def published(log: ModelLog) -> None:
    log.commit(SETTLED, entries.records_sealed(0, [1, 1]))
    log.head_list(0, SETTLED, END + WINDOW_MS)
    log.estimates(0, SETTLED + WINDOW_MS, [IncompleteReason.NOT_ALL_COUNTED])


def test_a_second_record_of_a_release_is_told(log):
    """Readers pass over it, so nobody else would notice that noise was drawn twice."""
    published(log)
    metrics.show(log.log_state, PLENTY, SETTLED)
    assert value("blender_releases_recorded_twice") == 0

    log.head_list(0, SETTLED, END + WINDOW_MS)
    log.estimates(0, SETTLED + WINDOW_MS)
    metrics.show(log.log_state, PLENTY, SETTLED)

    assert value("blender_releases_recorded_twice") == 2
    assert log.reread().recorded_twice == 2


def test_how_the_newest_epoch_ended(log):
    published(log)
    metrics.show(log.log_state, PLENTY, SETTLED)

    outcomes = ("complete", "incomplete", "empty", "abandoned")
    found = {o: value("blender_last_epoch_outcome", outcome=o) for o in outcomes}
    assert found == {"complete": 0, "incomplete": 1, "empty": 0, "abandoned": 0}
    assert value("blender_last_published_epoch") == 0
    assert value("blender_head_list_cells") == 3


def test_an_epoch_given_up_is_told_as_such(log):
    log.commit(SETTLED, entries.epoch_abandoned(0, "why"))
    metrics.show(log.log_state, PLENTY, SETTLED)

    assert value("blender_last_epoch_outcome", outcome="abandoned") == 1
    assert value("blender_last_published_epoch") == -1


def test_the_budget_is_told_against_the_limit_in_force(log):
    """At the limit's δ: what decides whether the service pauses."""
    limit = Limit(86_400, optin=Cost(40.0, 1e-3), clients=Cost(20.0, 1e-3))
    charge = log.log_state.epochs[0].parameters.charge
    metrics.show(log.log_state, limit, SETTLED)

    assert value("blender_epsilon_limit", group="optin") == 40.0
    assert value("blender_epsilon_limit", group="clients") == 20.0
    assert value("blender_epoch_epsilon", group="clients") == charge.clients.epsilon
    spent = value("blender_epsilon_spent", group="clients")
    assert spent is not None
    assert 0 < spent <= charge.clients.epsilon
    assert not math.isclose(spent, 0)


def test_a_budget_that_ends_by_its_delta_is_told_before_it_ends(log):
    """Many small epochs spend δ evenly and little ε: by ε alone nobody would see the pause come."""
    limit = Limit(31_536_000, optin=Cost(120.0, 1e-3), clients=Cost(120.0, 0.0))
    one = {"optin": Cost(0.5, 1e-5), "clients": Cost(0.5, 0.0)}
    ledger = Ledger()
    start_s = log.log_state.epochs[0].parameters.charge.window_start_s
    for epoch in range(100):
        ledger = ledger.with_charge(ledger.price(epoch, start_s, 1, limit, **one))
    assert ledger.check_charge(ledger.price(100, start_s, 1, limit, **one), limit) is not None
    log.log_state.ledger = ledger
    metrics.show(log.log_state, limit, SETTLED)

    assert value("blender_epsilon_spent", group="optin") < 0.3 * 120.0
    assert value("blender_delta_limit", group="optin") == 1e-3
    assert value("blender_delta_spent", group="optin") == pytest.approx(1e-3, rel=1e-3)
    assert value("blender_delta_spent", group="clients") == 0.0
    assert value("blender_delta_limit", group="clients") == 0.0


def test_the_epoch_that_ended_last_is_told_whatever_its_number(log):
    """One opened ahead was given up early: it must not hide how those before it end."""
    move = next_keeper_move(log.log_state, plan(), PLENTY, END, epochs_ahead=1)
    assert isinstance(move, Open)
    log.commit(END, entries.epoch_opened(move.parameters))
    log.commit(END, entries.epoch_abandoned(1, "why"))
    metrics.show(log.log_state, PLENTY, END)
    assert value("blender_last_epoch_outcome", outcome="abandoned") == 1

    published(log)
    metrics.show(log.log_state, PLENTY, SETTLED + 2 * WINDOW_MS)

    assert value("blender_last_epoch_outcome", outcome="abandoned") == 0
    assert value("blender_last_epoch_outcome", outcome="incomplete") == 1


def test_only_the_keeper_tells_what_the_log_says(log):
    """A process that lost the lease would export its last values forever."""
    told = b"blender_epochs{"
    metrics.set_lease_gauge(Kind.KEEPER, held=False)
    metrics.set_lease_gauge(Kind.KEEPER, held=True)
    assert told not in generate_latest(metrics.JOBS), "it has not read the log yet"

    metrics.show(log.log_state, PLENTY, SETTLED)
    assert told in generate_latest(metrics.JOBS)
    metrics.set_lease_gauge(Kind.ESTIMATES, held=False)
    assert told in generate_latest(metrics.JOBS)
    metrics.set_lease_gauge(Kind.KEEPER, held=False)
    assert told not in generate_latest(metrics.JOBS)
    assert b"blender_job_lease_held{" in generate_latest(metrics.JOBS)


def test_when_the_keeper_last_went_through_is_told(log):
    """One that hangs holds its lease, and every other gauge stays as it was."""
    metrics.show(log.log_state, PLENTY, SETTLED)

    assert value("blender_keeper_last_pass_timestamp_seconds") == SETTLED / 1000


def test_of_publications_the_newest_two_are_told_and_an_unreadable_one_is_nan():
    """Two that disagree in a row are no chance; a number of neither must not be shown."""
    newest, before = (
        replace(document, agreement=PublishedAgreement(9.0, p, agree=False, prefer="client"))
        for document, p in zip(publications()[:2], (0.004, 0.2), strict=True)
    )
    metrics.show_publications([newest, before])
    assert value("blender_head_list_reports") == newest.participants.clients
    assert value("blender_agreement_p_value") == 0.004
    assert value("blender_agreement_p_value_before") == 0.2

    metrics.show_publications([None, newest])
    assert math.isnan(value("blender_head_list_reports"))
    assert math.isnan(value("blender_agreement_p_value"))
    assert value("blender_agreement_p_value_before") == 0.004

    metrics.show_publications([replace(before, agreement=None)])
    assert value("blender_head_list_reports") == before.participants.clients
    assert math.isnan(value("blender_agreement_p_value"))
    assert math.isnan(value("blender_agreement_p_value_before"))
