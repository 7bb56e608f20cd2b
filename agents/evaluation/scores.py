"""How far an epoch's estimates are from the truth, by the paper's measures and by ours.

    l1        the paper's: project onto the simplex, discard ⋆, rescale what is left (Section 4)
    ndcg      the paper's: queries and, within each, URLs in the right order; 1 is perfect
    l1_plain  Σ|p̂ − p| over the listed records of the unprojected estimate, nothing rescaled

The rescaled measure makes lists of different mass comparable and asks for shares within the list;
the plain one is what an analyst who reads p̂ gets wrong.

NDCG is held against the listed records *and* the true top of the same length, so that a popular
record which is missing from the list costs; the paper does not say that it does this.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from agents.evaluation.epochs import Epoch
from agents.evaluation.shapes import People
from blender.blend import project_onto_simplex
from blender.estimates import Estimates, FloatArray
from blender.metrics import l1_distance, ndcg, rescale
from blender.record import Record

__all__ = ["l1_plain", "listed_share", "paper_scores", "scores"]


def scores(epoch: Epoch, people: People, estimates: Estimates | None = None) -> dict[str, float]:
    """All measures for one group's cells; the blend unless told otherwise.

    Empty where there is nothing to score: no record listed, or no positive estimate among them.
    """
    cells = (estimates or epoch.estimates.blended.cells).probability
    listed = len(epoch.truth.listed)
    if listed == 0 or not np.isfinite(cells).all():
        return {}
    return {
        **paper_scores(epoch, people, project_onto_simplex(cells)[:listed]),
        "l1_plain": l1_plain(cells[:listed], epoch.truth.cells[:listed]),
    }


def l1_plain(estimate: FloatArray, truth: FloatArray) -> float:
    """Σ|p̂ − p| over the listed records."""
    return l1_distance(estimate, truth)


def paper_scores(epoch: Epoch, people: People, projected: FloatArray) -> dict[str, float]:
    """L1 and NDCG after ⋆ was discarded."""
    if not projected.sum() > 0:
        return {}
    truth = epoch.truth.cells[: len(projected)]
    records = epoch.release.head_list.cells.records
    estimate = dict(zip(records, projected.tolist(), strict=True))
    return {
        "l1": l1_distance(rescale(projected), rescale(truth)),
        "ndcg": ndcg(estimate, _ideal(epoch, people, records)),
    }


def _ideal(epoch: Epoch, people: People, records: tuple[Record, ...]) -> Mapping[Record, float]:
    truth = dict(zip(records, epoch.truth.cells[: len(records)].tolist(), strict=True))
    top = people.top(len(records))
    for number, p in zip(top.tolist(), people.probability(top).tolist(), strict=True):
        truth.setdefault(people.record(number), p)
    return truth


def listed_share(epoch: Epoch, people: People) -> float:
    """Which part of the list is truly among the top of its length."""
    listed = epoch.truth.listed
    if len(listed) == 0:
        return 0.0
    return float(np.isin(listed, people.top(len(listed))).mean())
