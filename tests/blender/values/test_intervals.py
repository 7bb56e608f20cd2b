"""Intervals of noisy counts: both ends against sums that are written out in full."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import bdtr, bdtrc

from blendstream.blender.noise.exact_noise import GRID
from blendstream.blender.noise.noise_distribution import laplace_distribution
from blendstream.blender.values.intervals import noisy_count_interval


def tail(y: int, p: float, users: int, noise: np.ndarray, grid: int, *, upper: bool) -> float:
    """P(Y ≤ y) or P(Y ≥ y) for Y = G·Binomial + X: a sum over every value of the noise."""
    half, total = len(noise) // 2, 0.0
    for x, chance in enumerate(noise.tolist(), start=-half):
        if upper:
            k = (y - x) // grid
            holders = 0.0 if k < 0 else float(bdtr(min(k, users), users, p))
        else:
            k = -((x - y) // grid)
            holders = 1.0 if k <= 0 else float(bdtrc(k - 1, users, p)) if k <= users else 0.0
        total += chance * holders
    return total


@pytest.mark.parametrize(("users", "scale"), [(20, 0.5), (300, 0.5), (300, 2.0), (6_250, 0.5)])
@pytest.mark.parametrize("grid", [1, 16])
def test_each_end_is_where_one_tail_is_two_and_a_half_per_cent(users, scale, grid):
    """At a hundredth of a deviation to either side the tail has passed 2.5 %."""
    noise = laplace_distribution(scale * grid)
    people = [-2.0, -0.3, 0.0, 0.7, 3.0, 3.4, 12.3, users / 3, users - 1.2, users + 1.0]
    counts = np.unique([math.floor(x * grid) for x in people])
    low, high = noisy_count_interval(
        counts, users, noise_terms=np.ones(len(counts), dtype=int), scale=scale * grid, grid=grid
    )
    for y, a, b in zip(counts.tolist(), low.tolist(), high.tolist(), strict=True):
        near = max(min(y / grid, users - y / grid), 1.0)
        hair = 0.01 * math.sqrt(near) / users
        assert 0 <= a <= b <= 1
        for end, upper, outwards in ((a, False, -hair), (b, True, hair)):
            outside = min(max(end + outwards, 0.0), 1.0)
            inside = min(max(end - outwards, 0.0), 1.0)
            if 0 < outside < 1:
                assert tail(y, outside, users, noise, grid, upper=upper) <= 0.025
            if inside not in (a, b) and 0 < end < 1:
                assert tail(y, inside, users, noise, grid, upper=upper) >= 0.025


def test_a_grid_of_units_gives_the_same_interval_as_people_at_whole_counts_of_wide_noise():
    """Noise of many people hardly differs between grids, so intervals must agree too."""
    people = np.array([0, 40, 200])
    ones = np.ones(3, dtype=int)
    coarse = noisy_count_interval(people, 500, noise_terms=ones, scale=8.0)
    fine = noisy_count_interval(people * GRID, 500, noise_terms=ones, scale=8.0 * GRID, grid=GRID)
    for a, b in zip(coarse, fine, strict=True):
        assert a * 500 == pytest.approx(b * 500, abs=0.6)
