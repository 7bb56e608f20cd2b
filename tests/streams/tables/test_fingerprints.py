"""SipHash at numpy speed is SipHash; the table is a set that keeps the log's order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blendstream.streams.tables.fingerprints import FingerprintTable, siphash
from tests.scalar_siphash import scalar_siphash

KEY = bytes(range(16))


@pytest.mark.parametrize(("size", "wanted"), [(8, "6224939a79f5f593"), (16, "db9bc2577fcc2a3f")])
def test_the_authors_vectors(size: int, wanted: str) -> None:
    """Input 00 01 02 … under the key 00 … 0f, from the reference implementation's table."""
    rows = np.frombuffer(bytes(range(size)), "<u8").reshape(1, -1)
    assert siphash(KEY, rows)[0].tobytes().hex() == wanted


@given(st.integers(1, 3), st.binary(min_size=16, max_size=16), st.integers(0, 2**32))
def test_every_row_is_hashed_as_if_alone(words: int, key: bytes, seed: int) -> None:
    rows = np.random.default_rng(seed).integers(0, 2**64, (5, words), dtype=np.uint64)
    assert siphash(key, rows).tolist() == [scalar_siphash(key, row.tobytes()) for row in rows]


def test_blocks_do_not_show() -> None:
    rows = np.random.default_rng(1).integers(0, 2**64, (20_000, 2), dtype=np.uint64)
    assert (siphash(KEY, rows)[8190:8194] == siphash(KEY, rows[8190:8194])).all()


@given(st.lists(st.lists(st.integers(0, 40), max_size=30), max_size=10))
def test_the_table_is_a_set_that_takes_the_first_however_batches_are_cut(
    batches: list[list[int]],
) -> None:
    """A replay cuts the log elsewhere and must still count the same entry of two equal ones."""
    # Few and clustered values, zero among them: collisions and wrapping around happen.
    table, seen = FingerprintTable(), set[int]()
    for batch in batches:
        values = np.array(batch, dtype=np.uint64) * np.uint64(1023)
        wanted = []
        for value in np.maximum(values, np.uint64(1)).tolist():
            wanted.append(value not in seen)
            seen.add(value)
        assert table.add(values).tolist() == wanted
    assert len(table) == len(seen)


def test_it_grows_and_forgets_nobody() -> None:
    rng = np.random.default_rng(4)
    values = np.unique(rng.integers(1, 2**64, 300_000, dtype=np.uint64))
    table = FingerprintTable()
    for start in range(0, len(values), 7_000):
        assert table.add(values[start : start + 7_000]).all()
    assert not table.add(values).any()
    assert table.nbytes / len(table) <= 32


def test_room_that_was_reserved_is_the_room_that_is_needed() -> None:
    values = np.random.default_rng(5).integers(1, 2**64, 300_000, dtype=np.uint64)
    grown, reserved = FingerprintTable(), FingerprintTable()
    reserved.reserve(len(values))
    before = reserved.nbytes
    for start in range(0, len(values), 50_000):
        part = values[start : start + 50_000]
        assert (grown.add(part) == reserved.add(part)).all()
    assert reserved.nbytes == before == grown.nbytes
