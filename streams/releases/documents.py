"""Documents in the release log: compressed, and split over the records of one transaction.

A document of any size becomes parts of at most `PART_BYTES`, because a broker accepts no record
much over 1 MB. The parts precede the entry that names them, in the same transaction: a reader that
sees the entry under `read_committed` can read every part.

Promises: `join` returns exactly the bytes that were passed to `split`, or raises `StoreMismatch`.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from blendstream.streams.errors import StoreMismatch

__all__ = [
    "MAX_DOCUMENT_BYTES",
    "PART_BYTES",
    "DocumentReference",
    "StoredDocument",
    "join",
    "split",
]

#: Well under a broker's usual limit of 1 MB per record. If smaller, there are more records; if
#: larger, a broker with a tighter limit may refuse a release after its noise was drawn.
PART_BYTES = 512 * 1024
#: Maximum size of a published document. `MAX_LISTED_RECORDS` ensures it for head lists and
#: estimates before noise is drawn; a click graph is cut to its most common queries.
MAX_DOCUMENT_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document ready to be sent: its name, id, size and parts."""

    name: str
    id: str
    size: int
    parts: tuple[bytes, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the reference to this document, for the entry that names it."""
        return {"name": self.name, "id": self.id, "bytes": self.size, "parts": len(self.parts)}


@dataclass(frozen=True, slots=True)
class DocumentReference:
    """Location of a committed document: its parts are in [first_offset, entry_offset)."""

    name: str
    id: str
    size: int
    parts: int
    first_offset: int
    entry_offset: int

    @classmethod
    def from_json(
        cls, body: Mapping[str, Any], first_offset: int, entry_offset: int
    ) -> DocumentReference:
        """Read a reference that `StoredDocument.to_json` wrote."""
        return cls(
            str(body["name"]), str(body["id"]), int(body["bytes"]), int(body["parts"]),
            first_offset, entry_offset,
        )  # fmt: skip


def split(name: str, data: bytes) -> StoredDocument:
    """Compress a document and cut it; its id is the SHA-256 of the uncompressed bytes."""
    compressed = zlib.compress(data, 6)
    starts = range(0, len(compressed), PART_BYTES)
    return StoredDocument(
        name=name,
        id=hashlib.sha256(data).hexdigest(),
        size=len(data),
        parts=tuple(compressed[start : start + PART_BYTES] for start in starts),
    )


def join(reference: DocumentReference, parts: Iterable[bytes]) -> bytes:
    """Join and decompress the parts, and verify their number, size and hash."""
    found = list(parts)
    if len(found) != reference.parts:
        raise StoreMismatch(
            f"document {reference.id[:12]} of the release log must have {reference.parts} parts, "
            f"found {len(found)}; the log was cut or written by another program"
        )
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(b"".join(found), reference.size + 1)
    except zlib.error:
        data = b""
    if len(data) != reference.size or hashlib.sha256(data).hexdigest() != reference.id:
        raise StoreMismatch(
            f"document {reference.id[:12]} of the release log does not match its own hash; "
            "restore the log from a replica or a backup"
        )
    return data
