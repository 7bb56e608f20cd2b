"""Opt-in records as Redis stores them: rows of text that workers append and jobs add up.

    query TAB url TAB count LF

Text has no control characters (`agents.worker.entry_checks` refuses them), so TAB and LF separate
fields and rows. A worker writes one row per distinct record of a batch; other batches and
partitions may contain the same record. `RecordSums` adds rows up at numpy speed, and makes a Python
object of a record only when a caller requests it.

Promises: sums by record, whatever the order and the strings. 64-bit hashes decide which rows belong
to one record, so the probability of any collision among n records is n²/2⁶⁵: 3 in a million at 10
million. The key is random and new for every read: no sender can choose records that collide. A
collision does not weaken privacy, since which records share a sum does not depend on the data.
Costs: a distinct record takes its row and 32 bytes; during a merge, about twice that.

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
#: Minimum number of rows per merge. If lower, rows are sorted more often; higher takes memory.
_MERGED_AT_ONCE: Final = 1 << 20


def pack_rows(counts: Mapping[bytes, int]) -> bytes:
    """Encode `query TAB url` → count as rows, sorted so that their order reveals no arrival times.

    >>> pack_rows({b"b\\tu": 1, b"a\\tu": 2})
    b'a\\tu\\t2\\nb\\tu\\t1\\n'
    """
    return b"".join([b"%b\t%d\n" % row for row in sorted(counts.items())])


def row_texts(rows: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield each row's `query TAB url` and count."""
    for row in rows.splitlines():
        text, _, count = row.rpartition(b"\t")
        yield text, int(count)


def row_counts(rows: bytes) -> IntArray:
    """Return the counts of the rows."""
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
    """Hash each piece of `text` to 64 bits, with a key."""
    # A word of 8 bytes starts at every byte; zeros follow the end, so that the last piece has one.
    words = np.ndarray((len(text) + 1,), "<u8", text + bytes(8), strides=(1,))
    sizes = ends - starts
    lengths = np.maximum((sizes + 7) // 8, 1)
    found = np.empty(len(starts), dtype=np.uint64)
    for length in np.unique(lengths).tolist():
        here = np.flatnonzero(lengths == length)
        pieces = words[starts[here, np.newaxis] + 8 * np.arange(length)]
        # Zero the bytes that follow the piece. No text contains a zero byte.
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
        """Decode one record."""
        start = int(self._starts[number])
        chunk = bisect_right(self._bases, start) - 1
        text, at = self._texts[chunk], start - self._bases[chunk]
        query, url, _ = text[at : text.index(b"\n", at)].split(b"\t")
        return Record(query.decode(), url.decode())

    def places(self, records: Sequence[Record]) -> IntArray:
        """Return the index of each of these records; −1 if it is absent."""
        wanted = _hashes_of(self._key, [f"{r.query}\t{r.url}".encode() for r in records])
        at = np.searchsorted(self._hashes, wanted)
        for i in range(len(records)):
            place = int(at[i])
            if place == len(self) or self._hashes[place] != wanted[i] or self[place] != records[i]:
                at[i] = -1
        return at

    def sums_by_query(self, queries: Sequence[str], counts: IntArray) -> IntArray:
        """Sum `counts`, which has one count per record, over the records of each query."""
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
    """Adds up rows in several columns: one per subgroup of the opt-in users."""

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
        # At least as many as are merged: each row is then sorted only a few times in total.
        if self._rows_waiting > max(_MERGED_AT_ONCE, len(self._hashes)):
            self._merge()

    def finish(self) -> tuple[PackedRecords, list[IntArray]]:
        """Return the distinct records, and the sums of each column."""
        self._merge()
        return PackedRecords(self._key, self._hashes, self._starts, self._texts), self._sums

    def _merge(self) -> None:
        waiting, merged = self._waiting, len(self._hashes)
        self._waiting, self._rows_waiting = [], 0
        hashes = np.concatenate([self._hashes, *(w.hashes for w in waiting)])
        self._hashes = np.empty(0, dtype=np.uint64)
        # Stable sort: of equal hashes the merged row comes first, then the first to arrive.
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
        while waiting:  # Free each string as soon as its text is stored.
            rows = waiting.pop()
            part = slice(at, at + len(rows.hashes))
            self._keep_text(rows.rows, keeps[part], starts[part])
            at = part.stop
        self._starts = starts[chosen]

    def _keep_text(self, rows: bytes, keeps: NDArray[np.bool_], starts: IntArray) -> None:
        """Store the text of the rows to keep, and their start positions."""
        text = np.frombuffer(rows, np.uint8)
        lengths = np.diff(np.flatnonzero(text == _LF), prepend=-1)
        if not keeps.all():
            rows = text[np.repeat(keeps, lengths)].tobytes()
        starts[keeps] = self._text_bytes + np.cumsum(lengths[keeps]) - lengths[keeps]
        self._texts.append(rows)
        self._text_bytes += len(rows)
