"""Items that people hold, in a form that all baselines use.

An *item* is a record, or a query where a method counts queries only. An item has a number, and a
code of some bits: methods that discover a text piece by piece discover the code instead.

Promises: everyone holds one item, drawn as the population draws (`People.draw`), in random order,
so that any slice of people is a random group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from blendstream.blender.values.arrays import FloatArray, IntArray
from blendstream.blender.values.record import Record
from blendstream.evaluation.populations import People, Setting, ZipfPeople

__all__ = ["CODE_BITS", "HeldItems", "held_queries", "held_records"]

#: A record's code: its query's part first, then its URL's.
QUERY_BITS, URL_BITS = 32, 16
CODE_BITS = QUERY_BITS + URL_BITS

#: A number larger than any population's records, with which `People.top` returns all of them.
_EVERYTHING = 10**9


@dataclass(frozen=True, slots=True)
class HeldItems:
    """One item per person, and the items' true probabilities.

    `domain` is the number of items that exist, held or not.
    """

    held: IntArray
    domain: int
    top: Callable[[int], IntArray]
    probability: Callable[[IntArray], FloatArray]
    records: Callable[[IntArray], list[Record]]
    codes: Callable[[IntArray], IntArray]

    @property
    def users(self) -> int:
        """Return the number of people."""
        return len(self.held)


def held_records(setting: Setting, rng: np.random.Generator) -> HeldItems:
    """Draw a record for everyone."""
    people = setting.people
    return HeldItems(
        held=people.draw(setting.users, rng),
        domain=_number_of_records(people),
        top=people.top,
        probability=people.probability,
        records=people.records,
        codes=lambda numbers: (
            (_mix(people.query(numbers)) << URL_BITS) | (_mix(numbers) & ((1 << URL_BITS) - 1))
        ),
    )


def held_queries(setting: Setting, rng: np.random.Generator) -> HeldItems:
    """Draw a query for everyone: that of a drawn record, with no URL."""
    people = setting.people
    drawn = people.draw(setting.users, rng)
    # One record represents each query: its probability and text come from that record.
    known = np.union1d(drawn, people.top(5_000))
    queries, first = np.unique(people.query(known), return_index=True)
    one_each = known[first]
    in_order = queries[np.argsort(-people.query_probability(one_each), kind="stable")]

    def representatives(numbers: IntArray) -> IntArray:
        return np.asarray(one_each[np.searchsorted(queries, numbers)], dtype=np.int64)

    return HeldItems(
        held=people.query(drawn),
        domain=_number_of_queries(people),
        top=lambda count: np.asarray(in_order[:count], dtype=np.int64),
        probability=lambda numbers: people.query_probability(representatives(numbers)),
        records=lambda numbers: [
            Record(record.query, "") for record in people.records(representatives(numbers))
        ],
        codes=_mix,
    )


def _number_of_records(people: People) -> int:
    if isinstance(people, ZipfPeople):  # tens of millions, which `top` would sort
        return people.queries * people.urls
    return len(people.top(_EVERYTHING))


def _number_of_queries(people: People) -> int:
    if isinstance(people, ZipfPeople):
        return people.queries
    return len(np.unique(people.query(people.top(_EVERYTHING))))


def _mix(numbers: IntArray) -> IntArray:
    """Turn each number below 2^32 into another one, so that neighbours share no prefix.

    The mapping is one-to-one: xor with the upper bits and multiplication by an odd number have
    inverses (the finaliser of MurmurHash3).
    """
    mixed = numbers.astype(np.uint64)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor) % np.uint64(1 << 32)
    return mixed.astype(np.int64)
