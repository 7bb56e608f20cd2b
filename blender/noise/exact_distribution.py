"""Compute the distribution of the noise to any number of binary digits, by integer arithmetic.

Both noise distributions are symmetric, P(X = x) = w(|x|)/Z, and the ratios of their weights follow
one rule:

    w(0) = 1,   w(j+1) = w(j) · e^−(a + c·j),   Z = w(0) + 2·(w(1) + w(2) + …)

    discrete Laplace     w(j) = e^(−j/b)          a = 1/b,       c = 0
    discrete Gaussian    w(j) = e^(−j²/(2σ²))     a = 1/(2σ²),   c = 1/σ²

Promises: `cumulative(bits)` encloses 2^bits · P(|X| ≤ j) for j = 0, 1, 2 … strictly: every rounding
is outwards, and the omitted part of Z is bounded. `certified_floors` returns ⌊2^64 · P(|X| ≤ j)⌋,
each proved by both ends of its interval.
Assumes: scales are exact fractions; `Fraction(0.1)` is the exact value of the float.

Symbols: b, σ = scale; j = |x|; w = weight, Z = sum of all weights; C(j) = P(|X| ≤ j). A number v is
represented by integers low ≤ 2^bits·v ≤ high. docs/exact-noise.md has the proofs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.rational import exp_minus_bounds

__all__ = ["TABLE_BITS", "NoiseDistribution", "certified_floors"]

#: Binary digits of a table's entries.
TABLE_BITS = 64

#: Binary digits of the first attempt and of the last. About one scale in 2^40 has an entry too
#: close to an integer for the first. For Laplace noise C(j) is irrational (e to a rational power
#: is), so enough digits always decide; for the Gaussian that is not proved, hence a last attempt.
_FIRST_BITS, _MOST_BITS = 192, 4096


@dataclass(frozen=True, slots=True)
class NoiseDistribution:
    """A symmetric distribution on the integers, given by a and c as above."""

    first: Fraction
    growth: Fraction

    @classmethod
    def laplace(cls, scale: Fraction) -> NoiseDistribution:
        """Return the discrete Laplace distribution, P(X = x) ∝ e^(−|x|/b)."""
        return cls(1 / scale, Fraction(0))

    @classmethod
    def gaussian(cls, scale: Fraction) -> NoiseDistribution:
        """Return the discrete Gaussian distribution, P(X = x) ∝ e^(−x²/(2σ²))."""
        return cls(1 / (2 * scale**2), 1 / scale**2)

    def cumulative(self, bits: int) -> Iterator[tuple[int, int]]:
        """Yield low ≤ 2^bits · C(j) < high for j = 0, 1, 2 …, until w(j) is 0 to `bits` digits."""
        total_low, total_high = self._total(bits)
        one = 1 << bits
        head_low = head_high = -one  # w(0) counts once, the others twice
        for low, high, _ in self._weights(bits):
            head_low += 2 * low
            head_high += 2 * high
            # C(j) < 1, as no weight is 0.
            yield (head_low << bits) // total_high, min((head_high << bits) // total_low + 1, one)

    def _weights(self, bits: int) -> Iterator[tuple[int, int, int]]:
        """Yield bounds of w(j), and an upper bound of w(j+1)/w(j), until the lower bound is 0."""
        ratio_low, ratio_high = exp_minus_bounds(self.first, bits=bits)
        growth_low, growth_high = exp_minus_bounds(self.growth, bits=bits)
        low = high = 1 << bits
        while low:
            yield low, high, ratio_high
            low, high = low * ratio_low >> bits, (high * ratio_high >> bits) + 1
            if self.growth:
                ratio_low = ratio_low * growth_low >> bits
                ratio_high = (ratio_high * growth_high >> bits) + 1

    def _total(self, bits: int) -> tuple[int, int]:
        """Return bounds of Z."""
        one = 1 << bits
        if not self.growth:
            # Z = 1 + 2(r + r² + …) = (1+r)/(1−r), which grows with r = e^(−1/b).
            low, high = exp_minus_bounds(self.first, bits=bits)
            total_low = ((one + low) << bits) // (one - low)
            return total_low, ((one + high) << bits) // (one - high) + 1
        total_low = total_high = -one
        cut = 0
        for low, high, ratio in self._weights(bits):
            total_low += 2 * low
            total_high += 2 * high
            # Ratios fall, so what follows w(n) is at most w(n)·ρ/(1−ρ), ρ = w(n+1)/w(n).
            cut = high * ratio // (one - ratio) + 1
        return total_low, total_high + 2 * cut


def certified_floors(distribution: NoiseDistribution) -> list[int]:
    """Return ⌊2^64 · C(j)⌋ for j = 0, 1 … up to the first that is 2^64 − 1.

    Both ends of C(j)'s interval must have the same floor; otherwise the computation is repeated
    with twice as many digits.
    """
    bits = _FIRST_BITS
    while bits <= _MOST_BITS:
        spare = bits - TABLE_BITS
        floors: list[int] = []
        for low, high in distribution.cumulative(bits):
            floor = low >> spare
            if floor != (high - 1) >> spare:
                break
            floors.append(floor)
            if floor == (1 << TABLE_BITS) - 1:
                return floors
        bits *= 2
    raise ParameterError(
        f"a probability of the noise lies closer to a multiple of 2^-{TABLE_BITS} than "
        f"{_MOST_BITS} bits can tell apart: nothing was drawn; change the scale a little"
    )
