"""Epochs that a restored log lacks: never fewer are charged than the lost log opened."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blendstream.agents.jobs.restored_log import lost_epochs
from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.streams.budget.epoch_plan import EpochParameters, EpochPlan
from blendstream.streams.budget.ledger import GROUPS, Cost, Limit
from blendstream.streams.releases import entries
from blendstream.streams.releases.epoch_state import ReleaseLogState
from tests.agents.jobs.kept_epochs import IN_PERIODS, ONE_BUDGET, START, keep
from tests.agents.jobs.model_log import PLENTY, WINDOW_MS, ModelLog, plan


def restored(log: ModelLog, found: list[EpochParameters]) -> ModelLog:
    """A copy of the log in which the lost epochs are charged and abandoned."""
    copy = ModelLog()
    copy.records, copy.log_state = log.records.copy(), log.reread()
    for parameters in found:
        abandoned = entries.epoch_abandoned(parameters.epoch, "log restored")
        copy.commit(START, entries.epoch_opened(parameters), abandoned)
    return copy


@pytest.mark.parametrize("ahead", [1, 3])
@pytest.mark.parametrize("epochs_a_period", [3, 100])
def test_epochs_that_a_restored_log_lacks_are_those_that_were_opened_since(
    ahead: int, epochs_a_period: int
):
    """Wherever the copy was made, also with pauses in between: charged again, the ledger is what it
    was, so that the limit holds and no number is used twice."""
    most = Cost(4.0 * epochs_a_period, 1e-3)
    limit = Limit(300, optin=most, clients=most)
    log, copies = ModelLog(), []
    for minute in range(14):
        keep(log, START + minute * WINDOW_MS, limit, ahead)
        copies.append(log.reread())
    end_ms = START + 14 * WINDOW_MS - 1
    keep(log, end_ms, limit, ahead)
    for log_state in copies:
        ledger = log_state.ledger
        for parameters in lost_epochs(log_state, plan(), limit, end_ms, epochs_ahead=ahead):
            if (opened := log.log_state.epochs.get(parameters.epoch)) is not None:
                assert parameters == opened.parameters
            ledger = ledger.with_charge(parameters.charge)
        assert ledger == log.log_state.ledger
    assert lost_epochs(ReleaseLogState(), plan(), limit, end_ms) == [], (
        "nothing is known to go on from"
    )


def test_epochs_that_a_restored_log_lacks_use_up_their_places_in_the_period():
    """They may have been drawn with this period's noise: the restored log must not draw as many
    again before it says that the period is full."""
    log, copies = ModelLog(), []
    for minute in range(8):
        keep(log, START + minute * WINDOW_MS, **IN_PERIODS)
        copies.append(log.reread())
    end_ms = START + 8 * WINDOW_MS - 1
    for log_state in copies:
        ledger = log_state.ledger
        for parameters in lost_epochs(log_state, plan(**IN_PERIODS), PLENTY, end_ms):
            assert parameters == log.log_state.epochs[parameters.epoch].parameters
            ledger = ledger.with_charge(parameters.charge)
        assert ledger == log.log_state.ledger


@pytest.mark.parametrize("in_periods", [False, True])
def test_a_window_lengthened_after_the_copy_loses_no_charge(in_periods: bool):
    """Counted by the longer window alone, 9 of 28 epochs were charged, and one period's noise would
    have served 49 epochs."""
    of_30 = {"period_epochs": 30, "known_records": 9, "optin_cohorts": 1, "cohorts": 30}
    changes = of_30 if in_periods else {}
    log = ModelLog()
    keep(log, START, **changes)
    copy = log.reread()
    for minute in range(1, 28):
        keep(log, START + minute * WINDOW_MS, **changes)
    keep(log, START + 28 * WINDOW_MS, window_ms=4 * WINDOW_MS, **changes)
    opened = max(log.log_state.epochs)
    assert opened >= 28

    longer = plan(window_ms=4 * WINDOW_MS, **changes)
    found = lost_epochs(copy, longer, PLENTY, START + 28 * WINDOW_MS)
    assert found[-1].epoch >= opened
    ledger = copy.ledger
    for parameters in found:
        ledger = ledger.with_charge(parameters.charge)
    for group in GROUPS:
        assert (
            ledger.basic_in_life(group).epsilon >= log.log_state.ledger.basic_in_life(group).epsilon
        )


def test_the_window_of_a_published_head_list_counts_where_neither_log_nor_settings_have_it():
    """Shortened after the copy and lengthened again before the loss."""
    log = ModelLog()
    keep(log, START)
    until_ms = START + 10 * WINDOW_MS
    by_known = lost_epochs(log.log_state, plan(), PLENTY, until_ms)
    short = lost_epochs(
        log.log_state, plan(), PLENTY, until_ms, published_windows_ms={WINDOW_MS // 5}
    )
    # 41 begin within the eight minutes after epoch 1, and each length of windows opens one ahead.
    assert (len(by_known), len(short)) == (10, 41 + 2)


def test_epochs_through_the_highest_published_one_are_charged_however_short_the_time():
    """A published number proves that the epoch was opened, whatever the clock and windows say."""
    log = ModelLog()
    keep(log, START)
    found = lost_epochs(log.log_state, plan(), PLENTY, START, published_through=17)
    assert found[-1].epoch == 17
    assert [parameters.epoch for parameters in found] == list(range(2, 18))

    limit = Limit(600, optin=Cost(4.0, 1e-5), clients=Cost(4.0, 1e-5))
    with pytest.raises(ParameterError, match="epochs through 99 were published"):
        lost_epochs(log.log_state, plan(window_ms=300_000_000), limit, START, published_through=99)


def test_charging_what_was_lost_twice_changes_nothing():
    """An operator who is interrupted runs the command again."""
    log = ModelLog()
    keep(log, START, ahead=2)
    longer, until_ms = plan(window_ms=3 * WINDOW_MS), START + 9 * WINDOW_MS + 7
    after = restored(log, lost_epochs(log.log_state, longer, PLENTY, until_ms, epochs_ahead=2))
    assert max(after.log_state.epochs) > max(log.log_state.epochs)
    assert lost_epochs(after.log_state, longer, PLENTY, until_ms, epochs_ahead=2) == []


def test_a_budget_that_may_have_reached_into_the_last_limit_period_is_charged_there():
    """Jobs that were away for a while were later in each budget than the windows since then tell:
    the budget before the present one may have been spent from in this period of the limit too."""
    start = 600_000 * (START // 600_000)
    two_budgets = replace(ONE_BUDGET, optin=Cost(8.0, 2e-5))
    log = ModelLog()
    keep(log, start + 7 * WINDOW_MS, two_budgets, **IN_PERIODS)
    copy = log.reread()  # Epochs 0 and 1; the outage follows.
    for minute in (10, 11):  # Epoch 2 still belongs to the first budget, 3 and 4 to another.
        keep(log, start + minute * WINDOW_MS, two_budgets, **IN_PERIODS)
    until_ms = start + 11 * WINDOW_MS
    bucket = two_budgets.period_of(until_ms // 1000)
    assert log.log_state.ledger.basic("optin", *bucket).epsilon == 8.0

    ledger = copy.ledger
    for parameters in lost_epochs(copy, plan(**IN_PERIODS), two_budgets, until_ms):
        ledger = ledger.with_charge(parameters.charge)
    assert ledger.basic("optin", *bucket).epsilon >= 8.0


@pytest.mark.parametrize(
    "change", [{"privacy": PrivacyParameters(epsilon=2.0)}, {"period_epochs": 2}, {"key_id": "k2"}]
)
def test_no_budget_period_that_began_in_the_lost_log_with_other_settings_continues(
    change: dict[str, object],
):
    """Its remaining epochs would open without a charge: lower limits, the operator's remedy for
    charges that are missing, stop only what is charged."""
    log = ModelLog()
    keep(log, START, **IN_PERIODS)
    today, until_ms = IN_PERIODS | change, START + 4 * WINDOW_MS
    found = lost_epochs(log.log_state, plan(**today), PLENTY, until_ms)
    assert found[-2].period is not None
    assert found[-1].period is None
    after = restored(log, found)
    ledger = after.log_state.ledger
    keep(after, found[-1].window_start_ms, **today)
    first = after.log_state.epochs[found[-1].epoch + 1].parameters
    assert first.period is not None
    assert first.period.first_epoch == first.epoch
    spent = after.log_state.ledger.basic_in_life("optin").epsilon
    assert spent == ledger.basic_in_life("optin").epsilon + first.plan.privacy.epsilon

    unchanged = lost_epochs(log.log_state, plan(**IN_PERIODS), PLENTY, until_ms)
    assert unchanged[-1].period is not None, "nothing is in doubt where no setting changed"


_WINDOWS = st.sampled_from([WINDOW_MS // 2, WINDOW_MS, 3 * WINDOW_MS])


@settings(max_examples=60, deadline=None)
@given(
    before=_WINDOWS,
    after=_WINDOWS,
    change_at=st.integers(0, 12),
    copy_at=st.integers(0, 12),
    away=st.sets(st.integers(0, 12), max_size=6),
    ahead=st.integers(1, 2),
    in_periods=st.booleans(),
)
def test_whatever_happened_no_fewer_epochs_are_charged_than_were_opened(
    before: int, after: int, change_at: int, copy_at: int, away: set[int], ahead: int,
    in_periods: bool,
):  # fmt: skip
    """Jobs away, windows longer or shorter after the copy: the ledger of the limit's last period
    is never below what the lost log had charged to it, and no number that it used is free."""
    changes = IN_PERIODS if in_periods else {}
    limit = Limit(300, optin=Cost(8.0, 2e-5), clients=Cost(40.0, 1e-3))
    log, copy, now_ms = ModelLog(), ReleaseLogState(), START
    for minute in range(13):
        now_ms = START + minute * WINDOW_MS
        window_ms = before if minute < change_at else after
        if minute not in away:
            keep(log, now_ms, limit, ahead, **changes, window_ms=window_ms)
        if minute <= copy_at:
            copy = log.reread()
    settings_now: EpochPlan = plan(**changes, window_ms=after)
    ledger = copy.ledger
    for parameters in lost_epochs(copy, settings_now, limit, now_ms, epochs_ahead=ahead):
        ledger = ledger.with_charge(parameters.charge)
    if copy.last is None:
        return
    assert ledger.last_epoch is not None
    assert ledger.last_epoch >= max(log.log_state.epochs)
    bucket = limit.period_of(now_ms // 1000)
    for group in GROUPS:
        was, now = log.log_state.ledger.basic(group, *bucket), ledger.basic(group, *bucket)
        assert now.epsilon >= was.epsilon - 1e-9
