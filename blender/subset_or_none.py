"""Report ω whole records at once, or that it is none of them.

Not in the paper. Subset selection (`blender.subset_selection`) treats ⋆ as one more cell, so that a
device which holds nothing listed still names ω−1 or ω records, and nearly every device is such a
device: most of the noise on a rare record comes from people who hold nothing that is asked for.
Here they may say "none", alone, as often as the holder of a record names it. The same ε then
leaves about a third less variance on a list of 500 that a third of the people hold something of.

    held          "none"     a given set with the record     a given set without it
    record r      1·S        E                               1
    ⋆             E·S                                        1

are the weights, with S = C(M−1, ω−1), the number of sets that hold a given record: "none" counts
as that many sets. Both rows add up to (E + M/ω)·S.

Promises: every answer of one device is ε/m_C-DP, δ = 0, so a report of m_C answers is ε-DP;
neighbouring: replace-one. Every weight is 1 or E = e^(ε/m_C), rounded down, times what any other
record gives the same answer, and all rows have the same sum. (docs/privacy-sharp.md)
Assumes: cells without ⟨q,⋆⟩; dice that are fair.
On the wire every answer has ω cells: "none" is ⋆ with the first ω−1 records, which only fill it up;
as no set contains ⋆, the number of "none" is ⋆'s count, and is subtracted from theirs.
Assumes of the counts: ⋆ came with no other records (`wildcard_alone`; gateway and counter refuse
such answers), for each would be subtracted from records that it did not name.

Symbols: M = listed records, ω = cells_per_answer, E as above, n = answers; for one answer
t = P(names r | holds r) = P(none | holds ⋆) = E·f, f = P(names r | holds ⋆) = P(none | holds r),
g = P(names r | holds another record), λ = share of people who hold a listed record.
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

__all__ = ["SubsetOrNone", "best_named_size", "named_variance"]

#: 64·λ for which ω is chosen where the head list does not say: lists of 50 to 500 records cover
#: between a twentieth and a half of what people hold. For λ from 1/8 to 1/2 the best ω leaves 2.5 %
#: less.
TYPICAL_64THS = 16


def best_named_size(
    records: int, likelihood: Fraction, max_cells: int, listed_64ths: int = TYPICAL_64THS
) -> int:
    """The ω ≤ max_cells with the least variance for a rare record, by exact arithmetic.

    The variance falls and then rises with ω, so halving the range finds the turning point. Exact,
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
    """n·Var(p̂) of a record that nobody holds, when λ = `listed_64ths`/64 hold another one."""
    if records == 0:
        return Fraction(0)
    t, f, g = _inclusion(records, likelihood, subset_size)
    shown = f + (g - f) * Fraction(listed_64ths, 64)
    return shown * (1 - shown) / (t - g) ** 2


def _inclusion(
    records: int, likelihood: Fraction, subset_size: int
) -> tuple[Fraction, Fraction, Fraction]:
    # In units of S = C(M−1, ω−1) all weights of a row add up to E + M/ω, so f = 1/(E + M/ω).
    #
    # Of the sets that name r, C(M−2, ω−2) name the other record that is held, too, and have the
    # weight E; C(M−2, ω−1) do not. Divided by S these are (ω−1)/(M−1) and (M−ω)/(M−1).
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
        self._none = (*range(self.cells_per_answer - 1), self._records)
        if self._records:
            t, f, g = _inclusion(self._records, self.likelihood, self.cells_per_answer)
            self._t, self._f, self._g = float(t), float(f), float(g)

    def _size(self) -> int:
        spec = self.spec
        return best_named_size(
            self._records, self.likelihood, spec.max_cells_per_answer, spec.listed_64ths
        )

    # ------------------------------------------------------------------ on the device

    def answer(self, cell: int, dice: Dice) -> tuple[int, ...]:
        """Randomise one true cell number by integer arithmetic on `dice`."""
        if not 0 <= cell <= self._records:
            raise HeadListMismatch(f"cell must lie in 0..{self._records}, got {cell}")
        if self._records == 0:
            return (0,)
        # With E = a/d, weights in units of S/(ω·d): M·d for a set drawn blindly (every set, the
        # true record's too, weighs at least 1), and ω·a for the rest. That is "none" for a holder
        # of ⋆; for a holder of r it is "none" with ω·d, else r and any ω−1 others: the E−1 by
        # which such sets weigh more.
        w, m = self.cells_per_answer, self._records
        a, d = self.likelihood.numerator, self.likelihood.denominator
        throw = dice.below(w * a + m * d)
        if throw >= w * a:
            return tuple(sorted(choose(m, w, dice)))
        if cell == m or throw < w * d:
            return self._none
        others = (other + (other >= cell) for other in choose(m - 1, w - 1, dice))
        return tuple(sorted([cell, *others]))

    def report_probability(self, record: Record | None, answer: tuple[int, ...]) -> Fraction:
        """P(this answer | the device holds `record`), exactly; `None` holds ⟨⋆,⋆⟩."""
        w, m = self.cells_per_answer, self._records
        held = self.cells.number(record)
        if not AnswerShape.of(self).allows_answer(answer):
            return Fraction(0)
        if m == 0:
            return Fraction(1)
        sets = math.comb(m - 1, w - 1)
        total = (self.likelihood + Fraction(m, w)) * sets
        if answer == self._none:
            return (self.likelihood if held == m else 1) * sets / total
        return (self.likelihood if held in answer else 1) / total

    # ------------------------------------------------------------------ in simulations

    def answer_batch(self, cells: IntArray, rng: np.random.Generator) -> IntArray:
        """For simulation only: the same channel for many devices, shape (n, ω)."""
        return answer_in_chunks(
            cells, self.cells_per_answer, lambda chunk: self._answer_chunk(chunk, rng)
        )

    def _answer_chunk(self, cells: IntArray, rng: np.random.Generator) -> IntArray:
        w, m = self.cells_per_answer, self._records
        answers = np.zeros((len(cells), w), dtype=np.int64)
        if m == 0:
            return answers
        throw = rng.random(len(cells))
        blind = np.flatnonzero(throw >= self._t)
        answers[blind] = choose_batch(len(blind), m, w, rng)
        none = (throw < self._t) & ((cells == m) | (throw < self._f))
        own = np.flatnonzero((throw < self._t) & ~none)
        others = choose_batch(len(own), m - 1, w - 1, rng) if w > 1 else answers[own, :0]
        held = cells[own, None]
        answers[own] = np.hstack([others + (others >= held), held])
        answers[none] = self._none
        answers.sort(axis=1)
        return answers

    # ------------------------------------------------------------------ on the server

    def expected_shares(self, p: FloatArray) -> FloatArray:
        """For each record P(it is named), if p is the truth over the cells (last axis).

        "None" counts as ω times ⋆ here and in `denoise`, so that shares add up to ω.
        """
        if self._records == 0:
            return np.ones_like(p)
        none = self._f + (self._t - self._f) * p[..., -1:]
        named = self._blind(1 - p[..., -1:]) + (self._t - self._g) * p[..., :-1]
        return np.concatenate([named, self.cells_per_answer * none], axis=-1)

    def denoise(self, shares: FloatArray) -> FloatArray:
        """p̂⋆ = (r̂⋆ − f)/(t − f), p̂ = (r̂ − f − (g−f)·(1−p̂⋆))/(t − g)."""
        if self._records == 0:
            return np.ones_like(shares)
        none = shares[..., -1:] / self.cells_per_answer
        star = (none - self._f) / (self._t - self._f)
        named = (shares[..., :-1] - self._blind(1 - star)) / (self._t - self._g)
        return np.concatenate([named, star], axis=-1)

    def _blind(self, listed: FloatArray) -> FloatArray:
        """P(a record is named) by those who do not hold it, if λ = `listed`."""
        return np.asarray(self._f + (self._g - self._f) * listed)

    def estimate(self, counts: IntArray, reports: int) -> GroupEstimates:
        """Denoise: `counts[…, c]` answers held cell c; `reports` devices sent m_C answers each.

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
        shares[..., : w - 1] -= shares[..., -1:]  # what only filled up an answer of "none"
        shares[..., -1] *= w
        probability = self.denoise(shares)
        moments = _Moments(self, np.clip(1 - probability[..., -1:], 0.0, 1.0))

        # Answers of different devices are independent. The m_C answers of one device may repeat
        # its record; that is bounded by taking them for one answer. Bessel's correction, over
        # devices, makes it the sample variance; it is not taken at a p̂ outside [0, 1]
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
    """Variances of what one answer says, for a given λ (its last axis is of length 1).

    λ is taken as estimated: it moves P(named) by a thousandth of itself.
    """

    def __init__(self, channel: SubsetOrNone, listed: FloatArray) -> None:
        self._t, self._f, self._g = channel._t, channel._f, channel._g
        self._listed = listed
        self._named_blindly = channel._blind(listed)
        self._none = self._f + (self._t - self._f) * (1 - listed)
        w, m = channel.cells_per_answer, len(channel.cells) - 1
        # P(both of two records named), by who holds what: one of the two, another record, ⋆. Of
        # the sets that name one record (ω−1)/(M−1) name a second, of those (ω−2)/(M−2) a third.
        second, third = (w - 1) / max(m - 1, 1), (w - 2) / max(m - 2, 1)
        self._both_if_one = self._t * second
        self._both_if_other = self._f * second * (1 + (float(channel.likelihood) - 1) * third)
        self._both_if_star = self._f * second

    def none_variance(self, star: FloatArray) -> FloatArray:
        """Of p̂⋆: r⋆(1−r⋆)/(t−f)²."""
        gain = self._t - self._f
        r = self._f + gain * star
        return np.asarray(r * (1 - r) / gain**2)

    def named_variance(self, records: FloatArray, total: FloatArray) -> FloatArray:
        """Of Σp̂ over L records whose probabilities sum to `total`.

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
