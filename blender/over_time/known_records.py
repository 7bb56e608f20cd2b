"""Known = everything ever published, less what the filter gave up.

A published record is public: its count may be noised and released in every later epoch without a
threshold. That costs no δ and keeps rare but real records in sight. Records that no one holds any
more would pile up, so they are forgotten:

    shown        n·m ≥ 2            the estimate says that at least two of n people hold it
    forgotten    n·(m + √P) < 2     even one deviation above the estimate it would not be shown

A forgotten record is new again: it must pass the threshold, like any other.

Promises: looks at the filter's state alone, a function of published documents, so what is known in
the next epoch costs no privacy (docs/privacy-over-time.md). At most `most` records stay known.
Assumes: what was forgotten is written to the log when it is decided, and read from there: floats
differ between processors, and two readers must know the same records.

Symbols: m, P = the filter's mean and variance; n = users of S.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.over_time.filter.epoch_filter import FilterState
from blendstream.blender.values.errors import require

__all__ = ["SHOWN_FROM", "forgotten", "lowest_beyond", "shown"]

#: How many of S's users must hold a record, by the estimate, for it to be shown. Lower would show
#: records that are noise; higher would hide real ones.
SHOWN_FROM = 2.0


def shown(state: FilterState, users: int) -> NDArray[np.bool_]:
    """Which known records belong on the published list."""
    return np.asarray(users * state.mean[0] >= SHOWN_FROM)


def forgotten(state: FilterState, users: int, *, most: int | None = None) -> NDArray[np.bool_]:
    """Which known records are to be new again; if more than `most` stay, the lowest go too.

    Lowest by m + √P, what each could well be; of equal ones the one known later.
    """
    require(
        users >= 1 and (most is None or most >= 1),
        f"users and most must be at least 1, got users={users}, most={most}",
    )
    likely = users * (state.mean[0] + np.sqrt(state.variance))
    gone = np.asarray(likely < SHOWN_FROM)
    return gone if most is None else gone | lowest_beyond(likely, most)


def lowest_beyond(values: NDArray[np.float64] | NDArray[np.int64], most: int) -> NDArray[np.bool_]:
    """All but the `most` largest; of equal ones the later go.

    >>> lowest_beyond(np.array([3, 1, 2, 1]), most=3).tolist()
    [False, False, False, True]
    """
    beyond = np.zeros(len(values), dtype=np.bool_)
    beyond[np.argsort(-values, kind="stable")[most:]] = True
    return beyond
