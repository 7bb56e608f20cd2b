"""Add exact integer noise to counts; `Noise` is the interface through which callers pass it.

Promises: `ExactNoise` draws discrete Laplace and discrete Gaussian variables exactly (no floating
point and no rounding in the distribution) from the operating system's cryptographic generator:
`blender.noise.exact_sampler`, docs/exact-noise.md. No setting reaches this module, so none can
weaken it. `blender.noise.opendp_noise` draws from these distributions with OpenDP's samplers.
Assumes: the caller derived the scale from the sensitivity. Scales are keyword-only, because a scale
passed as a location would raise no error and break the guarantee.

Symbols: b = scale; discrete Laplace P(X = x) = (1−e^{−1/b})/(1+e^{−1/b}) · e^{−|x|/b};
discrete Gaussian P(X = x) ∝ e^{−x²/(2σ²)}, σ = scale.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.noise.exact_distribution import NoiseDistribution
from blendstream.blender.noise.exact_rejection import draw_gaussian, draw_laplace
from blendstream.blender.noise.exact_sampler import RandomBytes, draw, inversion_table
from blendstream.blender.values.arrays import IntArray
from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.rational import exp_rounded_down

__all__ = [
    "COIN_BITS",
    "GRID",
    "ExactNoise",
    "Noise",
    "absence_bound",
    "laplace_scale",
    "laplace_tail",
    "laplace_variance",
    "rare_noise",
    "tail_bound",
]

#: A coin's probability is an integer over 2 to this power.
COIN_BITS = 32

#: Units of noise per person in the profile `paper`. A coarser grid leaves part of δ unused, because
#: the threshold is an integer number of units (up to a factor e^(ε/2) of δ at one unit per person,
#: 0.2 % at 1 024). A finer one makes the tables of the noise longer and changes no list.
#: A power of two, so that a scale times the grid is exact.
GRID = 1024


class Noise(Protocol):
    """Adds fresh, independent, exact integer noise to each of many counts."""

    def discrete_laplace(self, counts: IntArray, *, scale: float) -> IntArray:
        """Return `counts` + X, each X discrete Laplace with this scale."""
        ...

    def discrete_gaussian(self, counts: IntArray, *, scale: float) -> IntArray:
        """Return `counts` + X, each X discrete Gaussian with this σ."""
        ...

    def coins(self, number: int, *, heads: int) -> NDArray[np.bool_]:
        """Toss `number` coins that show heads with probability exactly `heads`/2^32."""
        ...


def laplace_variance(scale: float) -> float:
    """Return Var(X) = 2e^{−1/b} / (1−e^{−1/b})², used wherever the paper writes 2b².

    >>> round(laplace_variance(0.5), 3)
    0.362
    """
    r = math.exp(-1 / scale)
    return 2 * r / (1 - r) ** 2


def laplace_tail(j: int, *, scale: float) -> float:
    """Return P(X ≥ j) for discrete Laplace: e^{−j/b}/(1+e^{−1/b}) for j ≥ 1; by symmetry for j < 1.

    >>> round(laplace_tail(0, scale=0.5) + laplace_tail(1, scale=0.5), 12)
    1.0
    """
    if j < 1:
        return 1.0 - laplace_tail(1 - j, scale=scale)
    return math.exp(-j / scale) / (1 + math.exp(-1 / scale))


def laplace_scale(*, sensitivity: int, epsilon: float) -> float:
    """Return b = sensitivity/ε, rounded up: the smallest float with sensitivity/b ≤ ε exactly.

    >>> laplace_scale(sensitivity=2, epsilon=4.0)
    0.5
    """
    scale = sensitivity / epsilon
    while Fraction(scale) * Fraction(epsilon) < sensitivity:
        scale = math.nextafter(scale, math.inf)
    return scale


def tail_bound(j: int, *, scale: float) -> Fraction:
    """Return a tight upper bound of P(X ≥ j), j ≥ 1, as an exact fraction.

    P(X ≥ j) = e^{−j/b}/(1+e^{−1/b}) = 1/(e^{j/b} + e^{(j−1)/b}); both exponentials are rounded
    down, so the fraction is rounded up.
    """
    if j < 1:
        raise ParameterError(f"tail_bound is for j of at least 1, got j={j}")
    b = Fraction(scale)
    return 1 / (exp_rounded_down(j / b, bits=128) + exp_rounded_down((j - 1) / b, bits=128))


def rare_noise(*, scale: float, at_most: Fraction) -> int:
    """Return min{ j ≥ 1 : P(X ≥ j) ≤ at_most }, by exact arithmetic.

    A threshold one too small, through a float's rounding, would break δ. So no float decides here:
    the logarithm below only gives the start of the search.

    >>> rare_noise(scale=0.5, at_most=Fraction(1, 200_000))
    7
    """
    if not 0 < at_most < 1:
        raise ParameterError("the probability bound must lie in (0, 1)")
    # e^{−j/b} ≤ β(1+e^{−1/b}); −ln β from the fraction's parts, as β may be below any float.
    minus_log = math.log(at_most.denominator) - math.log(at_most.numerator)
    j = max(1, math.floor(scale * (minus_log - math.log1p(math.exp(-1 / scale)))) - 1)
    while j > 1 and tail_bound(j - 1, scale=scale) <= at_most:
        j -= 1
    while tail_bound(j, scale=scale) > at_most:
        j += 1
    return j


def absence_bound(*, scale: float) -> Fraction:
    """Return the largest pass probability π of a singleton with 1/(1−π) ≤ e^{1/b}, rounded down.

    Up to this π the absence of the record reveals no more than one step of noise.
    """
    return 1 - 1 / exp_rounded_down(1 / Fraction(scale), bits=128)


#: Largest scales drawn from a table: 222 000 and 229 000 entries, 2 MiB. Settings for S and T need
#: at most b = 2 000 (ε = 0.001); above these scales a draw takes some 50 µs instead of 10 ns.
_TABLED_LAPLACE, _TABLED_GAUSSIAN = 5_000, 25_000

#: Larger noise is clamped to this, which leaves room for a count in 64 bits. Clamping depends on
#: the noise alone, and up to scales of 10^15 it has a probability of e^-4000.
_LARGEST_NOISE = 2**62


class ExactNoise:
    """The noise of every real release, drawn with integers from the system's generator."""

    def __init__(self, random_bytes: RandomBytes = os.urandom) -> None:
        """Take a source of bytes: tests pass their own, code that reads settings never does."""
        self._random_bytes = random_bytes

    def discrete_laplace(self, counts: IntArray, *, scale: float) -> IntArray:
        """Return `counts` + exact discrete Laplace noise."""
        b = _exact(scale)
        if b > _TABLED_LAPLACE:
            return self._add_singly(counts, draw_laplace, b)
        return self._add(counts, NoiseDistribution.laplace(b))

    def discrete_gaussian(self, counts: IntArray, *, scale: float) -> IntArray:
        """Return `counts` + exact discrete Gaussian noise."""
        sigma = _exact(scale)
        if sigma > _TABLED_GAUSSIAN:
            return self._add_singly(counts, draw_gaussian, sigma)
        return self._add(counts, NoiseDistribution.gaussian(sigma))

    def coins(self, number: int, *, heads: int) -> NDArray[np.bool_]:
        """Toss `number` coins: draw a uniform integer below 2^32 for each; heads if < `heads`."""
        tosses = np.frombuffer(self._random_bytes(4 * number), dtype="<u4")
        return np.asarray(tosses.astype(np.int64) < heads)

    def _add(self, counts: IntArray, distribution: NoiseDistribution) -> IntArray:
        noise = draw(inversion_table(distribution), len(counts), self._random_bytes)
        noise += counts
        return noise

    def _add_singly(
        self, counts: IntArray, draw_one: Callable[[Fraction, RandomBytes], int], scale: Fraction
    ) -> IntArray:
        drawn = [draw_one(scale, self._random_bytes) for _ in range(len(counts))]
        clamped = [max(-_LARGEST_NOISE, min(x, _LARGEST_NOISE)) for x in drawn]
        return counts + np.array(clamped, dtype=np.int64)


def _exact(scale: float) -> Fraction:
    """Return the exact value of the float: an integer times a power of two."""
    if not (math.isfinite(scale) and scale > 0):
        raise ParameterError(f"noise scale must be finite and above 0, got scale={scale!r}")
    return Fraction(scale)
