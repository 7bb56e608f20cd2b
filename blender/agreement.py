"""Do opt-in users and clients want the same things? A p-value for "yes".

Blending assumes that both groups draw from one distribution. If opt-in users are unlike the rest,
the blend is precise and wrong, and this test says so.

Promises: post-processing only, on published numbers. Under agreement P(p < 0.01) is about 0.01.
Assumes: T alone is compared with C; the list's order came either from S (nothing to correct) or
from T's own noisy counts (`ranked_by_t`: a count had to be high to be compared at all).
Symbols: y = T's noisy count, T = users of T, p̂_C = the clients' estimate, G = the statistic.

Why not Q = Σ(p̂_O−p̂_C)²/(σ²_O+σ²_C) and χ²: counts are small and skewed, and records listed
*because* their y was large look larger in T than in C. So the statistic is a likelihood ratio that
knows y had to reach the cut, and it is compared with its own values in simulated epochs in which
the groups do agree, on truths as uncertain as the data leave them
(docs/decisions/0006-do-the-groups-agree.md). The generator is numpy's: it decides a p-value, not
anyone's privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from blender.cell_estimates import FloatArray, GroupEstimates
from blender.cells import HeadList
from blender.errors import ParameterError, require
from blender.interfaces import LocalRandomizer
from blender.intervals import sum_of_laplace
from blender.noise import IntArray
from blender.optin import NoisyCounts

__all__ = ["Agreement", "measure_agreement"]

#: Records compared at most, the first of the list: beyond, counts are noise and only cost time.
_COMPARED = 500

#: Probabilities tried for each record when both groups are pooled, spaced evenly in √p where T's
#: spread is even. Too few, and the clients' sharp peak falls between two of them, which simulated
#: truths, being on the grid, never do: with 96 agreeing groups were rejected 2.3 % of the time at
#: a nominal 1 % (300 runs). More cost time alone.
_GRID = 320

#: Steps in which the law of the records' probabilities is fitted. Too few, and it stays at the even
#: start, which has too few small ones; many more, and it follows the noise of this one epoch.
_FITTING_STEPS = 50

#: Simulated epochs are drawn in batches of about this many numbers (a few times 2 MB). Smaller
#: costs time, larger memory and, once it leaves the caches, time as well.
_NUMBERS_AT_ONCE = 300_000


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
    ranked_by_t: bool,
    best_trimmed: int | None,
    rng: np.random.Generator,
    rounds: int = 999,
) -> Agreement | None:
    """Compare T with C over the listed records, ⋆ left out; `None` if one of them is empty.

    `ranked_by_t` says whether T's counts ordered the list, and `best_trimmed` (see
    `OptinEstimates`) which of them came first among the unlisted, if any did.
    """
    require(rounds >= 99, f"rounds must be at least 99 to tell 1 % apart, got rounds={rounds}")
    compared = min(head_list.listed, _COMPARED)
    if compared == 0 or noisy.users == 0 or client.participants == 0:
        return None
    y, p_client = noisy.counts[:compared], client.cells.probability[:compared]
    some = np.maximum(client.cells.probability, 0)
    client_variance = client.variance_at(_distribution(some))[:compared]
    cuts = _cuts(head_list, noisy, best_trimmed, compared) if ranked_by_t else None
    model = _PooledModel(noisy, y, cuts)
    observed = float(model.statistic(y, p_client, client_variance))

    # Simulated epochs in which the same truth, a new one each time, holds for both groups.
    truths = model.plausible(y, p_client, client_variance, rounds, rng)
    y_simulated = model.draw(truths, rng)
    step = max(1, _NUMBERS_AT_ONCE // max(len(some), compared * _GRID))
    at_least = 0
    for done in range(0, rounds, step):
        batch = slice(done, done + step)
        truth = _over_all_cells(model.grid[truths[batch]], some[compared:])
        p_simulated = _simulate_clients(truth, client.participants, randomizer, rng)
        simulated = model.statistic(y_simulated[batch], p_simulated[:, :compared], client_variance)
        at_least += int((simulated >= observed).sum())
    return Agreement(observed, (1 + at_least) / (1 + rounds), compared)


def _cuts(
    head_list: HeadList, noisy: NoisyCounts, best_trimmed: int | None, compared: int
) -> IntArray | None:
    """How high y had to be for each record to rank before the first that is not compared.

    Ties rank by text, so a record that sorts behind that one had to be one higher. Where all that
    were selected are compared none had to be anything.
    """
    if compared == len(head_list.records):
        return None
    cut = int(noisy.counts[compared]) if compared < head_list.listed else best_trimmed
    if cut is None:
        raise ParameterError("a list that T's counts trimmed needs best_trimmed, got none")
    first_out = head_list.records[compared]
    return np.array([cut + (r > first_out) for r in head_list.records[:compared]])


def _over_all_cells(compared: FloatArray, others: FloatArray) -> FloatArray:
    """A truth over all cells: the compared ones as they are, the others in what these leave.

    Both groups must be given the same p. `others` are clipped estimates and may add up to more
    than everyone; to scale all cells alike would make simulated groups differ.
    """
    left = np.maximum(1 - compared.sum(axis=-1, keepdims=True), 0)
    share = _distribution(others) if others.any() else np.full(len(others), 1 / len(others))
    return _distribution(np.concatenate([compared, left * share], axis=-1))


def _simulate_clients(
    truth: FloatArray, reports: int, randomizer: LocalRandomizer, rng: np.random.Generator
) -> FloatArray:
    """p̂_C of simulated epochs, one a row, as is their truth."""
    # An answer of w cells is drawn as w answers of one: right on average, a little too noisy.
    width, answers = randomizer.cells_per_answer, randomizer.spec.answers
    shares = _distribution(np.maximum(randomizer.expected_shares(truth), 0))
    counts = rng.multinomial(reports * answers * width, shares)
    p = randomizer.denoise(counts / (reports * answers))
    # A device's answers may all be alike: spread them as far as their variance assumes.
    return truth + (p - truth) * math.sqrt(answers)


def _distribution(p: FloatArray) -> FloatArray:
    return np.asarray(p / p.sum(axis=-1, keepdims=True))


class _PooledModel:
    """Both groups' likelihoods over a grid of p: y = Binomial(T, p) + X given y ≥ its cut."""

    def __init__(self, noisy: NoisyCounts, y: IntArray, cuts: IntArray | None) -> None:
        users = noisy.users
        noise = sum_of_laplace(1, scale=noisy.scale)
        half = len(noise) // 2
        # Probabilities up to ten standard deviations above the largest count, and counts up to
        # ten above what the largest probability gives.
        highest = max(int(y.max()), 1) + half
        largest = min((highest + min(highest, 10 * math.sqrt(highest))) / users, 1.0)
        self.grid = (np.arange(_GRID) / (_GRID - 1)) ** 2 * largest
        most = min(users, math.ceil(users * largest + 10 * math.sqrt(users * largest + 1)))

        # Binomial probabilities in logarithms, log C(T, x) by recurrence, then ⊛ noise. One p at
        # a time: the table has a row for every count, and a second of its size is memory wasted.
        x = np.arange(most + 1)
        log_choose = np.concatenate([[0.0], np.cumsum(np.log((users - x[1:] + 1) / x[1:]))])
        self._lowest = -half
        self._log_pmf = np.empty((len(x) + 2 * half, _GRID))  # by count, then by p
        self._first = self._row(np.full(len(y), self._lowest) if cuts is None else cuts)
        self._log_pass = np.empty((len(y), _GRID))  # by record, then by p
        for g, p in enumerate(self.grid):
            with np.errstate(divide="ignore", invalid="ignore"):
                hits = np.where(x == 0, 0.0, x * np.log(p))
                misses = np.where(x == users, 0.0, (users - x) * np.log1p(-p))
            pmf = np.convolve(np.exp(log_choose + hits + misses), noise)
            pmf = np.maximum(pmf, np.finfo(np.float64).tiny)
            self._log_pmf[:, g] = np.log(pmf)
            self._log_pass[:, g] = np.log(np.cumsum(pmf[::-1])[::-1][self._first])

    def _row(self, y: IntArray) -> IntArray:
        return np.clip(y - self._lowest, 0, len(self._log_pmf) - 1)

    def _likelihoods(
        self, y: IntArray, p_client: FloatArray, client_variance: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Logarithms for T and for C: (…, record, p)."""
        distance = p_client[..., np.newaxis] - self.grid
        return (
            self._log_pmf[self._row(y)] - self._log_pass,
            -(distance**2) / (2 * client_variance[:, np.newaxis]),
        )

    def statistic(
        self, y: IntArray, p_client: FloatArray, client_variance: FloatArray
    ) -> FloatArray:
        """G = 2·Σ [ max ℓ_T(p) + max ℓ_C(p) − max (ℓ_T(p) + ℓ_C(p)) ]: two truths against one."""
        optin, client = self._likelihoods(y, p_client, client_variance)
        apart = optin.max(axis=-1) + client.max(axis=-1)
        return np.asarray(2 * (apart - (optin + client).max(axis=-1)).sum(axis=-1))

    def plausible(
        self,
        y: IntArray,
        p_client: FloatArray,
        client_variance: FloatArray,
        rounds: int,
        rng: np.random.Generator,
    ) -> IntArray:
        """Truths that both groups may share, as places in the grid: (rounds, records).

        Every record's is drawn given its own y and p̂_C, from a law of p that is fitted to all
        compared records together. The likeliest p of each would not do: it is too spread out, too
        often 0 in particular, where G is small, and over hundreds of records that adds up.
        """
        optin, client = self._likelihoods(y, p_client, client_variance)
        both = optin + client
        likelihood = np.exp(both - both.max(axis=-1, keepdims=True))
        # Expectation and maximisation: the law is the mean of what it makes of each record.
        law = np.full(_GRID, 1 / _GRID)
        for _ in range(_FITTING_STEPS):
            law *= (likelihood / (likelihood @ law)[:, np.newaxis]).mean(axis=0)
        below = np.cumsum(likelihood * law, axis=-1)
        uniform = rng.random((rounds, len(y))) * below[:, -1]
        columns = zip(below, uniform.T, strict=True)
        return np.stack([np.searchsorted(row, u) for row, u in columns], axis=-1)

    def draw(self, at: IntArray, rng: np.random.Generator) -> IntArray:
        """Counts for records whose p is `grid[at]`, given their cuts; (rounds, records)."""
        uniform, counts = rng.random(at.shape), np.empty(at.shape, dtype=np.int64)
        first, top = np.broadcast_to(self._first, at.shape), len(self._log_pmf) - 1
        for g in np.unique(at):
            here = at == g
            # From the highest count down: what passes a high cut is a sum of small numbers.
            at_or_above = np.cumsum(np.exp(self._log_pmf[::-1, g]))
            place = np.searchsorted(at_or_above, uniform[here] * at_or_above[top - first[here]])
            counts[here] = self._lowest + top - place
        return counts
