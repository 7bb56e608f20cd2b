"""Decide which published records stay known, and which of these are shown.

A record is known from its first publication until it is forgotten. It is public, so its count may
be noised and released in every later epoch without a threshold. That costs no δ and keeps rare but
real records in the estimates. Records that no one holds any more would accumulate, so the filter's
state decides:

    shown        n·m ≥ 2            by the estimate, at least two of n people hold it
    forgotten    n·(m + √P) < 2     even one deviation above the estimate it would not be shown

A forgotten record is new again: it must pass the threshold, like any other.

Promises: reads the filter's state alone, a function of published documents, so the known records of
the next epoch cost no privacy (docs/privacy-over-time.md). At most `most` records stay known.
Assumes: the job writes its decision to the log, and others read it there: floats differ between
processors, and two readers must know the same records.

Symbols: m, P = the filter's mean and variance; n = users of S.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.over_time.filter.epoch_filter import FilterState
from blendstream.blender.values.errors import require

__all__ = ["SHOWN_FROM", "select_beyond", "select_forgotten", "select_shown"]

#: Least number of S's users who hold a shown record, by the estimate. Lower would show records that
#: are noise; higher would hide real ones.
SHOWN_FROM = 2.0


def select_shown(state: FilterState, users: int) -> NDArray[np.bool_]:
    """Mark the known records that the published list shows."""
    return np.asarray(users * state.mean[0] >= SHOWN_FROM)


def select_forgotten(
    state: FilterState, users: int, *, most: int | None = None
) -> NDArray[np.bool_]:
    """Mark the known records to forget; if more than `most` would stay, the lowest of these too.

    Lowest by m + √P; of equal records the one that became known later is forgotten.
    """
    require(
        users >= 1 and (most is None or most >= 1),
        f"users and most must be at least 1, got users={users}, most={most}",
    )
    likely = users * (state.mean[0] + np.sqrt(state.variance))
    gone = np.asarray(likely < SHOWN_FROM)
    return gone if most is None else gone | select_beyond(likely, most)


def select_beyond(values: NDArray[np.float64] | NDArray[np.int64], most: int) -> NDArray[np.bool_]:
    """Mark all but the `most` largest values; among equal values the earlier count as larger.

    >>> select_beyond(np.array([3, 1, 2, 1]), most=3).tolist()
    [False, False, False, True]
    """
    beyond = np.zeros(len(values), dtype=np.bool_)
    beyond[np.argsort(-values, kind="stable")[most:]] = True
    return beyond
