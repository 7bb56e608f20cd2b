"""gzip that can be put together from pieces without compressing anything again.

A page of history is many published documents, each of which was compressed when it was released.
Deflate is a row of blocks: if each document's end on a whole byte and none calls itself the last,
the blocks of several follow each other as they are, and only the checksum is made anew. (Several
gzip files in a row would be shorter to write, but browsers read the first and drop the rest.)

Promises: the same bytes for the same content from every gateway, so that caches may mix answers.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from agents.gateway.responses import Part

__all__ = ["Piece", "pack", "pack_together"]

#: A part of a body, and what `pack` made of it, if it was packed.
Piece = tuple[bytes, bytes | None]

#: No name, no time, no operating system.
_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
#: An empty block that is the last.
_LAST = b"\x03\x00"
_TAIL = struct.Struct("<2s2I")
_STORED = struct.Struct("<B2H")
_STORED_BYTES = 0xFFFF


def pack(body: bytes) -> bytes:
    """`body` as gzip.

    >>> import gzip
    >>> gzip.decompress(pack(b"weather")), pack(b"weather") == pack(b"weather")
    (b'weather', True)
    """
    deflate = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    blocks = deflate.compress(body) + deflate.flush(zlib.Z_SYNC_FLUSH)
    return b"".join((_HEAD, blocks, _TAIL.pack(_LAST, zlib.crc32(body), len(body) & 0xFFFFFFFF)))


def pack_together(pieces: Sequence[Piece]) -> list[Part]:
    """The pieces' content as one gzip file, in parts.

    >>> import gzip
    >>> gzip.decompress(b"".join(pack_together([(b"a", pack(b"a")), (b",", None)])))
    b'a,'
    """
    parts: list[Part] = [_HEAD]
    checksum = size = 0
    for body, packed in pieces:
        checksum = zlib.crc32(body, checksum)
        size += len(body)
        if packed is None:
            for at in range(0, len(body), _STORED_BYTES):
                stored = body[at : at + _STORED_BYTES]
                parts.append(_STORED.pack(0, len(stored), len(stored) ^ 0xFFFF) + stored)
        else:
            parts.append(memoryview(packed)[len(_HEAD) : -_TAIL.size])
    parts.append(_TAIL.pack(_LAST, checksum, size & 0xFFFFFFFF))
    return parts
