"""What an epoch's head list remembers of earlier ones: what is known, in which order, until when.

Known = everything ever published, less what was forgotten (`blender.over_time.known_records`). A
filter over S's released counts (`blender.over_time.publication_filter`), with this epoch's counts
in it, says which records are given up; they are new again in the next epoch. Under one budget for a
period it also says in which order records are listed: one epoch's counts carry the noise of the
whole period, and a list in their order would change places at random. An epoch with a budget of its
own is listed by its own counts, so that its estimates use its window alone.

Promises: post-processing of released counts only: `remember` sees noisy counts, of this epoch and
of earlier ones, and looks at records in the order of their text, which no one's data change. A
filter that fails costs no epoch: the counts, which are drawn by then, decide alone.
Assumes: `memory` was made of S's released counts alone. Clients' estimates may come later than the
next head list is due, and what is known must not wait for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.over_time.known_records import forgotten, lowest_beyond
from blendstream.blender.over_time.period_budget import PeriodRule
from blendstream.blender.over_time.publication_filter import Publication, RecordFilter
from blendstream.blender.values.arrays import FloatArray, IntArray
from blendstream.blender.values.record import Record

__all__ = ["EpochMemory", "ListRanking", "remember"]


@dataclass(frozen=True, slots=True)
class EpochMemory:
    """What a head list needs beyond the counts: what was published before, and a period's rule.

    At most `most_known` records stay known. `rule` is of the budget period that the epoch belongs
    to, if any.
    """

    epoch: int
    memory: RecordFilter
    most_known: int
    rule: PeriodRule | None = None


@dataclass(frozen=True, slots=True)
class ListRanking:
    """By what each released record is ranked, which are to be forgotten, and why not by a filter.

    `failure` is what made the filter fail; then both follow from this epoch's noisy counts.
    """

    value: FloatArray
    forgotten: NDArray[np.bool_]
    failure: Exception | None = None


def remember(
    before: EpochMemory,
    records: Sequence[Record],
    noisy: IntArray,
    *,
    users: int,
    noise_variance: float,
) -> ListRanking:
    """What this epoch's released counts, after all before them, say of each record."""
    own = noisy.astype(np.float64)
    if users == 0 or not records:
        return ListRanking(own, np.zeros(len(records), dtype=np.bool_))
    by_text = np.array(sorted(range(len(records)), key=records.__getitem__), dtype=np.int64)
    ordered, counts = tuple(records[i] for i in by_text.tolist()), noisy[by_text]
    failure: Exception | None = None
    value, gone = counts.astype(np.float64), lowest_beyond(counts, before.most_known)
    try:
        value, gone = _filtered(before, ordered, counts, users, noise_variance)
    except Exception as error:
        # Noise is drawn: giving up here would lose the epoch, and drawing again is forbidden.
        failure = error
    back = np.empty_like(by_text)
    back[by_text] = np.arange(len(by_text))
    return ListRanking(value[back], gone[back], failure)


def _filtered(
    before: EpochMemory,
    records: tuple[Record, ...],
    counts: IntArray,
    users: int,
    noise_variance: float,
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Each record's filtered probability, and whether it is given up."""
    released = set(records)
    # What an earlier list had and this one lacks was given up, or is not known to this period.
    memory = before.memory
    known = memory.without(r for r in memory.records if r not in released)
    seen = known.follow(Publication(before.epoch, records, counts, users, noise_variance, listed=0))
    place = {record: i for i, record in enumerate(seen.records)}
    order = np.fromiter((place[r] for r in records), np.int64, len(records))
    gone = forgotten(seen.state, users, most=before.most_known)
    return seen.state.probability[order], gone[order]
