"""Do opt-in users and clients want the same things? A p-value for "yes".

Blending assumes that both groups draw from one distribution. If opt-in users are unlike the rest,
the blend is precise and wrong, and this test says so.

Promises: post-processing only, on published numbers. Under agreement P(p < 0.01) is about 0.01.
Assumes: T alone is compared with C; the list's order came either from S (nothing to correct) or
from T's own noisy counts (`best_trimmed` says how high a count had to be).
Symbols: y = T's noisy count, T = users of T, p̂_C = the clients' estimate, G = the statistic.

Why not Q = Σ(p̂_O−p̂_C)²/(σ²_O+σ²_C) and χ²: counts are small and skewed, and records listed
*because* their y was large look larger in T than in C. So the statistic is a likelihood ratio that
knows y had to reach the cut, and it is compared with its own values in simulated epochs in which
the groups do agree (docs/decisions/0006-do-the-groups-agree.md). The generator is numpy's: it
decides a p-value, not anyone's privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from blender.cells import HeadList
from blender.errors import require
from blender.estimates import FloatArray, GroupEstimates
from blender.intervals import sum_of_laplace
from blender.noise import IntArray
from blender.optin import NoisyCounts
from blender.roles import LocalRandomizer

__all__ = ["Agreement", "measure_agreement"]

#: Records compared at most, the first of the list: beyond, counts are noise and only cost time.
_COMPARED = 500

#: Probabilities tried for each record when both groups are pooled, spaced evenly in √p where T's
#: spread is even. Too few, and the clients' sharp peak falls between two of them, which simulated
#: truths, being on the grid, never do: with 96 agreeing groups were rejected 2.3 % of the time at
#: a nominal 1 % (300 runs). More cost time alone.
_GRID = 320

#: Simulated epochs are drawn in batches of about this many numbers (a few times 32 MB). Smaller
#: costs time, larger memory.
_NUMBERS_AT_ONCE = 4_000_000


@dataclass(frozen=True, slots=True)
class Agreement:
    """G, and the chance of one at least as large if the groups agreed."""

    statistic: float
    p_value: float
    compared: int


def measure_agreement(
    head_list: HeadList,
    noisy: NoisyCounts,
    client: GroupEstimates,
    randomizer: LocalRandomizer,
    *,
    best_trimmed: int | None,
    rng: np.random.Generator,
    rounds: int = 999,
) -> Agreement | None:
    """Compare T with C over the listed records, ⋆ left out; `None` if one of them is empty.

    `best_trimmed` (see `OptinEstimates`) is `None` when T's counts had no part in choosing or
    ordering the list.
    """
    require(rounds >= 99, f"rounds must be at least 99 to tell 1 % apart, got rounds={rounds}")
    compared = min(head_list.listed, _COMPARED)
    if compared == 0 or noisy.users == 0 or client.participants == 0:
        return None
    y, p_client = noisy.counts[:compared], client.cells.probability[:compared]
    some = np.maximum(client.cells.probability, 0)
    client_variance = client.variance_at(_distribution(some))[:compared]
    model = _PooledModel(noisy, y, _cuts(head_list, noisy, best_trimmed, compared))

    # Simulated epochs in which the pooled estimate is the truth for both groups.
    pooled = model.pool(y, p_client, client_variance)
    truth = _distribution(np.concatenate([model.grid[pooled], some[compared:]]))
    observed = float(model.statistic(y, p_client, client_variance))
    step = max(1, _NUMBERS_AT_ONCE // max(len(truth), compared * _GRID))
    at_least = 0
    for done in range(0, rounds, step):
        size = min(step, rounds - done)
        y_simulated = model.draw(pooled, size, rng)
        p_simulated = _simulate_clients(truth, client.participants, randomizer, size, rng)
        simulated = model.statistic(y_simulated, p_simulated[:, :compared], client_variance)
        at_least += int((simulated >= observed).sum())
    return Agreement(observed, (1 + at_least) / (1 + rounds), compared)


def _cuts(
    head_list: HeadList, noisy: NoisyCounts, best_trimmed: int | None, compared: int
) -> IntArray | None:
    """How high y had to be for each record to rank before the first that is not compared.

    Ties rank by text, so a record that sorts behind that one had to be one higher.
    """
    if best_trimmed is None:
        return None
    cut = best_trimmed if compared == head_list.listed else int(noisy.counts[compared])
    first_out = head_list.records[compared]
    return np.array([cut + (r > first_out) for r in head_list.records[:compared]])


def _simulate_clients(
    truth: FloatArray,
    reports: int,
    randomizer: LocalRandomizer,
    rounds: int,
    rng: np.random.Generator,
) -> FloatArray:
    """p̂_C of simulated epochs, one a row."""
    # An answer of w cells is drawn as w answers of one: right on average, a little too noisy.
    width, answers = randomizer.cells_per_answer, randomizer.spec.answers
    shares = _distribution(np.maximum(randomizer.expected_shares(truth), 0))
    counts = rng.multinomial(reports * answers * width, shares, size=rounds)
    p = randomizer.denoise(counts / (reports * answers))
    # A device's answers may all be alike: spread them as far as their variance assumes.
    return truth + (p - truth) * math.sqrt(answers)


def _distribution(p: FloatArray) -> FloatArray:
    return np.asarray(p / p.sum())


class _PooledModel:
    """Both groups' likelihoods over a grid of p: y = Binomial(T, p) + X given y ≥ its cut."""

    def __init__(self, noisy: NoisyCounts, y: IntArray, cuts: IntArray | None) -> None:
        users, highest = noisy.users, max(int(y.max()), 1)
        noise = sum_of_laplace(1, scale=noisy.scale)
        half = len(noise) // 2
        largest = min(2 * (highest + half) / users, 1.0)
        self.grid = (np.arange(_GRID) / (_GRID - 1)) ** 2 * largest
        # Counts up to ten standard deviations above what the largest p gives.
        most = min(users, math.ceil(users * largest + 10 * math.sqrt(users * largest + 1)))

        # Binomial probabilities in logarithms, log C(T, x) by recurrence, then ⊛ noise.
        x = np.arange(most + 1)
        steps = np.log((users - x[1:] + 1) / x[1:])
        log_choose = np.concatenate([[0.0], np.cumsum(steps)])
        with np.errstate(divide="ignore", invalid="ignore"):
            hits = np.where(x == 0, 0.0, x * np.log(self.grid)[:, np.newaxis])
            misses = np.where(x == users, 0.0, (users - x) * np.log1p(-self.grid)[:, np.newaxis])
        binomial = np.exp(log_choose + hits + misses)
        pmf = np.stack([np.convolve(row, noise) for row in binomial])
        self._pmf = np.maximum(pmf, np.finfo(np.float64).tiny)
        self._lowest = -half
        at_or_above = np.cumsum(self._pmf[:, ::-1], axis=1)[:, ::-1]
        lowest = np.full(len(y), self._lowest) if cuts is None else cuts
        self._first = self._column(lowest)
        self._log_pmf = np.log(self._pmf).T  # by count, then by p
        self._log_pass = np.log(at_or_above).T[self._first]  # by record, then by p

    def _column(self, y: IntArray) -> IntArray:
        return np.clip(y - self._lowest, 0, self._pmf.shape[1] - 1)

    def _likelihoods(
        self, y: IntArray, p_client: FloatArray, client_variance: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Logarithms for T and for C: (…, record, p)."""
        distance = p_client[..., np.newaxis] - self.grid
        return (
            self._log_pmf[self._column(y)] - self._log_pass,
            -(distance**2) / (2 * client_variance[:, np.newaxis]),
        )

    def pool(self, y: IntArray, p_client: FloatArray, client_variance: FloatArray) -> IntArray:
        """For each record the place in the grid that both groups together find likeliest."""
        optin, client = self._likelihoods(y, p_client, client_variance)
        return np.asarray((optin + client).argmax(axis=-1))

    def statistic(
        self, y: IntArray, p_client: FloatArray, client_variance: FloatArray
    ) -> FloatArray:
        """G = 2·Σ [ max ℓ_T(p) + max ℓ_C(p) − max (ℓ_T(p) + ℓ_C(p)) ]: two truths against one."""
        optin, client = self._likelihoods(y, p_client, client_variance)
        apart = optin.max(axis=-1) + client.max(axis=-1)
        return np.asarray(2 * (apart - (optin + client).max(axis=-1)).sum(axis=-1))

    def draw(self, at: IntArray, rounds: int, rng: np.random.Generator) -> IntArray:
        """Counts for records whose p is `grid[at]`, given their cuts; (rounds, records)."""
        uniform = rng.random((rounds, len(at)))
        counts = np.empty(uniform.shape, dtype=np.int64)
        for i, (g, first) in enumerate(zip(at, self._first, strict=True)):
            below = np.cumsum(self._pmf[g, first:])
            place = np.searchsorted(below, uniform[:, i] * below[-1])
            counts[:, i] = self._lowest + first + place
        return counts
