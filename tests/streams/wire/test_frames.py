"""Frames: what is written is read back, and nothing else is taken for one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from blendstream.streams.wire.frames import (
    MAX_FRAME_BYTES,
    FrameKind,
    Marker,
    NewerFrame,
    OptinEntry,
    OptinFrame,
    RefusedFrame,
    ReportFrame,
    cell_width,
    decode,
    encode_marker,
    encode_optin_records,
)
from tests.report_frames import encode_reports

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "frames.json").read_text())
HEAD_LIST = bytes(32)


@pytest.mark.parametrize("vector", VECTORS["frames"], ids=lambda v: v["name"])
def test_a_published_vector_reads_as_it_says(vector: dict[str, object]) -> None:
    """Other languages are written against these bytes; no release may read them otherwise."""
    frame = decode(bytes.fromhex(str(vector["bytes"])))
    assert isinstance(frame, OptinFrame | ReportFrame)
    assert frame.epoch == vector["epoch"]
    assert frame.log_position == vector["log_position"]
    if isinstance(frame, ReportFrame):
        assert frame.head_list_id.hex() == vector["head_list_id"]
        assert frame.cells.tolist() == vector["cells"]
        assert [row.tobytes().hex() for row in frame.contributors] == vector["contributors"]
    else:
        assert [
            {"contributor": e.contributor.hex(), "slot": e.slot, "query": e.query.decode(),
             "url": e.url.decode()} for e in frame.entries()
        ] == vector["records"]  # fmt: skip
        assert frame.without_record().tolist() == vector.get("without_record", [False] * len(frame))


@pytest.mark.parametrize("vector", VECTORS["markers"], ids=lambda v: v["name"])
def test_a_published_marker_reads_as_it_says(vector: dict[str, object]) -> None:
    frame = decode(bytes.fromhex(str(vector["bytes"])))
    assert isinstance(frame, Marker)
    assert (frame.kind, frame.epoch, frame.id.hex()) == (
        vector["kind"], vector["epoch"], vector["id"],
    )  # fmt: skip


@pytest.mark.parametrize("vector", VECTORS["other_messages"], ids=lambda v: v["name"])
def test_a_published_message_that_is_no_frame_of_ours_is_taken_for_what_it_says(
    vector: dict[str, str],
) -> None:
    found = decode(bytes.fromhex(vector["bytes"]))
    assert isinstance(found, {"malformed": RefusedFrame, "newer": NewerFrame}[vector["taken_for"]])


def test_vectors_byte_by_byte() -> None:
    """Worked by hand from docs/wire-format.md, without the encoder."""
    vector = VECTORS["frames"][0]
    by_hand = (
        b"bF\x02\x02"  # magic, version, client reports
        + (64 + 3 * 16 + 3 * 2).to_bytes(4, "little")  # header, three keys, six cells
        + (41).to_bytes(8, "little")
        + (1234).to_bytes(8, "little")  # position in the release log
        + (3).to_bytes(4, "little")
        + b"\x01\x00"  # one byte a cell, reserved
        + (2).to_bytes(2, "little")  # two cells an entry
        + bytes(range(100, 132))
        + b"".join(bytes.fromhex(key) for key in vector["contributors"])
        + bytes([0, 3, 1, 2, 0, 255])
    )
    assert by_hand.hex() == vector["bytes"]
    marker = (
        b"bF\x02\x03"
        + (40).to_bytes(4, "little")
        + (41).to_bytes(8, "little")
        + b"\x01"  # opt-in records end here
        + bytes(7)
        + bytes(range(16))
    )
    assert marker.hex() == VECTORS["markers"][0]["bytes"]


def test_only_slot_0_without_any_text_says_that_there_is_no_record() -> None:
    entries = [
        OptinEntry(bytes(16), slot, query, url)
        for slot, query, url in [(0, b"", b""), (1, b"", b""), (0, b"q", b""), (0, b"", b"u")]
    ]
    found = decode(encode_optin_records(3, entries, log_position=1))
    assert isinstance(found, OptinFrame)
    assert found.without_record().tolist() == [True, False, False, False]


def frame() -> bytes:
    return encode_reports(7, HEAD_LIST, [bytes(16)] * 2, np.array([[1], [2]]), 1)


def changed(at: int, value: int, data: bytes = b"") -> bytes:
    found = bytearray(data or frame())
    found[at] = value
    return bytes(found)


def marker(at: int, value: int) -> bytes:
    return changed(at, value, encode_marker(FrameKind.OPTIN_RECORDS, 7, bytes(16)))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "prefix"),
        (b"bF\x01", "prefix"),
        (changed(0, ord("x")), "open like a frame"),
        (changed(2, 1), "open like a frame"),
        (changed(3, 9), "kind"),
        (frame()[:-1], "another length"),
        (frame() + b"\0", "another length"),
        (changed(28, 3), "cell width"),
        (changed(29, 1), "cell width"),
        (changed(30, 0), "cells per entry"),
        (changed(15, 255), "epoch"),
        (changed(23, 255), "position"),
        (changed(16, 0), "position"),
        (changed(24, 0), "no entries"),
        (changed(24, 3), "bytes that its entries need"),
        (changed(27, 255), "bytes that its entries need"),
        (b"bF\x02\x01\x08\x00\x00\x00", "cut off"),
        (b"bF\x02\x02\x08\x00\x00\x00", "cut off"),
        (marker(3, 0), "a kind that there is not"),
        (marker(15, 255), "epoch"),
        (marker(16, 3), "kind that has none"),
        (marker(17, 1), "reserved"),
        (b"bF\x02\x03\x08\x00\x00\x00", "bytes of a marker"),
    ],
)
def test_what_is_no_frame_is_refused_whole(data: bytes, why: str) -> None:
    found = decode(data)
    assert isinstance(found, RefusedFrame)
    assert why in found.why
    assert not found.too_long


def test_text_lengths_must_add_up() -> None:
    data = bytearray(
        encode_optin_records(1, [OptinEntry(bytes(16), 0, b"abc", b"de")], log_position=1)
    )
    data[32 + 16 + 2] = 4
    found = decode(bytes(data))
    assert isinstance(found, RefusedFrame)
    assert "text" in found.why


def test_a_newer_version_is_not_malformed_but_a_broken_one_is() -> None:
    """Workers stop there until they are upgraded; they must not throw a gateway's frames away."""
    data = b"bF\x03\x07" + (12).to_bytes(4, "little") + b"????"
    assert decode(data) == NewerFrame(3)
    assert isinstance(decode(data[:-1]), RefusedFrame)


def test_a_frame_over_the_limit_is_too_long() -> None:
    size = MAX_FRAME_BYTES + 1
    data = b"bF\x02\x02" + size.to_bytes(4, "little") + bytes(size - 8)
    found = decode(data)
    assert isinstance(found, RefusedFrame)
    assert found.too_long
    with pytest.raises(ValueError, match="at most 262144 bytes"):
        encode_reports(1, HEAD_LIST, bytes(16 * 20_000), np.zeros((20_000, 1), int), 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: encode_reports(-1, HEAD_LIST, [bytes(16)], np.zeros((1, 1), int), 1), "epoch"),
        (
            lambda: encode_optin_records(1, [OptinEntry(b"x", 0, b"q", b"u")], log_position=1),
            "contributor key",
        ),
        (
            lambda: encode_reports(1, HEAD_LIST, [bytes(16)], np.zeros((2, 1), int), 1),
            "no whole number of entries",
        ),
        (lambda: encode_optin_records(1, [], log_position=1), "at least one entry"),
        (
            lambda: encode_optin_records(1, [OptinEntry(bytes(16), 0, b"q", b"u")], log_position=0),
            "position in the release log",
        ),
        (lambda: encode_marker(FrameKind.MARKER, 1, bytes(16)), "opt-in records or client reports"),
        (lambda: encode_marker(FrameKind.OPTIN_RECORDS, 1, b"x"), "16 bytes"),
        (lambda: encode_marker(FrameKind.OPTIN_RECORDS, -1, bytes(16)), "epoch"),
    ],
)
def test_the_encoder_refuses_what_no_frame_can_hold(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("cells", "width"), [(1, 1), (256, 1), (257, 2), (1 << 16, 2), (70_000, 4)]
)
def test_cells_take_the_fewest_bytes_that_hold_them(cells: int, width: int) -> None:
    assert cell_width(cells) == width
