"""Rank an epoch's released records, and choose which to forget, by all epochs so far.

Known records are all published records that are not forgotten (`blender.over_time.known_records`).
A filter over S's released counts (`blender.over_time.publication_filter`), this epoch's included,
decides which records are forgotten; they are new again in the next epoch. Under one budget for a
period it also decides the order of the list: one epoch's counts carry the noise of the whole
period, and a list in their order would change at random. An epoch with its own budget is ordered
by its own counts, so that its estimates use its window alone.

Promises: post-processing of released counts only: `remember` receives noisy counts of this epoch
and of earlier ones, and processes records in the order of their text, which does not depend on
anyone's data. If the filter fails, the epoch continues: this epoch's noisy counts decide alone.
Assumes: `memory` contains S's released counts alone. The next head list may be due before the
clients' estimates exist, and the known records must not wait for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.over_time.known_records import select_beyond, select_forgotten
from blendstream.blender.over_time.period_budget import PeriodRule
from blendstream.blender.over_time.publication_filter import Publication, RecordFilter
from blendstream.blender.values.arrays import FloatArray, IntArray
from blendstream.blender.values.record import Record

__all__ = ["EpochMemory", "ListRanking", "remember"]


@dataclass(frozen=True, slots=True)
class EpochMemory:
    """Input of a head list besides the counts: earlier publications and the period's rule.

    At most `most_known` records stay known. `rule` is that of the epoch's budget period, if any.
    """

    epoch: int
    memory: RecordFilter
    most_known: int
    rule: PeriodRule | None = None


@dataclass(frozen=True, slots=True)
class ListRanking:
    """The value by which each released record is ranked, and the records to forget.

    `failure` is the error if the filter failed; then both follow from this epoch's noisy counts.
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
    """Rank this epoch's released records, given its counts and all earlier publications."""
    own = noisy.astype(np.float64)
    if users == 0 or not records:
        return ListRanking(own, np.zeros(len(records), dtype=np.bool_))
    by_text = np.array(sorted(range(len(records)), key=records.__getitem__), dtype=np.int64)
    ordered, counts = tuple(records[i] for i in by_text.tolist()), noisy[by_text]
    failure: Exception | None = None
    value, forgotten = counts.astype(np.float64), select_beyond(counts, before.most_known)
    try:
        value, forgotten = _apply_filter(before, ordered, counts, users, noise_variance)
    except Exception as error:
        # Noise is drawn: an error here would lose the epoch, since drawing again is forbidden.
        failure = error
    back = np.empty_like(by_text)
    back[by_text] = np.arange(len(by_text))
    return ListRanking(value[back], forgotten[back], failure)


def _apply_filter(
    before: EpochMemory,
    records: tuple[Record, ...],
    counts: IntArray,
    users: int,
    noise_variance: float,
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return each record's filtered probability, and which records to forget."""
    released = set(records)
    # Records of an earlier list that this one lacks were forgotten, or belong to another period.
    memory = before.memory
    known = memory.drop(r for r in memory.records if r not in released)
    publication = Publication(before.epoch, records, counts, users, noise_variance, listed=0)
    after = known.follow(publication)
    place = {record: i for i, record in enumerate(after.records)}
    order = np.fromiter((place[r] for r in records), np.int64, len(records))
    forgotten = select_forgotten(after.state, users, most=before.most_known)
    return after.state.probability[order], forgotten[order]
