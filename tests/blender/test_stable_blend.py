"""Pooled variances and listed counts: the fixed point by hand, and the ends that must hold."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from blender import Cells, HeadListMismatch, Record
from blender.cell_estimates import Estimates, GroupEstimates, unknown_group
from blender.selected_counts import SelectedCounts
from blender.stable_blend import StableBlender


def group(p, variance_at, participants=100):
    p = np.array(p, dtype=float)
    variance = variance_at(np.clip(p, 0, 1))
    cells = Estimates(p, variance, p * 0, p * 0 + 1)
    return GroupEstimates(participants, cells, each_its_query(cells), None, variance_at)


def each_its_query(cells):
    return Estimates(cells.probability[:-1], cells.variance[:-1], cells.low[:-1], cells.high[:-1])


def blend(optin, client, selected=None):
    """Where every listed record is the only one of its query."""
    records = [Record(f"q{i}", "u") for i in range(len(client.cells) - 1)]
    return StableBlender().blend(optin, client, Cells(records, query_wildcards=False), selected)


def flat(variance):
    return lambda p: np.full(len(p), float(variance))


def test_known_variances_give_inverse_variance_weights():
    """p̂ = (1·0.2 + 3·0.4)/4 at variances in the ratio 3 : 1."""
    blended = blend(group([0.2], flat(3e-4)), group([0.4], flat(1e-4)))

    assert blended.cells.probability[0] == pytest.approx(0.35)
    assert blended.cells.variance[0] == pytest.approx(0.75e-4)
    assert blended.cells.low[0] == pytest.approx(0.35 - 1.96 * 0.75e-4**0.5, abs=1e-6)


def test_the_weights_are_those_at_the_blend_itself():
    """A fixed point: Σ w_g(p)·p̂_g = p with w from the variances at p, not at either p̂."""

    def binomial(n):
        return lambda p: p * (1 - p) / n + 1e-7

    a, b = group([0.010], binomial(1000)), group([0.014], flat(4e-6))
    p = blend(a, b).cells.probability

    w = 1 / np.array([a.variance_at(p)[0], 4e-6])
    assert p[0] == pytest.approx((w[0] * 0.010 + w[1] * 0.014) / w.sum())


def test_a_negative_estimate_never_gets_a_small_variance_for_it():
    """The paper's plug-in would call p̂ = −0.01 nearly certain."""

    def binomial(p):
        return np.maximum(p * (1 - p), 0) / 100 + 1e-8

    blended = blend(group([-0.01], binomial), group([0.05], flat(1e-4)))
    assert blended.cells.probability[0] > 0.01


def test_a_group_that_knows_nothing_changes_nothing():
    one, nobody = group([0.2, 0.8], flat(1e-4)), unknown_group(2, 1)
    assert blend(one, nobody) is one
    assert blend(nobody, one) is one
    assert blend(nobody, nobody).participants == 0


def test_a_group_that_is_certain_decides():
    blended = blend(group([0.3], flat(1e-4)), group([1.0], flat(0.0)))
    assert blended.cells.probability[0] == pytest.approx(1.0)


def test_groups_over_different_cells_are_refused():
    with pytest.raises(HeadListMismatch, match="2 opt-in and 1 client cells"):
        blend(group([0.1, 0.9], flat(1)), group([1.0], flat(1)))


def conditional(p, least, users, scale=0.5):
    """E and Var of Y given Y ≥ c, by plain summation over binomial and noise."""
    x = np.arange(-40, 41)
    noise = np.exp(-np.abs(x) / scale)
    noise /= noise.sum()
    n = np.arange(400)
    law = np.zeros(481)
    for k, mass in zip(n, binom.pmf(n, users, p), strict=True):
        law[k : k + 81] += mass * noise
    y = np.arange(-40, 441)
    law = np.where(y >= least, law, 0)
    law /= law.sum()
    mean = (law * y).sum()
    return mean / users, ((law * y**2).sum() - mean**2) / users**2


@pytest.mark.parametrize(
    ("least", "expected_count"),
    [(2, 0.5), (2, 3), (2, 8), (7, 0.5), (7, 3), (7, 8), (7, 30), (40, 15), (40, 30), (40, 90)],
)
def test_the_law_of_a_listed_count_agrees_with_plain_summation(least, expected_count):
    users = 5000
    p = expected_count / users
    counts = SelectedCounts(np.array([50]), np.array([least]), users, 0.5)
    mean, variance = conditional(p, least, users)
    slope = (conditional(p * 1.001, least, users)[0] - conditional(p * 0.999, least, users)[0]) / (
        0.002 * p
    )

    score, information = counts.score_at(np.array([p]))

    assert score[0] == pytest.approx(slope / variance * (50 / users - mean), rel=0.03, abs=0.5)
    assert information[0] == pytest.approx(slope**2 / variance, rel=0.05)


def test_where_listing_was_certain_a_count_weighs_as_a_fresh_one():
    counts = SelectedCounts(np.array([500]), np.array([7]), 10_000, 0.5)
    p = np.array([0.05])

    score, information = counts.score_at(p)

    assert score[0] == pytest.approx(0, abs=1e-9)
    assert information[0] == pytest.approx(1 / counts.plain_variance_at(p)[0])


def chance_of_listing(p, least, users, scale=0.5):
    """P(N + X ≥ c), by plain summation."""
    x = np.arange(-60, 61)
    noise = np.exp(-np.abs(x) / scale)
    return float((noise / noise.sum() * binom.sf(least - x - 1, users, p)).sum())


def p_listed_with(chance, least, users):
    low, high = 0.0, 5 * (least + 20) / users
    for _ in range(60):
        middle = (low + high) / 2
        enough = chance_of_listing(middle, least, users) >= chance
        low, high = (low, middle) if enough else (middle, high)
    return high


#: How far the weight may stay below the inverse variance, by the chance of being listed.
TOLERANCE = {0.99: 0.065, 0.999: 0.011, 0.99999: 0.0003}


@pytest.mark.parametrize("chance", TOLERANCE)
@pytest.mark.parametrize(
    ("least", "users"), [(7, 29_565), (9, 112_500), (46, 29_565), (24, 112_500)]
)
def test_where_listing_is_all_but_certain_counts_are_weighed_by_inverse_variance(
    chance, least, users
):
    """From P(listed) = 0.99 on: thresholds and cuts of both of the paper's settings."""
    start = p_listed_with(chance, least, users)
    for p in start * np.array([1.0, 1.1, 1.5, 3.0]):
        counts = SelectedCounts(np.array([round(p * users)]), np.array([least]), users, 0.5)
        inverse_variance = 1 / counts.plain_variance_at(np.array([p]))[0]
        _, weight = counts.score_at(np.array([p]))
        assert (1 - TOLERANCE[chance]) * inverse_variance <= weight[0]
        assert weight[0] <= inverse_variance * 1.001


@pytest.mark.parametrize(("least", "users"), [(7, 29_565), (46, 29_565), (24, 112_500)])
def test_where_listing_is_all_but_certain_the_blend_is_the_inverse_variance_blend(least, users):
    """S's count, T and clients at P(listed) ≥ 0.99: p̂ within a tenth of its deviation.

    Each source is off by one deviation, S's count upwards: what selection could have done.
    """
    p = p_listed_with(0.99, least, users)
    s_deviation = np.sqrt(p / users + 0.36 / users**2)
    count = round((p + s_deviation) * users)
    selected = SelectedCounts(np.array([count]), np.array([least]), users, 0.5)
    t_users = users // 9
    t = group([p * 0.9, 1 - p * 0.9], lambda x: x * (1 - x) / t_users + 0.36 / t_users**2)
    client = group([p - s_deviation, 1 - p], flat(s_deviation**2))

    blended = blend(t, client, selected).cells

    at = p
    for _ in range(50):  # the fixed point of Σ w(p)·p̂ = p with plain variances
        at_both = np.array([at, 1 - at])
        weights = np.array(
            [
                1 / selected.plain_variance_at(np.array([at]))[0],
                1 / t.variance_at(at_both)[0],
                1 / s_deviation**2,
            ]
        )
        at = float(weights @ [count / users, p * 0.9, p - s_deviation] / weights.sum())
    deviation = 1 / np.sqrt(weights.sum())
    assert abs(blended.probability[0] - at) < 0.1 * deviation
    assert blended.variance[0] == pytest.approx(deviation**2, rel=0.06)


def test_where_listing_was_luck_a_count_says_next_to_nothing():
    """The excess over the threshold is memoryless: no count at θ = 7 tells 0.3 holders from 0.5."""
    counts = SelectedCounts(np.array([8]), np.array([7]), 10_000, 0.5)
    _, information = counts.score_at(np.array([5e-5]))
    fresh = 1 / counts.plain_variance_at(np.array([5e-5]))
    assert information[0] < 0.02 * fresh[0]


def test_a_count_below_what_listing_took_is_refused():
    with pytest.raises(HeadListMismatch, match="reached its least count"):
        SelectedCounts(np.array([6]), np.array([7]), 1000, 0.5)


def test_totals_sum_the_records_and_hold_the_clients_covariance():
    cells = Cells((Record("q", "a"), Record("q", "b")), query_wildcards=False)
    p = np.array([0.1, 0.2, 0.7])
    client = GroupEstimates(
        1000,
        Estimates(p, np.full(3, 1e-4), p, p),
        Estimates(np.array([0.3]), np.array([3e-4]), np.zeros(1), np.ones(1)),  # 2e-4 + 2·Cov
        None,
        flat(1e-4),
    )
    blended = StableBlender().blend(group(p, flat(1e-4)), client, cells)

    # Half of each record's variance of 0.5e-4 is the clients', which the covariance makes 1.5×.
    assert blended.query_totals.probability[0] == pytest.approx(0.3)
    assert blended.query_totals.variance[0] == pytest.approx(2 * 0.25e-4 + 1.5 * 2 * 0.25e-4)


def test_a_record_that_no_source_speaks_of_leaves_its_querys_total_unknown():
    """Once its infinite variance was taken for 0, and the total's interval was a point."""
    cells = Cells((Record("q", "a"), Record("q", "b"), Record("r", "c")), query_wildcards=False)
    unknown_b = np.array([1e-4, np.inf, 1e-4, 1e-4])
    p = np.array([0.1, 0.0, 0.3, 0.6])
    totals = Estimates(np.array([0.1, 0.3]), np.array([np.inf, 1e-4]), np.zeros(2), np.ones(2))

    def speaker(participants):
        cells_of = Estimates(p, unknown_b, p * 0, p * 0 + 1)
        return GroupEstimates(participants, cells_of, totals, None, lambda _: unknown_b)

    for client in (speaker(100), speaker(1)):
        blended = StableBlender().blend(speaker(100), client, cells).query_totals

        assert blended.variance[0] == np.inf
        assert (blended.low[0], blended.high[0]) == (0, 1)
        assert blended.variance[1] == pytest.approx(0.5e-4)
        assert 0.28 < blended.low[1] < 0.3 < blended.high[1] < 0.32
