"""A table of the records that opt-in users hold, as a head list needs it.

It may hold tens of millions of records, of which some hundred are published: so it looks up given
records, and creates the object of a record only on request. `streams` has one of packed records
(`streams.tables.record_rows`); `ListedRecords` wraps a plain list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from blendstream.blender.values.arrays import IntArray
from blendstream.blender.values.record import Record

__all__ = ["ListedRecords", "RecordTable"]


class RecordTable(Protocol):
    """A table of distinct records, by index."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> Record: ...

    def places(self, records: Sequence[Record]) -> IntArray:
        """Return the index of each of these records in the table; −1 if it is not there."""
        ...

    def sums_by_query(self, queries: Sequence[str], counts: IntArray) -> IntArray:
        """Sum `counts`, which is parallel to the records, over the records of each query."""
        ...


class ListedRecords:
    """A table of a list of records.

    >>> a, b = Record("a", "x"), Record("b", "y")
    >>> ListedRecords([a, b]).places([b, Record("c", "z")]).tolist()
    [1, -1]
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self._number: dict[Record, int] | None = None

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, number: int, /) -> Record:
        return self._records[number]

    def places(self, records: Sequence[Record]) -> IntArray:
        """Return the index of each of these records in the list; −1 if it is not there."""
        if self._number is None and records:
            self._number = {record: i for i, record in enumerate(self._records)}
        number = self._number or {}
        return np.array([number.get(record, -1) for record in records], dtype=np.int64)

    def sums_by_query(self, queries: Sequence[str], counts: IntArray) -> IntArray:
        """Sum `counts`, which is parallel to the records, over the records of each query."""
        number = {query: i for i, query in enumerate(queries)}
        elsewhere = len(queries)
        of_record = [number.get(record.query, elsewhere) for record in self._records]
        sums = np.zeros(elsewhere + 1, dtype=np.int64)
        np.add.at(sums, np.array(of_record, dtype=np.int64), counts)
        return sums[:-1]
