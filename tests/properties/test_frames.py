"""The decoder answers for every input, and reads back whatever was written."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blendstream.streams.wire.frames import (
    FrameKind,
    Marker,
    NewerFrame,
    OptinEntry,
    OptinFrame,
    RefusedFrame,
    ReportFrame,
    decode,
    encode_marker,
    encode_optin_records,
)
from tests.report_frames import encode_reports

keys = st.binary(min_size=16, max_size=16)
entries = st.lists(
    st.builds(
        OptinEntry, keys, st.integers(0, 65535), st.binary(max_size=40), st.binary(max_size=40)
    ),
    min_size=1,
    max_size=20,
)
epochs = st.integers(0, 2**53 - 1)
positions = st.integers(1, 2**63 - 1)
marked = st.sampled_from([FrameKind.OPTIN_RECORDS, FrameKind.CLIENT_REPORTS])


@given(epoch=epochs, sent=entries, position=positions)
def test_opt_in_records_come_back_as_they_were_sent(
    epoch: int, sent: list[OptinEntry], position: int
) -> None:
    written = encode_optin_records(epoch, sent, log_position=position)
    frame = decode(written)
    assert isinstance(frame, OptinFrame)
    assert (frame.epoch, frame.log_position, frame.entries()) == (epoch, position, sent)


@given(epoch=epochs, kind=marked, marker_id=keys)
def test_markers_come_back_as_they_were_sent(epoch: int, kind: FrameKind, marker_id: bytes) -> None:
    assert decode(encode_marker(kind, epoch, marker_id)) == Marker(kind, epoch, marker_id)


@given(epoch=epochs, width=st.sampled_from([1, 2, 4]), data=st.data())
def test_reports_come_back_as_they_were_sent(epoch: int, width: int, data: st.DataObject) -> None:
    people = data.draw(st.lists(keys, min_size=1, max_size=10))
    per_entry = data.draw(st.integers(1, 6))
    cell = st.integers(0, (1 << 8 * width) - 1)
    row = st.lists(cell, min_size=per_entry, max_size=per_entry)
    cells = np.array([data.draw(row) for _ in people])
    frame = decode(encode_reports(epoch, bytes(32), people, cells, width))
    assert isinstance(frame, ReportFrame)
    assert frame.cells.tolist() == cells.tolist()
    assert frame.contributors.tobytes() == b"".join(people)


@given(st.binary(max_size=300))
def test_any_bytes_get_an_answer(data: bytes) -> None:
    assert_answered(data)


def assert_answered(data: bytes) -> None:
    """An answer of one of the five kinds, whose entries can all be read."""
    frame = decode(data)
    if isinstance(frame, OptinFrame):
        assert sum(len(e.query) + len(e.url) for e in frame.entries()) == len(frame.text)
    elif isinstance(frame, ReportFrame):
        assert frame.cells.shape[0] == frame.contributors.shape[0] == len(frame) > 0
    else:
        assert isinstance(frame, Marker | NewerFrame | RefusedFrame)


def corpus() -> list[bytes]:
    """Legal frames of every shape, from which the fuzzer starts."""
    people = [bytes([i]) * 16 for i in range(3)]
    found = [
        encode_reports(5, bytes(range(32)), people[:n], np.arange(n * c).reshape(n, c), width)
        for n in (1, 3) for c in (1, 4) for width in (1, 2, 4)
    ]  # fmt: skip
    found += [
        encode_optin_records(5, [OptinEntry(key, i, b"q" * i, b"u" * 2 * i) for i, key in
                                 enumerate(people[:n])], log_position=1)
        for n in (1, 2, 3)
    ]  # fmt: skip
    found += [encode_marker(kind, 5, bytes(range(16))) for kind in list(FrameKind)[:2]]
    found += [b"bF%c\x01\x08\x00\x00\x00" % version for version in (1, 2, 3)]
    return [*found, b"", b"bF"]


@pytest.mark.fuzz
def test_a_million_damaged_frames_get_an_answer(thorough: bool) -> None:
    """Bytes flipped, cut out, doubled and overwritten with numbers that lie near limits.

    30 000 in `make test`, 1 200 000 in `make fuzz`; half of them with their length mended, so that
    the checks behind it are reached.
    """
    rng = random.Random(2026)
    seeds = corpus()
    edges = [0, 1, 2, 0x7F, 0x80, 0xFF]
    mended = 0
    for _ in range(1_200_000 if thorough else 30_000):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 3)):
            kind = rng.randrange(4)
            at = rng.randint(0, len(data))
            if kind == 0 and at < len(data):
                data[at] = rng.choice(edges)
            elif kind == 1 and at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            elif kind == 2:
                del data[at : at + rng.randint(1, 19)]
            else:
                data[at:at] = rng.randbytes(rng.randint(1, 19))
        if len(data) >= 8 and rng.random() < 0.5:
            data[4:8] = len(data).to_bytes(4, "little")
            mended += 1
        assert_answered(bytes(data))
    assert mended > 10_000
