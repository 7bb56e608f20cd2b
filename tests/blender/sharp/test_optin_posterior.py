"""Posteriors of opt-in shares: the prior over all records corrects for selection."""

from __future__ import annotations

import numpy as np
import pytest

from blendstream.blender.noise.noise_distribution import laplace_distribution
from blendstream.blender.paper.optin import NoisyCounts
from blendstream.blender.sharp.optin_posterior import (
    SelectionCounts,
    estimate_optin_shares,
    estimate_ranked_shares,
)

S = 18_000
NO_T = NoisyCounts(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), 0.5, 0)


def zipf_counts(rng, users=S, records=200_000, theta=7):
    """All that pass among many records of a Zipf distribution: counts, and the truth, by count."""
    p = 1 / np.arange(6, records + 6)
    p *= 0.9 / p.sum()
    rng.shuffle(p)  # ties go by place: it must not tell p
    drawn = rng.poisson(p * users) + rng.geometric(0.8647, records) - rng.geometric(0.8647, records)
    passed = np.flatnonzero(drawn >= theta)
    order = passed[np.argsort(-drawn[passed], kind="stable")]
    return drawn[order].astype(np.int64), p[order]


def shares_of(counts, listed, users=S, t=NO_T):
    return estimate_optin_shares(
        SelectionCounts(counts, users, laplace_distribution(0.5), 7), t, listed
    )


def t_counts(counts, users):
    return NoisyCounts(np.array(counts), np.ones(len(counts), dtype=np.int64), 0.5, users)


def test_by_published_rank_estimates_are_centred_where_raw_counts_are_not():
    """20 lists: the last third of what passed is a fifth too high in counts, and centred in p̂.

    The mean over some 1 200 records has a standard error of 1.1 %; four of them are allowed.
    """
    rng = np.random.default_rng(5)
    raw, mean, truth = [], [], []
    for _ in range(20):
        counts, p = zipf_counts(rng)
        found = shares_of(counts, len(counts))
        order = np.argsort(-found.mean)[-len(counts) // 3 :]
        raw.append(counts[order].sum() / S)
        mean.append(found.mean[order].sum())
        truth.append(p[order].sum())

    assert sum(raw) / sum(truth) > 1.15, "counts alone are far too high here"
    assert sum(mean) / sum(truth) == pytest.approx(1, abs=0.045)


def test_means_and_variances_are_those_of_the_whole_distribution():
    """They are sums over the part of the grid where a posterior matters, S and T apart."""
    counts, _ = zipf_counts(np.random.default_rng(8))
    far = np.maximum(counts // 10, 0)
    far[::7] += 400  # T saw many more of these than S
    for t in (NO_T, t_counts(far, S // 10)):
        found = shares_of(counts, len(counts), t=t)
        distribution, p = found.distribution(slice(None)), found.grid.p
        assert found.mean == pytest.approx(distribution @ p, rel=1e-9)
        spread = distribution @ p**2 - (distribution @ p) ** 2
        assert found.variance == pytest.approx(spread, rel=1e-6)


def test_intervals_of_records_that_just_passed_cover_them():
    rng = np.random.default_rng(6)
    covered = []
    for _ in range(40):
        counts, p = zipf_counts(rng)
        found = shares_of(counts, len(counts))
        beside = counts <= 10
        covered.append(((found.low <= p) & (p <= found.high))[beside])
    covered = np.concatenate(covered)
    assert len(covered) > 2000
    # 4.75 standard errors below 0.95: one seed in a million.
    assert covered.mean() > 0.95 - 4.75 * np.sqrt(0.95 * 0.05 / len(covered))


def test_a_count_means_the_same_wherever_the_list_is_cut():
    """Listed or not: given its count, nothing else about the selection matters."""
    counts, _ = zipf_counts(np.random.default_rng(7))
    short, long = shares_of(counts, 20), shares_of(counts, len(counts))
    assert short.mean == pytest.approx(long.mean[:20], rel=1e-6)
    assert short.high == pytest.approx(long.high[:20], rel=1e-6)


def test_a_large_count_is_what_it_is():
    """Of 900 among 18 000 the distribution of shares takes less than a tenth of a deviation."""
    counts, _ = zipf_counts(np.random.default_rng(8))
    found = shares_of(np.concatenate([[900], counts]), 1)
    assert found.mean[0] == pytest.approx(900 / S, abs=0.1 * np.sqrt(900) / S)
    assert np.sqrt(found.variance[0]) == pytest.approx(np.sqrt(900) / S, rel=0.05)


def test_t_counts_add_their_users():
    counts = np.array([40, 30, 20, 10])
    alone = shares_of(counts, 4)
    both = shares_of(counts, 4, t=t_counts([4, 3, 2, 1, 1990], 2000))
    assert both.users == S + 2000
    assert (both.variance < alone.variance).all()
    surprising = shares_of(counts, 4, t=t_counts([40, 3, 2, 1, 1954], 2000))
    assert surprising.mean[0] > 1.5 * both.mean[0]


def test_counts_that_contradict_each_other_beyond_any_chance_still_have_an_answer():
    """S: 9 of 18 000. T: 1 500 of 2 000. Whatever happened, numbers come out, not NaN."""
    found = shares_of(np.array([9, 8]), 2, t=t_counts([1500, 1, 499], 2000))
    assert np.isfinite(found.mean).all()
    assert np.isfinite(found.variance).all()
    assert ((found.low >= 0) & (found.low <= found.high) & (found.high <= 1)).all()


@pytest.mark.parametrize("counts", [[7], [7, 7, 7], [2, 1, 0], [18_000]])
def test_the_smallest_lists_have_a_law_too(counts):
    found = shares_of(np.array(counts), len(counts))
    assert ((found.low < found.mean) & (found.mean < found.high)).all()
    assert (found.variance > 0).all()


def test_without_counts_of_s_those_of_t_say_all():
    found = estimate_optin_shares(None, t_counts([20, 10, 5, 965], 1000), 3)
    assert found.users == 1000
    assert found.mean == pytest.approx([0.020, 0.010, 0.005], rel=0.2)


def test_a_list_that_t_ranked_is_corrected_for_its_own_choice():
    """T's three largest of many: pulled down, as the clients' estimates of others suggest."""
    t = t_counts([9, 8, 8, 975], 1000)
    estimate, variance = np.full(3, 0.004), np.full(3, 1e-7)
    found = estimate_ranked_shares(t, 3, 8, estimate, variance)
    assert (found.mean < 0.007).all()
    assert (estimate_ranked_shares(t, 3, None, estimate, variance).mean > 0).all()


def test_the_law_of_a_record_sums_to_one_and_has_its_mean():
    counts, _ = zipf_counts(np.random.default_rng(9))
    found = shares_of(counts, 30)
    distribution = found.distribution(slice(10, 20))
    assert distribution.sum(axis=1) == pytest.approx(np.ones(10))
    assert distribution @ found.grid.p == pytest.approx(found.mean[10:20])


def test_records_that_a_coin_let_in_do_not_move_the_prior_of_the_others():
    """The prior is fitted to counts that had to reach θ. A coin lists one in seven of those at
    θ − 1: if they counted as having passed, rare records would seem common."""
    counts, _ = zipf_counts(np.random.default_rng(10))
    alone = shares_of(counts, 40)
    with_lucky = shares_of(np.concatenate([counts, np.full(60, 6)]), 40)
    assert with_lucky.mean == pytest.approx(alone.mean, rel=1e-9)
    lucky = shares_of(np.concatenate([counts, [6]]), len(counts) + 1)
    assert 0 < lucky.mean[-1] < lucky.mean[-2]
