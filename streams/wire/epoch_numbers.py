"""Valid epoch numbers in every format: 0 to 2⁵³ − 1."""

from __future__ import annotations

from typing import Final, TypeGuard

__all__ = ["MAX_EPOCH", "is_epoch"]

#: JSON and scripts represent epochs as doubles, in which integers up to 2⁵³ - 1 are exact.
MAX_EPOCH: Final = 2**53 - 1


def is_epoch(value: object) -> TypeGuard[int]:
    """Return True if this is the number of an epoch."""
    return type(value) is int and 0 <= value <= MAX_EPOCH
