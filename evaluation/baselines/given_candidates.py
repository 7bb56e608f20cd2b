"""Baseline without a trusted curator, in which the true most frequent records are given.

Every device sends one answer about M given records and ⋆, by the best randomizer that this project
has for such a list, at the full ε. This is optimistic for the local model twice: the M records are
the true top M, which nobody can know without a measurement, and finding them costs no budget.

Sources: subset selection (M. Ye, A. Barg, "Optimal Schemes for Discrete Distribution Estimation
under Locally Differential Privacy", 2017; S. Wang et al., 2016), k-ary randomized response, and
subset selection with "none" (docs/decisions/0024-devices-may-say-none.md); whichever leaves the
least noise.

Promises: (ε,0)-DP for every device; neighbouring: replace-one.
Assumes: the candidates are public, and not derived from these devices' data.
"""

from __future__ import annotations

import numpy as np

from blendstream.blender.registry import randomizer_for
from blendstream.blender.sharp.best_randomizer import best_randomizer
from blendstream.blender.values.arrays import IntArray
from blendstream.blender.values.cells import HeadList
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.blender.values.record import Record
from blendstream.evaluation.baselines.published_list import NOBODY, PublishedList
from blendstream.evaluation.simulated_reports import draw_report_counts

__all__ = ["estimate_candidates"]


def estimate_candidates(
    held: IntArray, candidates: IntArray, parameters: PrivacyParameters, rng: np.random.Generator
) -> PublishedList:
    """Draw an answer about the candidates from everyone in `held`, and estimate from these."""
    # The randomizer sees places in the list, never texts.
    records = tuple(Record(f"candidate {place:06d}", "") for place in range(len(candidates)))
    head_list = HeadList(
        records=records,
        listed=len(records),
        randomizer=best_randomizer(records, parameters, parameters.max_cells_per_answer),
        query_wildcards=False,
    )
    holders = _holders(held, candidates)
    cells = np.append(holders, len(held) - holders.sum())
    randomizer = randomizer_for(head_list)
    counts = draw_report_counts(randomizer, cells, rng)
    estimates = randomizer.estimate(counts, len(held))
    return PublishedList(candidates, estimates.cells.probability[: len(candidates)])


def _holders(held: IntArray, candidates: IntArray) -> IntArray:
    """Count the people who hold each candidate; 0 for a candidate that does not exist."""
    in_order = np.argsort(candidates, kind="stable")
    place = np.searchsorted(candidates[in_order], held).clip(max=max(len(candidates) - 1, 0))
    holders = np.zeros(len(candidates), dtype=np.int64)
    if len(candidates):
        match = candidates[in_order][place] == held
        np.add.at(holders, in_order[place[match]], 1)
    holders[candidates == NOBODY] = 0
    return holders
