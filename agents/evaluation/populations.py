"""Populations whose truth is known: how likely a person is to hold each record.

A Zipf population has queries whose popularity falls as rank^−s and, under each query, URLs that do
the same with an exponent of their own, as search logs do. Every person draws independently, so a
group's counts are multinomial, and groups are drawn without listing a person.

Pure numpy: nothing here knows of the service.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blender.record import Record

__all__ = ["Population", "zipf_population"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Population:
    """Records by falling probability; `probability` is the truth that estimates are held against.

    Record number i is the `url[i]`-th result of the `query[i]`-th query; its text is made when
    asked for, since millions of records are drawn from and only hundreds ever named.
    `query_probability` runs over queries and sums all of a query's records.
    """

    probability: FloatArray
    query: IntArray
    url: IntArray
    query_probability: FloatArray
    _reach: FloatArray
    _number: IntArray  # by query and URL

    def record(self, number: int) -> Record:
        """The text of record `number`."""
        query, url = int(self.query[number]), int(self.url[number])
        return Record(f"query {query:07d}", f"https://site{query:07d}.example/{url:03d}")

    def number(self, record: Record) -> int:
        """The number of a record of this population."""
        query, url = int(record.query.rsplit(" ", 1)[1]), int(record.url.rsplit("/", 1)[1])
        return int(self._number[query, url])

    def draw(self, people: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """One record each for `people`: the record numbers that occur, and how often."""
        numbers = np.searchsorted(self._reach, rng.random(people), side="right")
        present, counts = np.unique(numbers, return_counts=True)
        return present.astype(np.int64), counts.astype(np.int64)

    def draw_many(
        self, people: int, records_each: int, rng: np.random.Generator
    ) -> tuple[IntArray, IntArray]:
        """`records_each` draws a person, repetitions dropped: how many people hold each record."""
        numbers = np.searchsorted(self._reach, rng.random(people * records_each), side="right")
        person = np.repeat(np.arange(people, dtype=np.int64), records_each)
        held = np.unique(person * len(self.probability) + numbers) % len(self.probability)
        present, counts = np.unique(held, return_counts=True)
        return present.astype(np.int64), counts.astype(np.int64)

    def draw_cells(self, people: int, listed: Sequence[int], rng: np.random.Generator) -> IntArray:
        """How many of `people` hold each listed record, and at the end how many hold none."""
        p = self.probability[np.asarray(listed, dtype=np.int64)]
        return rng.multinomial(people, np.append(p, max(0.0, 1.0 - p.sum()))).astype(np.int64)


def zipf_population(
    *,
    queries: int = 100_000,
    urls: int = 20,
    query_exponent: float = 1.0,
    url_exponent: float = 0.8,
) -> Population:
    """Query popularity ∝ rank^−query_exponent, and each query's URLs ∝ rank^−url_exponent.

    The defaults give a noisy threshold of the paper's kind about as many records as the paper's
    first data set does: some 360 from 31 000 people.
    """
    by_query = np.arange(1, queries + 1, dtype=np.float64) ** -query_exponent
    by_url = np.arange(1, urls + 1, dtype=np.float64) ** -url_exponent
    probability = np.outer(by_query / by_query.sum(), by_url / by_url.sum()).ravel()
    order = np.argsort(-probability, kind="stable")
    probability = probability[order]
    reach = np.cumsum(probability)
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(len(order))
    return Population(
        probability=probability,
        query=order // urls,
        url=order % urls,
        query_probability=by_query / by_query.sum(),
        _reach=reach / reach[-1],
        _number=number.reshape(queries, urls),
    )
