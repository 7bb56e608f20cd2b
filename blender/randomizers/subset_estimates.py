"""Estimate probabilities of cells from subset-selection answers (`randomizers.subset_selection`).

Promises: post-processing only; it draws no noise and spends no budget.
Assumes: that randomizer drew every answer, for these cells.
Symbols: K = cells, ω = cells_per_answer, p = P(true cell in answer), q = P(a given false cell in
answer), n = answers, r = share of answers with a given cell, π = wanted probability of a cell.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from blendstream.blender.randomizers.subset_selection import (
    RandomizedResponse,
    SubsetSelection,
    inclusion,
)
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

__all__ = ["RandomizedResponseEstimator", "SubsetSelectionEstimator"]


class SubsetSelectionEstimator(SubsetSelection):
    """The `subset-selection` randomizer with its estimator, and a fast channel for simulations."""

    def __init__(self, cells: Cells, spec: RandomizerSpec) -> None:
        """Derive p and q from the device's ω and E."""
        super().__init__(cells, spec)
        p, q = Fraction(1), Fraction(1)
        if self._size > 1:
            p, q = inclusion(self._size, self.likelihood, self.cells_per_answer)
        self._p, self._q = p, q

    # ------------------------------------------------------------------ in simulations

    def answer_batch(self, cells: IntArray, rng: np.random.Generator) -> IntArray:
        """Simulate the channel for many devices, shape (n, ω); not for real use."""
        return answer_in_chunks(
            cells, self.cells_per_answer, lambda chunk: self._answer_chunk(chunk, rng)
        )

    def _answer_chunk(self, cells: IntArray, rng: np.random.Generator) -> IntArray:
        if self._size == 1:
            return np.zeros((len(cells), 1), dtype=np.int64)
        w = self.cells_per_answer
        truthful = rng.random(len(cells)) < float(self._p)
        answers = np.empty((len(cells), w), dtype=np.int64)
        for holds_truth in (True, False):
            rows = np.flatnonzero(truthful == holds_truth)
            true_cells = cells[rows, None]
            others = choose_batch(len(rows), self._size - 1, w - holds_truth, rng)
            others += others >= true_cells
            answers[rows] = np.hstack([others, true_cells]) if holds_truth else others
        answers.sort(axis=1)
        return answers

    # ------------------------------------------------------------------ on the server

    def expected_shares(self, p: FloatArray) -> FloatArray:
        """Return P(cell in an answer) for each cell, if p is the truth (last axis: cells)."""
        if self._size == 1:
            return np.ones_like(p)
        # A device holds cell c with probability π; then its answer contains c with probability p,
        # otherwise with q:    r = q + (p−q)·π.
        return np.asarray(float(self._q) + float(self._p - self._q) * p)

    def denoise(self, shares: FloatArray) -> FloatArray:
        """Return π̂ = (r̂ − q)/(p − q), the inverse of `expected_shares`."""
        if self._size == 1:
            return np.ones_like(shares)
        return np.asarray((shares - float(self._q)) / float(self._p - self._q))

    def estimate(self, counts: IntArray, reports: int) -> GroupEstimates:
        """Estimate from the `counts[…, c]` answers with cell c, m_C from each of `reports` devices.

        Simulations may stack any number of runs in leading axes.
        """
        m_c = self.spec.answers
        n = reports * m_c
        check_counts(counts, self._size, reports, m_c, self.cells_per_answer)
        p, q = float(self._p), float(self._q)
        queries = len(self.cells.queries)
        if reports == 0 or self._size == 1:
            cells, totals = without_evidence(self._size, queries, reports)
            return GroupEstimates(reports, cells, totals, None, flat(cells.variance))

        gain = p - q
        probability = self.denoise(counts / n)

        # Answers of different devices are independent: Var(r̂) = r(1−r)/n. The m_C answers of one
        # device may repeat its record; counts do not show their covariance. Treating them as one
        # answer bounds it, which multiplies the variance by m_C.
        def variance_at(truth: FloatArray) -> FloatArray:
            r = self.expected_shares(truth)
            return np.asarray(m_c * r * (1 - r) / (n * gain**2), dtype=np.float64)

        # Bessel's correction, over devices, makes it the unbiased sample variance. A π̂ outside
        # [0, 1] is clipped, where the variance would be too small
        # (docs/decisions/0004-variance-floors.md).
        def sample(variance: FloatArray) -> FloatArray:
            if reports == 1:
                return np.full_like(variance, math.inf)
            return variance * (reports / (reports - 1))

        floored = np.clip(probability, 0.0, 1.0)
        cells = estimates_with_intervals(probability, sample(variance_at(floored)), variance_at)
        listed = self.cells.query_of_cell[:-1]
        records = np.bincount(listed, minlength=queries).astype(np.float64)
        total = sum_by_query(probability[..., :-1], listed, queries)

        def total_variance_at(truth: FloatArray) -> FloatArray:
            return m_c / (n * gain**2) * self._overlap_variance(records, truth)

        variance = sample(total_variance_at(np.clip(total, 0.0, 1.0)))
        totals = estimates_with_intervals(total, variance, total_variance_at)
        return GroupEstimates(reports, cells, totals, None, variance_at)

    def _overlap_variance(self, records: FloatArray, total: FloatArray) -> FloatArray:
        """Return the variance of T, the number of a query's L records in one answer.

        Two given cells are both in an answer with probability J₁ if one of them is true and J₀ if
        neither is. Over the ordered pairs of L records whose probabilities sum to P, exactly
        2(L−1) times P has a true one in the pair, hence

            E(T)  = Lq + (p−q)P
            E(T²) = E(T) + L(L−1)·J₀ + 2(L−1)P·(J₁−J₀).
        """
        p, q, w, size = float(self._p), float(self._q), self.cells_per_answer, self._size
        j1 = p * (w - 1) / (size - 1)
        j0 = (p * (w - 1) * (w - 2) + (1 - p) * w * (w - 1)) / ((size - 1) * max(size - 2, 1))
        mean = records * q + (p - q) * total
        pairs = records * (records - 1) * j0 + 2 * (records - 1) * total * (j1 - j0)
        return np.asarray(mean + pairs - mean**2, dtype=np.float64)


class RandomizedResponseEstimator(SubsetSelectionEstimator, RandomizedResponse):
    """The estimator of randomized response: subset selection with ω = 1."""
