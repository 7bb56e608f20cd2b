"""The noise of a period on a grid of parameters, and what a charged period refuses."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from blendstream.blender import ParameterError
from blendstream.blender.over_time import period_budget as module
from blendstream.blender.over_time.period_budget import (
    PeriodBudget,
    PeriodRule,
    accounted_delta,
    calibrate_period,
    select_in_period,
)
from blendstream.blender.sharp.gaussian_histogram import gaussian_delta, gaussian_tail
from tests.doubles import ScriptedNoise


def summed(rule: PeriodRule, threshold: int) -> float:
    """m·T·π + δ_G(ε + m·T·ln(1−π), 2mT), by convolution instead of the accountant."""
    records = rule.records_per_user * rule.epochs
    pi = gaussian_tail(threshold - 1, rule.scale)
    effective = rule.epsilon + records * math.log1p(-pi)
    return records * pi + gaussian_delta(effective, rule.scale, 2 * records)


@pytest.mark.parametrize("epsilon", [0.7, 4.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-7])
@pytest.mark.parametrize(("m", "epochs"), [(1, 1), (1, 2), (2, 2), (1, 10)])
def test_the_sum_holds_by_convolution_and_no_lower_threshold_would(epsilon, delta, m, epochs):
    rule = calibrate_period(epsilon, delta, m, epochs)

    assert summed(rule, rule.threshold) <= rule.delta_spent * (1 + 1e-9) <= delta
    assert rule.delta_spent <= summed(rule, rule.threshold) * 1.06, "the accountant is tight"
    assert summed(rule, rule.threshold - 1) > delta * 0.9


@pytest.mark.parametrize(("delta", "scale", "threshold"), [(1e-5, 8.49, 46), (1e-7, 10.13, 63)])
def test_thirty_epochs_at_epsilon_4_need_this_noise(delta, scale, threshold):
    rule = calibrate_period(4.0, delta, 1, 30)

    assert rule.threshold == threshold
    assert rule.scale == pytest.approx(scale, rel=2e-3)
    assert accounted_delta(rule.scale, rule.threshold, 4.0, 1, 30) <= delta


def test_a_year_of_two_records_a_day_is_calibrated_too():
    """By convolution it takes minutes, in which the service would seem to hang."""
    rule = calibrate_period(4.0, 1e-5, 2, 365)

    assert rule.delta_spent <= 1e-5
    assert 200 < rule.threshold < 300


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 1e-5, 1, 30), "epsilon must be finite and above 0"),
        ((4.0, 0.0, 1, 30), "needs delta of at least 1e-12"),
        ((4.0, 1e-5, 0, 30), "records_per_user must be at least 1"),
        ((4.0, 1e-5, 1, 0), "at least 1 epoch"),
        ((4.0, 1e-5, 100, 365), "at most 3000 records in a period"),
    ],
)
def test_what_the_proof_does_not_cover_is_refused(arguments, message):
    with pytest.raises(ParameterError, match=message):
        calibrate_period(*arguments)


def test_an_accountant_that_disagrees_stops_the_period(monkeypatch):
    monkeypatch.setattr(module, "accounted_delta", lambda *_: 1.1e-5)
    with pytest.raises(ParameterError, match=r"the accountant finds delta=1\.1e-05"):
        calibrate_period.__wrapped__(4.0, 1e-5, 1, 2)


def test_known_records_are_released_at_any_count_and_absent_new_ones_are_not_looked_at():
    rule = calibrate_period(4.0, 1e-5, 1, 2)
    counts = np.array([rule.threshold, rule.threshold - 1, 3, 0, 0])
    known = np.array([False, False, True, True, False])
    noise = ScriptedNoise([0, 0, -9, -5])

    selection = select_in_period(rule, counts, known, noise)

    assert selection.kept.tolist() == [0, 2, 3]
    assert selection.noisy_counts.tolist() == [rule.threshold, -6, -5]
    assert noise.scales == [rule.scale]


def test_counts_and_known_flags_of_different_lengths_are_refused():
    rule = calibrate_period(4.0, 1e-5, 1, 2)
    with pytest.raises(ParameterError, match="of one length"):
        select_in_period(rule, np.zeros(2, np.int64), np.zeros(3, np.bool_), ScriptedNoise([]))


RULE = calibrate_period(4.0, 1e-5, 1, 3)


def test_a_period_opens_its_epochs_and_not_one_more():
    budget = PeriodBudget(RULE, "s1")
    for epoch in (5, 6, 9):
        assert budget.check_charge(epoch, RULE, "s1") is None
        budget = budget.open_epoch(epoch, RULE, "s1")

    assert budget.check_charge(10, RULE, "s1") == (
        "a period of 3 epochs has opened all of them; epoch 10 belongs to the next period"
    )
    with pytest.raises(ParameterError, match="belongs to the next period"):
        budget.open_epoch(10, RULE, "s1")


@pytest.mark.parametrize("epoch", [4, 5])
def test_an_epoch_is_not_opened_twice_nor_out_of_order(epoch):
    budget = PeriodBudget(RULE, "s1", (5,))
    with pytest.raises(ParameterError, match=f"epoch {epoch} must not again"):
        budget.open_epoch(epoch, RULE, "s1")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("scale", 2.6),
        ("threshold", 13),
        ("records_per_user", 2),
        ("epochs", 4),
        ("epsilon", 5.0),
        ("delta", 1e-6),
    ],
)
def test_nothing_that_the_proof_rests_on_changes_within_a_period(field, value):
    budget = PeriodBudget(RULE, "s1", (5,))
    with pytest.raises(ParameterError, match=f"nothing may change within a period, got {field}"):
        budget.open_epoch(6, replace(RULE, **{field: value}), "s1")


def test_shares_drawn_anew_within_a_period_are_refused():
    """A person could fall into S one day and into the click graph's share the next."""
    with pytest.raises(ParameterError, match="must stay the same people"):
        PeriodBudget(RULE, "s1", (5,)).open_epoch(6, RULE, "s2")


@pytest.mark.parametrize("epochs", [(6, 5), (5, 5), (1, 2, 3, 4)])
def test_a_log_of_what_no_period_may_do_is_refused(epochs):
    with pytest.raises(ParameterError, match="at most 3 epochs, each later than the last"):
        PeriodBudget(RULE, "s1", epochs)
