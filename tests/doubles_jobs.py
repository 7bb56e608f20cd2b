"""Doubles for the epoch jobs: noise whose draws can be repeated, and only tests can hand in."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from blender.noise import COIN_BITS, IntArray


class RepeatableNoise:
    """Discrete noise that depends on a seed and on what it is added to, and on nothing else.

    So a test can compute what a job must have published from the same counts.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def _rng(self, counts: IntArray, scale: float) -> np.random.Generator:
        digest = hashlib.sha256(f"{self._seed} {scale!r} ".encode() + counts.tobytes()).digest()
        return np.random.default_rng(int.from_bytes(digest[:8], "little"))

    def discrete_laplace(self, counts: IntArray, *, scale: float) -> IntArray:
        rng, p = self._rng(counts, scale), 1 - np.exp(-1 / scale)
        drawn = rng.geometric(p, len(counts)) - rng.geometric(p, len(counts))
        return np.asarray(counts + drawn, dtype=np.int64)

    def coins(self, number: int, *, heads: int) -> NDArray[np.bool_]:
        rng = self._rng(np.array([number]), float(heads))
        return rng.integers(0, 1 << COIN_BITS, size=number) < heads

    def discrete_gaussian(self, counts: IntArray, *, scale: float) -> IntArray:
        drawn = np.rint(self._rng(counts, scale).normal(0, scale, len(counts)))
        return np.asarray(counts + drawn, dtype=np.int64)
