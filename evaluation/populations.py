"""The populations of the evaluation: shaped like the paper's two data sets, or read from a table.

The paper's search logs are not public, so two generators replace them. A share of the
people (`common`) holds a query drawn ∝ rank^−1.05, the exponent of a public table of the same kind
(votes by subreddit and site), and clicks one of ten URLs ∝ rank^−2; the others hold queries that
hardly anyone shares. The number of different queries is the paper's (abstract). `common` is what
reproduces the paper's *head-list sizes*, the one thing that its text says about the shape:

- first data set: 50 records are found from 4.5 % opt-in on at ε = 4, and from ε = 3 on at 5 %
  (Section 4.2.3), so the fiftieth record is held by about 3 people in 10 000;
- second: 500 and more at 2.5 % and ε = 4, while at ε = 1 the two largest lists are missed.

What runs over many epochs is studied on a third generator (`STEADY`), in which many more records
are held by enough people to be found: settings A and B, which differ in size.

Promises: everyone draws independently from `probability`, the truth that estimates are compared
with; a table's row counts as that many people with one record each.
Symbols: s = query_exponent, a = url_exponent.

Decision: docs/decisions/0080-populations-of-the-evaluation.md
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import numpy as np

from blendstream.blender.values.arrays import FloatArray, IntArray
from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.record import Record
from blendstream.evaluation.tables import read_table, table_name

__all__ = [
    "AOL",
    "SETTING_A",
    "SETTING_B",
    "STEADY",
    "YANDEX",
    "People",
    "Setting",
    "TablePeople",
    "ZipfPeople",
    "table_setting",
]


class People(Protocol):
    """Where records are drawn from; they are numbered, and `records` gives their text."""

    def draw(self, people: int, rng: np.random.Generator) -> IntArray:
        """One record number for each of `people`."""

    def draw_again(self, records: IntArray, rng: np.random.Generator) -> IntArray:
        """For each record another click for the same query (it may be the same URL)."""

    def probability(self, records: IntArray) -> FloatArray:
        """How likely a person is to hold each record."""

    def query_probability(self, records: IntArray) -> FloatArray:
        """How likely a person is to hold each record's query, with any URL."""

    def query(self, records: IntArray) -> IntArray:
        """The number of each record's query."""

    def top(self, count: int) -> IntArray:
        """The most probable records, first one first."""

    def records(self, numbers: IntArray) -> list[Record]:
        """The records' texts."""


@dataclass(frozen=True, slots=True)
class ZipfPeople:
    """P(query of rank i) = common · (i+offset)^−s/Σ + (1−common)/queries, P(j-th URL) ∝ j^−a.

    Record number = query·urls + url. Tens of millions of records, so none is stored: only the
    running sum over queries is.
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
        """The most probable records: all lie among the first `count` queries."""
        first = np.arange(min(count, self.queries) * self.urls, dtype=np.int64)
        return first[np.argsort(-self.probability(first), kind="stable")[:count]]

    def records(self, numbers: IntArray) -> list[Record]:
        """The records' texts, in an order independent of rank, because ties are broken by text."""
        queries, urls = _scrambled(numbers // self.urls), _scrambled(numbers)
        return [
            Record(f"query {query:08x}", f"{url:08x}.example/")
            for query, url in zip(queries, urls, strict=True)
        ]

    def _url_shares(self) -> FloatArray:
        weight = np.arange(1, self.urls + 1, dtype=np.float64) ** -self.url_exponent
        return np.asarray(weight / weight.sum())

    def _sums(self) -> tuple[FloatArray, float]:
        return _zipf_sums(self.queries, self.query_exponent, self.offset)


def _scrambled(numbers: IntArray) -> list[int]:
    """Another number for each below 2^32: multiplying by an odd number loses nothing."""
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
        """Order by query, so that a query's records lie side by side."""
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

    def records(self, numbers: IntArray) -> list[Record]:
        return [self._records[number] for number in numbers.tolist()]


@dataclass(frozen=True, slots=True)
class Setting:
    """A population with the sizes and privacy parameters under which it is studied.

    `list_sizes` are the head-list sizes (M) of the figures; `list_size` is the usual one. `source`
    tells two populations of one name apart.
    """

    name: str
    label: str
    people: People
    users: int
    optin_share: float
    delta: float
    list_size: int
    list_sizes: tuple[int, ...]
    is_table: bool = False
    source: str = "generated"

    @property
    def title(self) -> str:
        return f"{self.label}, {_short(self.users)} people"

    @property
    def is_large(self) -> bool:
        """Whether a point takes so long that fewer repetitions must suffice."""
        return self.users > 2_000_000

    @property
    def coarse(self) -> bool:
        """Whether fewer points of an axis must suffice."""
        return self.is_large or self.is_table

    def scaled(self, scale: float) -> Setting:
        """The same with `scale` times the users: smaller is faster and noisier."""
        return replace(self, users=max(1_000, round(self.users * scale)))


AOL = Setting(
    name="aol",
    label="AOL-shaped",
    people=ZipfPeople(queries=4_800_000, common=0.2),
    users=657_000,
    optin_share=0.05,
    delta=1e-5,
    list_size=50,
    list_sizes=(10, 25, 50),
)

YANDEX = Setting(
    name="yandex",
    label="Yandex-shaped",
    people=ZipfPeople(queries=13_200_000, common=0.7),
    users=5_000_000,
    optin_share=0.025,
    delta=1e-7,
    list_size=500,
    list_sizes=(10, 100, 250, 500),
)

#: Fitted to figures of the paper's algorithm that were stated before ours was written
#: (`bench/_sharp_settings.py` has them); never to anything of ours.
STEADY = ZipfPeople(
    queries=600_000, query_exponent=1.0, offset=5.7, urls=10, url_exponent=3.0, common=1.0
)

SETTING_A = replace(AOL, name="setting-a", label="Setting A", people=STEADY)
SETTING_B = replace(YANDEX, name="setting-b", label="Setting B", people=STEADY)


def table_setting(path: Path, columns: Sequence[str], *, users: int | None = None) -> Setting:
    """A table's people under the first data set's parameters (or as many as it counts, if fewer).

    A table counts what it counts (votes, births), not people in a search log, so its size is not
    the study's: `users` draws from it are.
    """
    name = table_name(path)
    if name in (s.name for s in (AOL, YANDEX, SETTING_A, SETTING_B)):
        raise ParameterError(
            f"a table cannot be called {name}, which is the name of a generated population; "
            f"rename {path}"
        )
    records, counts = read_table(path, columns)
    total = int(counts.sum())
    chosen = users or min(AOL.users, total)
    return Setting(
        name=name,
        label=name,
        people=TablePeople(records, counts),
        users=chosen,
        optin_share=AOL.optin_share,
        delta=AOL.delta,
        list_size=AOL.list_size,
        list_sizes=AOL.list_sizes,
        is_table=True,
        source=f"columns {','.join(columns)}, sha256 {_digest(records, counts)}",
    )


def _digest(records: Sequence[Record], counts: IntArray) -> str:
    """Hash of what was read, so that compressing a table again does not make it another one."""
    digest = sha256()
    for record, count in zip(records, counts.tolist(), strict=True):
        digest.update(f"{record.query}\t{record.url}\t{count}\n".encode())
    return digest.hexdigest()[:16]


def _short(number: int) -> str:
    return f"{number / 1e6:g} million" if number >= 1_000_000 else f"{number:,}".replace(",", " ")
