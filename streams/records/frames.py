"""The frames that carry opt-in records and client reports through Kafka.

A frame packs many entries of one epoch and one partition into one Kafka message, because a stream
processor's cost is per message. `docs/wire-format.md` describes the bytes for other languages.

Promises: `decode` answers for every input whatever, without an exception and without reading past
its end; a frame is taken whole or refused whole; what `encode_*` writes, `decode` reads back.
Assumes: a frame says what its sender sent, not that it is right. Epoch, head list, slots, cells
and text are judged in `streams.judging`, entry by entry.
Free of Faust and of everything but numpy, so that devices and gateways share it.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streams.records.epoch_numbers import MAX_EPOCH

__all__ = [
    "CONTRIBUTOR_BYTES",
    "FRAME_VERSION",
    "HEAD_LIST_ID_BYTES",
    "MAX_EPOCH",
    "MAX_FRAME_BYTES",
    "Frame",
    "FrameKind",
    "NewerFrame",
    "OptinEntry",
    "OptinFrame",
    "RefusedFrame",
    "ReportFrame",
    "cell_width",
    "decode",
    "encode_optin_records",
    "encode_packed_reports",
    "encode_reports",
]

FRAME_VERSION: Final = 1
MAGIC: Final = b"bF"

#: Smaller would pay Kafka's and Faust's cost per message more often; larger would let one frame
#: hold up a partition, and 4 of them already fill a broker's default message limit.
MAX_FRAME_BYTES: Final = 256 * 1024

CONTRIBUTOR_BYTES: Final = 16
HEAD_LIST_ID_BYTES: Final = 32


class FrameKind(enum.IntEnum):
    """What a frame holds; the number on the wire."""

    OPTIN_RECORDS = 1
    CLIENT_REPORTS = 2


# Every version, for ever:  magic 2s · version B · kind B · length of the whole frame I
_PREFIX: Final = struct.Struct("<2sBBI")
# Version 1, both kinds:    prefix · epoch Q · entries I
_COMMON: Final = struct.Struct("<2sBBIQI")
# Opt-in records:           common · reserved I
_OPTIN: Final = struct.Struct("<2sBBIQII")
# Client reports:           common · cell width B · reserved B · cells per entry H · head list 32s
_REPORTS: Final = struct.Struct("<2sBBIQIBBH32s")

_WIDTHS: Final[dict[int, np.dtype[Any]]] = {
    1: np.dtype("u1"),
    2: np.dtype("<u2"),
    4: np.dtype("<u4"),
}
_OPTIN_ENTRY_BYTES: Final = CONTRIBUTOR_BYTES + 3 * 2


@dataclass(frozen=True, slots=True)
class OptinEntry:
    """One record as a gateway packs it: contributor key, slot, normalised text in UTF-8."""

    contributor: bytes
    slot: int
    query: bytes
    url: bytes


@dataclass(frozen=True, slots=True, eq=False)
class OptinFrame:
    """Opt-in records of one epoch. `contributors` has one row of two 64-bit words an entry."""

    epoch: int
    contributors: NDArray[np.uint64]
    slots: NDArray[np.uint16]
    query_lengths: NDArray[np.uint16]
    url_lengths: NDArray[np.uint16]
    text: bytes

    def __len__(self) -> int:
        return len(self.slots)

    def entries(self) -> list[OptinEntry]:
        """Every entry, cut out of the packed arrays."""
        keys = self.contributors.tobytes()
        entries, at = [], 0
        for i, (slot, query, url) in enumerate(
            zip(
                self.slots.tolist(),
                self.query_lengths.tolist(),
                self.url_lengths.tolist(),
                strict=True,
            )
        ):
            middle, end = at + query, at + query + url
            key = keys[i * CONTRIBUTOR_BYTES : (i + 1) * CONTRIBUTOR_BYTES]
            entries.append(OptinEntry(key, slot, self.text[at:middle], self.text[middle:end]))
            at = end
        return entries


@dataclass(frozen=True, slots=True, eq=False)
class ReportFrame:
    """Client reports on one head list: a row of cell numbers for every contributor."""

    epoch: int
    head_list_id: bytes
    contributors: NDArray[np.uint64]
    cells: NDArray[np.unsignedinteger]

    def __len__(self) -> int:
        return len(self.cells)


@dataclass(frozen=True, slots=True)
class NewerFrame:
    """A whole frame of a version this release cannot read yet: not an error of its sender."""

    version: int


@dataclass(frozen=True, slots=True)
class RefusedFrame:
    """Bytes that are no frame, or a frame over the limit. `why` never quotes them."""

    too_long: bool
    why: str


Frame = OptinFrame | ReportFrame | NewerFrame | RefusedFrame


def cell_width(cells: int) -> int:
    """Bytes a cell number takes when a head list has this many cells.

    >>> [cell_width(k) for k in (1, 256, 257, 65_536, 65_537)]
    [1, 1, 2, 2, 4]
    """
    if cells <= 1 << 8:
        return 1
    return 2 if cells <= 1 << 16 else 4


def encode_optin_records(epoch: int, entries: Sequence[OptinEntry]) -> bytes:
    """Pack opt-in records of one epoch; `ValueError` when they cannot form a legal frame."""
    slots = np.array([e.slot for e in entries], dtype="<u2")
    queries = np.array([len(e.query) for e in entries], dtype="<u2")
    urls = np.array([len(e.url) for e in entries], dtype="<u2")
    text = b"".join(e.query + e.url for e in entries)
    keys = _joined_keys([e.contributor for e in entries])
    size = _OPTIN.size + len(entries) * _OPTIN_ENTRY_BYTES + len(text)
    _check_frame(epoch, len(entries), size)
    head = _OPTIN.pack(MAGIC, FRAME_VERSION, FrameKind.OPTIN_RECORDS, size, epoch, len(entries), 0)
    return b"".join((head, keys, slots.tobytes(), queries.tobytes(), urls.tobytes(), text))


def encode_reports(
    epoch: int,
    head_list_id: bytes,
    contributors: Sequence[bytes] | bytes,
    cells: NDArray[np.integer],
    width: int,
) -> bytes:
    """Pack client reports on one head list: `cells` has a row for each contributor key.

    `contributors` may be the keys already joined, as a gateway that packs thousands has them.
    """
    keys = contributors if isinstance(contributors, bytes) else _joined_keys(contributors)
    if cells.ndim != 2 or cells.shape[0] * CONTRIBUTOR_BYTES != len(keys):
        raise ValueError(
            f"cells must have one row for each contributor, got shape {cells.shape} "
            f"for {len(keys) / CONTRIBUTOR_BYTES:g} contributors"
        )
    if len(head_list_id) != HEAD_LIST_ID_BYTES:
        raise ValueError(f"a head-list id has 32 bytes, got {len(head_list_id)}")
    if width not in _WIDTHS:
        raise ValueError(f"cell width must be 1, 2 or 4 bytes, got {width}")
    if not 1 <= cells.shape[1] < 1 << 16:
        raise ValueError(f"a report has 1 to 65535 cells, got {cells.shape[1]}")
    packed = cells.astype(_WIDTHS[width])
    if not np.array_equal(packed, cells):
        raise ValueError(f"cell numbers must be in 0…{(1 << 8 * width) - 1} for width {width}")
    return encode_packed_reports(
        epoch, head_list_id, keys, packed.tobytes(), cells_per_entry=cells.shape[1], width=width
    )


def encode_packed_reports(
    epoch: int,
    head_list_id: bytes,
    keys: bytes,
    cells: bytes,
    *,
    cells_per_entry: int,
    width: int,
) -> bytes:
    """Pack reports whose keys and cells are already joined, `width` bytes a cell."""
    entries = len(keys) // CONTRIBUTOR_BYTES
    if len(keys) % CONTRIBUTOR_BYTES or len(cells) != entries * cells_per_entry * width:
        raise ValueError(
            f"{len(keys)} bytes of keys and {len(cells)} of cells are no whole number of entries"
        )
    size = _REPORTS.size + len(keys) + len(cells)
    _check_frame(epoch, entries, size)
    head = _REPORTS.pack(
        MAGIC,
        FRAME_VERSION,
        FrameKind.CLIENT_REPORTS,
        size,
        epoch,
        entries,
        width,
        0,
        cells_per_entry,
        head_list_id,
    )
    return b"".join((head, keys, cells))


def decode(data: bytes) -> Frame:
    """Read one Kafka message. Never raises, whatever the bytes are."""
    if len(data) < _PREFIX.size:
        return _malformed("shorter than a frame's prefix")
    magic, version, kind, length = _PREFIX.unpack_from(data)
    if magic != MAGIC or version == 0:
        return _malformed("does not open like a frame")
    if length != len(data):
        return _malformed("states another length than it has")
    if version > FRAME_VERSION:
        return NewerFrame(version)
    return _decode_version_1(data, kind)


def _decode_version_1(data: bytes, kind: int) -> OptinFrame | ReportFrame | RefusedFrame:
    if len(data) > MAX_FRAME_BYTES:
        return RefusedFrame(too_long=True, why=f"is over {MAX_FRAME_BYTES} bytes")
    if kind == FrameKind.CLIENT_REPORTS:
        return _decode_reports(data)
    if kind == FrameKind.OPTIN_RECORDS:
        return _decode_optin_records(data)
    return _malformed("holds a kind that this version does not have")


def _decode_reports(data: bytes) -> ReportFrame | RefusedFrame:
    if len(data) < _REPORTS.size:
        return _malformed("is cut off in its header")
    *_, epoch, count, width, reserved, per_entry, head_list_id = _REPORTS.unpack_from(data)
    if width not in _WIDTHS or reserved != 0 or per_entry == 0:
        return _malformed("states an impossible cell width or cells per entry")
    if count == 0 or epoch > MAX_EPOCH:
        return _malformed("states no entries, or an epoch beyond 2^53 - 1")
    # Python integers: no count on the wire can make this sum overflow.
    if len(data) != _REPORTS.size + count * (CONTRIBUTOR_BYTES + per_entry * width):
        return _malformed("has not the bytes that its entries need")
    cells_at = _REPORTS.size + count * CONTRIBUTOR_BYTES
    cells = np.frombuffer(data, _WIDTHS[width], count * per_entry, cells_at)
    return ReportFrame(
        epoch, head_list_id, _keys(data, _REPORTS.size, count), cells.reshape(count, per_entry)
    )


def _decode_optin_records(data: bytes) -> OptinFrame | RefusedFrame:
    if len(data) < _OPTIN.size:
        return _malformed("is cut off in its header")
    *_, epoch, count, reserved = _OPTIN.unpack_from(data)
    if count == 0 or epoch > MAX_EPOCH or reserved != 0:
        return _malformed("states no entries, an epoch beyond 2^53 - 1, or reserved bits")
    text_at = _OPTIN.size + count * _OPTIN_ENTRY_BYTES
    if len(data) < text_at:
        return _malformed("has not the bytes that its entries need")
    columns = np.frombuffer(data, "<u2", 3 * count, _OPTIN.size + count * CONTRIBUTOR_BYTES)
    slots, queries, urls = columns.reshape(3, count)
    if text_at + int(queries.sum(dtype=np.int64) + urls.sum(dtype=np.int64)) != len(data):
        return _malformed("has not the text that its entries state")
    keys = _keys(data, _OPTIN.size, count)
    return OptinFrame(epoch, keys, slots, queries, urls, data[text_at:])


def _keys(data: bytes, at: int, count: int) -> NDArray[np.uint64]:
    return np.frombuffer(data, "<u8", 2 * count, at).reshape(count, 2)


def _joined_keys(contributors: Sequence[bytes]) -> bytes:
    if any(len(key) != CONTRIBUTOR_BYTES for key in contributors):
        raise ValueError(f"a contributor key has {CONTRIBUTOR_BYTES} bytes")
    return b"".join(contributors)


def _check_frame(epoch: int, entries: int, size: int) -> None:
    if not 0 <= epoch <= MAX_EPOCH:
        raise ValueError(f"epoch must be in 0…2^53 - 1, got {epoch}")
    if entries == 0:
        raise ValueError("a frame holds at least one entry")
    if size > MAX_FRAME_BYTES:
        raise ValueError(f"a frame holds at most {MAX_FRAME_BYTES} bytes, got {size}")


def _malformed(why: str) -> RefusedFrame:
    return RefusedFrame(too_long=False, why=why)
