"""A period of epochs under one budget is private: by enumeration, against the best adversary.

Every distribution comes from `select_in_period`, weighed by the noise that it asks for
(tests/output_distributions.py); the adversary chooses after each release what is known next
(tests/period_adversary.py).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable
from functools import lru_cache

import numpy as np
import pytest

from blendstream.blender.noise.exact_noise import Noise
from blendstream.blender.over_time.period_budget import (
    PeriodRule,
    calibrate_period,
    select_in_period,
)
from blendstream.blender.sharp.gaussian_histogram import calibrate
from tests.output_distributions import GONE, Distribution, distribution
from tests.period_adversary import Choice, worst_delta

#: What noise beyond 7σ, left out below, could add, and rounding.
SLACK = 5e-11


@lru_cache(maxsize=128)
def select_shown(rule: PeriodRule, count: int, *, known: bool, factor: float = 1.0) -> Distribution:
    """P(what the world sees of a record that `count` people hold in one epoch)."""
    if count == 0 and not known:
        return {GONE: 1.0}

    def show(copies: int, noise: Noise) -> list[Hashable]:
        selection = select_in_period(rule, np.full(copies, count), np.full(copies, known), noise)
        assert selection.noisy_counts is not None
        numbers = dict(zip(selection.kept.tolist(), selection.noisy_counts.tolist(), strict=True))
        return [numbers.get(copy, GONE) for copy in range(copies)]

    return distribution(show, reach=math.ceil(7 * rule.scale), factor=factor)


def choices(rule: PeriodRule, factor: float = 1.0) -> list[Choice]:
    """All that may happen to one person's m records and the m others that replace them.

    Each is new and theirs alone, new beside the threshold, or known and held by nobody else. Known
    with more holders is the same pair of distributions, moved. A person without a record on one
    side says so there.
    """
    kinds = [(0, False), (rule.threshold, False), (0, True)]
    with_one = [select_shown(rule, n + 1, known=known, factor=factor) for n, known in kinds]
    without = [select_shown(rule, n, known=known, factor=factor) for n, known in kinds]
    m = rule.records_per_user
    sets = [(), *itertools.combinations_with_replacement(range(len(kinds)), m)]
    return [
        (
            [with_one[k] for k in leaving] + [without[k] for k in entering],
            [without[k] for k in leaving] + [with_one[k] for k in entering],
        )
        for leaving, entering in itertools.product(sets, repeat=2)
    ]


@pytest.mark.parametrize(
    ("epsilon", "delta", "m", "epochs"),
    [
        (4.0, 1e-5, 1, 1),
        (4.0, 1e-5, 1, 2),
        (4.0, 1e-5, 1, 3),
        (1.0, 1e-2, 1, 2),
        pytest.param(4.0, 1e-5, 2, 2, marks=pytest.mark.long),
    ],
)
def test_no_choice_of_known_records_breaks_a_period(epsilon, delta, m, epochs):
    """All records of a person replaced in every epoch, known sets chosen after each release.

    Leaving and entering records take every kind, so both directions are among the choices.
    """
    rule = calibrate_period(epsilon, delta, m, epochs)

    worst = worst_delta(epsilon, [choices(rule)] * epochs)

    assert 0.4 * delta < worst <= delta + SLACK
    assert worst <= rule.delta_spent + SLACK


@pytest.mark.parametrize(
    ("m", "epochs"), [(1, 2), (1, 3), pytest.param(2, 2, marks=pytest.mark.long)]
)
def test_noise_a_tenth_too_small_is_caught(m, epochs):
    """Deliberately broken: σ of 0.9 of what the rule asks for."""
    rule = calibrate_period(4.0, 1e-5, m, epochs)

    assert worst_delta(4.0, [choices(rule, factor=0.9)] * epochs) > 1.5e-5


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_period_one_epoch_too_long_is_caught(epochs):
    """Deliberately broken: one more epoch under noise for the period as it was."""
    rule = calibrate_period(4.0, 1e-5, 1, epochs)

    assert worst_delta(4.0, [choices(rule)] * (epochs + 1)) > 2e-4


def forget_and_return(rule: PeriodRule, keep_from: int) -> float:
    """True δ at ε = 4 of one pair of histories and one public rule, written out.

    Under D a person holds a in both epochs, under D′ b; nobody else holds either. Both are known in
    epoch 1. b stays known; a is kept if its noisy count is at least `keep_from`, else forgotten, so
    that in epoch 2 it is new and the person's alone.
    """
    one, none = (select_shown(rule, n, known=True) for n in (1, 0))
    alone, absent = select_shown(rule, 1, known=False), select_shown(rule, 0, known=False)
    true_delta = 0.0
    for a, b in itertools.product(one, none):
        p, q = one[a] * none[b], none.get(a, 0.0) * one.get(b, 0.0)
        kept = isinstance(a, int) and a >= keep_from
        second = ([one, none], [none, one]) if kept else ([alone, none], [absent, one])
        loss = math.log(p) - math.log(q) if q > 0 else math.inf
        true_delta += p * worst_delta(4.0 - loss, [[second]]) if loss < math.inf else p
    return true_delta


def test_a_record_that_is_forgotten_and_returns_breaks_the_rule_of_one_epoch():
    """Story: the one-epoch rule for 2m records, max over j, was taken for a period of two epochs.

    A person loses by the Gaussian in epoch 1 and, where that gave little away, by the threshold in
    epoch 2: neither j = 0 nor j = 1 covers both. The sum does.
    """
    by_max = calibrate(4.0, 1e-5, 2)
    wrong = PeriodRule(4.0, 1e-5, 1, 2, by_max.scale, by_max.threshold, by_max.delta_spent)
    right = calibrate_period(4.0, 1e-5, 1, 2)
    levels = (2, 3, 4)

    assert max(forget_and_return(wrong, level) for level in levels) > 1.3e-5
    assert max(forget_and_return(right, level) for level in levels) <= 1e-5 + SLACK


def test_a_known_set_chosen_from_raw_counts_is_caught():
    """Deliberately broken: a known record is noised only while somebody holds it."""
    rule = calibrate_period(4.0, 1e-5, 1, 2)
    held, gone = select_shown(rule, 1, known=True), {GONE: 1.0}

    assert worst_delta(4.0, [[([held], [gone])], choices(rule)]) > 0.9


def test_a_person_who_changes_share_within_a_period_is_caught():
    """Deliberately broken: in S in epoch 1, and in epoch 2 in a share that spends its whole (ε,0)
    on one release at the period's end, as the click graph may. Each share keeps its budget.
    """
    rule = calibrate_period(4.0, 1e-5, 1, 2)
    x = np.arange(-30, 31)
    r = math.exp(-4.0)
    laplace: Distribution = dict(
        zip(x.tolist(), ((1 - r) / (1 + r) * r ** np.abs(x)).tolist(), strict=True)
    )
    moved: Distribution = {value + 1: mass for value, mass in laplace.items()}
    graph: list[Choice] = [([laplace], [moved]), ([moved], [laplace])]

    assert worst_delta(4.0, [graph]) < 1e-12, "the share alone keeps epsilon"
    assert worst_delta(4.0, [choices(rule), graph]) > 1e-2
