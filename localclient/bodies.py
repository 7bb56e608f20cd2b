"""A response body, read in pieces and limited in length.

Promises: memory stays within `max_bytes` and one piece, also if a small body decompresses to a huge
one. A body that is cut short, or has an encoding that the client did not ask for, is unusable. A
body that is too long is discarded and marked `too_large`.
"""

from __future__ import annotations

import zlib

__all__ = ["BoundedBody", "UnusableBody"]

#: The `wbits` with which zlib expects a gzip header.
_GZIP = 31


class UnusableBody(Exception):
    """The response is unusable: treat it as no response."""


class BoundedBody:
    """The bytes of one response, decompressed if they were gzip-compressed."""

    def __init__(self, encoding: str, max_bytes: int) -> None:
        coding = encoding.strip().lower()
        if coding not in ("", "identity", "gzip"):
            raise UnusableBody
        self._decompressor = zlib.decompressobj(_GZIP) if coding == "gzip" else None
        self._max_bytes = max_bytes
        self._taken = 0
        #: The body is longer than `max_bytes`: `whole` returns none of it; stop reading.
        self.too_large = False
        self._body = bytearray()

    def add(self, piece: bytes) -> None:
        """Add the next piece received from the network."""
        self._taken += len(piece)
        if self._decompressor is not None:
            room = self._max_bytes - len(self._body) + 1
            try:
                piece = self._decompressor.decompress(piece, room)
            except zlib.error:
                raise UnusableBody from None
        self._body += piece
        if max(self._taken, len(self._body)) > self._max_bytes:
            self.too_large = True
            self._body.clear()

    def whole(self) -> bytes:
        """Return the whole body, after the last piece was added; empty if it was too large."""
        if self.too_large:
            return b""
        if self._decompressor is not None and self._taken and not self._decompressor.eof:
            raise UnusableBody
        return bytes(self._body)
