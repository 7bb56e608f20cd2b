"""Compute the likelihood of released noisy counts over a grid of shares.

A count of `users` people with noise X is Y = Binomial(users, p) + X. Estimates need P(Y = y) at
many p, and P(Y ≥ θ), the probability that a record of share p is published at all.

Promises: post-processing only; looks at released counts and public numbers.
Assumes: integer noise that is symmetric about 0; SciPy (servers only; imported when needed).
Symbols: p = a record's share, y = noisy count, θ = threshold, b, σ = noise scales.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from blendstream.blender.sharp.likelihood_bands import MIN_LIKELIHOOD, Band, Likelihood
from blendstream.blender.values.arrays import FloatArray, IntArray

__all__ = ["ShareGrid", "count_likelihood", "pass_probability"]

#: Distance of two shares on the grid, in φ = arcsin √p, times √users. A count leaves φ with a
#: standard deviation of 0.5/√users at any p, so this is 2.5 points per deviation: sums over the
#: grid are then exact to e^(−2π²·2.5²), which is negligible.
_STEP = 0.2

#: Counts are processed together within so much of φ·√users. More would include shares that matter
#: to few of them, less would repeat the work for each number of holders.
_NEAR = 20.0


@dataclass(frozen=True, slots=True)
class ShareGrid:
    """Shares p, evenly in arcsin √p, with the width of each in log p."""

    p: FloatArray
    width: FloatArray

    @classmethod
    def build(cls, share: float, users: int, finer: float = 1.0) -> ShareGrid:
        """Build the grid of all shares that may have led to a measured share of at most `share`.

        The lowest corresponds to 0.04 holders, which no count distinguishes from none. `finer`
        makes more points, for estimates that are more precise than these people's counts.
        """
        count = max(share, 0.0) * users
        largest = min((count + 12 * math.sqrt(count + 1) + 30) / users, 1.0)
        step = _STEP / math.sqrt(users) / finer
        steps = min(math.ceil(math.asin(math.sqrt(largest)) / step), math.ceil(math.pi / 2 / step))
        phi = np.arange(math.ceil(finer), max(steps, math.ceil(finer) + 2)) * step
        # d log p = 2·cot φ dφ
        return cls(np.sin(phi) ** 2, 2 / np.tan(phi) * step)


def count_likelihood(
    counts: IntArray, users: int, noise: FloatArray, p: FloatArray
) -> tuple[Likelihood, IntArray]:
    """Compute P(Y = y | p), one row per *distinct* count, and each count's row; p must ascend.

    >>> likelihood, row = count_likelihood(np.array([3, 3]), 3, np.ones(1), np.array([0.5]))
    >>> likelihood.summed(np.ones(1)).round(6).tolist(), row.tolist()
    ([0.125], [0, 0])
    """
    from scipy.special import gammaln  # noqa: PLC0415

    different, row = np.unique(counts, return_inverse=True)
    bands = []
    half, n = len(noise) // 2, float(users)
    log_rest, phi = np.log1p(-p), np.arcsin(np.sqrt(p))
    log_odds = np.log(p) - log_rest
    # The likelihood of a count k is at most e^−(n·KL), and KL is at least twice the squared
    # Hellinger distance of the shares k/n and p, which is 2·sin²(Δφ/2) for φ = arcsin √p:
    #
    #     P(k | p) ≤ e^(−4n·sin²(Δφ/2)),   below MIN_LIKELIHOOD where Δφ is larger than `reach`.
    reach = 2 * math.asin(math.sqrt(min(-math.log(MIN_LIKELIHOOD) / (4 * n), 1.0)))
    # Counts that are close to one another share numbers of holders, and the shares p that matter.
    near = np.floor(np.arcsin(np.sqrt(np.clip(different / n, 0, 1))) * math.sqrt(n) / _NEAR)
    for these in np.split(np.arange(len(different)), np.flatnonzero(np.diff(near)) + 1):
        holders = np.unique(different[these, np.newaxis] + np.arange(-half, half + 1))
        holders = holders[(holders >= 0) & (holders <= users)]
        if not len(holders):
            bands.append(Band(0, np.empty((len(these), 0))))
            continue
        k = holders.astype(np.float64)
        least, most = np.arcsin(np.sqrt(k[[0, -1]] / n))
        shares = slice(*np.searchsorted(phi, (least - reach, most + reach)))
        choose = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
        # log P(k | p) = choose + k·log(p/(1 − p)) + n·log(1 − p)
        binomial = np.outer(k, log_odds[shares])
        binomial += n * log_rest[shares]
        binomial += choose[:, np.newaxis]
        np.exp(binomial, out=binomial)
        # P(Y = y) = Σ_k P(k holders)·P(X = y − k)
        x = different[these, np.newaxis] - holders
        drawn = np.where(np.abs(x) <= half, noise[np.clip(x + half, 0, 2 * half)], 0.0)
        bands.append(Band(int(shares.start), np.maximum(drawn @ binomial, MIN_LIKELIHOOD)))
    return Likelihood(bands, len(p)), row.reshape(counts.shape)


def pass_probability(threshold: int, users: int, noise: FloatArray, p: FloatArray) -> FloatArray:
    """Return P(Y ≥ θ | p)."""
    from scipy.special import bdtrc  # noqa: PLC0415

    half = len(noise) // 2
    needed = threshold - np.arange(-half, half + 1)  # holders, for each value of the noise
    tail = bdtrc(np.clip(needed - 1, 0, users), users, p[:, np.newaxis])
    tail = np.where(needed <= 0, 1.0, np.where(needed > users, 0.0, tail))
    return np.maximum(tail @ noise, MIN_LIKELIHOOD)
