"""Check the cell numbers of reports: the one rule that devices, gateways and workers follow.

Promises: `allows` for one report and `allows_rows` for an array of them agree. They accept exactly
the reports that some device can send: answers of the randomizer's width, strictly increasing, so
that the order carries no information, with cells of the head list.
Symbols: K = cells, the last of which is ⟨⋆,⋆⟩; w = cells in an answer; m_C = answers in a report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import lt
from typing import TYPE_CHECKING

from blendstream.blender.values.interfaces import DeviceRandomizer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["AnswerShape"]


@dataclass(frozen=True, slots=True)
class AnswerShape:
    """K, w and m_C of a head list, and whether ⋆ is a separate answer (`wildcard_alone`).

    If it is, an answer of ⋆ is padded with the first w − 1 cells. Any others would be subtracted
    from records that this answer does not name. As cells increase, the last but one shows that.
    """

    cells: int
    cells_per_answer: int
    answers: int
    wildcard_alone: bool

    @classmethod
    def from_randomizer(cls, randomizer: DeviceRandomizer) -> AnswerShape:
        """Return the shape of this randomizer's reports."""
        return cls(
            len(randomizer.cells),
            randomizer.cells_per_answer,
            randomizer.spec.answers,
            randomizer.wildcard_alone,
        )

    def allows(self, answers: Sequence[Sequence[int]]) -> bool:
        """Return True if this is a possible report on the head list.

        >>> AnswerShape(5, cells_per_answer=2, answers=1, wildcard_alone=True).allows([[1, 3]])
        True
        """
        return len(answers) == self.answers and all(map(self.allows_answer, answers))

    def allows_answer(self, answer: Sequence[int]) -> bool:
        """Return True if this may be one of a report's answers."""
        wide, last = self.cells_per_answer, self.cells - 1
        if len(answer) != wide or answer[0] < 0 or answer[-1] > last:
            return False
        if not all(map(lt, answer, answer[1:])):
            return False
        alone = self.wildcard_alone and wide > 1 and answer[-1] == last
        return not alone or answer[-2] == wide - 2

    def allows_rows(self, cells: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Apply `allows` to many reports: a row holds the cells of all answers of one report."""
        legal = cells[:, 0] >= 0
        if cells.max(initial=0) >= self.cells or cells.min(initial=0) < 0:
            legal &= ((cells >= 0) & (cells < self.cells)).all(axis=1)
        wide = self.cells_per_answer
        if wide > 1:
            answers = cells.reshape(len(cells), self.answers, wide)
            # Column by column: NumPy reduces along short rows three times slower.
            right = answers[:, :, 1] > answers[:, :, 0]
            for i in range(2, wide):
                right &= answers[:, :, i] > answers[:, :, i - 1]
            if self.wildcard_alone:
                last = answers[:, :, -1]
                right &= (last != self.cells - 1) | (answers[:, :, -2] == wide - 2)
            legal &= right.all(axis=1)
        return legal
