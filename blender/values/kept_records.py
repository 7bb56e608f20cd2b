"""Select records by noise and a threshold: the rule that all selectors share.

    new record      considered only if someone has it;     kept if N + X ≥ θ
    known record    noised even if no one has it;          kept if N + X ≥ drop, or at any count

Each selector chooses noise and θ, and proves its guarantee.

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
    """Add noise by `draw` and keep the records that pass; `drop=None` keeps all known ones.

    `coins(n)` tosses a coin for each of the n new records at θ − 1: heads keeps the record too.
    """
    considered = np.flatnonzero(known | (counts > 0))
    noisy, is_known = draw(counts[considered]), known[considered]
    stays = noisy >= threshold
    stays[is_known] = True if drop is None else noisy[is_known] >= drop
    if coins is not None:
        one_below = np.flatnonzero(~is_known & (noisy == threshold - 1))
        stays[one_below] = coins(len(one_below))
    return Selection(considered[stays], noisy[stays], threshold)
