"""The distribution of a noisy count: against plain sums, and at its edges."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from blendstream.blender.noise.noise_distribution import gaussian_distribution, laplace_distribution
from blendstream.blender.sharp.count_distribution import (
    ShareGrid,
    count_likelihood,
    pass_probability,
)

NOISES = {
    "laplace": laplace_distribution(0.5),
    "wide laplace": laplace_distribution(2.0),
    "gauss": gaussian_distribution(3.0),
}


def dense(told):
    """All rows, at every share."""
    return np.exp(told.logs(np.arange(len(told)), slice(None)))


def by_summation(y, users, noise, p):
    half = len(noise) // 2
    return sum(
        mass * binom.pmf(y - x, users, p)
        for x, mass in zip(range(-half, half + 1), noise, strict=True)
    )


@pytest.mark.parametrize("noise", NOISES)
def test_the_likelihood_is_the_sum_over_holders_and_noise(noise):
    distribution, p = NOISES[noise], np.array([1e-4, 0.01, 0.3])
    counts = np.array([-2, 0, 3, 40, 3])
    told, row = count_likelihood(counts, 100, distribution, p)

    rows = dense(told)
    for count, at in zip(counts, row, strict=True):
        assert rows[at] == pytest.approx(by_summation(count, 100, distribution, p), rel=1e-9)


@pytest.mark.parametrize("users", [40, 3_000, 2_000_000])
@pytest.mark.parametrize("noise", NOISES)
def test_shares_that_are_passed_over_could_not_have_shown_the_count(noise, users):
    """Most of a long grid is not computed: what is left out is below the least likelihood."""
    distribution, grid = NOISES[noise], ShareGrid.build(min(1.0, 9_000 / users), users)
    counts = np.unique(np.concatenate([np.arange(-5, 30), np.geomspace(1, 9_000, 40).astype(int)]))
    rows = dense(count_likelihood(counts, users, distribution, grid.p)[0])
    for i in range(0, len(counts), 3):
        wanted = by_summation(counts[i], users, distribution, grid.p)
        assert rows[i] == pytest.approx(np.maximum(wanted, 1e-280), rel=1e-6)


@pytest.mark.parametrize("noise", NOISES)
def test_the_chance_to_pass_is_the_sum_of_all_counts_from_the_threshold_on(noise):
    distribution, p = NOISES[noise], np.array([1e-4, 0.01, 0.3])
    above = np.arange(7, 160)
    told, _ = count_likelihood(above, 100, distribution, p)
    all_of_them = told.summed(np.ones(len(above)))
    assert pass_probability(7, 100, distribution, p) == pytest.approx(all_of_them, rel=1e-6)


def test_every_law_of_noise_sums_to_one_and_is_even():
    for distribution in NOISES.values():
        assert distribution.sum() == pytest.approx(1)
        assert distribution == pytest.approx(distribution[::-1])


@pytest.mark.parametrize(("share", "users"), [(0.0, 10), (0.001, 20_000), (1.0, 3), (0.6, 100_000)])
def test_the_grid_resolves_and_reaches_every_share(share, users):
    """Sums over the grid are integrals: of a Beta distribution, exact to nine digits."""
    grid = ShareGrid.build(share, users)
    assert (np.diff(grid.p) > 0).all()
    assert 0 < grid.p[0] <= 1 / users
    assert grid.p[-1] < 1
    if share * users > 10 and share < 1:
        n, k = users, round(share * users)
        # d p = p·d log p, and the mean of Beta(k+1, n−k+1) is (k+1)/(n+2).
        log_distribution = k * np.log(grid.p) + (n - k) * np.log1p(-grid.p) + np.log(grid.p)
        distribution = np.exp(log_distribution - log_distribution.max()) * grid.width
        assert (distribution @ grid.p) / distribution.sum() == pytest.approx(
            (k + 1) / (n + 2), rel=1e-9
        )
