"""Report ω whole records at once, the true one among them more often than chance would have it.

Not in the paper, which reports a query and then a URL and so splits the device's budget. Here one
answer covers all records and ⋆, at the full ε and with δ = 0. With ω = 1 it is k-ary randomized
response: the true cell with probability t = e^ε/(e^ε+K−1), else any other.

Promises: every answer of one device is ε/m_C-DP, δ = 0, so a report of m_C answers is ε-DP;
neighbouring: replace-one, that is any two records the device might hold. All K-choose-ω answers
are possible; those that hold the true cell are e^(ε/m_C), rounded down, times as likely as those
that do not, and there is no third likelihood. (docs/privacy-sharp.md has the proof.)
Assumes: cells without ⟨q,⋆⟩, so that a record is listed or is ⋆; dice that are fair.

Symbols: K = cells, ω = cells_per_answer, E = e^(ε/m_C) rounded down, p = P(true cell in answer),
q = P(a given false cell in answer), n = answers, r = share of answers that hold a cell,
π = wanted probability of a cell.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from blender.answer_shape import AnswerShape
from blender.cell_estimates import FloatArray, GroupEstimates
from blender.cells import Cells, RandomizerSpec
from blender.dice import Dice
from blender.errors import HeadListMismatch, ParameterError
from blender.noise import IntArray
from blender.rational import exp_rounded_down
from blender.record import Record
from blender.whole_records import (
    answer_in_chunks,
    check_counts,
    choose,
    choose_batch,
    estimates_with_intervals,
    flat,
    sum_by_query,
    without_evidence,
)

__all__ = ["RandomizedResponse", "SubsetSelection", "best_subset_size"]


def best_subset_size(cells: int, likelihood: Fraction, max_cells: int) -> int:
    """The ω ≤ max_cells with the least variance for a rare record, by exact arithmetic.

    Rare, because that is what nearly every record of a head list is, and where q(1−q)/(p−q)² is
    the whole variance. That expression falls until ω reaches K/(E+1) and rises after it, so only
    the whole numbers beside that point, or the cap, can be best. Exact, because device and
    estimator must choose the same ω on any processor.

    >>> [best_subset_size(k, Fraction(546, 10), 32) for k in (2, 51, 501, 50_001)]
    [1, 1, 9, 32]
    """
    highest = max(1, min(max_cells, cells - 1))
    turning = math.floor(cells / (likelihood + 1))
    candidates = {min(max(w, 1), highest) for w in (1, turning, turning + 1)}
    return min(sorted(candidates), key=lambda w: rare_variance(cells, likelihood, w))


def rare_variance(cells: int, likelihood: Fraction, subset_size: int) -> Fraction:
    """n·Var(p̂) of a record that no one holds: q(1−q)/(p−q)²."""
    if cells == 1:
        return Fraction(0)
    p, q = _inclusion(cells, likelihood, subset_size)
    return q * (1 - q) / (p - q) ** 2


def _inclusion(cells: int, likelihood: Fraction, subset_size: int) -> tuple[Fraction, Fraction]:
    # Of the sets that hold the true cell there are C(K−1, ω−1), each E times as likely as each of
    # the C(K−1, ω) others. The ratio of those two numbers is ω : K−ω, so
    #
    #     p = ωE / (ωE + K − ω).
    #
    # Every answer holds ω cells, so p + (K−1)q = ω, and q follows.
    w = subset_size
    p = w * likelihood / (w * likelihood + cells - w)
    return p, (w - p) / (cells - 1)


class SubsetSelection:
    """Randomizer over whole records; ω follows from K, ε and `spec.max_cells_per_answer`."""

    name = "subset-selection"
    query_wildcards = False
    wildcard_alone = False

    def __init__(self, cells: Cells, spec: RandomizerSpec) -> None:
        """Derive the channel from the number of cells and the budget alone."""
        if cells.query_wildcards:
            raise ParameterError(f"{self.name} is defined on cells without query wildcards")
        self.cells = cells
        self.spec = spec
        self._size = len(cells)
        self.likelihood = exp_rounded_down(Fraction(spec.epsilon) / spec.answers)
        self.cells_per_answer = self._subset_size()
        p, q = Fraction(1), Fraction(1)
        if self._size > 1:
            p, q = _inclusion(self._size, self.likelihood, self.cells_per_answer)
        self._p, self._q = p, q

    def _subset_size(self) -> int:
        return best_subset_size(self._size, self.likelihood, self.spec.max_cells_per_answer)

    # ------------------------------------------------------------------ on the device

    def answer(self, cell: int, dice: Dice) -> tuple[int, ...]:
        """Randomise one true cell number by integer arithmetic on `dice`."""
        self._check(cell)
        if self._size == 1:
            return (0,)
        # p = a·ω / (a·ω + d·(K−ω)) with E = a/d in whole numbers.
        w = self.cells_per_answer
        true_weight = self.likelihood.numerator * w
        false_weight = self.likelihood.denominator * (self._size - w)
        holds_truth = dice.below(true_weight + false_weight) < true_weight
        others = choose(self._size - 1, w - holds_truth, dice)
        # Numbers from `cell` on move up by one, so that the others never name the true cell.
        chosen = [other + (other >= cell) for other in others]
        return tuple(sorted([*chosen, cell] if holds_truth else chosen))

    def report_probability(self, record: Record | None, answer: tuple[int, ...]) -> Fraction:
        """P(this answer | the device holds `record`), exactly; `None` holds ⟨⋆,⋆⟩."""
        w = self.cells_per_answer
        if not AnswerShape.of(self).allows_answer(answer):
            return Fraction(0)
        if self._size == 1:
            return Fraction(1)
        # Weights E and 1, divided by their sum E·C(K−1, ω−1) + C(K−1, ω).
        total = self.likelihood * math.comb(self._size - 1, w - 1) + math.comb(self._size - 1, w)
        return (self.likelihood if self.cells.number(record) in answer else Fraction(1)) / total

    # ------------------------------------------------------------------ in simulations

    def answer_batch(self, cells: IntArray, rng: np.random.Generator) -> IntArray:
        """For simulation only: the same channel for many devices, shape (n, ω)."""
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
        """For each cell P(it is in an answer), if p is the truth over the cells (last axis)."""
        if self._size == 1:
            return np.ones_like(p)
        # A device holds cell c with probability π; its answer then holds c with probability p,
        # otherwise with q:    r = q + (p−q)·π.
        return np.asarray(float(self._q) + float(self._p - self._q) * p)

    def denoise(self, shares: FloatArray) -> FloatArray:
        """π̂ = (r̂ − q)/(p − q): the inverse of `expected_shares`."""
        if self._size == 1:
            return np.ones_like(shares)
        return np.asarray((shares - float(self._q)) / float(self._p - self._q))

    def estimate(self, counts: IntArray, reports: int) -> GroupEstimates:
        """Denoise: `counts[…, c]` answers held cell c; `reports` devices sent m_C answers each.

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
        # device may repeat its record; their covariance cannot be seen in counts, and is bounded
        # by taking them for one answer, which multiplies the variance by m_C.
        def variance_at(truth: FloatArray) -> FloatArray:
            r = self.expected_shares(truth)
            return np.asarray(m_c * r * (1 - r) / (n * gain**2), dtype=np.float64)

        # Bessel's correction, over devices, makes it the unbiased sample variance. It is not taken
        # at a π̂ outside [0, 1], where it would promise too much
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
        """Variance of the number of cells that one answer shares with a query's L records.

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

    def _check(self, cell: int) -> None:
        if not 0 <= cell < self._size:
            raise HeadListMismatch(f"cell must lie in 0..{self._size - 1}, got {cell}")


class RandomizedResponse(SubsetSelection):
    """k-ary randomized response: subset selection with ω = 1 for every K."""

    name = "randomized-response"

    def _subset_size(self) -> int:
        return 1
