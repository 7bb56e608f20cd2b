"""Documents in the release log: compressed, split over records of one transaction, all or none.

A document of any size becomes parts of at most `PART_BYTES`, because a broker takes no record
much over 1 MB. The parts travel in the same transaction as the entry that names them, before it;
a reader that sees the entry under read_committed can read every part.

Promises: `join` returns exactly the bytes that `split` was given, or raises `StoreMismatch`.
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

#: Well under a broker's usual limit of 1 MB a record. Smaller means more records, larger risks
#: a refusal by a broker with a tighter limit, after the noise was drawn.
PART_BYTES = 512 * 1024
#: No published document may be larger. `MAX_LISTED_RECORDS` sees to it for head lists and
#: estimates before noise is drawn; a click graph is cut to its most common queries.
MAX_DOCUMENT_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document ready to be sent: what it is, and its parts."""

    name: str
    id: str
    size: int
    parts: tuple[bytes, ...]

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "id": self.id, "bytes": self.size, "parts": len(self.parts)}


@dataclass(frozen=True, slots=True)
class DocumentReference:
    """Where a committed document lies: its parts have offsets in [first_offset, entry_offset)."""

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
        """Read what `StoredDocument.to_json` wrote."""
        return cls(
            str(body["name"]), str(body["id"]), int(body["bytes"]), int(body["parts"]),
            first_offset, entry_offset,
        )  # fmt: skip


def split(name: str, data: bytes) -> StoredDocument:
    """Compress and cut; the id is the SHA-256 of the bytes before compression."""
    packed = zlib.compress(data, 6)
    cuts = range(0, len(packed), PART_BYTES)
    return StoredDocument(
        name=name,
        id=hashlib.sha256(data).hexdigest(),
        size=len(data),
        parts=tuple(packed[at : at + PART_BYTES] for at in cuts),
    )


def join(reference: DocumentReference, parts: Iterable[bytes]) -> bytes:
    """Put the parts together again and check them against their name."""
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
