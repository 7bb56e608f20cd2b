"""Draw the number of local reports that support each candidate, without simulating reports.

Two ways in which a device reports one value v, and which candidates its report supports:

    local hashing     draw a hash function h onto g buckets, report h and a bucket: h(v) with
                      probability e^ε/(e^ε+g−1), otherwise any other one, all equally likely.
                      The report supports every x with h(x) = that bucket. Best g: e^ε + 1.
    unary encoding    one bit per candidate, 1 for v only; flip each bit with probability
                      1/(e^(ε/2)+1). The report supports every x whose bit is 1.

Sources: T. Wang, J. Blocki, N. Li, S. Jha, "Locally Differentially Private Protocols for Frequency
Estimation" (USENIX Security 2017), which has both; with g = 2 it is the succinct histogram of
Bassily and Smith (STOC 2015), the other one basic RAPPOR (Erlingsson et al., CCS 2014).

Promises: a report is ε-DP for the device, δ = 0; neighbouring: replace-one, that is any two values
the device might hold. The counts drawn here have exactly the distribution of counting every
device's report (`tests/evaluation/test_frequency_oracles.py` enumerates small cases).
Assumes: one report per device. Hash functions are drawn from all functions; real ones come from a
universal family, whose counts have these means and variances but are only pairwise independent.
Symbols: p = P(supports x | holds x) = own, q = P(supports x | holds another) = other, n = users.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from blendstream.blender.values.arrays import FloatArray, IntArray
from blendstream.blender.values.errors import require

__all__ = ["FrequencyOracle", "draw_best", "local_hashing", "unary_encoding"]


@dataclass(frozen=True, slots=True)
class FrequencyOracle:
    """A channel in which a report supports each candidate independently of the others.

    Unary encoding flips the bits independently. In local hashing h is a function drawn from all
    functions: given the reported bucket, the buckets of values that the device does not hold are
    independent and uniform, so each is the reported one with probability q = 1/g.
    """

    own: float
    other: float

    def draw_supports(self, holders: IntArray, users: int, rng: np.random.Generator) -> IntArray:
        """Count the reports that support each candidate, when `holders[x]` of `users` hold x."""
        own = rng.binomial(holders, self.own)
        return np.asarray(own + rng.binomial(users - holders, self.other), dtype=np.int64)

    def estimate(self, supports: IntArray, users: int) -> FloatArray:
        """Return the unbiased estimate p̂ = (supports/n − q)/(p − q)."""
        return np.asarray((supports / users - self.other) / (self.own - self.other))

    def variance(self, probability: FloatArray, users: int) -> FloatArray:
        """Return Var(p̂) = r(1−r)/(n(p−q)²), if each of `users` holds x with this probability."""
        seen = self.other + (self.own - self.other) * probability
        return np.asarray(seen * (1 - seen) / (users * (self.own - self.other) ** 2))


def local_hashing(epsilon: float, buckets: int | None = None) -> FrequencyOracle:
    """Return the oracle of local hashing onto g buckets, by default the best number of them.

    >>> local_hashing(4.0).other == 1 / 56
    True
    """
    odds = math.exp(epsilon)
    g = round(odds + 1) if buckets is None else buckets
    require(g >= 2, f"hash functions need at least 2 buckets, got buckets={g}")
    return FrequencyOracle(own=odds / (odds + g - 1), other=1 / g)


def unary_encoding(epsilon: float) -> FrequencyOracle:
    """Return the oracle of unary encoding with symmetric flips (basic RAPPOR)."""
    own = 1 / (1 + math.exp(-epsilon / 2))
    return FrequencyOracle(own=own, other=1 - own)


def draw_best(
    oracle: FrequencyOracle,
    holders: IntArray,
    candidates: int,
    users: int,
    keep: int,
    rng: np.random.Generator,
) -> IntArray:
    """Return the places of the `keep` best supported of `candidates`; −1 for one nobody holds.

    `holders` are the counts of the candidates that somebody holds, at least 1 each. The others may
    be billions, so this draws only their largest supports. Best first; ties in random order.
    """
    require(
        candidates >= len(holders),
        f"candidates must include all that are held, got {candidates} and {len(holders)} held",
    )
    held = oracle.draw_supports(holders, users, rng)
    empty = _largest_of_empty(oracle, candidates - len(holders), users, keep, rng)
    supports = np.concatenate([held, empty])
    place = np.concatenate([np.arange(len(held)), np.full(len(empty), -1)])
    order = np.lexsort((rng.random(len(supports)), -supports))[:keep]
    return np.asarray(place[order], dtype=np.int64)


def _largest_of_empty(
    oracle: FrequencyOracle, number: int, users: int, keep: int, rng: np.random.Generator
) -> IntArray:
    """Draw the `keep` largest of `number` independent binomials with probability q."""
    # The largest of N uniform variables is distributed as V^(1/N); the next one is, given it, the
    # largest of N − 1 uniform variables below it. The binomial's quantile function turns them into
    # the largest supports. In logarithms, as they are all close to 1.
    from scipy.stats import binom  # noqa: PLC0415

    keep = min(keep, number)
    if keep == 0:
        return np.zeros(0, dtype=np.int64)
    left = number - np.arange(keep, dtype=np.float64)
    log_uniform = np.cumsum(np.log(rng.random(keep)) / left)
    supports = binom.isf(-np.expm1(log_uniform), users, oracle.other)
    return np.asarray(supports, dtype=np.int64)
