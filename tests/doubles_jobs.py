"""Doubles for the epoch jobs: noise whose draws can be repeated, and only tests can hand in."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.noise.exact_noise import COIN_BITS
from blendstream.blender.values.arrays import IntArray


class RepeatableNoise:
    """Discrete noise that depends on a seed and on what it is added to, and on nothing else.

    So a test can compute what a job must have published from the same counts, in whatever order
    the job read them: equal counts get equal noise, and coins thrown together fall alike.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def _rng(self, counts: IntArray, scale: float) -> np.random.Generator:
        said = f"{self._seed} {scale!r} ".encode() + np.sort(counts).tobytes()
        return np.random.default_rng(int.from_bytes(hashlib.sha256(said).digest()[:8], "little"))

    def discrete_laplace(self, counts: IntArray, *, scale: float) -> IntArray:
        rng, p = self._rng(counts, scale), 1 - np.exp(-1 / scale)
        different, which = np.unique(counts, return_inverse=True)
        drawn = rng.geometric(p, len(different)) - rng.geometric(p, len(different))
        return np.asarray(counts + drawn[which], dtype=np.int64)

    def coins(self, number: int, *, heads: int) -> NDArray[np.bool_]:
        rng = self._rng(np.array([number]), float(heads))
        return np.full(number, rng.integers(0, 1 << COIN_BITS) < heads)

    def discrete_gaussian(self, counts: IntArray, *, scale: float) -> IntArray:
        different, which = np.unique(counts, return_inverse=True)
        drawn = np.rint(self._rng(counts, scale).normal(0, scale, len(different)))
        return np.asarray(counts + drawn[which], dtype=np.int64)
