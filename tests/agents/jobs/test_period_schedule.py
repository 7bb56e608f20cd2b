"""The start and end of budget periods, and the effect of changed settings on an open one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blendstream.blender.values.parameters import PrivacyParameters
from tests.agents.jobs.kept_epochs import IN_PERIODS, ONE_BUDGET, START, T, keep
from tests.agents.jobs.model_log import WINDOW_MS, ModelLog, plan


def periods_of(log: ModelLog) -> list[tuple[int, int] | None]:
    """Of each epoch: which period it is in, and its place there."""
    found = []
    for epoch, state in sorted(log.reread().epochs.items()):
        period = state.parameters.period
        found.append(None if period is None else (period.first_epoch, period.index(epoch)))
    return found


def test_epochs_fill_one_period_after_another():
    log = ModelLog()
    for minute in range(6):
        keep(log, START + minute * WINDOW_MS, **IN_PERIODS)

    assert periods_of(log) == [(0, 0), (0, 1), (0, 2), (3, 0), (3, 1), (3, 2), (6, 0)]
    assert log.log_state.ledger.basic_in_life("optin").epsilon == 3 * 4.0


def test_the_epoch_after_the_last_waits_for_a_budget_of_its_own():
    """T + 1 must not open while the limit allows for one budget: it would be drawn for free."""
    start = 600_000 * (START // 600_000)
    log = ModelLog()
    for minute in range(10):
        keep(log, start + minute * WINDOW_MS, ONE_BUDGET, **IN_PERIODS)
        if minute < 8:
            assert max(log.log_state.epochs) <= T - 1
            assert log.log_state.paused is None or log.log_state.paused.epoch == T
    assert log.log_state.paused is not None
    assert log.log_state.paused.resumes_at_ms == start + 10 * WINDOW_MS
    assert "opt-in users" in log.log_state.paused.reason

    keep(log, start + 10 * WINDOW_MS, ONE_BUDGET, **IN_PERIODS)
    assert periods_of(log)[T:] == [(3, 0), (3, 1)]


@pytest.mark.parametrize(
    "change",
    [
        {"privacy": PrivacyParameters(epsilon=2.0)},
        {"privacy": PrivacyParameters(delta=1e-6)},
        {"privacy": PrivacyParameters(records_per_optin_user=2)},
        {"privacy": PrivacyParameters(selection_share=0.5)},
        {"period_epochs": 2},
        {"period_epochs": 0, "known_records": 0, "optin_cohorts": 0, "cohorts": 1},
        {"key_id": "k2"},
    ],
)
def test_changed_settings_wait_for_the_end_of_the_period(change: dict[str, object]):
    log = ModelLog()
    keep(log, START, **IN_PERIODS)
    begun = log.log_state.epochs[0].parameters
    for minute in range(1, 5):
        keep(log, START + minute * WINDOW_MS, **IN_PERIODS | change)

    read = log.reread()
    for epoch in range(T):
        same = read.epochs[epoch].parameters
        assert same.period == begun.period
        assert same.plan.privacy == begun.plan.privacy
    after = read.epochs[T].parameters
    wanted = plan(**IN_PERIODS | change)
    assert (after.plan.privacy, after.plan.period_epochs) == (wanted.privacy, wanted.period_epochs)
    if after.period is not None:
        assert after.period.first_epoch == T
        assert after.period.share_key_id == wanted.key_id
    if "key_id" in change:
        assert read.epochs[2].parameters.plan.key_id == "k2", "contributors' keys change at once"


def test_what_belongs_to_no_budget_changes_with_the_next_epoch():
    log = ModelLog()
    keep(log, START, **IN_PERIODS)
    keep(log, START + WINDOW_MS, **IN_PERIODS, min_optin_users=77)

    last = log.log_state.epochs[2].parameters
    assert last.plan.min_optin_users == 77
    assert last.period == log.log_state.epochs[0].parameters.period


def test_a_budget_for_each_epoch_and_one_for_a_period_follow_one_another():
    log = ModelLog()
    keep(log, START)
    for minute in range(1, 4):
        keep(log, START + minute * WINDOW_MS, **IN_PERIODS)
    for minute in range(4, 7):
        keep(log, START + minute * WINDOW_MS)

    assert periods_of(log) == [None, None, (2, 0), (2, 1), (2, 2), None, None, None]
    assert log.log_state.ledger.basic_in_life("optin").epsilon == (2 + 1 + 3) * 4.0


def test_clients_take_turns_while_opt_in_users_take_part_in_every_epoch():
    log = ModelLog()
    for minute in range(T - 1):
        keep(log, START + minute * WINDOW_MS, **IN_PERIODS)

    charges = [state.parameters.charge for state in log.log_state.epochs.values()]
    assert {charge.cohorts_of("optin") for charge in charges} == {1}
    assert {charge.cohorts_of("clients") for charge in charges} == {T}
    assert log.log_state.ledger.basic_in_life("clients").epsilon == 4.0


def test_each_group_may_have_a_number_of_cohorts_of_its_own():
    log = ModelLog()
    for minute in range(5):
        keep(log, START + minute * WINDOW_MS, cohorts=6, optin_cohorts=2, cohort_id="k1")

    assert log.reread().ledger.basic_in_life("optin").epsilon == 3 * 4.0
    assert log.reread().ledger.basic_in_life("clients").epsilon == 4.0


def test_a_plan_of_periods_needs_noise_that_is_calibrated_for_them():
    with pytest.raises(ValueError, match="profile sharp"):
        replace(plan(**IN_PERIODS), profile="paper")
    with pytest.raises(ValueError, match="every epoch of a budget period"):
        replace(plan(**IN_PERIODS), optin_cohorts=3)
