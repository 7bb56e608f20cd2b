"""Who searches for what in the demo: the truth that the service never sees.

Forty everyday queries whose popularity falls like rank^−1, each with a few results, and a long
tail of queries that only one or two people have. Everyone draws a fresh record every window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from blender.noise import IntArray
from blender.record import Record

__all__ = ["Crowd", "Window"]

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

    def window(self, optin: int, clients: int, rng: np.random.Generator) -> Window:
        """What everyone searched for in one window."""
        people = rng.choice(len(self.records), size=optin + clients, p=self.probability)
        return Window(people[:optin].astype(np.int64), people[optin:].astype(np.int64))

    def truth(self) -> Mapping[Record, float]:
        """How likely a person is to hold each record."""
        return dict(zip(self.records, self.probability.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class Window:
    """Record numbers, one a person."""

    optin: IntArray
    clients: IntArray
