"""Estimate probabilities of cells from answers that may be "none" (`randomizers.subset_or_none`).

Promises: post-processing only; it draws no noise and spends no budget.
Assumes: that randomizer drew every answer, for these cells, and ⋆ occurs only with the first ω−1
records.
Symbols: as in `randomizers.subset_or_none`; p = wanted probability of a cell.
"""

from __future__ import annotations

import math

import numpy as np

from blendstream.blender.randomizers.subset_or_none import SubsetOrNone, inclusion
from blendstream.blender.randomizers.whole_records import (
    answer_in_chunks,
    check_counts,
    choose_batch,
    estimates_with_intervals,
    flat,
    sum_by_query,
    without_evidence,
)
from blendstream.blender.values.arrays import FloatArray, IntArray
from blendstream.blender.values.cell_estimates import GroupEstimates
from blendstream.blender.values.cells import Cells, RandomizerSpec

__all__ = ["SubsetOrNoneEstimator"]


class SubsetOrNoneEstimator(SubsetOrNone):
    """The `subset-or-none` randomizer with its estimator, and a fast channel for simulations."""

    def __init__(self, cells: Cells, spec: RandomizerSpec) -> None:
        """Derive t, f and g from the device's ω and E."""
        super().__init__(cells, spec)
        if self._records:
            t, f, g = inclusion(self._records, self.likelihood, self.cells_per_answer)
            self._t, self._f, self._g = float(t), float(f), float(g)

    # ------------------------------------------------------------------ in simulations

    def answer_batch(self, cells: IntArray, rng: np.random.Generator) -> IntArray:
        """Simulate the channel for many devices, shape (n, ω); not for real use."""
        return answer_in_chunks(
            cells, self.cells_per_answer, lambda chunk: self._answer_chunk(chunk, rng)
        )

    def _answer_chunk(self, cells: IntArray, rng: np.random.Generator) -> IntArray:
        w, m = self.cells_per_answer, self._records
        answers = np.zeros((len(cells), w), dtype=np.int64)
        if m == 0:
            return answers
        drawn = rng.random(len(cells))
        blind = np.flatnonzero(drawn >= self._t)
        answers[blind] = choose_batch(len(blind), m, w, rng)
        none = (drawn < self._t) & ((cells == m) | (drawn < self._f))
        own = np.flatnonzero((drawn < self._t) & ~none)
        others = choose_batch(len(own), m - 1, w - 1, rng) if w > 1 else answers[own, :0]
        held = cells[own, None]
        answers[own] = np.hstack([others + (others >= held), held])
        answers[none] = self._none
        answers.sort(axis=1)
        return answers

    # ------------------------------------------------------------------ on the server

    def expected_shares(self, p: FloatArray) -> FloatArray:
        """Return P(named) of each record, with p the truth over the cells (last axis).

        "None" counts as ω times ⋆ here and in `denoise`, so that shares add up to ω.
        """
        if self._records == 0:
            return np.ones_like(p)
        none = self._f + (self._t - self._f) * p[..., -1:]
        named = self._blind(1 - p[..., -1:]) + (self._t - self._g) * p[..., :-1]
        return np.concatenate([named, self.cells_per_answer * none], axis=-1)

    def denoise(self, shares: FloatArray) -> FloatArray:
        """Return p̂⋆ = (r̂⋆ − f)/(t − f) and p̂ = (r̂ − f − (g−f)·(1−p̂⋆))/(t − g)."""
        if self._records == 0:
            return np.ones_like(shares)
        none = shares[..., -1:] / self.cells_per_answer
        star = (none - self._f) / (self._t - self._f)
        named = (shares[..., :-1] - self._blind(1 - star)) / (self._t - self._g)
        return np.concatenate([named, star], axis=-1)

    def _blind(self, listed: FloatArray) -> FloatArray:
        """Return P(a record is named) by those who do not hold it, if λ = `listed`."""
        return np.asarray(self._f + (self._g - self._f) * listed)

    def estimate(self, counts: IntArray, reports: int) -> GroupEstimates:
        """Estimate from the `counts[…, c]` answers with cell c, m_C from each of `reports` devices.

        Simulations may stack any number of runs in leading axes.
        """
        size, w, m_c = len(self.cells), self.cells_per_answer, self.spec.answers
        n = reports * m_c
        check_counts(counts, size, reports, m_c, w)
        queries = len(self.cells.queries)
        if reports == 0 or self._records == 0:
            cells, totals = without_evidence(size, queries, reports)
            return GroupEstimates(reports, cells, totals, None, flat(cells.variance))

        shares = counts / n
        shares[..., : w - 1] -= shares[..., -1:]  # the padding of "none"
        shares[..., -1] *= w
        probability = self.denoise(shares)
        moments = _Moments(self, np.clip(1 - probability[..., -1:], 0.0, 1.0))

        # Answers of different devices are independent. The m_C answers of one device may repeat
        # its record; treating them as one answer is a bound. Bessel's correction, over devices,
        # makes it the sample variance; a p̂ outside [0, 1] is clipped
        # (docs/decisions/0004-variance-floors.md).
        def variance_at(truth: FloatArray) -> FloatArray:
            star = moments.none_variance(truth[..., -1:])
            named = moments.named_variance(np.ones(1), truth[..., :-1])
            return np.asarray(m_c / n * np.concatenate([named, star], axis=-1))

        def sample(variance: FloatArray) -> FloatArray:
            if reports == 1:
                return np.full_like(variance, math.inf)
            return variance * (reports / (reports - 1))

        cells = estimates_with_intervals(
            probability, sample(variance_at(np.clip(probability, 0.0, 1.0))), variance_at
        )
        of_query = self.cells.query_of_cell[:-1]
        records = np.bincount(of_query, minlength=queries).astype(np.float64)
        total = sum_by_query(probability[..., :-1], of_query, queries)

        def total_variance_at(truth: FloatArray) -> FloatArray:
            return np.asarray(m_c / n * moments.named_variance(records, truth))

        variance = sample(total_variance_at(np.clip(total, 0.0, 1.0)))
        totals = estimates_with_intervals(total, variance, total_variance_at)
        return GroupEstimates(reports, cells, totals, None, variance_at)


class _Moments:
    """Variances of one answer's contribution to estimates, at an estimate of λ (`listed`).

    The uncertainty of λ is neglected: it changes P(named) by a thousandth of its value.
    """

    def __init__(self, channel: SubsetOrNoneEstimator, listed: FloatArray) -> None:
        self._t, self._f, self._g = channel._t, channel._f, channel._g
        self._listed = listed
        self._named_blindly = channel._blind(listed)
        self._none = self._f + (self._t - self._f) * (1 - listed)
        w, m = channel.cells_per_answer, len(channel.cells) - 1
        # P(both of two records named) by a holder of one of the two, of another record, of ⋆. Of
        # the sets that name one record (ω−1)/(M−1) name a second, of those (ω−2)/(M−2) a third.
        second, third = (w - 1) / max(m - 1, 1), (w - 2) / max(m - 2, 1)
        self._both_if_one = self._t * second
        self._both_if_other = self._f * second * (1 + (float(channel.likelihood) - 1) * third)
        self._both_if_star = self._f * second

    def none_variance(self, star: FloatArray) -> FloatArray:
        """Return the variance of p̂⋆: r⋆(1−r⋆)/(t−f)²."""
        gain = self._t - self._f
        r = self._f + gain * star
        return np.asarray(r * (1 - r) / gain**2)

    def named_variance(self, records: FloatArray, total: FloatArray) -> FloatArray:
        """Return the variance of Σp̂ over L records whose probabilities sum to `total`.

        p̂ = (X + κ·Y)/(t−g) + const, X = the record is named, Y = "none", κ = (g−f)/(t−f). With T
        the number of the L that are named, T·Y = 0, so Var(T + LκY) is

            Var(T) + (Lκ)²·r⋆(1−r⋆) − 2Lκ·E(T)·r⋆.

        Over the ordered pairs of L records exactly 2(L−1) times P has the held one in the pair.
        """
        t, f, g = self._t, self._f, self._g
        mean = records * self._named_blindly + (t - g) * total
        elsewhere = self._listed * self._both_if_other + (1 - self._listed) * self._both_if_star
        pairs = (records - 1) * (
            records * elsewhere + 2 * total * (self._both_if_one - self._both_if_other)
        )
        k = records * (g - f) / (t - f)
        none = self._none
        spread = mean + pairs - mean**2 + k**2 * none * (1 - none) - 2 * k * mean * none
        return np.asarray(spread / (t - g) ** 2, dtype=np.float64)
