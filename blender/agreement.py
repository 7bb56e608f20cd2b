"""Do opt-in users and clients want the same things? A p-value for "yes".

Blending assumes that both groups draw from one distribution. If opt-in users are unlike the rest,
the blend is precise and wrong, and this test says so.

Promises: post-processing only, on published numbers. Under agreement P(p < 0.01) is about 0.01.
Assumes: T alone is compared with C; the list's order came either from S (nothing to correct) or
from T's own noisy counts (`best_trimmed` says how high a count had to be).
Symbols: y = T's noisy count, T = users of T, p̂_C = the clients' estimate, Q = the statistic.

Why a bootstrap: Q = Σ(p̂_O−p̂_C)²/(σ²_O+σ²_C) is far from χ². Counts are small and skewed, and
records listed *because* their y was large look larger in T than in C. So Q is compared with its own
values in simulated epochs in which the groups do agree. There, y is drawn given that it reached
the cut, which repeats the selection without having to know the records that missed it. The
generator is numpy's: it decides a p-value, not anyone's privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from blender.errors import ParameterError
from blender.estimates import FloatArray, GroupEstimates
from blender.intervals import sum_of_laplace
from blender.noise import IntArray, laplace_variance
from blender.optin import NoisyCounts
from blender.roles import LocalRandomizer

__all__ = ["Agreement", "measure_agreement"]

#: Records compared at most, the first of the list: beyond, counts are noise and only cost time.
_COMPARED = 500

#: Probabilities tried for each record when both groups are pooled, spaced evenly in √p where T's
#: spread is even. Fewer would show as steps in Q; more cost time alone.
_GRID = 160


@dataclass(frozen=True, slots=True)
class Agreement:
    """Q, and the chance of one at least as large if the groups agreed."""

    statistic: float
    p_value: float
    compared: int


def measure_agreement(
    noisy: NoisyCounts,
    client: GroupEstimates,
    randomizer: LocalRandomizer,
    *,
    best_trimmed: int | None,
    rng: np.random.Generator,
    rounds: int = 999,
) -> Agreement | None:
    """Compare T with C over the listed records, ⋆ left out; `None` if one of them is empty.

    `best_trimmed` is `None` when T's counts had no part in choosing or ordering the list.
    """
    listed = len(randomizer.cells.records)
    compared = min(listed, _COMPARED)
    if compared == 0 or noisy.users == 0 or client.participants == 0:
        return None
    if rounds < 99:
        raise ParameterError(f"rounds must be at least 99 to tell 1 % apart, got rounds={rounds}")
    cut = best_trimmed
    if cut is not None and compared < listed:
        cut = int(noisy.counts[compared])

    y = noisy.counts[:compared]
    p_client = client.cells.probability
    optin = _TruncatedCounts(noisy, highest=int(y.max()), cut=cut)
    client_variance = client.variance_at(_distribution(np.maximum(p_client, 0)))[:compared]

    # Simulated epochs: the pooled estimate is the truth for both groups.
    pooled = optin.pool(y, p_client[:compared], client_variance)
    truth = np.maximum(p_client, 0)
    truth[:compared] = optin.grid[pooled]
    truth = _distribution(truth)
    # An answer of w cells is drawn as w answers of one: right on average, a little too noisy.
    width = randomizer.cells_per_answer
    shares = randomizer.expected_shares(truth)
    draws = client.participants * randomizer.spec.answers * width
    counts = rng.multinomial(draws, _distribution(np.maximum(shares, 0)), size=rounds)
    p_simulated = randomizer.denoise(counts / (draws / width))[:, :compared]
    # A device's m_C answers may all be alike: spread what they say as the variance assumes.
    p_simulated = truth[:compared] + (p_simulated - truth[:compared]) * math.sqrt(
        randomizer.spec.answers
    )
    y_simulated = optin.draw(pooled, rounds, rng)

    observed = optin.statistic(y, p_client[:compared], client_variance)
    simulated = optin.statistic(y_simulated, p_simulated, client_variance)
    at_least = int((simulated >= observed).sum())
    return Agreement(float(observed), (1 + at_least) / (1 + rounds), compared)


def _distribution(p: FloatArray) -> FloatArray:
    return np.asarray(p / p.sum())


class _TruncatedCounts:
    """The law of y = Binomial(T, p) + X given y ≥ cut, tabulated over a grid of p."""

    def __init__(self, noisy: NoisyCounts, *, highest: int, cut: int | None) -> None:
        users = noisy.users
        noise = sum_of_laplace(1, scale=noisy.scale)
        half = len(noise) // 2
        # Room above the highest count seen for simulated ones: ten of its standard deviations.
        top = max(highest, 0) + half
        top = min(users, math.ceil(top + 10 * math.sqrt(top + 1)))
        self.users = users
        self.noise_variance = laplace_variance(noisy.scale) / users**2
        largest = max(highest + half / 4, 1.0) / users
        self.grid = np.minimum((np.arange(_GRID) / (_GRID - 1)) ** 2 * largest * 1.5, 1.0)

        # Binomial probabilities in logarithms, log C(T, x) by recurrence, then ⊛ noise.
        x = np.arange(1, top + 1)
        log_choose = np.concatenate([[0.0], np.cumsum(np.log((users - x + 1) / x))])
        x = np.arange(top + 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            log_p, log_q = np.log(self.grid)[:, None], np.log1p(-self.grid)[:, None]
            hit = np.where(x == 0, 0.0, x * log_p)
            miss = np.where(x == users, 0.0, (users - x) * log_q)
        binomial = np.exp(log_choose + hit + miss)
        pmf = np.stack([np.convolve(row, noise) for row in binomial])
        self.lowest = -half
        if cut is not None:
            keep = max(cut - self.lowest, 0)
            pmf[:, :keep] = 0
        pmf = np.maximum(pmf, 1e-300)
        if cut is not None:
            pmf[:, :keep] = 0
        self.pmf = pmf / pmf.sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore"):
            self.log_pmf = np.log(self.pmf)

    def pool(self, y: IntArray, p_client: FloatArray, client_variance: FloatArray) -> IntArray:
        """The grid's p that both groups together find likeliest, record by record."""
        likely = self.log_pmf.T[self._column(y)]
        distance = p_client[..., np.newaxis] - self.grid
        likely = likely - distance**2 / (2 * client_variance[:, np.newaxis])
        return np.asarray(likely.argmax(axis=-1))

    def statistic(
        self, y: IntArray, p_client: FloatArray, client_variance: FloatArray
    ) -> FloatArray:
        """Q with variances at the pooled estimate."""
        p = self.grid[self.pool(y, p_client, client_variance)]
        variance = p * (1 - p) / self.users + self.noise_variance + client_variance
        return np.asarray(((y / self.users - p_client) ** 2 / variance).sum(axis=-1))

    def draw(self, at: IntArray, rounds: int, rng: np.random.Generator) -> IntArray:
        """Counts for records whose p is `grid[at]`, shape (rounds, records)."""
        below = np.cumsum(self.pmf, axis=1)
        uniform = rng.random((rounds, len(at)))
        drawn = [np.searchsorted(below[g], uniform[:, i] * below[g, -1]) for i, g in enumerate(at)]
        return np.stack(drawn, axis=1) + self.lowest

    def _column(self, y: IntArray) -> IntArray:
        return np.clip(y - self.lowest, 0, self.pmf.shape[1] - 1)
