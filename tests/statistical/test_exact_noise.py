"""The noise of real releases has the distribution that thresholds and variances assume.

`ExactNoise` is tested on seeded bits and on the operating system's, and beside OpenDP's samples.
What is not seeded fails by chance in one run in a thousand million (tests/chi_square.py). 40 000
draws tell a scale that is 3 % off, a million one that is 0.6 % off. That each draw is exact is
shown bit by bit in tests/blender/noise/test_exact_sampler.py; no sample could show it.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from blendstream.blender.noise.exact_noise import ExactNoise, laplace_tail, laplace_variance
from blendstream.blender.noise.exact_rejection import draw_gaussian, draw_laplace
from blendstream.blender.noise.opendp_noise import OpenDPNoise
from tests.chi_square import FALSE_ALARM, agrees, alike, p_value
from tests.doubles import SeededNoise

pytestmark = pytest.mark.statistical

DRAWS, MANY = 40_000, 1_000_000


def seeded(seed):
    return ExactNoise(random.Random(seed).randbytes)


def laplace_expected(scale, draws=DRAWS):
    r = math.exp(-1 / scale)
    reach = math.ceil(30 * scale)
    return {x: draws * (1 - r) / (1 + r) * r ** abs(x) for x in range(-reach, reach + 1)}


def gaussian_expected(scale, draws=DRAWS):
    reach = math.ceil(12 * scale)
    weights = {x: math.exp(-(x**2) / (2 * scale**2)) for x in range(-reach, reach + 1)}
    total = sum(weights.values())
    return {x: draws * w / total for x, w in weights.items()}


def drawn(noise, kind, scale, draws=DRAWS):
    counts = np.full(draws, 7, dtype=np.int64)
    return Counter((getattr(noise, kind)(counts, scale=scale) - counts).tolist())


def by_width(numbers, width):
    """Numbers of neighbouring outcomes together: a wide distribution has too many for χ²."""
    wide = Counter()
    for x, number in numbers.items():
        wide[x // width] += number
    return wide


@pytest.mark.parametrize("noise", [OpenDPNoise(), SeededNoise(3)])
@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_laplace_noise_is_discrete_laplace(noise, scale):
    assert agrees(drawn(noise, "discrete_laplace", scale), laplace_expected(scale))


@pytest.mark.parametrize("noise", [OpenDPNoise(), SeededNoise(4)])
@pytest.mark.parametrize("scale", [0.8, 3.0])
def test_gaussian_noise_is_discrete_gaussian(noise, scale):
    assert agrees(drawn(noise, "discrete_gaussian", scale), gaussian_expected(scale))


@pytest.mark.parametrize("noise", [seeded(1), ExactNoise()], ids=["seeded", "system"])
@pytest.mark.parametrize("scale", [0.2, 0.5, 2.0, 17.3, 2000.0])
def test_a_million_exact_draws_are_discrete_laplace(noise, scale):
    """b = 0.2 and 2 000 are the ends of what the settings admit for S and T."""
    seen = drawn(noise, "discrete_laplace", scale, MANY)
    width = math.ceil(scale / 50)
    assert agrees(by_width(seen, width), by_width(laplace_expected(scale, MANY), width))


@pytest.mark.parametrize("noise", [seeded(2), ExactNoise()], ids=["seeded", "system"])
@pytest.mark.parametrize("scale", [0.3, 0.8, 3.0, 21.7, 900.0])
def test_a_million_exact_draws_are_discrete_gaussian(noise, scale):
    seen = drawn(noise, "discrete_gaussian", scale, MANY)
    width = math.ceil(scale / 50)
    assert agrees(by_width(seen, width), by_width(gaussian_expected(scale, MANY), width))


@pytest.mark.parametrize(
    ("kind", "scale"),
    [
        *(("discrete_laplace", scale) for scale in (0.5, 2.0, 60.0)),
        *(("discrete_gaussian", scale) for scale in (0.8, 3.0, 60.0)),
    ],
)
def test_exact_draws_are_like_opendps(kind, scale):
    """Two samplers that share no code: 100 000 draws of each, in one χ²."""
    width = math.ceil(scale / 20)
    ours, theirs = (drawn(noise, kind, scale, 100_000) for noise in (seeded(3), OpenDPNoise()))
    assert alike(by_width(ours, width), by_width(theirs, width))


def test_a_sample_of_another_scale_is_not_like_opendps():
    """Deliberately broken: 5 % less noise."""
    ours = drawn(seeded(3), "discrete_laplace", 0.475, 100_000)
    assert not alike(ours, drawn(OpenDPNoise(), "discrete_laplace", 0.5, 100_000))


@pytest.mark.parametrize("scale", [0.75, 2.9, 3.0])
def test_draws_by_rejection_have_the_same_distribution(scale):
    """What large scales are drawn with, at scales where every outcome can be counted."""
    bits = random.Random(6).randbytes
    laplace = Counter(draw_laplace(Fraction(scale), bits) for _ in range(10_000))
    gaussian = Counter(draw_gaussian(Fraction(scale), bits) for _ in range(10_000))
    assert agrees(laplace, laplace_expected(scale, 10_000))
    assert agrees(gaussian, gaussian_expected(scale, 10_000))


def test_noise_beyond_the_tables_has_its_distribution():
    """b = 20 000 and σ = 30 000, by rejection."""
    laplace = drawn(seeded(7), "discrete_laplace", 20_000.0, 10_000)
    gaussian = drawn(seeded(8), "discrete_gaussian", 30_000.0, 10_000)
    assert agrees(by_width(laplace, 2_000), by_width(laplace_expected(20_000.0, 10_000), 2_000))
    assert agrees(by_width(gaussian, 3_000), by_width(gaussian_expected(30_000.0, 10_000), 3_000))


def test_a_scale_a_tenth_too_small_is_caught():
    """Deliberately broken: sensitivity understated by 10 %."""
    seen = drawn(ExactNoise(), "discrete_laplace", 0.45)
    assert p_value(seen, laplace_expected(0.5)) < FALSE_ALARM


@pytest.mark.parametrize(("noise", "size"), [(ExactNoise(), 300_000), (OpenDPNoise(), 120_000)])
def test_chunks_keep_their_places_and_their_own_noise(noise, size):
    """So many counts are drawn in several chunks, by OpenDP on several threads."""
    counts = np.arange(size, dtype=np.int64) * 1000
    drawn_noise = noise.discrete_laplace(counts, scale=0.5) - counts
    assert np.abs(drawn_noise).max() < 100, "each count is still where it was (e^−200 to fail)"
    assert not np.array_equal(drawn_noise[:30_000], drawn_noise[-30_000:])


@pytest.mark.parametrize("scale", [0.3, 0.5, 2.0, 7.5])
def test_tail_and_variance_are_those_of_the_distribution(scale):
    distribution = laplace_expected(scale, draws=1)
    assert sum(p * x * x for x, p in distribution.items()) == pytest.approx(
        laplace_variance(scale), 1e-6
    )
    for j in (-3, 0, 1, 2, 6):
        tail = sum(p for x, p in distribution.items() if x >= j)
        assert laplace_tail(j, scale=scale) == pytest.approx(tail, abs=1e-9)
