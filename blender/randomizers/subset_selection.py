"""Subset selection: an answer is a set of ω cells, in which the true one is likelier than others.

Not in the paper, which reports a query and then a URL and so splits the device's budget. Here one
answer covers all records and ⋆, at the full ε and with δ = 0. With ω = 1 it is k-ary randomized
response: the true cell with probability t = e^ε/(e^ε+K−1), else any other.

Promises: every answer of one device is ε/m_C-DP, δ = 0, so a report of m_C answers is ε-DP;
neighbouring: replace-one, that is any two records the device might hold. All K-choose-ω answers
are possible; those that hold the true cell are e^(ε/m_C), rounded down, times as likely as those
that do not; no third likelihood occurs. (docs/privacy-sharp.md has the proof.)
Assumes: cells without ⟨q,⋆⟩, so that a record is listed or is ⋆; a uniform random source.

The device's side, without NumPy; `blender.randomizers.subset_estimates` has the estimator.

Symbols: K = cells, ω = cells_per_answer, E = e^(ε/m_C) rounded down, p = P(true cell in answer),
q = P(a given false cell in answer).
"""

from __future__ import annotations

import math
from fractions import Fraction

from blendstream.blender.values.answer_shape import AnswerShape
from blendstream.blender.values.cells import Cells, RandomizerSpec
from blendstream.blender.values.errors import HeadListMismatch, ParameterError
from blendstream.blender.values.random_source import RandomSource, choose
from blendstream.blender.values.rational import exp_rounded_down
from blendstream.blender.values.record import Record

__all__ = [
    "RandomizedResponse",
    "SubsetSelection",
    "best_subset_size",
    "inclusion",
    "rare_variance",
]


def best_subset_size(cells: int, likelihood: Fraction, max_cells: int) -> int:
    """Return the ω ≤ max_cells with the least variance for a rare record, by exact arithmetic.

    Nearly every record of a head list is rare, and for a rare record q(1−q)/(p−q)² is the whole
    variance. That expression falls until ω reaches K/(E+1) and rises after it, so the best ω is an
    integer next to that point, or the cap. Exact, because device and estimator must choose the
    same ω on any processor.

    >>> [best_subset_size(k, Fraction(546, 10), 32) for k in (2, 51, 501, 50_001)]
    [1, 1, 9, 32]
    """
    highest = max(1, min(max_cells, cells - 1))
    turning = math.floor(cells / (likelihood + 1))
    candidates = {min(max(w, 1), highest) for w in (1, turning, turning + 1)}
    return min(sorted(candidates), key=lambda w: rare_variance(cells, likelihood, w))


def rare_variance(cells: int, likelihood: Fraction, subset_size: int) -> Fraction:
    """Return n·Var(p̂) of a record that no one holds: q(1−q)/(p−q)²."""
    if cells == 1:
        return Fraction(0)
    p, q = inclusion(cells, likelihood, subset_size)
    return q * (1 - q) / (p - q) ** 2


def inclusion(cells: int, likelihood: Fraction, subset_size: int) -> tuple[Fraction, Fraction]:
    """Return p and q."""
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
        spec.check_width(self.cells_per_answer)

    def _subset_size(self) -> int:
        return best_subset_size(self._size, self.likelihood, self.spec.max_cells_per_answer)

    def answer(self, cell: int, source: RandomSource) -> tuple[int, ...]:
        """Randomise one true cell number by integer arithmetic on numbers from `source`."""
        self._check(cell)
        if self._size == 1:
            return (0,)
        # p = a·ω / (a·ω + d·(K−ω)) with E = a/d, a fraction.
        w = self.cells_per_answer
        true_weight = self.likelihood.numerator * w
        false_weight = self.likelihood.denominator * (self._size - w)
        holds_truth = source.below(true_weight + false_weight) < true_weight
        others = choose(self._size - 1, w - holds_truth, source)
        # Numbers from `cell` on are raised by one, so that the others never include the true cell.
        chosen = [other + (other >= cell) for other in others]
        return tuple(sorted([*chosen, cell] if holds_truth else chosen))

    def report_probability(self, record: Record | None, answer: tuple[int, ...]) -> Fraction:
        """Return the exact P(answer | the device holds `record`); `None` has the cell ⟨⋆,⋆⟩."""
        w = self.cells_per_answer
        if not AnswerShape.from_randomizer(self).allows_answer(answer):
            return Fraction(0)
        if self._size == 1:
            return Fraction(1)
        # Weights E and 1, divided by their sum E·C(K−1, ω−1) + C(K−1, ω).
        total = self.likelihood * math.comb(self._size - 1, w - 1) + math.comb(self._size - 1, w)
        return (self.likelihood if self.cells.number(record) in answer else Fraction(1)) / total

    def _check(self, cell: int) -> None:
        if not 0 <= cell < self._size:
            raise HeadListMismatch(f"cell must lie in 0..{self._size - 1}, got {cell}")


class RandomizedResponse(SubsetSelection):
    """k-ary randomized response: subset selection with ω = 1 for every K."""

    name = "randomized-response"

    def _subset_size(self) -> int:
        return 1
