"""The selector that keeps its counts: private by enumeration of what the code itself shows.

The distribution of one record's output comes from `select`, weighed by the noise that it asks for
(tests/output_distributions.py).
"""

from __future__ import annotations

import itertools
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from blendstream.blender import ParameterError, PrivacyParameters
from blendstream.blender.noise.exact_noise import COIN_BITS, ExactNoise, laplace_scale
from blendstream.blender.sharp.stable_histogram import (
    StableHistogram,
    below_threshold_heads,
    drop_level,
    stable_threshold,
)
from tests.doubles import NoNoise, ScriptedNoise
from tests.output_distributions import GONE, divergence, selector_distribution

SETTINGS = [(0.3, 1e-2), (0.7, 1e-2), (1.0, 1e-4), (4.0, 1e-5), (4.0, 1e-7), (1.0, 0.6)]
#: Sums of a few hundred thousand products of floats.
ROUNDING = 2e-12


def distribution(
    count: int, *, known: bool, parameters: PrivacyParameters, factor: float = 1.0
) -> dict:
    """P(what the world sees of a record that `count` people hold), from the selector's own code."""
    reach = math.ceil(76 / parameters.epsilon) + 12  # 38 scales of the noise it should ask for
    return selector_distribution(
        StableHistogram(), count, known=known, parameters=parameters, reach=reach, factor=factor
    )


def worst_divergence(epsilon: float, delta: float, *, factor: float = 1.0) -> float:
    """One user moves from record a to b, each known or new; or holds nothing on one side."""
    parameters = PrivacyParameters(epsilon=epsilon, delta=delta)
    theta = stable_threshold(epsilon, delta)
    sizes = [0, 1, theta - 1, theta]
    distributions = {
        (n, known): distribution(n, known=known, parameters=parameters, factor=factor)
        for n in {s + d for s in sizes for d in (0, 1)}
        for known in (False, True)
    }
    worst = 0.0
    for known_a, known_b in itertools.product((False, True), repeat=2):
        for a, b in itertools.product(sizes, repeat=2):
            before = [distributions[a + 1, known_a], distributions[b, known_b]]
            after = [distributions[a, known_a], distributions[b + 1, known_b]]
            worst = max(worst, divergence(before, after, epsilon))
            worst = max(worst, divergence(after, before, epsilon))
    for known, a in itertools.product((False, True), sizes):
        one, other = [distributions[a + 1, known]], [distributions[a, known]]
        worst = max(worst, divergence(one, other, epsilon), divergence(other, one, epsilon))
    return worst


@pytest.mark.parametrize(("epsilon", "delta"), SETTINGS)
def test_every_move_of_one_user_keeps_epsilon_and_delta_counts_and_known_records_included(
    epsilon, delta
):
    """Replace-one, enumerated from the code's own output; also below ln 2, where Figure 3 stops."""
    worst = worst_divergence(epsilon, delta)

    assert worst <= delta + ROUNDING
    assert worst > delta / 1000, "the enumeration must reach the cases that cost something"


@pytest.mark.parametrize(("epsilon", "delta"), SETTINGS[:-1])
def test_the_coin_one_below_the_threshold_spends_all_of_delta_and_no_more(
    epsilon, delta, monkeypatch
):
    """Whole numbers left much of it unused. Deliberately broken: heads a hundredth too often."""
    worst = worst_divergence(epsilon, delta)
    assert 0.99 * delta < worst <= delta + ROUNDING

    fair = below_threshold_heads(epsilon, delta)
    monkeypatch.setattr(
        "blendstream.blender.sharp.stable_histogram.below_threshold_heads",
        lambda *_: fair + 2**COIN_BITS // 100,
    )
    assert worst_divergence(epsilon, delta) > delta * 1.001


def test_without_the_coin_nearly_half_of_delta_was_unused(monkeypatch):
    monkeypatch.setattr(
        "blendstream.blender.sharp.stable_histogram.below_threshold_heads", lambda *_: 0
    )
    assert worst_divergence(4.0, 1e-5) == pytest.approx(5.41e-6, rel=0.01)


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 1.0, 4.0, 10.0])
@pytest.mark.parametrize("delta", [0.9, 0.3, 1e-3, 1e-5, 1e-12])
def test_luck_is_the_largest_multiple_that_keeps_pi_within_its_bounds(epsilon, delta):
    """π ≤ δ and 1/(1−π) ≤ e^(ε/2), by 60 digits, and no longer with one more in 2^32."""
    scale = laplace_scale(sensitivity=2, epsilon=epsilon)
    theta, below_threshold_probability = (
        stable_threshold(epsilon, delta),
        below_threshold_heads(epsilon, delta),
    )
    assert 0 <= below_threshold_probability < 2**COIN_BITS
    if theta == 2:
        assert below_threshold_probability == 0
        return

    def holds(heads: int) -> bool:
        r = (-1 / Decimal(scale)).exp()
        at_least = [r**j / (1 + r) for j in (theta - 1, theta - 2)]
        pi = at_least[0] + Decimal(heads) / 2**COIN_BITS * (at_least[1] - at_least[0])
        return pi <= Decimal(delta) and 1 / (1 - pi) <= (Decimal(epsilon) / 2).exp()

    with localcontext() as context:
        context.prec = 60
        assert holds(below_threshold_probability)
        assert not holds(below_threshold_probability + 2)


def test_coins_are_exact_in_their_32_bits():
    """heads of 2^32 values of four bytes, none lost to rounding."""
    values = np.array([0, 1, 569_934_460, 569_934_461, 2**32 - 1], dtype="<u4")
    noise = ExactNoise(lambda size: values.tobytes()[:size])
    assert noise.coins(5, heads=569_934_461).tolist() == [True, True, True, False, False]
    assert not noise.coins(5, heads=0).any()
    assert noise.coins(5, heads=2**COIN_BITS).all()
    assert len(noise.coins(0, heads=5)) == 0


@pytest.mark.parametrize("factor", [0.5, 0.9])
@pytest.mark.parametrize(("epsilon", "delta"), SETTINGS[1:-1])
def test_sensitivity_understated_by_a_tenth_is_caught(epsilon, delta, factor):
    """Deliberately broken: noise for a user who moves 1.8 counts instead of 2, and for 1.

    (At ε = 0.3 with δ = 0.01, and at δ = 0.6, so large a δ forgives a tenth.)
    """
    assert worst_divergence(epsilon, delta, factor=factor) > 2 * delta


def test_a_known_record_that_nobody_holds_must_be_noised_too():
    """Deliberately broken: were known records counted only while somebody holds them, the last
    holder's leaving would show: the record stays with 12 % before and never after.
    """
    held = distribution(1, known=True, parameters=PrivacyParameters())
    never_noised = {GONE: 1.0}

    assert divergence([held], [never_noised], 4.0) > 0.1


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 0.7, 1.0, 2.0, 4.0, 6.5, 10.0])
@pytest.mark.parametrize("delta", [0.9, 0.3, 1e-3, 1e-5, 1e-7, 1e-12])
def test_the_threshold_satisfies_its_inequality_and_is_the_least_that_does(epsilon, delta):
    """π ≤ δ and 1/(1−π) ≤ e^(ε/2), by 60 digits."""
    scale = laplace_scale(sensitivity=2, epsilon=epsilon)
    theta = stable_threshold(epsilon, delta)

    def holds(j: int) -> bool:
        r = (-1 / Decimal(scale)).exp()
        pi = r**j / (1 + r)
        return pi <= Decimal(delta) and 1 / (1 - pi) <= (Decimal(epsilon) / 2).exp()

    with localcontext() as context:
        context.prec = 60
        assert holds(theta - 1)
        assert theta == 2 or not holds(theta - 2)


def test_the_papers_settings_have_a_lower_threshold_than_the_paper():
    """Golden: e^(−2j)/(1+e^(−2)) is 5.4e-6 at j = 6 and 9.9e-8 at j = 8."""
    assert (stable_threshold(4.0, 1e-5), stable_threshold(4.0, 1e-7)) == (7, 9)


def test_known_records_stay_from_the_drop_level_on_and_new_ones_from_the_threshold():
    counts = np.array([7, 6, 2, 1, 0, 0])
    known = np.array([False, False, True, True, True, False])

    selection = StableHistogram().select(counts, known, PrivacyParameters(), NoNoise())

    assert selection.kept.tolist() == [0, 2]
    assert selection.noisy_counts.tolist() == [7, 2]
    assert selection.threshold == 7


def test_a_new_record_of_count_zero_draws_no_noise():
    """It is in the table because T holds it; noise would show that somebody does."""
    noise = ScriptedNoise([50, 50])
    counts, known = np.array([0, 0, 1]), np.array([False, True, False])

    selection = StableHistogram().select(counts, known, PrivacyParameters(), noise)

    assert selection.kept.tolist() == [1, 2]
    assert noise.sizes == [2]


@pytest.mark.parametrize(("epsilon", "level"), [(4.0, 2), (2.0, 4), (1.0, 7)])
def test_a_record_nobody_holds_survives_at_most_one_epoch_in_fifty(epsilon, level):
    scale = laplace_scale(sensitivity=2, epsilon=epsilon)
    assert drop_level(scale) == level
    assert math.exp(-level / scale) / (1 + math.exp(-1 / scale)) <= 1 / 50


def test_more_than_one_record_a_user_is_refused_with_the_way_out():
    with pytest.raises(ParameterError, match=r"records_per_optin_user=1 .*gaussian-histogram"):
        StableHistogram().select(
            np.array([9]), np.array([False]), PrivacyParameters(records_per_optin_user=2), NoNoise()
        )
