"""Cells: the units of counting of a head list, in the order that all parties use.

A head list of M records over some queries has the cells

    ⟨q,u⟩  one for each listed record, in published order        cells 0 … M−1
    ⟨q,⋆⟩  one for each query, in order of first appearance      only if `query_wildcards`
    ⟨⋆,⋆⟩  everything else                                       always the last cell

The paper's two-stage report distinguishes ⟨q,⋆⟩ from ⟨⋆,⋆⟩; a randomizer over whole records does
not, and its ⋆ is everything that is not listed. ⋆ is `None`, never a string.

Departure: opt-in users are counted over these cells too, so that both groups estimate one quantity
(docs/decisions/0001-one-set-of-cells.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from blendstream.blender.values.errors import HeadListMismatch, ParameterError, require
from blendstream.blender.values.parameters import require_signal
from blendstream.blender.values.record import NORMALISATION_VERSION, Record

if TYPE_CHECKING:
    from blendstream.blender.values.arrays import IntArray

__all__ = ["Cell", "Cells", "HeadList", "RandomizerSpec"]


class Cell(NamedTuple):
    """⟨q,u⟩, ⟨q,⋆⟩ or ⟨⋆,⋆⟩; `None` is ⋆."""

    query: str | None
    url: str | None


@dataclass(frozen=True)
class Cells:
    """The cells of one head list, numbered.

    >>> cells = Cells((Record("a", "x"), Record("b", "y"), Record("a", "z")), query_wildcards=True)
    >>> len(cells), cells.queries
    (6, ('a', 'b'))
    >>> cells.number(Record("a", "unlisted")), cells.number(Record("new", "x")), cells.number(None)
    (3, 5, 5)
    """

    records: tuple[Record, ...]
    query_wildcards: bool
    queries: tuple[str, ...] = field(init=False)
    #: For each cell the number of its query in `queries`; −1 for ⟨⋆,⋆⟩.
    query_numbers: tuple[int, ...] = field(init=False, compare=False, repr=False)
    _number: dict[Record, int] = field(init=False, compare=False, repr=False)
    _query_number: dict[str, int] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Index the records and queries once."""
        number = {record: i for i, record in enumerate(self.records)}
        if len(number) != len(self.records):
            raise ParameterError("a head list must not list a record twice")
        query_number: dict[str, int] = {}
        for record in self.records:
            query_number.setdefault(record.query, len(query_number))
        of_cell = [query_number[record.query] for record in self.records]
        if self.query_wildcards:
            of_cell += range(len(query_number))
        set_once = object.__setattr__
        set_once(self, "queries", tuple(query_number))
        set_once(self, "query_numbers", (*of_cell, -1))
        set_once(self, "_number", number)
        set_once(self, "_query_number", query_number)

    def __len__(self) -> int:
        """K, the number of cells."""
        return len(self.query_numbers)

    def number(self, record: Record | None) -> int:
        """Return the number of the cell of `record`; `None` (no record) is in ⟨⋆,⋆⟩."""
        if record is None:
            return len(self) - 1
        listed = self._number.get(record)
        if listed is not None:
            return listed
        if self.query_wildcards and record.query in self._query_number:
            return len(self.records) + self._query_number[record.query]
        return len(self) - 1

    def cell(self, number: int) -> Cell:
        """Return the cell with this number."""
        if not 0 <= number < len(self):
            raise HeadListMismatch(f"cell must lie in 0..{len(self) - 1}, got {number}")
        if number < len(self.records):
            return Cell(*self.records[number])
        if number < len(self) - 1:
            return Cell(self.queries[number - len(self.records)], None)
        return Cell(None, None)

    # ---------------------------------------------------- on servers: a device has no NumPy

    @cached_property
    def query_of_cell(self) -> IntArray:
        """`query_numbers` as an array."""
        import numpy as np  # noqa: PLC0415

        return np.array(self.query_numbers, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class RandomizerSpec:
    """The devices' randomizer, and the numbers from which each device derives its channel.

    ε and δ are per device and head list, all `answers` (m_C) together; neighbouring: replace-one.
    It contains no probability: a device computes its own.

    Symbols: ε = epsilon, δ = delta, m_C = answers, f_C = query_budget_share; 64·λ = listed_64ths,
    where λ is the share of people who hold a listed record, by published counts; ω =
    cells_per_answer, which follows from the others and is stated as a check (`None`: not computed
    yet).
    """

    name: str
    epsilon: float
    delta: float = 0.0
    answers: int = 1
    query_budget_share: float = 0.85
    max_cells_per_answer: int = 32
    listed_64ths: int = 16
    cells_per_answer: int | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that no randomizer can satisfy: a device checks what a server sends."""
        require(
            math.isfinite(self.epsilon) and self.epsilon > 0,
            f"epsilon must be finite and above 0, got epsilon={self.epsilon!r}",
        )
        require(0 <= self.delta < 1, f"delta must lie in [0, 1), got delta={self.delta!r}")
        for name in ("answers", "max_cells_per_answer"):
            value = getattr(self, name)
            require(
                isinstance(value, int) and value >= 1,
                f"{name} must be an integer of at least 1, got {name}={value!r}",
            )
        require_signal(self.epsilon, self.answers, "answers")
        require(
            isinstance(self.listed_64ths, int) and 1 <= self.listed_64ths <= 63,
            f"listed_64ths must be an integer from 1 to 63, got {self.listed_64ths!r}",
        )
        require(
            0 < self.query_budget_share < 1,
            "query_budget_share must lie in (0, 1), "
            f"got query_budget_share={self.query_budget_share!r}",
        )
        width = self.cells_per_answer
        require(
            width is None or (isinstance(width, int) and width >= 1),
            f"cells_per_answer must be an integer of at least 1, got {width!r}",
        )

    def check_width(self, computed: int) -> None:
        """Refuse a list whose stated ω is not the one that follows: its reports would not fit."""
        require(
            self.cells_per_answer in (None, computed),
            f"cells_per_answer must be {computed}, which follows from the head list, "
            f"got cells_per_answer={self.cells_per_answer}",
        )


@dataclass(frozen=True, slots=True)
class HeadList:
    """The records that the opt-in group selected, and the randomizer of devices' reports on them.

    `records` is the whole selected list in published order; the first `listed` of them (at most M)
    have a cell each. `noisy_counts`, if the selector releases them, is parallel.
    """

    records: tuple[Record, ...]
    listed: int
    randomizer: RandomizerSpec
    query_wildcards: bool
    noisy_counts: tuple[int, ...] | None = None
    normalisation: int = NORMALISATION_VERSION
    cells: Cells = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Check the shape and build the cells once."""
        if not 0 <= self.listed <= len(self.records):
            raise ParameterError(
                f"listed must lie in 0..{len(self.records)} (the selected records), "
                f"got listed={self.listed}"
            )
        if self.noisy_counts is not None and len(self.noisy_counts) != len(self.records):
            raise ParameterError(
                f"noisy_counts must have one entry per record ({len(self.records)}), "
                f"got {len(self.noisy_counts)}"
            )
        cells = Cells(self.records[: self.listed], self.query_wildcards)
        object.__setattr__(self, "cells", cells)
