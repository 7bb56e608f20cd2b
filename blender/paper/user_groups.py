"""Split the opt-in users into subgroups: S selects the head list, T estimates on it.

Paper: BLENDER (Figure 2, line 1): partition O into S and T, |S| = f_O·|O|.
Departure: a keyed hash decides, instead of a draw of exactly f_O·|O| users, so that every process
puts a user into the same subgroup; |S| is f_O·|O| on average
(docs/decisions/0008-a-hash-parts-s-from-t.md).

Promises: a user's subgroup depends only on their point, which is independent of their records; a
user is in one subgroup for all records of an epoch. Subgroups are disjoint, so their releases
compose in parallel.
Assumes: points are uniform on 0 … 2^64−1 (a keyed hash of the contributor).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.values.errors import require

__all__ = ["PARTS", "partition_users"]

#: Proportions are integers out of so many parts: f_O = 0.95 is 950 000 of them.
PARTS: Final = 1_000_000


def partition_users(points: NDArray[np.uint64], shares: Sequence[int]) -> NDArray[np.intp]:
    """Return the number of each user's subgroup: S is 0, T is 1, and others may follow.

    >>> points = np.array([0, 949_999, 950_000], dtype=np.uint64)
    >>> partition_users(points, [950_000, 50_000]).tolist()
    [0, 0, 1]
    """
    require(
        min(shares) >= 0 and sum(shares) == PARTS,
        f"shares must not be negative and must add up to {PARTS}, got {list(shares)}",
    )
    # 2^64 is no multiple of a million: a subgroup's probability has a relative error below 6e-14.
    ends = np.cumsum(shares).astype(np.uint64)
    return np.searchsorted(ends, points % np.uint64(PARTS), side="right")
