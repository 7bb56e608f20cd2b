"""Rows of opt-in records add up as a dictionary would, and only what is asked for is unpacked."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blendstream.blender.values.record import Record
from blendstream.blender.values.record_table import ListedRecords
from blendstream.streams.errors import StoreMismatch
from blendstream.streams.tables import record_rows
from blendstream.streams.tables.record_rows import RecordSums, pack_rows, row_counts, row_texts

# No control characters, as nothing with one gets into Redis; lengths on both sides of 8 bytes.
_TEXT = st.text(st.characters(blacklist_categories=("Cc", "Cs")), min_size=1, max_size=20)
RECORDS = st.builds(Record, _TEXT, _TEXT)
BATCHES = st.lists(
    st.tuples(st.integers(0, 1), st.dictionaries(RECORDS, st.integers(1, 10**6), max_size=6)),
    max_size=8,
)


def packed(counts: dict[Record, int]) -> bytes:
    return pack_rows({f"{r.query}\t{r.url}".encode(): n for r, n in counts.items()})


def summed(batches: list[tuple[int, dict[Record, int]]]) -> list[Counter[Record]]:
    sums: list[Counter[Record]] = [Counter(), Counter()]
    for column, counts in batches:
        sums[column].update(counts)
    return sums


@pytest.mark.parametrize("merged_at_once", [0, 3, 1 << 20])
@given(batches=BATCHES)
def test_rows_add_up_as_a_dictionary_would(batches, merged_at_once):
    """However many batches a record comes in, and however often rows are merged on the way."""
    before = record_rows._MERGED_AT_ONCE
    record_rows._MERGED_AT_ONCE = merged_at_once
    try:
        sums = RecordSums(columns=2)
        for column, counts in batches:
            sums.add(packed(counts), column)
        records, found = sums.finish()
    finally:
        record_rows._MERGED_AT_ONCE = before
    wanted = summed(batches)
    assert len(records) == len(wanted[0].keys() | wanted[1].keys())
    for column in (0, 1):
        held = {records[i]: n for i, n in enumerate(found[column].tolist()) if n}
        assert held == wanted[column]


@given(batches=BATCHES, others=st.lists(RECORDS, max_size=4))
def test_packed_records_answer_as_a_list_of_them_does(batches, others):
    sums = RecordSums(columns=2)
    for column, counts in batches:
        sums.add(packed(counts), column)
    records, (counts, _) = sums.finish()
    listed = ListedRecords([records[i] for i in range(len(records))])
    asked = [*(records[i] for i in range(len(records))), *others]
    assert records.places(asked).tolist() == listed.places(asked).tolist()
    queries = list({record.query for record in asked})
    assert (
        records.sums_by_query(queries, counts).tolist()
        == listed.sums_by_query(queries, counts).tolist()
    )


def test_only_records_that_are_asked_for_become_objects(monkeypatch):
    """Ten million of them as objects took 410 bytes each, and seconds to make."""
    made = []

    def counted(query: str, url: str) -> Record:
        made.append(query)
        return Record(query, url)

    monkeypatch.setattr(record_rows, "Record", counted)
    sums = RecordSums(columns=1)
    sums.add(pack_rows({b"query %d\turl" % n: 1 for n in range(10_000)}), 0)
    records, (counts,) = sums.finish()
    place = records.places([Record("query 17", "url"), Record("query 17", "other")])
    assert records[int(place[0])] == Record("query 17", "url")
    assert (place[1], counts.sum(), len(made)) == (-1, 10_000, 2)


def test_a_distinct_record_takes_its_row_and_a_few_words():
    """At most 150 bytes with 55 of text, merging included: 50 million records fit one process."""
    size, strings = 200_000, 20
    rows = [
        pack_rows({b"query %07d\thttps://site-%07d.example/" % (n, n): 1 for n in numbers})
        for numbers in np.array_split(np.arange(size), strings)
    ]
    text = sum(map(len, rows)) / size
    tracemalloc.start()
    try:
        sums = RecordSums(columns=2)
        for string in rows:
            sums.add(bytes(bytearray(string)), 0)
        sums.finish()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak / size - text < 95


def test_rows_that_are_cut_off_are_refused_without_their_text():
    """Redis holds what a script appended, whole; anything else is no count."""
    for rows in (b"secret\tu\t1", b"secret\tu\n", b"secret\tu\t1\t2\n"):
        with pytest.raises(StoreMismatch, match=r"two tabs each.*blendstream rebuild") as refused:
            RecordSums(columns=1).add(rows, 0)
        assert "secret" not in str(refused.value)


def test_counts_of_many_digits_are_read():
    counts = {b"a\tu": 7, b"b\tu": 4_000_000_000, b"c\tu": 10}
    rows = pack_rows(counts)
    assert row_counts(rows).tolist() == [7, 4_000_000_000, 10]
    assert dict(row_texts(rows)) == counts
    assert row_counts(b"").tolist() == []
    assert np.array_equal(RecordSums(columns=1).finish()[1][0], [])
