"""A device's source of randomness: whole numbers below a bound, each equally likely.

Promises: `SystemDice` draws from the operating system's cryptographic generator. Everything a
device decides at random is decided by comparing such a number with another whole number, so no
rounding ever enters a probability.
Assumes: tests and simulations pass their own dice; no setting can.
"""

from __future__ import annotations

import secrets
from typing import Protocol

__all__ = ["RandomSource", "SystemDice", "choose"]


class RandomSource(Protocol):
    """Where whole random numbers come from."""

    def below(self, bound: int) -> int:
        """A number from 0 to bound − 1, each with probability 1/bound exactly."""
        ...


class SystemDice:
    """The dice of every real report."""

    def below(self, bound: int) -> int:
        """A fair number below `bound` from the operating system."""
        return secrets.randbelow(bound)


def choose(n: int, size: int, dice: RandomSource) -> list[int]:
    """`size` different numbers below n, every set equally likely (Floyd's method)."""
    chosen: set[int] = set()
    for last in range(n - size, n):
        drawn = dice.below(last + 1)
        chosen.add(last if drawn in chosen else drawn)
    return list(chosen)
