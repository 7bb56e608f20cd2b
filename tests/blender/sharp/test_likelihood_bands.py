"""Likelihoods in bands: every sum and every part of them is that of the whole matrix."""

from __future__ import annotations

import numpy as np
import pytest

from blendstream.blender.noise.noise_distribution import laplace_distribution
from blendstream.blender.sharp.count_distribution import ShareGrid, count_likelihood
from blendstream.blender.sharp.likelihood_bands import MIN_LIKELIHOOD, Band, Likelihood

GRID = 40


@pytest.fixture
def bands_and_whole():
    """Three bands, one of them without a share, and the matrix that they stand for."""
    rng = np.random.default_rng(1)
    whole, bands, first = np.full((9, GRID), MIN_LIKELIHOOD), [], 0
    for rows, begin, width in ((4, 0, 13), (2, 7, 0), (3, 22, 18)):
        values = rng.random((rows, width))
        whole[first : first + rows, begin : begin + width] = values
        bands.append(Band(begin, values))
        first += rows
    return Likelihood(bands, GRID), whole


def test_sums_over_shares_and_over_rows_are_those_of_the_whole_matrix(bands_and_whole):
    told, whole = bands_and_whole
    rng = np.random.default_rng(2)
    g, weights = rng.random((3, GRID)), rng.random(len(told))
    assert told.weighed(g[0]) == pytest.approx(whole @ g[0], rel=1e-12)
    assert told.weighed(g) == pytest.approx(g @ whole.T, rel=1e-12)
    assert told.summed(weights) == pytest.approx(weights @ whole, rel=1e-12)


@pytest.mark.parametrize("step", [1, 3, 8])
@pytest.mark.parametrize(("begin", "end"), [(0, GRID), (5, 30), (12, 14), (35, 40), (13, 22)])
def test_logs_of_any_rows_at_any_shares_are_those_of_the_whole_matrix(
    bands_and_whole, begin, end, step
):
    told, whole = bands_and_whole
    rows, shares = np.array([8, 0, 4, 3, 8, 6]), slice(begin, end, step)
    assert told.logs(rows, shares) == pytest.approx(np.log(whole)[rows][:, shares])


def test_a_law_that_gives_a_band_nothing_still_gives_its_counts_a_chance():
    """log of it must be a number: g may be 0 wherever a count would be likely."""
    told, _ = count_likelihood(
        np.array([3, 700]), 1000, laplace_distribution(0.5), ShareGrid.build(0.9, 1000).p
    )
    only_low = np.zeros(told.summed(np.ones(2)).shape)
    only_low[0] = 1.0
    assert np.isfinite(np.log(told.weighed(only_low))).all()


def test_no_counts_have_no_rows():
    told, row = count_likelihood(
        np.zeros(0, dtype=np.int64), 10, laplace_distribution(0.5), np.array([0.1])
    )
    assert (len(told), len(row), told.weighed(np.ones(1)).tolist()) == (0, 0, [])
