"""The numbers that epochs may have, wherever they travel: 0 to 2⁵³ − 1."""

from __future__ import annotations

from typing import Final, TypeGuard

__all__ = ["MAX_EPOCH", "is_epoch"]

#: Epochs travel through JSON and through scripts whose numbers are doubles: 2⁵³ - 1 is exact.
MAX_EPOCH: Final = 2**53 - 1


def is_epoch(value: object) -> TypeGuard[int]:
    """Whether this is the number of an epoch."""
    return type(value) is int and 0 <= value <= MAX_EPOCH
