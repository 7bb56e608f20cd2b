"""Exact integer noise for counts, and the interface through which it is handed in.

Promises: `ExactNoise` draws discrete Laplace and discrete Gaussian variables from OpenDP, which
samples them exactly (no floating point in the distribution) on the operating system's
cryptographic generator. No setting reaches this module, so none can weaken it.
Assumes: the scale was derived from the sensitivity by the caller; scales are keyword-only
because a scale taken for a location would run, and break the guarantee.

Symbols: b = scale; discrete Laplace P(X = x) = (1−e^{−1/b})/(1+e^{−1/b}) · e^{−|x|/b};
discrete Gaussian P(X = x) ∝ e^{−x²/(2σ²)}, σ = scale.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from blender.errors import ParameterError

__all__ = ["ExactNoise", "IntArray", "Noise", "laplace_tail", "laplace_variance"]

IntArray = NDArray[np.int64]


class Noise(Protocol):
    """Adds fresh, independent, exact integer noise to each of many counts."""

    def discrete_laplace(self, counts: IntArray, *, scale: float) -> IntArray:
        """`counts` + X, each X discrete Laplace with this scale."""
        ...

    def discrete_gaussian(self, counts: IntArray, *, scale: float) -> IntArray:
        """`counts` + X, each X discrete Gaussian with this σ."""
        ...


def laplace_variance(scale: float) -> float:
    """Var(X) = 2e^{−1/b} / (1−e^{−1/b})², which stands wherever the paper writes 2b².

    >>> round(laplace_variance(0.5), 3)
    0.362
    """
    r = math.exp(-1 / scale)
    return 2 * r / (1 - r) ** 2


def laplace_tail(j: int, *, scale: float) -> float:
    """P(X ≥ j) for discrete Laplace: e^{−j/b}/(1+e^{−1/b}) for j ≥ 1, by symmetry below.

    >>> round(laplace_tail(0, scale=0.5) + laplace_tail(1, scale=0.5), 12)
    1.0
    """
    if j < 1:
        return 1.0 - laplace_tail(1 - j, scale=scale)
    return math.exp(-j / scale) / (1 + math.exp(-1 / scale))


class ExactNoise:
    """The noise of every real release: OpenDP's exact samplers."""

    def discrete_laplace(self, counts: IntArray, *, scale: float) -> IntArray:
        """`counts` + exact discrete Laplace noise."""
        return self._draw("make_laplace", "l1_distance", counts, scale)

    def discrete_gaussian(self, counts: IntArray, *, scale: float) -> IntArray:
        """`counts` + exact discrete Gaussian noise."""
        return self._draw("make_gaussian", "l2_distance", counts, scale)

    @staticmethod
    def _draw(maker: str, metric: str, counts: IntArray, scale: float) -> IntArray:
        if not (math.isfinite(scale) and scale > 0):
            raise ParameterError(f"noise scale must be finite and above 0, got scale={scale!r}")
        if counts.size == 0:
            return counts.astype(np.int64)
        # Imported here: a device has numpy alone, and only servers draw this noise.
        import opendp.prelude as dp  # noqa: PLC0415

        dp.enable_features("contrib")
        domain: Any = dp.vector_domain(dp.atom_domain(T="i64"))
        space: Any = (domain, getattr(dp, metric)(T="i64" if metric == "l1_distance" else "f64"))
        draw: Any = getattr(dp.m, maker)(*space, scale=scale)
        return np.asarray(draw(counts.tolist()), dtype=np.int64)
