"""A server's answer, read piece by piece within a limit on its length.

Promises: memory stays within `max_bytes` and one piece, also when a small answer unpacks to a huge
one. An answer that is cut short, or compressed in a way that was not asked for, is unusable. One
that is too long is dropped and marked `too_large`, because the device's own limit is the reason.
"""

from __future__ import annotations

import zlib

__all__ = ["BoundedBody", "UnusableBody"]

#: Tells zlib to expect a gzip header.
_GZIP = 31


class UnusableBody(Exception):
    """This answer cannot be used: treat it as no answer."""


class BoundedBody:
    """The bytes of one answer, unpacked if they came packed with gzip."""

    def __init__(self, encoding: str, max_bytes: int) -> None:
        packing = encoding.strip().lower()
        if packing not in ("", "identity", "gzip"):
            raise UnusableBody
        self._unpack = zlib.decompressobj(_GZIP) if packing == "gzip" else None
        self._max_bytes = max_bytes
        self._taken = 0
        #: The answer is longer than was asked for: `whole` returns none of it; stop reading.
        self.too_large = False
        self._body = bytearray()

    def add(self, piece: bytes) -> None:
        """Add the next piece as it came over the network."""
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
        """The whole body, after the last piece was added; empty if it was too large."""
        if self.too_large:
            return b""
        if self._unpack is not None and self._taken and not self._unpack.eof:
            raise UnusableBody
        return bytes(self._body)
