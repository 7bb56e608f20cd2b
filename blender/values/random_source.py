"""A device's source of randomness: integers below a bound, each equally likely.

Promises: `SystemRandomSource` draws from the operating system's cryptographic generator. A device
makes every random decision by comparing such a number with another integer, so no probability is
ever rounded.
Assumes: only tests and simulations pass a source of their own; no setting can.
"""

from __future__ import annotations

import secrets
from typing import Protocol

__all__ = ["RandomSource", "SystemRandomSource", "choose"]


class RandomSource(Protocol):
    """A source of uniform random integers."""

    def below(self, bound: int) -> int:
        """Return a number from 0 to bound − 1, each with probability exactly 1/bound."""
        ...


class SystemRandomSource:
    """The random source of every real report."""

    def below(self, bound: int) -> int:
        """Return a uniform number below `bound` from the operating system."""
        return secrets.randbelow(bound)


def choose(n: int, size: int, source: RandomSource) -> list[int]:
    """Choose `size` different numbers below n, every set equally likely (Floyd's algorithm)."""
    chosen: set[int] = set()
    for last in range(n - size, n):
        drawn = source.below(last + 1)
        chosen.add(last if drawn in chosen else drawn)
    return list(chosen)
