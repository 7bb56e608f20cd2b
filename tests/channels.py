"""The exact channel of any randomizer, as whole numbers, and what it costs in privacy.

Shared by every test that enumerates: head-list shapes, P(answer | record) for all records and
answers, and the smallest δ at which a channel is (ε,δ)-DP.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blendstream.blender import Cells, LocalRandomizer, RandomizerSpec, Record
from blendstream.blender.registry import RANDOMIZERS
from blendstream.blender.values.rational import exp_rounded_down

UNLISTED_URL = "https://unlisted.example/"


def partitions(total: int, largest: int | None = None) -> Iterator[tuple[int, ...]]:
    """All ways to write `total` as a falling sum: URLs per query."""
    if total == 0:
        yield ()
        return
    for first in range(min(total, largest or total), 0, -1):
        for rest in partitions(total - first, first):
            yield (first, *rest)


def cells_of_shape(shape: tuple[int, ...], *, query_wildcards: bool) -> Cells:
    """A head list with `shape[i]` URLs for query i."""
    records = tuple(
        Record(f"query {q}", f"https://example/{u}")
        for q, urls in enumerate(shape)
        for u in range(urls)
    )
    return Cells(records, query_wildcards)


def shapes(name: str, max_cells: int) -> list[tuple[int, ...]]:
    """Every shape whose cells number at most `max_cells` for this randomizer."""
    wildcards = has_query_wildcards(name)
    found = []
    for listed in range(max_cells):
        for shape in partitions(listed):
            if listed + (len(shape) if wildcards else 0) + 1 <= max_cells:
                found.append(shape)
                if not wildcards:
                    break  # such a randomizer sees whole records: one shape per size
    return found


def has_query_wildcards(name: str) -> bool:
    return bool(RANDOMIZERS[name].query_wildcards)  # type: ignore[attr-defined]


def build(name: str, shape: tuple[int, ...], **spec: Any) -> LocalRandomizer:
    """The randomizer of this name on a head list of this shape."""
    cells = cells_of_shape(shape, query_wildcards=has_query_wildcards(name))
    return RANDOMIZERS[name](cells, RandomizerSpec(name, **spec))


def holder(cells: Cells, number: int) -> Record | None:
    """A record that falls into this cell."""
    cell = cells.cell(number)
    if cell.query is None:
        return None
    return Record(cell.query, cell.url if cell.url is not None else UNLISTED_URL)


def all_answers(randomizer: LocalRandomizer) -> list[tuple[int, ...]]:
    return list(itertools.combinations(range(len(randomizer.cells)), randomizer.cells_per_answer))


def channel_fractions(randomizer: LocalRandomizer) -> list[list[Fraction]]:
    """P(answer | cell held), cells by answers."""
    answers = all_answers(randomizer)
    return [
        [randomizer.report_probability(holder(randomizer.cells, c), a) for a in answers]
        for c in range(len(randomizer.cells))
    ]


class ExactChannel:
    """A channel as whole numbers over one denominator: fast, and nothing is rounded."""

    def __init__(self, rows: NDArray[Any], denominator: int) -> None:
        self.rows = rows
        self.denominator = denominator

    @classmethod
    def of(cls, randomizer: LocalRandomizer) -> ExactChannel:
        rows = channel_fractions(randomizer)
        denominator = math.lcm(*{p.denominator for row in rows for p in row})
        scaled = [[int(p * denominator) for p in row] for row in rows]
        return cls(np.array(scaled, dtype=object), denominator)

    def twice(self) -> ExactChannel:
        """Two answers from two records: every pair of records, every pair of answers."""
        product = np.multiply.outer(self.rows, self.rows).transpose(0, 2, 1, 3)
        size, answers = self.rows.shape
        return ExactChannel(product.reshape(size**2, answers**2), self.denominator**2)

    def smallest_delta(self, epsilon: float) -> Fraction:
        """max over neighbours of Σ_y max(0, P(y|x) − e^ε·P(y|x′)), rounded up by < 2^−200.

        Neighbours: any two records of one device (replace-one).
        """
        e = exp_rounded_down(Fraction(epsilon), bits=256)
        worst = 0
        for row in self.rows:
            excess = row * e.denominator - self.rows * e.numerator
            worst = max(worst, *np.where(excess > 0, excess, 0).sum(axis=1))
        return Fraction(worst, self.denominator * e.denominator)
