"""Opt-in records as Redis stores them: rows of text that workers append and jobs add up.

    query TAB url TAB count LF

Text has no control characters (`agents.worker.entry_checks` refuses them), so TAB and LF divide
rows. A worker writes one row for each different record of a batch; the same record comes again with
the next batch and from other partitions. `RecordSums` adds them up at numpy speed: a record becomes
a Python object only where a caller asks for it.

Promises: sums by record, in any order and in any strings. 64-bit hashes decide which
rows are of one record, so any two of n are taken for one with probability n²/2⁶⁵: 3 in a million at
10 million. The key is random and new for every reading: no sender can choose records that collide.
Noise protects people all the same, since which records share a sum does not depend on the data.
Costs: a distinct record takes its row and 32 bytes; while rows are merged, about twice that.

Decision: docs/decisions/0126-records-are-appended.md
"""

from __future__ import annotations

import itertools
import secrets
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.values.arrays import IntArray
from blendstream.blender.values.record import Record
from blendstream.streams.errors import StoreMismatch
from blendstream.streams.tables.fingerprints import Words, siphash

__all__ = ["PackedRecords", "RecordSums", "pack_rows", "row_counts", "row_texts"]

_TAB, _LF = 9, 10
#: Rows that wait at least before they are merged. Fewer would sort more often; more take memory.
_MERGED_AT_ONCE: Final = 1 << 20


def pack_rows(counts: Mapping[bytes, int]) -> bytes:
    """Rows of `query TAB url` → count, by text: their order says nothing about arrival.

    >>> pack_rows({b"b\\tu": 1, b"a\\tu": 2})
    b'a\\tu\\t2\\nb\\tu\\t1\\n'
    """
    return b"".join([b"%b\t%d\n" % row for row in sorted(counts.items())])


def row_texts(rows: bytes) -> Iterator[tuple[bytes, int]]:
    """Each row's `query TAB url` and count, one after the other."""
    for row in rows.splitlines():
        text, _, count = row.rpartition(b"\t")
        yield text, int(count)


def row_counts(rows: bytes) -> IntArray:
    """The counts of the rows alone."""
    return _Rows.of(rows).counts


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of one string: `query TAB url` from `starts` to `ends`, and the counts."""

    starts: IntArray
    ends: IntArray
    counts: IntArray

    @classmethod
    def of(cls, rows: bytes) -> _Rows:
        text = np.frombuffer(rows, np.uint8)
        feeds = np.flatnonzero(text == _LF)
        tabs = np.flatnonzero(text == _TAB)
        size = len(feeds)
        if len(tabs) != 2 * size or (len(rows) and rows[-1] != _LF):
            raise StoreMismatch(
                f"opt-in records in Redis must be rows with two tabs each, found {size} rows and "
                f"{len(tabs)} tabs: run `blendstream rebuild`"
            )
        starts = np.concatenate([[0], feeds[:-1] + 1]) if size else feeds
        ends = tabs[1::2]
        counts = np.zeros(size, dtype=np.int64)
        digits = feeds - ends - 1
        for place in range(int(digits.max(initial=0))):
            has = np.flatnonzero(digits > place)
            counts[has] += (text[feeds[has] - 1 - place].astype(np.int64) - ord("0")) * 10**place
        return cls(starts, ends, counts)


def _hashes(key: bytes, text: bytes, starts: IntArray, ends: IntArray) -> Words:
    """A keyed 64-bit hash of each piece of `text`."""
    # A word of 8 bytes starts at every byte; zeros behind the end, so that the last piece has one.
    words = np.ndarray((len(text) + 1,), "<u8", text + bytes(8), strides=(1,))
    sizes = ends - starts
    lengths = np.maximum((sizes + 7) // 8, 1)
    found = np.empty(len(starts), dtype=np.uint64)
    for length in np.unique(lengths).tolist():
        here = np.flatnonzero(lengths == length)
        pieces = words[starts[here, np.newaxis] + 8 * np.arange(length)]
        # What follows the piece is no part of it. No text holds a zero byte.
        beyond = (8 * (8 * length - sizes[here])).astype(np.uint64)
        pieces[:, -1] &= np.uint64(2**64 - 1) >> beyond
        found[here] = siphash(key, pieces)
    return found


class PackedRecords:
    """Distinct records, packed: a `blender.values.interfaces.RecordTable` of millions of them."""

    def __init__(self, key: bytes, hashes: Words, starts: IntArray, texts: Sequence[bytes]) -> None:
        """Record i, the one with the i-th smallest hash, starts at `starts[i]` of all `texts`."""
        self._key = key
        self._hashes = hashes
        self._starts = starts
        self._texts = texts
        self._bases = [0, *itertools.accumulate(len(text) for text in texts)]

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, number: int) -> Record:
        """Make one record of its text."""
        start = int(self._starts[number])
        chunk = bisect_right(self._bases, start) - 1
        text, at = self._texts[chunk], start - self._bases[chunk]
        query, url, _ = text[at : text.index(b"\n", at)].split(b"\t")
        return Record(query.decode(), url.decode())

    def places(self, records: Sequence[Record]) -> IntArray:
        """Where each of these records is; −1 where it is not here."""
        wanted = _hashes_of(self._key, [f"{r.query}\t{r.url}".encode() for r in records])
        at = np.searchsorted(self._hashes, wanted)
        for i in range(len(records)):
            place = int(at[i])
            if place == len(self) or self._hashes[place] != wanted[i] or self[place] != records[i]:
                at[i] = -1
        return at

    def sums_by_query(self, queries: Sequence[str], counts: IntArray) -> IntArray:
        """For each of these queries the sum of `counts`, one for each record, over its records."""
        wanted = _hashes_of(self._key, [query.encode() for query in queries])
        order = np.argsort(wanted)
        sums = np.zeros(len(queries), dtype=np.int64)
        if not len(queries):
            return sums
        counted = np.flatnonzero(counts)
        counted = counted[np.argsort(self._starts[counted])]
        cuts = np.searchsorted(self._starts[counted], self._bases)
        for text, base, first, last in zip(
            self._texts, self._bases, cuts[:-1], cuts[1:], strict=False
        ):
            rows = counted[first:last]
            starts = self._starts[rows] - base
            tabs = np.flatnonzero(np.frombuffer(text, np.uint8) == _TAB)
            found = _hashes(self._key, text, starts, tabs[np.searchsorted(tabs, starts)])
            place = np.minimum(np.searchsorted(wanted[order], found), len(queries) - 1)
            same = wanted[order][place] == found
            np.add.at(sums, order[place[same]], counts[rows[same]])
        return sums


def _hashes_of(key: bytes, texts: Sequence[bytes]) -> Words:
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64) if len(texts) else ends
    return _hashes(key, b"".join(texts), starts, ends)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Rows of one string that are not merged yet."""

    rows: bytes
    hashes: Words
    counts: IntArray
    column: int


class RecordSums:
    """Adds up rows, in so many columns: one for each share of the opt-in users."""

    def __init__(self, columns: int) -> None:
        self._key = secrets.token_bytes(16)
        self._hashes: Words = np.empty(0, dtype=np.uint64)
        self._starts = np.empty(0, dtype=np.int64)
        self._sums = [np.empty(0, dtype=np.int64) for _ in range(columns)]
        self._texts: list[bytes] = []
        self._text_bytes = 0
        self._waiting: list[_Waiting] = []
        self._rows_waiting = 0

    def add(self, rows: bytes, column: int) -> None:
        """Add the rows of one string to a column."""
        at = _Rows.of(rows)
        hashes = _hashes(self._key, rows, at.starts, at.ends)
        self._waiting.append(_Waiting(rows, hashes, at.counts.astype(np.uint32), column))
        self._rows_waiting += len(hashes)
        # As many as there are already: each row is sorted a few times, however many there are.
        if self._rows_waiting > max(_MERGED_AT_ONCE, len(self._hashes)):
            self._merge()

    def finish(self) -> tuple[PackedRecords, list[IntArray]]:
        """The distinct records, and the sums of each column."""
        self._merge()
        return PackedRecords(self._key, self._hashes, self._starts, self._texts), self._sums

    def _merge(self) -> None:
        waiting, merged = self._waiting, len(self._hashes)
        self._waiting, self._rows_waiting = [], 0
        hashes = np.concatenate([self._hashes, *(w.hashes for w in waiting)])
        self._hashes = np.empty(0, dtype=np.uint64)
        # Stable, so that of equal ones the merged row comes first, then the first that arrived.
        order = np.argsort(hashes, kind="stable")
        hashes = hashes[order]
        first = np.ones(len(hashes), dtype=np.bool_)
        np.not_equal(hashes[1:], hashes[:-1], out=first[1:])
        begins = np.flatnonzero(first)
        self._hashes = hashes[begins]
        del hashes
        for column, sums in enumerate(self._sums):
            values = [
                w.counts if w.column == column else np.zeros(len(w.counts), dtype=np.uint32)
                for w in waiting
            ]
            counts = np.concatenate([sums, *values])[order]
            self._sums[column] = np.add.reduceat(counts, begins) if len(begins) else counts
        keeps = np.zeros(len(order), dtype=np.bool_)
        chosen = order[begins]
        del order, first, begins
        keeps[chosen] = True
        starts = np.empty(len(keeps), dtype=np.int64)
        starts[:merged] = self._starts
        at = merged
        waiting.reverse()
        while waiting:  # Let go of each string as soon as its text is stored.
            rows = waiting.pop()
            part = slice(at, at + len(rows.hashes))
            self._keep_text(rows.rows, keeps[part], starts[part])
            at = part.stop
        self._starts = starts[chosen]

    def _keep_text(self, rows: bytes, keeps: NDArray[np.bool_], starts: IntArray) -> None:
        """Store the rows to be kept, and write where each of them starts."""
        text = np.frombuffer(rows, np.uint8)
        lengths = np.diff(np.flatnonzero(text == _LF), prepend=-1)
        if not keeps.all():
            rows = text[np.repeat(keeps, lengths)].tobytes()
        starts[keeps] = self._text_bytes + np.cumsum(lengths[keeps]) - lengths[keeps]
        self._texts.append(rows)
        self._text_bytes += len(rows)
