"""Who of the opt-in users builds the head list (S) and who estimates on it (T).

Paper: BLENDER (Figure 2), line 1: partition O into S and T, |S| = f_O·|O|.
Departure: |S| is so on average (docs/decisions/0008-a-hash-parts-s-from-t.md).

Promises: which group a user falls into depends on nothing but a number that the caller drew for
them without looking at their records; a user stays in one group for all records of an epoch.
Assumes: `share` is uniform on 0 … 2^64−1 (a keyed hash of the contributor), so that a fraction
f_O of the users lands in S; S and T are disjoint, and their releases compose in parallel.
Symbols: f_O = selection_share.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from blender.errors import require

__all__ = ["SHARES", "belongs_to_selection", "selection_mask"]

#: Shares are whole numbers below this.
SHARES = 2**64


def belongs_to_selection(share: int, selection_share: float) -> bool:
    """True for S, false for T.

    >>> belongs_to_selection(0, 0.5), belongs_to_selection(SHARES // 2, 0.5)
    (True, False)
    """
    require(0 <= share < SHARES, "a share must lie in 0 … 2^64−1")
    return share < _bound(selection_share)


def selection_mask(shares: NDArray[np.uint64], selection_share: float) -> NDArray[np.bool_]:
    """`belongs_to_selection` for many contributors at once."""
    bound = _bound(selection_share)
    if bound == SHARES:  # does not fit into 64 bits, and everybody is below it
        return np.ones(len(shares), dtype=np.bool_)
    return shares < np.uint64(bound)


def _bound(selection_share: float) -> int:
    require(
        0 < selection_share <= 1,
        f"selection_share must lie in (0, 1], got selection_share={selection_share!r}",
    )
    return int(Fraction(selection_share) * SHARES)
