"""Score any published list of items, by measures that can compare different lists.

    top_l1        Σ|p̂ − p| over the true top M; an item that is not published counts as 0
    union_l1      Σ|p̂ − p| over the true top M and all published items
    found         the number of published items of the true top M
    ndcg          the paper's (Section 4) against a whole list of M: each missing item of the true
                  top M leaves a gap, among the queries or among its query's URLs
    ndcg_k        the paper's, which compares k published items with the best k: one published item
                  has an NDCG of 1 if it is the right one
    ndcg_listed   over the listed items alone: missing items do not lower it
    ndcg_ranks    relevance by true rank: M for the first, 1 for the M-th, 0 for any other

The last one resembles the measure of LDPMiner's authors, which uses ranks too (Section 4.2.2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from blendstream.blender.paper.accuracy import ndcg
from blendstream.blender.paper.blend import project_onto_simplex
from blendstream.blender.values.arrays import FloatArray, IntArray
from blendstream.blender.values.record import Record
from blendstream.evaluation.baselines.held_items import HeldItems
from blendstream.evaluation.simulated_epochs import SimulatedEpoch

__all__ = ["NOBODY", "PublishedList", "list_of_epoch", "score_list"]

#: The number of a published text that nobody holds: a code composed of noise.
NOBODY = -1


@dataclass(frozen=True, slots=True)
class PublishedList:
    """Items by number, with their estimated probabilities."""

    numbers: IntArray
    probability: FloatArray


def list_of_epoch(epoch: SimulatedEpoch) -> PublishedList:
    """Return the listed records of a simulated epoch, with the blend's published estimates."""
    listed = epoch.truth.listed
    return PublishedList(listed, epoch.estimates.blended.cells.probability[: len(listed)])


def score_list(published: PublishedList, items: HeldItems, size: int) -> dict[str, float]:
    """Return all measures, against the true top `size`."""
    top = items.top(size)
    top_p = items.probability(top)
    real = published.numbers != NOBODY
    truth = np.zeros(len(published.numbers))
    truth[real] = items.probability(published.numbers[real])
    in_top = np.isin(published.numbers, top)
    missing = ~np.isin(top, published.numbers)

    error = np.abs(published.probability - truth)
    top_l1 = float(error[in_top].sum() + top_p[missing].sum())
    values = {
        "top_l1": top_l1,
        "union_l1": top_l1 + float(error[~in_top].sum()),
        "found": float(in_top.sum()),
    }
    texts = _texts(published.numbers, items)
    estimate = dict(zip(texts, _ranking(published.probability).tolist(), strict=True))
    listed = dict(zip(texts, truth.tolist(), strict=True))
    ideal = dict(zip(items.records(top), top_p.tolist(), strict=True)) | listed
    gaps = _gaps(items.records(top[missing]), {text.query for text in texts})
    values["ndcg"] = ndcg(estimate | gaps, ideal)
    values["ndcg_k"] = ndcg(estimate, ideal)
    values["ndcg_listed"] = ndcg(estimate, listed) if listed else 0.0
    order = np.argsort(-published.probability, kind="stable")
    values["ndcg_ranks"] = _ndcg_by_rank(published.numbers[order], top)
    return values


def _ranking(probability: FloatArray) -> FloatArray:
    """Project onto the simplex with ⋆ for the rest, as the paper does before it ranks."""
    rest = np.append(probability, 1 - probability.sum())
    return np.asarray(project_onto_simplex(rest)[:-1])


def _gaps(missing: list[Record], queries: set[str]) -> dict[Record, float]:
    """Return, for each missing item, a substitute that ranks below all others and nobody holds."""
    return {
        Record(record.query if record.query in queries else f"gap {place}", f"gap {place}"): -1e-12
        for place, record in enumerate(missing)
    }


def _texts(numbers: IntArray, items: HeldItems) -> list[Record]:
    real = numbers[numbers != NOBODY]
    known = iter(items.records(real))
    return [
        Record(f"text {place} of nobody", "") if number == NOBODY else next(known)
        for place, number in enumerate(numbers.tolist())
    ]


def _ndcg_by_rank(ranked: IntArray, top: IntArray) -> float:
    relevance = {number: len(top) - place for place, number in enumerate(top.tolist())}
    gains = [relevance.get(number, 0) for number in ranked[: len(top)].tolist()]
    return _dcg(gains) / _dcg(sorted(relevance.values(), reverse=True))


def _dcg(gains: list[int]) -> float:
    return sum(gain / math.log2(place + 1) for place, gain in enumerate(gains, start=1))
