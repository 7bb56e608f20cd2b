"""Many records a user under Gaussian noise: private by enumeration, its rule on a grid.

The distribution of one record's output comes from `select`, weighed by the noise that it asks for
(tests/output_distributions.py).
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from blendstream.blender import ParameterError, PrivacyParameters
from blendstream.blender.sharp import gaussian_histogram as module
from blendstream.blender.sharp.gaussian_histogram import (
    GaussianHistogram,
    calibrate,
    gaussian_delta,
    gaussian_tail,
)
from tests.doubles import NoNoise, ScriptedNoise
from tests.output_distributions import divergence, selector_distribution

#: What noise beyond 7σ, left out below, could add, and rounding.
SLACK = 5e-11


def worst_divergence(epsilon: float, delta: float, m: int, *, factor: float = 1.0) -> float:
    """One user replaces m distinct records by m others, each new and theirs alone (before: 1 → 0,
    after: 0 → 1), beside the threshold, known and held by nobody else, or always shown; or has no
    record on one side, and says so.
    """
    parameters = PrivacyParameters(epsilon=epsilon, delta=delta, records_per_optin_user=m)
    rule = calibrate(epsilon, delta, m)
    kinds = [(0, False), (rule.threshold, False), (0, True), (4 * rule.threshold, False)]
    without, with_one = (
        [
            selector_distribution(
                GaussianHistogram(),
                n + extra,
                known=known,
                parameters=parameters,
                reach=math.ceil(7 * rule.scale),
                factor=factor,
            )
            for n, known in kinds
        ]
        for extra in (0, 1)
    )
    worst = 0.0
    choices = [(), *itertools.combinations_with_replacement(range(len(kinds)), m)]
    for leaving, entering in itertools.product(choices, repeat=2):
        before = [with_one[k] for k in leaving] + [without[k] for k in entering]
        after = [without[k] for k in leaving] + [with_one[k] for k in entering]
        worst = max(worst, divergence(before, after, epsilon))
    return worst


@pytest.mark.long
@pytest.mark.parametrize(
    ("epsilon", "delta", "m"), [(1.0, 1e-2, 1), (4.0, 1e-5, 1), (4.0, 1e-5, 2), (2.5, 1e-3, 2)]
)
def test_every_replacement_of_one_users_records_keeps_epsilon_and_delta(epsilon, delta, m):
    """Replace-one, all m records at once, noisy counts and known records included."""
    worst = worst_divergence(epsilon, delta, m)

    assert delta / 2 < worst <= delta + SLACK


@pytest.mark.parametrize("factor", [0.5, 0.9])
@pytest.mark.parametrize(
    ("epsilon", "delta", "m"), [(4.0, 1e-5, 1), (4.0, 1e-5, 2), (1.0, 1e-2, 1)]
)
def test_sensitivity_understated_by_a_tenth_is_caught(epsilon, delta, m, factor):
    """Deliberately broken: σ for an L2 distance of 0.9·√(2m), and for half of it."""
    assert worst_divergence(epsilon, delta, m, factor=factor) > 1.5 * delta


@pytest.mark.parametrize("epsilon", [0.7, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-7])
@pytest.mark.parametrize("m", [1, 2, 5])
def test_the_rule_holds_and_no_lower_threshold_would(epsilon, delta, m):
    """max over j of jπ + δ_G(ε + m·ln(1−π), 2m−j) ≤ δ, summed exactly, beside the accountant's."""
    rule = calibrate(epsilon, delta, m)

    def spent(threshold: int) -> float:
        pi = gaussian_tail(threshold - 1, rule.scale)
        effective = epsilon + m * math.log1p(-pi)
        return max(j * pi + gaussian_delta(effective, rule.scale, 2 * m - j) for j in range(m + 1))

    assert spent(rule.threshold) <= rule.delta_spent * (1 + 1e-9) <= delta
    assert rule.delta_spent <= spent(rule.threshold) * 1.06, "the accountant is tight"
    assert spent(rule.threshold - 1) > delta * 0.9


@pytest.mark.long
@pytest.mark.parametrize(("m", "threshold"), [(10, 25), (30, 44)])
def test_ten_and_thirty_records_a_user_need_these_counts(m, threshold):
    """At ε = 4, δ = 1e-5; Laplace noise for ten records would need 72."""
    assert calibrate(4.0, 1e-5, m).threshold == threshold


def test_the_divergence_of_two_counts_agrees_with_enumerating_both():
    """δ_G uses that the loss depends on the sum alone; here it is not used."""
    scale, epsilon = 1.7, 1.2
    x = np.arange(-25, 26)
    one = np.exp(-(x**2) / (2 * scale**2))
    one /= one.sum()
    shifted = np.exp(-((x - 1) ** 2) / (2 * scale**2))
    shifted /= np.exp(-(x**2) / (2 * scale**2)).sum()
    joint, moved = np.multiply.outer(one, one), np.multiply.outer(shifted, shifted)

    enumerated = np.maximum(joint - math.exp(epsilon) * moved, 0).sum()

    assert gaussian_delta(epsilon, scale, 2) == pytest.approx(enumerated, rel=1e-9)


def test_the_tail_is_the_sum_of_what_lies_beyond():
    x = np.arange(-60, 61)
    mass = np.exp(-(x**2) / (2 * 3.0**2))
    mass /= mass.sum()
    for j in (-4, 0, 1, 7, 20):
        assert gaussian_tail(j, 3.0) == pytest.approx(mass[x >= j].sum(), rel=1e-12)


def test_without_distinct_records_the_guarantee_would_be_gone():
    """One count moved by 2m = 20 (a user repeats one record instead of another) under the noise
    for 20 counts moved by one: δ at ε = 4 is a thousand times what was promised.
    """
    scale = calibrate(4.0, 1e-5, 10).scale
    x = np.arange(-200, 201)
    log_one = -(x**2) / (2 * scale**2)
    log_moved = -((x - 20) ** 2) / (2 * scale**2)
    normal = np.exp(log_one).sum()

    broken = np.maximum(np.exp(log_one) - math.exp(4.0) * np.exp(log_moved), 0).sum() / normal

    assert broken > 1000 * 1e-5


def test_known_records_stay_from_the_drop_level_on_and_absent_new_ones_are_not_looked_at():
    rule = calibrate(4.0, 1e-5, 3)
    parameters = PrivacyParameters(records_per_optin_user=3)
    counts = np.array([rule.threshold, rule.threshold - 1, rule.drop, rule.drop - 1, 0])
    known = np.array([False, False, True, True, False])
    noise = ScriptedNoise(np.zeros(4, dtype=np.int64))

    selection = GaussianHistogram().select(counts, known, parameters, noise)

    assert selection.kept.tolist() == [0, 2]
    assert noise.scales == [rule.scale]
    assert gaussian_tail(rule.drop, rule.scale) <= 1 / 50


def test_a_delta_too_small_to_account_for_is_refused():
    with pytest.raises(ParameterError, match="needs delta of at least 1e-12"):
        GaussianHistogram().select(
            np.array([9]), np.array([False]), PrivacyParameters(delta=1e-13), NoNoise()
        )


def test_an_accountant_that_disagrees_stops_the_release(monkeypatch):
    """The exact sums only say where to look; the accountant has the last word."""
    monkeypatch.setattr(module, "_accounted_delta", lambda *_: 1.1e-5)
    with pytest.raises(ParameterError, match=r"the accountant finds delta=1\.1e-05"):
        calibrate.__wrapped__(4.0, 1e-5, 2)
