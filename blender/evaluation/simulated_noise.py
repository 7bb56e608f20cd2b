"""Seeded noise for simulations: the laws of `blender.noise`, fast, and never for a release.

Nothing in the service imports this module. It draws from numpy's generator, which is neither exact
nor secret; its only use is to repeat an evaluation many times and to get the same answer twice.
"""

from __future__ import annotations

import math

import numpy as np

from blender.noise import IntArray

__all__ = ["SimulatedNoise"]


class SimulatedNoise:
    """The `Noise` role on a numpy generator."""

    def __init__(self, rng: np.random.Generator) -> None:
        """All draws come from `rng`."""
        self._rng = rng

    def discrete_laplace(self, counts: IntArray, *, scale: float) -> IntArray:
        """`counts` + X: the difference of two geometric variables is discrete Laplace."""
        stop = -math.expm1(-1 / scale)
        up, down = (self._rng.geometric(stop, size=len(counts)) for _ in range(2))
        return np.asarray(counts + up - down, dtype=np.int64)

    def discrete_gaussian(self, counts: IntArray, *, scale: float) -> IntArray:
        """`counts` + X, by inverting the distribution function on ±12σ."""
        reach = math.ceil(12 * scale)
        x = np.arange(-reach, reach + 1)
        below = np.cumsum(np.exp(-(x**2) / (2 * scale**2)))
        place = np.searchsorted(below, self._rng.random(len(counts)) * below[-1], side="right")
        return np.asarray(counts + x[np.minimum(place, 2 * reach)], dtype=np.int64)
