"""The rule by which every selector keeps a record: noise first, then a threshold.

    new record      looked at only if someone has it;      kept if N + X ≥ θ
    known record    noised even if no one has it;          kept if N + X ≥ drop, or at any count

Which noise, which θ and what that promises is each selector's to prove.

Symbols: N = count, X = noise, θ = threshold, drop = least noisy count of a known record that stays.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.values.arrays import IntArray
from blendstream.blender.values.interfaces import Selection

__all__ = ["keep_records"]


def keep_records(
    counts: IntArray,
    known: NDArray[np.bool_],
    draw: Callable[[IntArray], IntArray],
    *,
    threshold: int,
    drop: int | None,
    coins: Callable[[int], NDArray[np.bool_]] | None = None,
) -> Selection:
    """Noise what may be looked at, by `draw`, and keep what passes; `drop` None: all that is known.

    `coins` are thrown for the new records one below θ, as many as there are: heads are kept, too.
    """
    looked_at = np.flatnonzero(known | (counts > 0))
    noisy, is_known = draw(counts[looked_at]), known[looked_at]
    stays = noisy >= threshold
    stays[is_known] = True if drop is None else noisy[is_known] >= drop
    if coins is not None:
        one_below = np.flatnonzero(~is_known & (noisy == threshold - 1))
        stays[one_below] = coins(len(one_below))
    return Selection(looked_at[stays], noisy[stays], threshold)
