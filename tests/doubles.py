"""Stand-ins for noise and dice in tests. Nothing outside tests/ imports this module."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.noise.exact_noise import COIN_BITS
from blendstream.blender.values.arrays import IntArray


class NoNoise:
    """Adds nothing, so that a test can follow the counts."""

    def discrete_laplace(self, counts: IntArray, *, scale: float) -> IntArray:
        return counts.copy()

    def discrete_gaussian(self, counts: IntArray, *, scale: float) -> IntArray:
        return counts.copy()

    def coins(self, number: int, *, heads: int) -> NDArray[np.bool_]:
        return np.zeros(number, dtype=np.bool_)


class ScriptedNoise:
    """Adds the given numbers, one call after the other, and remembers the scales it was asked."""

    def __init__(self, *draws: Sequence[int]) -> None:
        self._draws = [np.array(draw, dtype=np.int64) for draw in draws]
        self.scales: list[float] = []
        self.sizes: list[int] = []

    def discrete_laplace(self, counts: IntArray, *, scale: float) -> IntArray:
        self.scales.append(scale)
        self.sizes.append(len(counts))
        return counts + self._draws.pop(0)

    def discrete_gaussian(self, counts: IntArray, *, scale: float) -> IntArray:
        return self.discrete_laplace(counts, scale=scale)

    def coins(self, number: int, *, heads: int) -> NDArray[np.bool_]:
        """Always tails, so that scripts need not know of coins."""
        return np.zeros(number, dtype=np.bool_)


class SeededNoise:
    """Discrete noise of the right distribution, up to floats, from a seed."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def discrete_laplace(self, counts: IntArray, *, scale: float) -> IntArray:
        # The difference of two geometric variables is discrete Laplace.
        stop = -math.expm1(-1 / scale)
        up, down = self._rng.geometric(stop, size=(2, len(counts)))
        return counts + up - down

    def discrete_gaussian(self, counts: IntArray, *, scale: float) -> IntArray:
        x = np.arange(-math.ceil(12 * scale), math.ceil(12 * scale) + 1)
        pmf = np.exp(-(x**2) / (2 * scale**2))
        return counts + self._rng.choice(x, size=len(counts), p=pmf / pmf.sum())

    def coins(self, number: int, *, heads: int) -> NDArray[np.bool_]:
        return self._rng.integers(0, 1 << COIN_BITS, size=number) < heads


class SeededDice:
    """Fair dice that repeat themselves."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)


class ScriptedDice:
    """Throws the given numbers and checks that each is possible."""

    def __init__(self, *throws: int) -> None:
        self._throws = list(throws)
        self.bounds: list[int] = []

    def below(self, bound: int) -> int:
        self.bounds.append(bound)
        throw = self._throws.pop(0)
        assert 0 <= throw < bound
        return throw
