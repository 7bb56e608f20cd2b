"""Populations of people with records: distributions that are generated or read from a table.

Promises: everyone draws independently from `probability`. The only exception is a search log
(`evaluation.log_people`).
Symbols: s = query_exponent, a = url_exponent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from blendstream.blender.values.arrays import FloatArray, IntArray
from blendstream.blender.values.record import Record

__all__ = ["People", "TablePeople", "ZipfPeople"]


class People(Protocol):
    """A distribution of numbered records; `records` returns their text."""

    def draw(self, people: int, rng: np.random.Generator) -> IntArray:
        """Draw one record number per person."""

    def draw_again(self, records: IntArray, rng: np.random.Generator) -> IntArray:
        """Draw for each record another click for the same query (it may be the same URL)."""

    def probability(self, records: IntArray) -> FloatArray:
        """Return the probability that a person holds each record."""

    def query_probability(self, records: IntArray) -> FloatArray:
        """Return the probability that a person holds each record's query, with any URL."""

    def query(self, records: IntArray) -> IntArray:
        """Return the number of each record's query."""

    def top(self, count: int) -> IntArray:
        """Return the most probable records, by rank."""

    def top_queries(self, count: int) -> IntArray:
        """Return one record of each of the most probable queries, by rank."""

    def records(self, numbers: IntArray) -> list[Record]:
        """Return the records' texts."""


@dataclass(frozen=True, slots=True)
class ZipfPeople:
    """A generated population: Zipf's law over queries and over each query's URLs.

    P(query of rank i) = common · (i+offset)^−s/Σ + (1−common)/queries, and P(j-th URL) ∝ j^−a.
    Record number = query·urls + url. There are tens of millions of records, so only the cumulative
    sum over queries is stored.
    """

    queries: int
    common: float = 1.0
    query_exponent: float = 1.05
    urls: int = 10
    url_exponent: float = 2.0
    offset: float = 0.0

    def draw(self, people: int, rng: np.random.Generator) -> IntArray:
        shared = int(rng.binomial(people, self.common))
        query = np.concatenate(
            [
                np.searchsorted(self._sums()[0], rng.random(shared), side="right"),
                rng.integers(0, self.queries, size=people - shared),
            ]
        )
        # People with common queries come first; shuffled, so that the order reveals nothing.
        rng.shuffle(query)
        return np.asarray(query * self.urls + self._draw_url(people, rng), dtype=np.int64)

    def draw_again(self, records: IntArray, rng: np.random.Generator) -> IntArray:
        again = records // self.urls * self.urls + self._draw_url(len(records), rng)
        return np.asarray(again, dtype=np.int64)

    def _draw_url(self, people: int, rng: np.random.Generator) -> IntArray:
        sums = np.cumsum(self._url_shares())
        sums /= sums[-1]
        return np.asarray(np.searchsorted(sums, rng.random(people), side="right"), dtype=np.int64)

    def probability(self, records: IntArray) -> FloatArray:
        return self.query_probability(records) * self._url_shares()[records % self.urls]

    def query_probability(self, records: IntArray) -> FloatArray:
        rank = records // self.urls + 1 + self.offset
        shared = self.common * rank**-self.query_exponent / self._sums()[1]
        return np.asarray(shared + (1 - self.common) / self.queries)

    def query(self, records: IntArray) -> IntArray:
        return np.asarray(records // self.urls, dtype=np.int64)

    def top(self, count: int) -> IntArray:
        """Return the most probable records, by rank; all belong to the first queries."""
        first = np.arange(min(count, self.queries) * self.urls, dtype=np.int64)
        return first[np.argsort(-self.probability(first), kind="stable")[:count]]

    def top_queries(self, count: int) -> IntArray:
        """Return the first URL of each of the first queries, which are numbered by rank."""
        return np.arange(min(count, self.queries), dtype=np.int64) * self.urls

    def records(self, numbers: IntArray) -> list[Record]:
        """Return texts whose order does not depend on rank, because ties are broken by text."""
        queries, urls = _scramble(numbers // self.urls), _scramble(numbers)
        return [
            Record(f"query {query:08x}", f"{url:08x}.example/")
            for query, url in zip(queries, urls, strict=True)
        ]

    def _url_shares(self) -> FloatArray:
        weight = np.arange(1, self.urls + 1, dtype=np.float64) ** -self.url_exponent
        return np.asarray(weight / weight.sum())

    def _sums(self) -> tuple[FloatArray, float]:
        return _zipf_sums(self.queries, self.query_exponent, self.offset)


def _scramble(numbers: IntArray) -> list[int]:
    """Map each number below 2^32 to another one: multiplying by an odd number is one-to-one."""
    scrambled: list[int] = (numbers.astype(np.uint64) * 2_654_435_769 % 2**32).tolist()
    return scrambled


@lru_cache(maxsize=2)
def _zipf_sums(count: int, exponent: float, offset: float) -> tuple[FloatArray, float]:
    sums = np.cumsum((np.arange(1, count + 1, dtype=np.float64) + offset) ** -exponent)
    total = float(sums[-1])
    sums /= total
    return sums, total


class TablePeople:
    """A table of (query, url, count): a row means `count` people with that record."""

    def __init__(self, records: Sequence[Record], counts: IntArray) -> None:
        """Order by query, so that a query's records are adjacent."""
        order = sorted(range(len(records)), key=lambda i: records[i])
        self._records = [records[i] for i in order]
        number: dict[str, int] = {}
        self._query = np.array(
            [number.setdefault(record.query, len(number)) for record in self._records]
        )
        self._p = counts[np.array(order)] / counts.sum()
        self._sums = np.cumsum(self._p)
        self._sums /= self._sums[-1]
        self._query_p = np.bincount(self._query, weights=self._p)
        query_sums = np.cumsum(self._query_p)
        self._query_start = np.concatenate([[0.0], query_sums / query_sums[-1]])

    def draw(self, people: int, rng: np.random.Generator) -> IntArray:
        return self._at(rng.random(people))

    def draw_again(self, records: IntArray, rng: np.random.Generator) -> IntArray:
        query = self._query[records]
        low, high = self._query_start[query], self._query_start[query + 1]
        again = self._at(low + (high - low) * rng.random(len(records)))
        # Rounding can move a draw to the next query; such a draw repeats the click.
        return np.where(self._query[again] == query, again, records)

    def _at(self, points: FloatArray) -> IntArray:
        found = np.searchsorted(self._sums, points, side="right")
        return np.minimum(found, len(self._p) - 1).astype(np.int64)

    def probability(self, records: IntArray) -> FloatArray:
        return np.asarray(self._p[records], dtype=np.float64)

    def query_probability(self, records: IntArray) -> FloatArray:
        return np.asarray(self._query_p[self._query[records]], dtype=np.float64)

    def query(self, records: IntArray) -> IntArray:
        return np.asarray(self._query[records], dtype=np.int64)

    def top(self, count: int) -> IntArray:
        return np.argsort(-self._p, kind="stable")[:count].astype(np.int64)

    def top_queries(self, count: int) -> IntArray:
        queries = np.argsort(-self._query_p, kind="stable")[:count]
        return np.searchsorted(self._query, queries).astype(np.int64)

    def records(self, numbers: IntArray) -> list[Record]:
        return [self._records[number] for number in numbers.tolist()]
