"""The distribution of a mechanism's output, from its own code, and the ε and δ that it costs.

Every value of the noise is handed in at once, one copy of the record for each, and each outcome
gets the probability of its noise: of the noise *that the code asked for*, by kind and scale. So a
mechanism that asks for too little is judged by what it asked for, whatever it should have asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from blendstream.blender import HeadListSelector, PrivacyParameters
from blendstream.blender.noise.exact_noise import COIN_BITS, Noise
from blendstream.blender.values.arrays import IntArray

#: What a record that is not shown shows.
GONE = None

Distribution = dict[Hashable, float]


class EveryNoise:
    """Adds −reach … reach, one to each count, and knows how likely each was.

    `factor` is for deliberately broken mechanisms: the noise is that much of what was asked for.
    """

    def __init__(self, reach: int, *, factor: float = 1.0, coin: bool = False) -> None:
        self.heads = 0.0
        self._coin = coin
        self.values = np.arange(-reach, reach + 1)
        self.asked: list[tuple[str, float]] = []
        self._reach = reach
        self._factor = factor

    def discrete_laplace(self, counts: IntArray, *, scale: float) -> IntArray:
        self.asked.append(("laplace", scale))
        return counts + self.values

    def discrete_gaussian(self, counts: IntArray, *, scale: float) -> IntArray:
        self.asked.append(("gaussian", scale))
        return counts + self.values

    def coins(self, number: int, *, heads: int) -> NDArray[np.bool_]:
        """All alike; `heads` says how likely this side was."""
        self.heads = heads / 2**COIN_BITS
        return np.full(number, self._coin)

    def mass(self) -> NDArray[np.float64]:
        """P(X = x) of the one draw that was made; the ends stand for all that lies beyond."""
        assert len(self.asked) == 1, "one draw of noise for one release"
        kind, scale = self.asked[0]
        scale *= self._factor
        x = np.abs(self.values)
        if kind == "laplace":
            # Beyond the ends the likelihood ratio of two counts stays what it is there.
            r = math.exp(-1 / scale)
            return r**x * np.where(x < self._reach, (1 - r) / (1 + r), 1 / (1 + r))
        weights = np.exp(-(x**2) / (2 * scale**2))
        return np.asarray(weights / weights.sum())


def distribution(
    show: Callable[[int, Noise], Sequence[Hashable]], *, reach: int, factor: float = 1.0
) -> Distribution:
    """P(outcome), where `show(n, noise)` says what each of n equal records shows."""
    # Once with every coin on heads and once on tails: a record throws at most one, so its
    # distribution is the mixture of both. Where no coin is thrown both are the same.
    seen: Distribution = {}
    for side in (False, True):
        noise = EveryNoise(reach, factor=factor, coin=side)
        outcomes = show(len(noise.values), noise)
        chance = noise.heads if side else 1 - noise.heads
        for outcome, mass in zip(outcomes, noise.mass().tolist(), strict=True):
            seen[outcome] = seen.get(outcome, 0.0) + chance * mass
    return seen


def selector_distribution(
    selector: HeadListSelector,
    count: int,
    *,
    known: bool,
    parameters: PrivacyParameters,
    reach: int,
    factor: float = 1.0,
) -> Distribution:
    """P(what the world sees of a record that `count` people of S hold): a number, or nothing.

    Known ones are seen at any count. Dropping low ones is post-processing of that.
    """
    if count == 0 and not known:
        return {GONE: 1.0}

    def show(copies: int, noise: Noise) -> list[Hashable]:
        counts, flags = np.full(copies, count), np.full(copies, known)
        selection = selector.select(counts, flags, parameters, noise, keep_known=True)
        shown = selection.noisy_counts
        numbers = ["listed"] * len(selection.kept) if shown is None else shown.tolist()
        by_copy = dict(zip(selection.kept.tolist(), numbers, strict=True))
        return [by_copy.get(copy, GONE) for copy in range(copies)]

    return distribution(show, reach=reach, factor=factor)


def divergence(p: Sequence[Distribution], q: Sequence[Distribution], epsilon: float) -> float:
    """Σ max(0, P − e^ε·Q) over everything that independent records show together.

    An outcome matters through its P and its P/Q alone: after each record those with the same P/Q,
    to 12 digits, are taken together, which can hide 1e-12.
    """
    here, there = np.ones(1), np.ones(1)
    for law_p, law_q in zip(p, q, strict=True):
        outcomes = list(law_p)
        here = np.multiply.outer(here, [law_p[o] for o in outcomes]).ravel()
        there = np.multiply.outer(there, [law_q.get(o, 0.0) for o in outcomes]).ravel()
        here, there = here[here > 0], there[here > 0]
        with np.errstate(divide="ignore"):
            ratio = np.round(np.log(here) - np.log(there), 12)
        _, group = np.unique(ratio, return_inverse=True)
        here, there = np.bincount(group, weights=here), np.bincount(group, weights=there)
    return float(np.maximum(here - math.exp(epsilon) * there, 0).sum())
