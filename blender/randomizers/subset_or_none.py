"""Subset or none: an answer is a set of ω listed records, or "none".

Not in the paper. Subset selection (`blender.randomizers.subset_selection`) treats ⋆ as one more
cell, so a device without a listed record still names ω−1 or ω records. Nearly every device is one
of these: most of the noise on a rare record comes from people who hold no listed record. Here such
a device may answer "none", with the probability that a holder names its record. At the same ε the
variance is about a third less, on a list of 500 from which a third of the people hold a record.

    held          "none"     a given set with the record     a given set without it
    record r      1·S        E                               1
    ⋆             E·S                                        1

are the weights, with S = C(M−1, ω−1), the number of sets that contain a given record: "none" counts
as S sets. Each row adds up to (E + M/ω)·S.

Promises: every answer of one device is ε/m_C-DP, δ = 0, so a report of m_C answers is ε-DP;
neighbouring: replace-one. An answer's weights under two records differ by a factor of at most
E = e^(ε/m_C), rounded down, and all rows have one sum. (docs/privacy-sharp.md)
Assumes: cells without ⟨q,⋆⟩; a uniform random source. In the counts, ⋆ occurs with no other records
(`wildcard_alone`; gateway and worker refuse such answers), because "none" is subtracted from the
records that pad it.

The device's side, without NumPy; `blender.randomizers.subset_or_none_estimates` has the estimator.
In a report every answer has ω cells: "none" is ⋆ padded with the first ω−1 records. No set contains
⋆, so the number of "none" is ⋆'s count, and the estimator subtracts it from these records' counts.

Symbols: M = listed records, ω = cells_per_answer, E as above, n = answers; for one answer
t = P(names r | holds r) = P(none | holds ⋆) = E·f, f = P(names r | holds ⋆) = P(none | holds r),
g = P(names r | holds another record), λ = share of people who hold a listed record.

Decision: docs/decisions/0024-devices-may-say-none.md
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

__all__ = ["SubsetOrNone", "best_named_size", "inclusion", "named_variance"]

#: Default 64·λ for the choice of ω, if the head list states none: lists of 50 to 500 records cover
#: between a twentieth and a half of all records held. For λ from 1/8 to 1/2 the best ω has at most
#: 2.5 % less variance.
TYPICAL_64THS = 16


def best_named_size(
    records: int, likelihood: Fraction, max_cells: int, listed_64ths: int = TYPICAL_64THS
) -> int:
    """Return the ω ≤ max_cells with the least variance for a rare record, by exact arithmetic.

    The variance falls and then rises with ω, so bisection finds the minimum. Exact,
    because device and estimator must choose the same ω on any processor.

    >>> [best_named_size(m, Fraction(546, 10), 32) for m in (1, 10, 50, 500, 50_000)]
    [1, 1, 1, 16, 32]
    """
    low, high = 1, max(1, min(max_cells, records - 1))
    while low < high:
        middle = (low + high) // 2
        here, next_one = (
            named_variance(records, likelihood, w, listed_64ths) for w in (middle, middle + 1)
        )
        low, high = (low, middle) if here <= next_one else (middle + 1, high)
    return low


def named_variance(
    records: int, likelihood: Fraction, subset_size: int, listed_64ths: int = TYPICAL_64THS
) -> Fraction:
    """Return n·Var(p̂) of a record that no one holds, if λ = `listed_64ths`/64 hold another one."""
    if records == 0:
        return Fraction(0)
    t, f, g = inclusion(records, likelihood, subset_size)
    shown = f + (g - f) * Fraction(listed_64ths, 64)
    return shown * (1 - shown) / (t - g) ** 2


def inclusion(
    records: int, likelihood: Fraction, subset_size: int
) -> tuple[Fraction, Fraction, Fraction]:
    """Return t, f and g."""
    # In units of S = C(M−1, ω−1) all weights of a row add up to E + M/ω, so f = 1/(E + M/ω).
    #
    # Of the sets that name r, C(M−2, ω−2) also name the record that is held, and have the weight E;
    # C(M−2, ω−1) do not. Divided by S these are (ω−1)/(M−1) and (M−ω)/(M−1).
    w = subset_size
    f = 1 / (likelihood + Fraction(records, w))
    g = f
    if records > 1:
        g = f * (likelihood * (w - 1) + records - w) / (records - 1)
    return likelihood * f, f, g


class SubsetOrNone:
    """Randomizer over whole records; ω follows from M, ε, `spec.max_cells_per_answer` and λ."""

    name = "subset-or-none"
    query_wildcards = False
    wildcard_alone = True

    def __init__(self, cells: Cells, spec: RandomizerSpec) -> None:
        """Derive the channel from the number of records and the budget alone."""
        if cells.query_wildcards:
            raise ParameterError(f"{self.name} is defined on cells without query wildcards")
        self.cells = cells
        self.spec = spec
        self._records = len(cells) - 1
        self.likelihood = exp_rounded_down(Fraction(spec.epsilon) / spec.answers)
        self.cells_per_answer = self._size()
        spec.check_width(self.cells_per_answer)
        self._none = (*range(self.cells_per_answer - 1), self._records)

    def _size(self) -> int:
        spec = self.spec
        return best_named_size(
            self._records, self.likelihood, spec.max_cells_per_answer, spec.listed_64ths
        )

    def answer(self, cell: int, source: RandomSource) -> tuple[int, ...]:
        """Randomise one true cell number by integer arithmetic on numbers from `source`."""
        if not 0 <= cell <= self._records:
            raise HeadListMismatch(f"cell must lie in 0..{self._records}, got {cell}")
        if self._records == 0:
            return (0,)
        # With E = a/d, weights in units of S/(ω·d): M·d for a set drawn uniformly (every set, with
        # the true record or without, weighs at least 1), and ω·a for the rest. The rest is "none"
        # for a holder of ⋆. For a holder of r it is "none" with ω·d, otherwise r and any ω−1
        # others: the excess E−1 of these sets' weights.
        w, m = self.cells_per_answer, self._records
        a, d = self.likelihood.numerator, self.likelihood.denominator
        drawn = source.below(w * a + m * d)
        if drawn >= w * a:
            return tuple(sorted(choose(m, w, source)))
        if cell == m or drawn < w * d:
            return self._none
        others = (other + (other >= cell) for other in choose(m - 1, w - 1, source))
        return tuple(sorted([cell, *others]))

    def report_probability(self, record: Record | None, answer: tuple[int, ...]) -> Fraction:
        """Return the exact P(answer | the device holds `record`); `None` has the cell ⟨⋆,⋆⟩."""
        w, m = self.cells_per_answer, self._records
        held = self.cells.number(record)
        if not AnswerShape.from_randomizer(self).allows_answer(answer):
            return Fraction(0)
        if m == 0:
            return Fraction(1)
        sets = math.comb(m - 1, w - 1)
        total = (self.likelihood + Fraction(m, w)) * sets
        if answer == self._none:
            return (self.likelihood if held == m else 1) * sets / total
        return (self.likelihood if held in answer else 1) / total
