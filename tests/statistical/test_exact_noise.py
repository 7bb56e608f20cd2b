"""The noise of real releases has the distribution that thresholds and variances assume.

Not seeded, as OpenDP draws from the operating system: one run in a thousand million fails by
chance (tests/chi_square.py). 40 000 draws tell a scale that is 3 % off.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from blender.noise import ExactNoise, laplace_tail, laplace_variance
from tests.chi_square import FALSE_ALARM, agrees, p_value
from tests.doubles import SeededNoise

pytestmark = pytest.mark.statistical

DRAWS = 40_000


def laplace_expected(scale, draws=DRAWS):
    r = math.exp(-1 / scale)
    reach = math.ceil(30 * scale)
    return {x: draws * (1 - r) / (1 + r) * r ** abs(x) for x in range(-reach, reach + 1)}


def gaussian_expected(scale, draws=DRAWS):
    reach = math.ceil(12 * scale)
    weights = {x: math.exp(-(x**2) / (2 * scale**2)) for x in range(-reach, reach + 1)}
    return {x: draws * w / sum(weights.values()) for x, w in weights.items()}


def drawn(noise, kind, scale):
    counts = np.full(DRAWS, 7, dtype=np.int64)
    return Counter((getattr(noise, kind)(counts, scale=scale) - counts).tolist())


@pytest.mark.parametrize("noise", [ExactNoise(), SeededNoise(3)])
@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_laplace_noise_is_discrete_laplace(noise, scale):
    assert agrees(drawn(noise, "discrete_laplace", scale), laplace_expected(scale))


@pytest.mark.parametrize("noise", [ExactNoise(), SeededNoise(4)])
@pytest.mark.parametrize("scale", [0.8, 3.0])
def test_gaussian_noise_is_discrete_gaussian(noise, scale):
    assert agrees(drawn(noise, "discrete_gaussian", scale), gaussian_expected(scale))


def test_a_scale_a_tenth_too_small_is_caught():
    """Deliberately broken: sensitivity understated by 10 %."""
    seen = drawn(ExactNoise(), "discrete_laplace", 0.45)
    assert p_value(seen, laplace_expected(0.5)) < FALSE_ALARM


def test_chunks_drawn_side_by_side_keep_their_places_and_their_own_noise():
    """120 000 counts are drawn in three chunks on several threads."""
    counts = np.arange(120_000, dtype=np.int64) * 1000
    noise = ExactNoise().discrete_laplace(counts, scale=0.5) - counts
    assert np.abs(noise).max() < 100, "each count is still where it was (e^−200 to fail)"
    assert not np.array_equal(noise[:50_000], noise[50_000:100_000])


@pytest.mark.parametrize("scale", [0.3, 0.5, 2.0, 7.5])
def test_tail_and_variance_are_those_of_the_distribution(scale):
    law = laplace_expected(scale, draws=1)
    assert sum(p * x * x for x, p in law.items()) == pytest.approx(laplace_variance(scale), 1e-6)
    for j in (-3, 0, 1, 2, 6):
        tail = sum(p for x, p in law.items() if x >= j)
        assert laplace_tail(j, scale=scale) == pytest.approx(tail, abs=1e-9)
