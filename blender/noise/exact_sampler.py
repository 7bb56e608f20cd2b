"""Draw many exact noise variables, by inversion with lazily drawn random bits.

A fair coin gives the sign and a uniform real V in [0, 1) the size: |X| = min{ j : V < C(j) }, with
C(j) = P(|X| ≤ j). V is never known in full. Its bits are drawn until the comparison is decided:

    15 bits of V and the sign     a lookup in `guide` decides all but a few draws
    64 bits                       a search in the table of ⌊2^64·C(j)⌋ decides all others, except
    more, 64 at a time            where the 64 bits equal an entry: more digits of C(j) decide

Promises: P(X = x) is exact for every x, however far in the tail; nothing is rounded. Bits come from
the operating system's generator unless a test passes others.
Assumes: the generator's bits are fair and independent.

Symbols: V = uniform real, C = distribution function of |X|, prefix = the bits of V so far.
docs/exact-noise.md has the proof; scales too large for a table: `blender.noise.exact_rejection`.

Decision: docs/decisions/0009-a-sampler-of-our-own.md
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.noise.exact_distribution import (
    TABLE_BITS,
    NoiseDistribution,
    certified_floors,
)

__all__ = ["InversionTable", "LazyUniform", "RandomBytes", "draw", "inversion_table"]

#: A function that returns so many random bytes, as `os.urandom` does.
RandomBytes = Callable[[int], bytes]

#: Draws processed together. Fewer cost time for calls, more cost memory: 2 bytes of random bits and
#: 8 of noise each, in addition to the result.
_CHUNK = 1 << 18

_GUIDE_BITS = 15
_REST = TABLE_BITS - _GUIDE_BITS
#: In `guide`: these bits do not decide the draw.
_OPEN = np.iinfo(np.int32).min


@dataclass(frozen=True, slots=True)
class InversionTable:
    """Tables for drawing from one distribution.

    `floors[j]` = ⌊2^64·C(j)⌋. `guide[i]` is the noise that 16 bits i decide, or `_OPEN`; the
    highest bit of i is the sign, the other 15 are the first of V.
    """

    distribution: NoiseDistribution
    floors: NDArray[np.uint64]
    guide: NDArray[np.int32]

    @classmethod
    def build(cls, distribution: NoiseDistribution) -> InversionTable:
        """Compute the floors, and the draws that 15 bits decide."""
        floors = np.array(certified_floors(distribution), dtype=np.uint64)
        lowest = np.arange(1 << _GUIDE_BITS, dtype=np.uint64) << np.uint64(_REST)
        highest = lowest + np.uint64((1 << _REST) - 1)
        # A cell without an entry is above C(j) for all entries before it, and below all others.
        before = np.searchsorted(floors, lowest, side="left").astype(np.int32)
        settled = before == np.searchsorted(floors, highest, side="right")
        guide = [np.where(settled, size, _OPEN) for size in (before, -before)]
        return cls(distribution, floors, np.concatenate(guide))


@lru_cache(maxsize=16)
def inversion_table(distribution: NoiseDistribution) -> InversionTable:
    """Return the table, cached. The largest takes 2 MiB and 0.7 s, usual ones a millisecond."""
    return InversionTable.build(distribution)


def draw(table: InversionTable, size: int, random_bytes: RandomBytes) -> NDArray[np.int64]:
    """Draw `size` independent variables from the table's distribution."""
    noise = np.empty(size, dtype=np.int64)
    for start in range(0, size, _CHUNK):
        chunk = noise[start : start + _CHUNK]
        first = np.frombuffer(random_bytes(2 * len(chunk)), dtype="<u2")
        chunk[:] = table.guide[first]
        undecided = np.flatnonzero(chunk == _OPEN)
        if undecided.size:
            chunk[undecided] = _draw_further(table, first[undecided], random_bytes)
    return noise


def _draw_further(
    table: InversionTable, first: NDArray[np.uint16], random_bytes: RandomBytes
) -> NDArray[np.int64]:
    """Draw the noise where the first 16 bits do not decide it."""
    more = np.frombuffer(random_bytes(8 * len(first)), dtype="<u8")
    # Unsigned throughout: numpy makes floats of uint64 and int64 together, and would round.
    start = (first & np.uint16((1 << _GUIDE_BITS) - 1)).astype(np.uint64)
    prefix = (start << np.uint64(_REST)) | (more >> np.uint64(TABLE_BITS - _REST))
    # 64 bits above ⌊2^64·C(j)⌋ mean V > C(j), below it V < C(j), equal to it: undecided. The last
    # entry is 2^64 − 1, so no bits are above it, and draws beyond the table are equal to it.
    size = np.searchsorted(table.floors, prefix, side="left")
    for i in np.flatnonzero(table.floors[size] == prefix).tolist():
        size[i] = _decide(table.distribution, LazyUniform(random_bytes, int(prefix[i])))
    return np.where(first >> np.uint16(_GUIDE_BITS), -size, size)


class LazyUniform:
    """A uniform real V in [0, 1), of which only the bits that comparisons need are drawn."""

    def __init__(self, random_bytes: RandomBytes, prefix: int | None = None) -> None:
        self._random_bytes = random_bytes
        self._prefix, self.length = prefix or 0, TABLE_BITS
        if prefix is None:
            self._prefix = int.from_bytes(random_bytes(TABLE_BITS // 8), "little")

    def draw_more(self) -> None:
        """Draw 64 more bits."""
        self._prefix = self._prefix << 64 | int.from_bytes(self._random_bytes(8), "little")
        self.length += 64

    def is_below(self, low: int, high: int, *, bits: int) -> bool | None:
        """Return V < v for low ≤ 2^bits·v ≤ high and `bits` ≥ `length`; None if undecided."""
        spare = bits - self.length
        if (self._prefix + 1) << spare <= low:
            return True
        if self._prefix << spare >= high:
            return False
        return None


def _decide(distribution: NoiseDistribution, uniform: LazyUniform) -> int:
    """Return min{ j : V < C(j) }, with as many bits of V and digits of C as that takes."""
    while (size := _search(distribution, uniform)) is None:
        uniform.draw_more()
    return size


def _search(distribution: NoiseDistribution, uniform: LazyUniform) -> int | None:
    bits = uniform.length + 64  # rounding costs the last 20 to 40 of them
    for j, (low, high) in enumerate(distribution.cumulative(bits)):
        below = uniform.is_below(low, high, bits=bits)
        if below is not False:
            return j if below else None
    return None
