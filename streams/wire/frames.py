"""Binary frames, the Kafka messages with opt-in records and client reports.

A frame packs many entries of one epoch and one partition into one Kafka message, because a stream
processor's cost is per message. `docs/wire-format.md` describes the bytes for other languages.

Promises: `decode` returns a result for every input, without an exception and without reading past
its end; it accepts or refuses a frame as a whole; it reads back what `encode_*` writes.
Assumes: a well-formed frame may still be wrong. `agents.worker.entry_checks` validates epoch, head
list, slots, cells and text, entry by entry.
There is one version, 2. A complete frame of a newer version is not refused: its readers must be
upgraded (`NewerFrame`).
Depends on numpy only, so that devices and gateways share it.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from blendstream.streams.wire.epoch_numbers import MAX_EPOCH

__all__ = [
    "CONTRIBUTOR_BYTES",
    "FRAME_VERSION",
    "MAX_EPOCH",
    "MAX_FRAME_BYTES",
    "MAX_LOG_POSITION",
    "Frame",
    "FrameKind",
    "Marker",
    "NewerFrame",
    "OptinEntry",
    "OptinFrame",
    "RefusedFrame",
    "ReportFrame",
    "cell_width",
    "decode",
    "encode_marker",
    "encode_optin_records",
    "encode_packed_reports",
]

FRAME_VERSION: Final = 2
MAGIC: Final = b"bF"

#: If smaller, Kafka's and Faust's cost per message weighs more; if larger, one frame would delay a
#: partition, and 4 of them already reach a broker's default message limit.
MAX_FRAME_BYTES: Final = 256 * 1024

CONTRIBUTOR_BYTES: Final = 16
MARKER_ID_BYTES: Final = 16

#: Kafka's offsets are signed.
MAX_LOG_POSITION: Final = 2**63 - 1


class FrameKind(enum.IntEnum):
    """Kinds of frames, with their numbers on the wire."""

    OPTIN_RECORDS = 1
    CLIENT_REPORTS = 2
    MARKER = 3


# In every version:         magic 2s · version B · kind B · length of the whole frame I
_PREFIX: Final = struct.Struct("<2sBBI")
# Entries:                  prefix · epoch Q · position in the release log Q · entries I · then
#   opt-in records          reserved I
#   client reports          cell width B · reserved B · cells per entry H · head list 32s
_OPTIN: Final = struct.Struct("<2sBBIQQII")
_REPORTS: Final = struct.Struct("<2sBBIQQIBBH32s")
# Markers:                  prefix · epoch Q · kind of the entries that end here B · reserved · id
_MARKER: Final = struct.Struct("<2sBBIQB7s16s")
_NOTHING: Final = bytes(7)

_WIDTHS: Final[dict[int, np.dtype[Any]]] = {
    1: np.dtype("u1"),
    2: np.dtype("<u2"),
    4: np.dtype("<u4"),
}
_OPTIN_ENTRY_BYTES: Final = CONTRIBUTOR_BYTES + 3 * 2


@dataclass(frozen=True, slots=True)
class OptinEntry:
    """One record in a frame: contributor key, slot, normalised text in UTF-8.

    Slot 0 without text means that this user has no record.
    """

    contributor: bytes
    slot: int
    query: bytes
    url: bytes


@dataclass(frozen=True, slots=True, eq=False)
class OptinFrame:
    """Opt-in records of one epoch. `contributors` has a row of two 64-bit words per entry.

    The entry that opens the epoch is below `log_position` in the release log.
    """

    epoch: int
    contributors: NDArray[np.uint64]
    slots: NDArray[np.uint16]
    query_lengths: NDArray[np.uint16]
    url_lengths: NDArray[np.uint16]
    text: bytes
    log_position: int

    def __len__(self) -> int:
        return len(self.slots)

    def without_record(self) -> NDArray[np.bool_]:
        """Return True for each entry that means that its user has no record."""
        empty: NDArray[np.bool_] = (self.slots | self.query_lengths | self.url_lengths) == 0
        return empty

    def entries(self) -> list[OptinEntry]:
        """Unpack every entry."""
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
    """Client reports on one head list: a row of cell numbers per contributor.

    The head list's entry is below `log_position` in the release log.
    """

    epoch: int
    head_list_id: bytes
    contributors: NDArray[np.uint64]
    cells: NDArray[np.unsignedinteger]
    log_position: int

    def __len__(self) -> int:
        return len(self.cells)


@dataclass(frozen=True, slots=True)
class Marker:
    """A frame without entries. Its offset bounds an epoch's entries if a committed seal states it.

    Alone it has no effect: its writer may have died before committing a seal.
    """

    kind: FrameKind
    epoch: int
    id: bytes


@dataclass(frozen=True, slots=True)
class NewerFrame:
    """A complete frame of a version newer than this release: not an error of its sender."""

    version: int


@dataclass(frozen=True, slots=True)
class RefusedFrame:
    """Bytes that are not a frame, or a frame over the limit. `why` never quotes them."""

    too_long: bool
    why: str


Frame = OptinFrame | ReportFrame | Marker | NewerFrame | RefusedFrame


def cell_width(cells: int) -> int:
    """Return the width of a cell number in bytes, for a head list of this many cells.

    >>> [cell_width(k) for k in (1, 256, 257, 65_536, 65_537)]
    [1, 1, 2, 2, 4]
    """
    if cells <= 1 << 8:
        return 1
    return 2 if cells <= 1 << 16 else 4


def encode_optin_records(epoch: int, entries: Sequence[OptinEntry], *, log_position: int) -> bytes:
    """Pack opt-in records of one epoch; `ValueError` when they cannot form a legal frame."""
    slots = np.array([e.slot for e in entries], dtype="<u2")
    queries = np.array([len(e.query) for e in entries], dtype="<u2")
    urls = np.array([len(e.url) for e in entries], dtype="<u2")
    text = b"".join(e.query + e.url for e in entries)
    keys = _joined_keys([e.contributor for e in entries])
    size = _OPTIN.size + len(entries) * _OPTIN_ENTRY_BYTES + len(text)
    _check_frame(epoch, log_position, len(entries), size)
    head = _OPTIN.pack(
        MAGIC, FRAME_VERSION, FrameKind.OPTIN_RECORDS, size, epoch, log_position, len(entries), 0
    )
    return b"".join((head, keys, slots.tobytes(), queries.tobytes(), urls.tobytes(), text))


def encode_packed_reports(
    epoch: int,
    head_list_id: bytes,
    keys: bytes,
    cells: bytes,
    *,
    cells_per_entry: int,
    width: int,
    log_position: int,
) -> bytes:
    """Pack reports whose keys and cells are already joined, with `width` bytes per cell."""
    entries = len(keys) // CONTRIBUTOR_BYTES
    if len(keys) % CONTRIBUTOR_BYTES or len(cells) != entries * cells_per_entry * width:
        raise ValueError(
            f"{len(keys)} bytes of keys and {len(cells)} of cells are no whole number of entries"
        )
    size = _REPORTS.size + len(keys) + len(cells)
    _check_frame(epoch, log_position, entries, size)
    head = _REPORTS.pack(
        MAGIC,
        FRAME_VERSION,
        FrameKind.CLIENT_REPORTS,
        size,
        epoch,
        log_position,
        entries,
        width,
        0,
        cells_per_entry,
        head_list_id,
    )
    return b"".join((head, keys, cells))


def encode_marker(kind: FrameKind, epoch: int, marker_id: bytes) -> bytes:
    """Pack a marker, after which no entry of this kind belongs to the epoch."""
    if kind is FrameKind.MARKER or len(marker_id) != MARKER_ID_BYTES:
        raise ValueError(
            f"a marker is for opt-in records or client reports and has an id of {MARKER_ID_BYTES} "
            f"bytes, got {kind.name} and {len(marker_id)} bytes"
        )
    if not 0 <= epoch <= MAX_EPOCH:
        raise ValueError(f"epoch must be in 0…2^53 - 1, got {epoch}")
    return _MARKER.pack(
        MAGIC, FRAME_VERSION, FrameKind.MARKER, _MARKER.size, epoch, kind, _NOTHING, marker_id
    )


def decode(data: bytes) -> Frame:
    """Decode one Kafka message. Never raises."""
    if len(data) < _PREFIX.size:
        return _malformed("shorter than a frame's prefix")
    magic, version, kind, length = _PREFIX.unpack_from(data)
    if magic != MAGIC or version < FRAME_VERSION:
        return _malformed("does not open like a frame")
    if length != len(data):
        return _malformed("states another length than it has")
    if version > FRAME_VERSION:
        return NewerFrame(version)
    return _decode_present(data, kind)


def _decode_present(data: bytes, kind: int) -> OptinFrame | ReportFrame | Marker | RefusedFrame:
    if len(data) > MAX_FRAME_BYTES:
        return RefusedFrame(too_long=True, why=f"is over {MAX_FRAME_BYTES} bytes")
    if kind == FrameKind.CLIENT_REPORTS:
        return _decode_reports(data)
    if kind == FrameKind.OPTIN_RECORDS:
        return _decode_optin_records(data)
    if kind == FrameKind.MARKER:
        return _decode_marker(data)
    return _malformed("holds a kind that there is not")


def _decode_reports(data: bytes) -> ReportFrame | RefusedFrame:
    if len(data) < _REPORTS.size:
        return _malformed("is cut off in its header")
    _, _, _, _, epoch, log_position, count, *fields = _REPORTS.unpack_from(data)
    width, reserved, per_entry, head_list_id = fields
    if width not in _WIDTHS or reserved != 0 or per_entry == 0:
        return _malformed("states an impossible cell width or cells per entry")
    if count == 0 or epoch > MAX_EPOCH or not 1 <= log_position <= MAX_LOG_POSITION:
        return _malformed("states no entries, an epoch beyond 2^53 - 1 or an impossible position")
    # Python integers: no count on the wire can make this sum overflow.
    if len(data) != _REPORTS.size + count * (CONTRIBUTOR_BYTES + per_entry * width):
        return _malformed("has not the bytes that its entries need")
    cells_at = _REPORTS.size + count * CONTRIBUTOR_BYTES
    cells = np.frombuffer(data, _WIDTHS[width], count * per_entry, cells_at)
    keys = _keys(data, _REPORTS.size, count)
    return ReportFrame(epoch, head_list_id, keys, cells.reshape(count, per_entry), log_position)


def _decode_optin_records(data: bytes) -> OptinFrame | RefusedFrame:
    if len(data) < _OPTIN.size:
        return _malformed("is cut off in its header")
    _, _, _, _, epoch, log_position, count, reserved = _OPTIN.unpack_from(data)
    if count == 0 or epoch > MAX_EPOCH or not 1 <= log_position <= MAX_LOG_POSITION or reserved:
        return _malformed(
            "states no entries, an epoch beyond 2^53 - 1, an impossible position or reserved bits"
        )
    text_at = _OPTIN.size + count * _OPTIN_ENTRY_BYTES
    if len(data) < text_at:
        return _malformed("has not the bytes that its entries need")
    columns = np.frombuffer(data, "<u2", 3 * count, _OPTIN.size + count * CONTRIBUTOR_BYTES)
    slots, queries, urls = columns.reshape(3, count)
    if text_at + int(queries.sum(dtype=np.int64) + urls.sum(dtype=np.int64)) != len(data):
        return _malformed("has not the text that its entries state")
    keys = _keys(data, _OPTIN.size, count)
    return OptinFrame(epoch, keys, slots, queries, urls, data[text_at:], log_position)


def _decode_marker(data: bytes) -> Marker | RefusedFrame:
    if len(data) != _MARKER.size:
        return _malformed("has not the bytes of a marker")
    *_, epoch, kind, reserved, marker_id = _MARKER.unpack(data)
    if kind not in (FrameKind.OPTIN_RECORDS, FrameKind.CLIENT_REPORTS):
        return _malformed("marks the end of a kind that has none")
    if epoch > MAX_EPOCH or reserved != _NOTHING:
        return _malformed("states an epoch beyond 2^53 - 1, or reserved bits")
    return Marker(FrameKind(kind), epoch, marker_id)


def _keys(data: bytes, at: int, count: int) -> NDArray[np.uint64]:
    return np.frombuffer(data, "<u8", 2 * count, at).reshape(count, 2)


def _joined_keys(contributors: Sequence[bytes]) -> bytes:
    if any(len(key) != CONTRIBUTOR_BYTES for key in contributors):
        raise ValueError(f"a contributor key has {CONTRIBUTOR_BYTES} bytes")
    return b"".join(contributors)


def _check_frame(epoch: int, log_position: int, entries: int, size: int) -> None:
    if not 0 <= epoch <= MAX_EPOCH:
        raise ValueError(f"epoch must be in 0…2^53 - 1, got {epoch}")
    if not 1 <= log_position <= MAX_LOG_POSITION:
        raise ValueError(f"a position in the release log is in 1…2^63 - 1, got {log_position}")
    if entries == 0:
        raise ValueError("a frame holds at least one entry")
    if size > MAX_FRAME_BYTES:
        raise ValueError(f"a frame holds at most {MAX_FRAME_BYTES} bytes, got {size}")


def _malformed(why: str) -> RefusedFrame:
    return RefusedFrame(too_long=False, why=why)
