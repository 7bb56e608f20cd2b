"""An epoch's head list under one budget for a period: in which order, and what is forgotten.

One epoch's counts carry the noise of a whole period, so a list in their order would change places
at random. Records are listed by the filter over epochs (`blender.publication_filter`) instead, with
this epoch's counts in it; those that it gives up are new again in the next epoch
(`blender.remembered_records`).

Promises: post-processing of released counts only: `remember` sees noisy counts, of this epoch and
of earlier ones.
Assumes: `memory` was made of S's released counts alone. Clients' estimates may come later than the
next head list is due, and what is known must not wait for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blender.cell_estimates import FloatArray
from blender.noise import IntArray
from blender.period_budget import PeriodRule
from blender.publication_filter import Publication, RecordFilter
from blender.record import Record
from blender.remembered_records import forgotten

__all__ = ["PeriodEpoch", "remember"]


@dataclass(frozen=True, slots=True)
class PeriodEpoch:
    """What a head list needs beyond the counts: the period's rule and what was published before.

    At most `most_known` records stay known.
    """

    epoch: int
    rule: PeriodRule
    memory: RecordFilter
    most_known: int


def remember(
    period: PeriodEpoch, records: Sequence[Record], noisy: IntArray, users: int
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """The filtered probability of each released record, and which are to be forgotten."""
    if users == 0 or not records:
        return noisy.astype(np.float64), np.zeros(len(records), dtype=np.bool_)
    released = set(records)
    # What an earlier list had and this one lacks was given up, or is not known to this period.
    memory = period.memory.without(r for r in period.memory.records if r not in released)
    seen = memory.follow(
        Publication(
            epoch=period.epoch,
            records=tuple(records),
            counts=noisy,
            users=users,
            noise=period.rule.scale**2,
            listed=0,
        )
    )
    place = {record: i for i, record in enumerate(seen.records)}
    order = np.fromiter((place[r] for r in records), np.int64, len(records))
    gone = forgotten(seen.state, users, most=period.most_known)
    return seen.state.probability[order], gone[order]
