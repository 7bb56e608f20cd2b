"""CreateHeadList (Figure 3): thresholds by the exact tail, and who may appear at all."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from blendstream.blender import (
    OptinCounts,
    ParameterError,
    PrivacyParameters,
    Record,
    create_head_list,
)
from blendstream.blender.noise.exact_noise import (
    GRID,
    laplace_scale,
    laplace_tail,
    rare_noise,
    tail_bound,
)
from blendstream.blender.paper import head_list
from blendstream.blender.paper.head_list import ThresholdSelector, threshold_for
from tests.doubles import NoNoise, ScriptedNoise
from tests.output_distributions import divergence, selector_distribution


def optin_counts(selection, estimation=None):
    records = [Record("q", f"u{i}") for i in range(len(selection))]
    estimation = [0] * len(selection) if estimation is None else estimation
    return OptinCounts(
        records, np.array(selection), np.array(estimation), sum(selection), sum(estimation)
    )


@pytest.mark.parametrize(
    ("delta", "half_delta_theta", "delta_theta"), [(1e-5, 8, 7), (1e-7, 10, 9)]
)
def test_the_papers_two_settings_have_these_thresholds(delta, half_delta_theta, delta_theta):
    """Golden, by hand: e^{−2j}/(1+e^{−2}) ≤ β at ε = 4, where b = 1/2.

    j = 6 gives 5.41e-6, j = 7 7.32e-7; j = 8 9.9e-8, j = 9 1.34e-8: one more for a count of 1.
    """
    exact = Fraction(delta)
    assert threshold_for(scale=0.5, pass_probability=exact / 2, grid=1) == half_delta_theta
    assert threshold_for(scale=0.5, pass_probability=exact, grid=1) == delta_theta


@pytest.mark.parametrize(("delta", "units", "tau"), [(1e-5, 6920, 6.7565), (1e-7, 9277, 9.0590)])
def test_on_the_fine_grid_the_threshold_is_the_printed_one(delta, units, tau):
    """τ = b·(ln(e^{ε/2}) − ln δ) at ε = 4, b = 1/2, plus less than two units."""
    printed = 0.5 * (math.log(math.exp(4.0 / 2)) - math.log(delta))
    found = threshold_for(scale=0.5, pass_probability=Fraction(delta) / 2, grid=GRID)

    assert printed == pytest.approx(tau, abs=1e-4)
    assert found == units
    assert 0 <= found / GRID - printed < 2 / GRID
    # Of δ/2 less than 1 % is left unused, where a grid of whole people leaves 85 to 95 %.
    spent = tail_bound(found - GRID, scale=0.5 * GRID)
    assert 0.99 * delta / 2 < spent <= Fraction(delta) / 2


def exact_tail(j: int, scale: float) -> Decimal:
    one = Decimal(1)
    return (-Decimal(j) / Decimal(scale)).exp() / (one + (-one / Decimal(scale)).exp())


@pytest.mark.parametrize("grid", [1, GRID])
@pytest.mark.parametrize("epsilon", [0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 6.5, 10.0])
@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-5, 1e-7, 1e-9, 1e-12, 1e-30, 1e-300])
def test_a_record_of_one_user_passes_with_at_most_beta_and_no_threshold_is_too_high(
    epsilon, delta, grid
):
    """By 400 digits, not floats: one unit less would let too many pass, θ does not."""
    scale = laplace_scale(sensitivity=2, epsilon=epsilon)
    beta = Fraction(delta) / 2
    theta = threshold_for(scale=scale, pass_probability=beta, grid=grid)
    with localcontext() as context:
        context.prec = 400
        bound = Decimal(beta.numerator) / Decimal(beta.denominator)
        assert exact_tail(theta - grid, scale * grid) <= bound
        if theta > grid + 1:
            assert exact_tail(theta - grid - 1, scale * grid) > bound


@pytest.mark.parametrize("j", [1, 5, 12, 30])
@pytest.mark.parametrize("scale", [0.5, 2 / 3, 2.0])
def test_a_bound_no_float_can_tell_from_the_tail_still_decides_rightly(j, scale):
    """The threshold must not hang on a float's last bit: β lies 1e-30 beside P(X ≥ j).

    As floats both β are equal to the tail, so a float comparison decides one of them wrongly, and
    a θ one too small breaks δ.
    """
    bound = tail_bound(j, scale=scale)
    hair = bound / 10**30
    assert float(bound + hair) == float(bound - hair)

    assert rare_noise(scale=scale, at_most=bound + hair) == j
    assert rare_noise(scale=scale, at_most=bound - hair) == j + 1


def test_the_papers_own_threshold_would_let_too_many_single_records_pass():
    """Why θ is not τ: with integer noise "N + X > τ" passes 5.41e-6 > δ/2 at ε = 4, δ = 1e-5."""
    tau = 0.5 * (math.log(math.exp(2)) - math.log(1e-5))
    passes = laplace_tail(math.floor(tau) + 1 - 1, scale=0.5)

    assert tau == pytest.approx(6.756, abs=1e-3)
    assert passes == pytest.approx(5.41e-6, rel=1e-2)
    assert passes > 1e-5 / 2


def test_the_scale_is_rounded_towards_privacy():
    for epsilon in (0.7, 1.0, 3.0, 3.3, 4.0, 7.7):
        scale = laplace_scale(sensitivity=2, epsilon=epsilon)
        assert 2 / Fraction(scale) <= Fraction(epsilon)
        assert 2 / Fraction(math.nextafter(scale, 0)) > Fraction(epsilon)


def test_what_reaches_the_threshold_is_kept_and_ordered_by_text():
    noise = ScriptedNoise([0, 6920 - 6 * GRID, 6919 - 7 * GRID, 5 * GRID])
    counts = optin_counts([7, 6, 7, 3])

    kept = create_head_list(counts, PrivacyParameters(), noise)

    assert kept == (Record("q", "u0"), Record("q", "u1"), Record("q", "u3"))
    assert noise.scales == [0.5 * GRID]


def test_a_record_nobody_in_s_holds_is_never_looked_at():
    """It is there because somebody in T holds it. Noise on a count of 0 would leak it."""
    noise = ScriptedNoise([100 * GRID])
    counts = optin_counts([0, 1, 0], estimation=[3, 0, 2])

    assert create_head_list(counts, PrivacyParameters(), noise) == (Record("q", "u1"),)
    assert noise.sizes == [1]


def test_no_opt_in_users_make_an_empty_head_list():
    assert create_head_list(optin_counts([]), PrivacyParameters(), NoNoise()) == ()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"records_per_optin_user": 2}, r"Theorem 1 \(CreateHeadList\) holds for m_O = 1"),
        ({"epsilon": math.log(2)}, r"Theorem 1 \(CreateHeadList\) holds for epsilon above ln 2"),
        ({"epsilon": 0.5}, "got epsilon=0.5"),
    ],
)
def test_parameters_outside_the_theorem_are_refused_by_name(changed, message):
    with pytest.raises(ParameterError, match=message):
        create_head_list(optin_counts([9]), PrivacyParameters(**changed), NoNoise())


def test_the_theorems_third_condition_always_holds():
    """τ = 1 − (2/ε)·ln δ ≥ 1 for every δ < 1, so there is nothing to refuse."""
    for epsilon in (0.7, 4.0, 50.0):
        for delta in (1e-12, 0.5, 1 - 1e-12):
            assert 1 - 2 / epsilon * math.log(delta) >= 1


def cell_output(count: int, theta: int, scale: Decimal, *, counts_shown: bool) -> dict:
    """The exact output distribution of one record: None, or that it passed (with its count).

    Noisy counts from θ+60 up are one outcome: the likelihood ratio of two such tails is that of
    their first terms, so merging them changes no divergence.
    """
    one = Decimal(1)
    r = (-one / scale).exp()
    if count == 0:
        return {None: one}

    def tail(j: int) -> Decimal:  # P(X ≥ j)
        return r**j / (one + r) if j >= 1 else one - r ** (1 - j) / (one + r)

    distribution = {None: one - tail(theta - count)}
    if not counts_shown:
        return {**distribution, "passed": tail(theta - count)}
    top = theta + 60
    for y in range(theta, top):
        distribution[y] = tail(y - count) - tail(y + 1 - count)
    distribution["more"] = tail(top - count)
    return distribution


@pytest.mark.long
@pytest.mark.parametrize("counts_shown", [False, True])
@pytest.mark.parametrize("share_of_delta", [0.5, 1.0])
@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.7, 0.95), (0.7, 1e-2), (1.0, 1e-4), (4.0, 1e-5), (4.0, 1e-7)]
)
def test_every_small_data_set_keeps_epsilon_and_delta(epsilon, delta, share_of_delta, counts_shown):
    """Enumerated: one user moves from record a to record b. Counts of 0 (of b), 1, 2, 3 and about
    θ (θ−1, θ, θ+3): those between differ by the same factor e^{1/b}, whatever they are.

    Other records have the same distribution on both sides and drop out. Noisy counts included, both
    with the paper's β = δ/2 and with β = δ; the first always has δ/2 to spare.
    """
    scale = laplace_scale(sensitivity=2, epsilon=epsilon)
    theta = threshold_for(
        scale=scale, pass_probability=Fraction(delta) * Fraction(share_of_delta), grid=1
    )
    worst = Decimal(0)
    with localcontext() as context:
        context.prec = 60
        exp_epsilon = Decimal(epsilon).exp()
        distributions = [
            cell_output(n, theta, Decimal(scale), counts_shown=counts_shown)
            for n in range(theta + 5)
        ]
        sizes = [1, 2, 3, theta - 1, theta, theta + 3]
        for a in sizes:
            for b in [0, *sizes]:
                before = (distributions[a], distributions[b])
                after = (distributions[a - 1], distributions[b + 1])
                for p, q in ((before, after), (after, before)):
                    divergence = Decimal(0)
                    for ya, pa in p[0].items():
                        for yb, pb in p[1].items():
                            other = q[0].get(ya, Decimal(0)) * q[1].get(yb, Decimal(0))
                            divergence += max(Decimal(0), pa * pb - exp_epsilon * other)
                    worst = max(worst, divergence)
        assert worst <= Decimal(delta) * Decimal(share_of_delta) * (1 + Decimal("1e-40"))
        assert worst > 0


def worst_divergence(epsilon: float, delta: float, *, factor: float = 1.0) -> float:
    """One user moves from record a to b, or has none on one side.

    The distribution of each is had from the selector's own code.
    """
    parameters = PrivacyParameters(epsilon=epsilon, delta=delta)
    scale = laplace_scale(sensitivity=2, epsilon=epsilon)
    theta = threshold_for(scale=scale, pass_probability=Fraction(delta) / 2, grid=GRID) // GRID
    sizes = [0, 1, 2, theta - 1, theta, theta + 1]
    distributions = {
        n: selector_distribution(
            ThresholdSelector(),
            n,
            known=False,
            parameters=parameters,
            reach=(math.ceil(38 * scale) + 12) * GRID,
            factor=factor,
        )
        for n in {s + d for s in sizes for d in (0, 1)}
    }
    moves = [
        ([distributions[a + 1], distributions[b]], [distributions[a], distributions[b + 1]])
        for a, b in itertools.product(sizes, repeat=2)
    ]
    moves += [([distributions[a + 1]], [distributions[a]]) for a in sizes]
    moves += [([distributions[b]], [distributions[b + 1]]) for b in sizes]
    return max(divergence(before, after, epsilon) for before, after in moves)


PRIVACY = [(0.7, 1e-2), (1.0, 1e-4), (4.0, 1e-5), (4.0, 1e-7)]


@pytest.mark.parametrize(("epsilon", "delta"), PRIVACY)
def test_what_the_selector_shows_keeps_epsilon_and_delta(epsilon, delta):
    """By the noise that its code asks for; β = δ/2 is spent, and the other half of δ unused."""
    assert 0.99 * delta / 2 < worst_divergence(epsilon, delta) <= delta / 2 + 2e-12


@pytest.mark.parametrize("factor", [0.5, 0.9])
@pytest.mark.parametrize(("epsilon", "delta"), PRIVACY)
def test_sensitivity_understated_by_a_tenth_is_caught(epsilon, delta, factor):
    """Deliberately broken: noise for a user who moves 1.8 counts instead of 2, and for 1."""
    assert worst_divergence(epsilon, delta, factor=factor) > 1.5 * delta


@pytest.mark.parametrize(("epsilon", "delta"), PRIVACY)
def test_a_threshold_of_whole_people_added_to_one_unit_is_caught(epsilon, delta, monkeypatch):
    """Deliberately broken: θ for a count of one unit instead of one person."""
    right = head_list.threshold_for

    def broken(*, scale, pass_probability, grid):
        return right(scale=scale, pass_probability=pass_probability, grid=grid) - grid + 1

    monkeypatch.setattr(head_list, "threshold_for", broken)
    assert worst_divergence(epsilon, delta) > 1.2 * delta / 2


def test_a_threshold_one_too_small_is_caught_by_the_enumeration():
    """Deliberately broken: θ−1 lets a single record pass more often than δ."""
    theta = threshold_for(scale=0.5, pass_probability=Fraction(1e-5), grid=1)
    with localcontext() as context:
        context.prec = 60
        broken = cell_output(1, theta - 1, Decimal("0.5"), counts_shown=True)
        shown = sum(p for y, p in broken.items() if y is not None)
    assert shown > Decimal("1e-5")


def test_the_selector_says_what_it_used():
    selection = ThresholdSelector().select(
        np.array([6, 7]), np.zeros(2, dtype=bool), PrivacyParameters(), NoNoise()
    )
    assert selection.kept.tolist() == [1]
    assert selection.noisy_counts is None
    assert selection.threshold == 6920
