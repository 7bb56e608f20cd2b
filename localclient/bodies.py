"""A server's answer, taken in piece by piece, never more than was asked for.

Promises: memory stays within `max_bytes` and one piece, also when a small answer unpacks to a huge
one; whatever is cut short or packed in a way that was not asked for is unusable whole. What is too
long is left out and said to be, since it is the device's own limit that is in the way.
"""

from __future__ import annotations

import zlib

__all__ = ["BoundedBody", "UnusableBody"]

#: Tells zlib to expect a gzip header.
_GZIP = 31


class UnusableBody(Exception):
    """This answer counts as none."""


class BoundedBody:
    """The bytes of one answer, unpacked if they came packed with gzip."""

    def __init__(self, encoding: str, max_bytes: int) -> None:
        packing = encoding.strip().lower()
        if packing not in ("", "identity", "gzip"):
            raise UnusableBody
        self._unpack = zlib.decompressobj(_GZIP) if packing == "gzip" else None
        self._max_bytes = max_bytes
        self._taken = 0
        #: There is more than was asked for: `whole` gives none of it, and reading on is pointless.
        self.too_large = False
        self._body = bytearray()

    def add(self, piece: bytes) -> None:
        """Take in the next piece as it came over the network."""
        self._taken += len(piece)
        if self._unpack is not None:
            room = self._max_bytes - len(self._body) + 1
            try:
                piece = self._unpack.decompress(piece, room)
            except zlib.error:
                raise UnusableBody from None
        self._body += piece
        if max(self._taken, len(self._body)) > self._max_bytes:
            self.too_large = True
            self._body.clear()

    def whole(self) -> bytes:
        """All of it, once the last piece is in; nothing if it was too large."""
        if self.too_large:
            return b""
        if self._unpack is not None and self._taken and not self._unpack.eof:
            raise UnusableBody
        return bytes(self._body)
