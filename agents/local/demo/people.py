"""Who searches for what in the demo: the truth that the service never sees.

Forty everyday queries whose popularity falls like rank^−1, each with a few results, and a long
tail of queries that only one or two people have. In every window four in five people draw a fresh
record; the others have none, and say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from blender.cells import Cells
from blender.noise import IntArray
from blender.record import Record

__all__ = ["NO_RECORD", "Crowd", "Window"]

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


class Crowd:
    """People with known habits."""

    def __init__(self) -> None:
        """Fix the probabilities: nothing here is random."""
        by_query = 1 / np.arange(1, len(_QUERIES) + 1)
        by_result = 1 / np.arange(1, _RESULTS + 1)
        head = np.outer(by_query / by_query.sum(), by_result / by_result.sum()).ravel()
        tail = np.full(_TAIL, _TAIL_SHARE / _TAIL)
        self.probability = np.concatenate([(1 - _TAIL_SHARE) * head, tail])
        self.records = [
            Record(query, f"https://{query.replace(' ', '-')}.example/{place + 1}")
            for query in _QUERIES
            for place in range(_RESULTS)
        ] + [Record(f"something rare {i}", f"https://rare.example/{i}") for i in range(_TAIL)]

    def draw(self, people: int, rng: np.random.Generator) -> IntArray:
        """What each person searched for in one window, or `NO_RECORD`."""
        numbers = rng.choice(len(self.records), size=people, p=self.probability)
        return np.where(rng.random(people) < _ACTIVE, numbers, NO_RECORD).astype(np.int64)

    def window(self, optin: int, clients: int, rng: np.random.Generator) -> Window:
        people = self.draw(optin + clients, rng)
        return Window(people[:optin], people[optin:])

    def truth(self) -> Mapping[Record, float]:
        """How likely a person is to hold each record."""
        return dict(zip(self.records, (_ACTIVE * self.probability).tolist(), strict=True))

    def cell_of_number(self, cells: Cells) -> IntArray:
        """The cell that each record falls into; `NO_RECORD` falls into ⟨⋆,⋆⟩."""
        everything: list[Record | None] = [*self.records, None]
        return np.array([cells.number(record) for record in everything], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Window:
    """Record numbers, one a person, or `NO_RECORD`."""

    optin: IntArray
    clients: IntArray
