"""Measure the error of an epoch's estimates, by the paper's measures and by ours.

    l1          the paper's: project onto the simplex, discard ⋆, rescale the rest (Section 4)
    l1_queries  that L1 over queries: for `paper` p̂_q with any URL, for `sharp` the listed URLs
    ndcg        the paper's: queries and, within each, URLs in the right order; 1 is perfect
    l1_plain    Σ|p̂ − p| over the listed records of the unprojected estimate, nothing rescaled

The paper does not specify whether its L1 runs over records or queries ("trend computation"), so
this module has both. Rescaled measures compare proportions within the list, so that lists whose
total probabilities differ are comparable. `l1_plain` is the error for an analyst who reads p̂.

NDCG runs over the listed records *and* the true top of that length, so that it falls if a popular
record is missing from the list. The paper does not specify this; `ndcg_listed` is the other
reading.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from blendstream.blender.paper.accuracy import l1_distance, ndcg, rescale
from blendstream.blender.paper.blend import project_onto_simplex
from blendstream.blender.values.arrays import FloatArray
from blendstream.blender.values.cell_estimates import GroupEstimates
from blendstream.blender.values.record import Record
from blendstream.evaluation.populations import People
from blendstream.evaluation.simulated_epochs import SimulatedEpoch

__all__ = ["missing", "ndcg_listed", "scores"]


def scores(
    epoch: SimulatedEpoch, people: People, group: GroupEstimates | None = None
) -> dict[str, float]:
    """Return all measures for one group, by default the blend.

    The result is empty if no record is listed, or no estimate among them is positive.
    """
    group = group or epoch.estimates.blended
    cells = group.cells.probability
    listed = len(epoch.truth.listed)
    if listed == 0 or not np.isfinite(cells).all():
        return {}
    projected = project_onto_simplex(cells)[:listed]
    if not projected.sum() > 0:
        return {}
    truth = epoch.truth.cells[:listed]
    records = epoch.release.head_list.cells.records
    estimate = dict(zip(records, projected.tolist(), strict=True))
    return {
        "l1": l1_distance(rescale(projected), rescale(truth)),
        "l1_queries": _l1_queries(epoch, people, group),
        "ndcg": ndcg(estimate, _ideal(epoch, people, records)),
        "l1_plain": l1_distance(cells[:listed], truth),
    }


def ndcg_listed(epoch: SimulatedEpoch) -> float:
    """Return NDCG of the blend over the listed records alone: missing records do not lower it."""
    listed = len(epoch.truth.listed)
    records = epoch.release.head_list.cells.records
    projected = project_onto_simplex(epoch.estimates.blended.cells.probability)[:listed]
    return ndcg(
        dict(zip(records, projected.tolist(), strict=True)),
        dict(zip(records, epoch.truth.cells[:listed].tolist(), strict=True)),
    )


def missing(epoch: SimulatedEpoch, people: People) -> float:
    """Count the records missing from a list of length k that are among the true top k."""
    listed = epoch.truth.listed
    return float(len(listed) - np.isin(people.top(len(listed)), listed).sum())


def _l1_queries(epoch: SimulatedEpoch, people: People, group: GroupEstimates) -> float:
    cells, listed = epoch.release.head_list.cells, epoch.truth.listed
    query = cells.query_of_cell[: len(listed)]
    truth: FloatArray = np.zeros(len(cells.queries))
    if group.query_marginals is not None:
        estimate = group.query_marginals.probability
        truth[query] = people.query_probability(listed)
    else:
        estimate = group.query_totals.probability
        np.add.at(truth, query, epoch.truth.cells[: len(listed)])
    projected = project_onto_simplex(np.append(estimate, 1 - estimate.sum()))[:-1]
    if not projected.sum() > 0:
        return float("nan")
    return l1_distance(rescale(projected), rescale(truth))


def _ideal(
    epoch: SimulatedEpoch, people: People, records: tuple[Record, ...]
) -> Mapping[Record, float]:
    truth = dict(zip(records, epoch.truth.cells[: len(records)].tolist(), strict=True))
    top = people.top(len(records))
    for record, p in zip(people.records(top), people.probability(top).tolist(), strict=True):
        truth.setdefault(record, p)
    return truth
