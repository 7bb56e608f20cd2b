"""Seeded noise for simulations: the distributions of `noise.exact_noise`, fast, never for releases.

Nothing in the service imports this module. It draws from numpy's generator, which is neither exact
nor secret; its only use is a fast and reproducible evaluation.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.noise.exact_noise import COIN_BITS
from blendstream.blender.values.arrays import IntArray

__all__ = ["SimulatedNoise"]


class SimulatedNoise:
    """The `Noise` role on a numpy generator."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def discrete_laplace(self, counts: IntArray, *, scale: float) -> IntArray:
        """Return `counts` + X: the difference of two geometric variables is discrete Laplace."""
        stop = -math.expm1(-1 / scale)
        up, down = (self._rng.geometric(stop, size=len(counts)) for _ in range(2))
        return np.asarray(counts + up - down, dtype=np.int64)

    def coins(self, number: int, *, heads: int) -> NDArray[np.bool_]:
        """Draw `number` coins, each True with probability `heads`/2^32."""
        return np.asarray(self._rng.integers(0, 1 << COIN_BITS, size=number) < heads)

    def discrete_gaussian(self, counts: IntArray, *, scale: float) -> IntArray:
        """Return `counts` + X, by inverting the distribution function on ±12σ."""
        reach = math.ceil(12 * scale)
        x = np.arange(-reach, reach + 1)
        below = np.cumsum(np.exp(-(x**2) / (2 * scale**2)))
        place = np.searchsorted(below, self._rng.random(len(counts)) * below[-1], side="right")
        return np.asarray(counts + x[np.minimum(place, 2 * reach)], dtype=np.int64)
