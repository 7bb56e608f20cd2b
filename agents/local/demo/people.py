"""The demo's population and its searches: the truth, which the service never sees.

Forty common queries have popularity proportional to 1/rank, each with a few results; a long tail
of queries has one or two people each. In every window four in five people draw a new record; the
others report that they have none. From window to window one query rises and one falls, so that the
results page shows a trend; the tail compensates, and every other record keeps its probability.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.values.arrays import IntArray
from blendstream.blender.values.cells import Cells
from blendstream.blender.values.record import Record

__all__ = ["FALLING", "NO_RECORD", "RISING", "Crowd", "Searched", "Window"]

#: The record number of a person without a record. As an index it selects the last entry, ⋆.
NO_RECORD = -1

_QUERIES = (
    "weather tomorrow", "train times", "news today", "football results", "pancake recipe",
    "translate", "map of the city", "cinema tonight", "bus timetable", "cheap flights",
    "how to tie a tie", "pasta recipe", "bicycle repair", "lottery numbers", "public holidays",
    "currency converter", "stomach ache", "apartment to rent", "job openings", "guitar chords",
    "library hours", "garden plants", "chess openings", "running shoes", "sourdough bread",
    "car insurance", "birthday gifts", "night sky", "second hand books", "swimming pool",
    "tax return", "house plants", "knitting pattern", "spanish verbs", "museum hours",
    "hiking trails", "vegetable soup", "phone repair", "board games", "tide tables",
)  # fmt: skip
_RESULTS = 3
_TAIL = 20_000
_TAIL_SHARE = 0.35
_ACTIVE = 0.8
RISING, FALLING = "cinema tonight", "news today"
#: Factor per window, up to its fourth power (× 5): two windows differ by more than their intervals,
#: and the increase stays below the tail, which compensates for it.
_CHANGE = 1.5
_CHANGES = 4


class Searched(Protocol):
    """The distinct records of a window, which people hold by number."""

    @property
    def records(self) -> Sequence[Record]:
        """The texts."""

    def cell_of_number(self, cells: Cells) -> IntArray:
        """Return the cell of each record; the last entry, for `NO_RECORD`, is ⟨⋆,⋆⟩."""


class Crowd:
    """The distribution that people draw their records from."""

    def __init__(self) -> None:
        """Set the probabilities; they are not random."""
        by_query = 1 / np.arange(1, len(_QUERIES) + 1)
        by_result = 1 / np.arange(1, _RESULTS + 1)
        head = np.outer(by_query / by_query.sum(), by_result / by_result.sum()).ravel()
        self._head = (1 - _TAIL_SHARE) * head
        self.records = [
            Record(query, f"https://{query.replace(' ', '-')}.example/{place + 1}")
            for query in _QUERIES
            for place in range(_RESULTS)
        ] + [Record(f"something rare {i}", f"https://rare.example/{i}") for i in range(_TAIL)]

    def probability(self, windows_before: int) -> NDArray[np.float64]:
        """Return each record's probability, after `windows_before` windows."""
        factor = _CHANGE ** min(windows_before, _CHANGES)
        head = self._head.copy()
        for query, change in ((RISING, factor), (FALLING, 1 / factor)):
            first = _QUERIES.index(query) * _RESULTS
            head[first : first + _RESULTS] *= change
        return np.concatenate([head, np.full(_TAIL, (1 - head.sum()) / _TAIL)])

    def window(
        self, optin: int, clients: int, rng: np.random.Generator, windows_before: int = 0
    ) -> Window:
        """Draw everyone's record, or `NO_RECORD`, for one window."""
        probability, size = self.probability(windows_before), optin + clients
        numbers = rng.choice(len(self.records), size=size, p=probability)
        people = np.where(rng.random(size) < _ACTIVE, numbers, NO_RECORD).astype(np.int64)
        truth = dict(zip(self.records, (_ACTIVE * probability).tolist(), strict=True))
        return Window(people[:optin], people[optin:], truth)

    def cell_of_number(self, cells: Cells) -> IntArray:
        """Return the cell of each record; the last entry, for `NO_RECORD`, is ⟨⋆,⋆⟩."""
        everything: list[Record | None] = [*self.records, None]
        return np.array([cells.number(record) for record in everything], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Window:
    """Record numbers, one per person, or `NO_RECORD`; and each record's true probability."""

    optin: IntArray
    clients: IntArray
    truth: Mapping[Record, float]
