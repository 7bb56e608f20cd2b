"""Who searches for what in the demo: the truth that the service never sees.

Forty everyday queries whose popularity falls like rank^−1, each with a few results, and a long
tail of queries that only one or two people have. In every window four in five people draw a fresh
record; the others have none, and say so. From window to window one query rises and one falls, so
that there is a trend to see; the tail makes up for them, and every other record keeps its share.
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

#: In place of a record's number. As an index it means the last place, which is kept for ⋆.
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
#: By so much each window, until it is the fourth power of it (× 5) for good: two windows differ by
#: more than their intervals, and the rising one stays below the tail that it is taken from.
_CHANGE = 1.5
_CHANGES = 4


class Searched(Protocol):
    """The records that people of a window have, by number."""

    @property
    def records(self) -> Sequence[Record]:
        """The texts."""

    def cell_of_number(self, cells: Cells) -> IntArray:
        """Return the cell of each record; the last place is ⟨⋆,⋆⟩."""


class Crowd:
    """People with known habits."""

    def __init__(self) -> None:
        """Fix the probabilities: nothing here is random."""
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
        """How likely each record is to be searched for, after so many windows."""
        factor = _CHANGE ** min(windows_before, _CHANGES)
        head = self._head.copy()
        for query, change in ((RISING, factor), (FALLING, 1 / factor)):
            first = _QUERIES.index(query) * _RESULTS
            head[first : first + _RESULTS] *= change
        return np.concatenate([head, np.full(_TAIL, (1 - head.sum()) / _TAIL)])

    def window(
        self, optin: int, clients: int, rng: np.random.Generator, windows_before: int = 0
    ) -> Window:
        """What everyone searched for in one window, or `NO_RECORD`."""
        probability, size = self.probability(windows_before), optin + clients
        numbers = rng.choice(len(self.records), size=size, p=probability)
        people = np.where(rng.random(size) < _ACTIVE, numbers, NO_RECORD).astype(np.int64)
        truth = dict(zip(self.records, (_ACTIVE * probability).tolist(), strict=True))
        return Window(people[:optin], people[optin:], truth)

    def cell_of_number(self, cells: Cells) -> IntArray:
        """The cell that each record falls into; `NO_RECORD` falls into ⟨⋆,⋆⟩."""
        everything: list[Record | None] = [*self.records, None]
        return np.array([cells.number(record) for record in everything], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Window:
    """Record numbers, one a person, or `NO_RECORD`; and how likely a person was to hold each."""

    optin: IntArray
    clients: IntArray
    truth: Mapping[Record, float]
