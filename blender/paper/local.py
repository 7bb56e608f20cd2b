"""Randomise a device's records, before anything leaves the device.

Paper: LocalAlg (Figure 6), a two-stage randomized response: report the true query or a false one;
with the true query, report the true URL or a false one.

Promises: (ε,δ)-DP for the device (Theorem 3), all m_C answers of one report together;
neighbouring: replace-one, that is, any records of this device against any others. Every
choice compares integers from `source`; no float enters a probability.
Assumes: one report per head list; a retry repeats the report (LocalClient stores it).
Symbols: k = queries with ⋆, k_q = URLs of q with ⋆, t = P(tell the query), t_q = P(tell the URL).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from blendstream.blender.values.answer_shape import AnswerShape
from blendstream.blender.values.cells import Cells, RandomizerSpec
from blendstream.blender.values.errors import HeadListMismatch, ParameterError
from blendstream.blender.values.interfaces import DeviceRandomizer
from blendstream.blender.values.random_source import RandomSource
from blendstream.blender.values.rational import exp_rounded_down
from blendstream.blender.values.record import Record

__all__ = ["TwoStage", "local_alg", "truth_probability"]


def local_alg(
    drawn: Sequence[Record | None], randomizer: DeviceRandomizer, source: RandomSource
) -> tuple[tuple[int, ...], ...]:
    """Make one device's report: exactly m_C answers, each randomised independently.

    `drawn[i]` is the subject of answer i: one of the device's records, drawn with replacement, or
    `None` (⟨⋆,⋆⟩) for a device without records.

    Departure: always m_C answers, since fewer would reveal how many records a device has
    (docs/decisions/0007-randomizers-in-integers.md), and each about one record drawn from all, so
    that estimates are shares of people (docs/decisions/0110-one-quantity.md).
    """
    answers = randomizer.spec.answers
    if len(drawn) != answers:
        raise ParameterError(
            f"a report holds {answers} answers (m_C), got {len(drawn)} records; draw one for each "
            "answer, with replacement, or None where there is no record"
        )
    cells = randomizer.cells
    return tuple(randomizer.answer(cells.number(record), source) for record in drawn)


def truth_probability(values: int, *, epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return P(tell the truth) among k values: the largest t for which reporting is (ε,δ)-DP.

    With E ≤ e^ε a fraction and h = δ/2 (Figure 6, lines 4 and 6):

        t = (E + h(k−1)) / (E + k−1),      lie = (1−t)/(k−1),      t − E·lie = h

    so P(v | v) exceeds E·P(v | v′) by h, at two outputs at most, hence δ = 2h in all.

    >>> truth_probability(1, epsilon=Fraction(4), delta=Fraction(0))
    Fraction(1, 1)
    >>> float(truth_probability(2, epsilon=Fraction(4), delta=Fraction(0)))  # doctest: +ELLIPSIS
    0.98201379...
    """
    e = exp_rounded_down(epsilon)
    return (e + delta / 2 * (values - 1)) / (e + values - 1)


class TwoStage:
    """Figure 6 on cell numbers: one cell per answer (w = 1). The device's side, without NumPy."""

    name = "two-stage"
    query_wildcards = True
    wildcard_alone = False
    cells_per_answer = 1

    def __init__(self, cells: Cells, spec: RandomizerSpec) -> None:
        """Derive the channel from the head list's shape; no probability comes from the server."""
        if not cells.query_wildcards:
            raise HeadListMismatch(
                f"the {self.name} randomizer needs cells with query wildcards; "
                "this head list has none"
            )
        self.cells = cells
        self.spec = spec
        spec.check_width(self.cells_per_answer)
        # ε′ = ε/m_C, ε′_Q = f_C·ε′, ε′_U = ε′ − ε′_Q, and δ alike (Figure 6, lines 2 and 3), as
        # exact fractions: the parts add up to the whole without rounding.
        share = Fraction(spec.query_budget_share)
        epsilon = Fraction(spec.epsilon) / spec.answers
        delta = Fraction(spec.delta) / spec.answers
        epsilon_q, delta_q = share * epsilon, share * delta

        # The cells of each query, ⟨⋆,⋆⟩ last, and each cell's query and place among these.
        queries = len(cells.queries)
        self._members: list[list[int]] = [[] for _ in range(queries + 1)]
        self._query_of_cell = [queries if q < 0 else q for q in cells.query_numbers]
        self._place = []
        for cell, q in enumerate(self._query_of_cell):
            self._place.append(len(self._members[q]))
            self._members[q].append(cell)

        self.truth = truth_probability(queries + 1, epsilon=epsilon_q, delta=delta_q)
        self.url_truth = {
            k_q: truth_probability(k_q, epsilon=epsilon - epsilon_q, delta=delta - delta_q)
            for k_q in sorted({len(members) for members in self._members})
        }
        for values, truth in ((queries + 1, self.truth), *self.url_truth.items()):
            if values > 1 and truth * values <= 1:
                raise ParameterError(
                    f"truth must exceed 1/k to carry any signal; "
                    f"epsilon={spec.epsilon!r} is too small for k={values}"
                )

    def answer(self, cell: int, source: RandomSource) -> tuple[int, ...]:
        """Randomise one true cell (Figure 6, lines 12 to 21)."""
        if not 0 <= cell < len(self.cells):
            raise HeadListMismatch(f"cell must lie in 0..{len(self.cells) - 1}, got {cell}")
        k = len(self._members)
        q = self._query_of_cell[cell]
        if k > 1 and not _happens(self.truth, source):
            other = source.below(k - 1)
            other += other >= q
            return (self._members[other][source.below(len(self._members[other]))],)
        k_q = len(self._members[q])
        if k_q > 1 and not _happens(self.url_truth[k_q], source):
            place = source.below(k_q - 1)
            place += place >= self._place[cell]
            return (self._members[q][place],)
        return (cell,)

    def report_probability(self, record: Record | None, answer: tuple[int, ...]) -> Fraction:
        """Return P(answer | record): both true, only the query true, or a false query."""
        if not AnswerShape.from_randomizer(self).allows_answer(answer):
            return Fraction(0)
        (reported,) = answer
        held = self.cells.number(record)
        q, q_reported = self._query_of_cell[held], self._query_of_cell[reported]
        k, k_q = len(self._members), len(self._members[q_reported])
        if q != q_reported:
            return (1 - self.truth) / ((k - 1) * k_q)
        t_q = self.url_truth[k_q]
        return self.truth * (t_q if held == reported else (1 - t_q) / (k_q - 1))


def _happens(probability: Fraction, source: RandomSource) -> bool:
    """Return True with exactly this probability."""
    return source.below(probability.denominator) < probability.numerator
