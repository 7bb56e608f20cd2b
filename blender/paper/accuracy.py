"""The paper's two measures of accuracy: L1 distance and NDCG.

Paper: Section 4, L1 and NDCG generalised to a list of lists.

Promises: none about privacy; evaluations call it with a truth that a service never has.
Assumes: the caller removed ⋆, and rescaled as the paper does (`rescale`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from blendstream.blender.values.arrays import FloatArray
from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.record import Record

__all__ = ["l1_distance", "ndcg", "rescale"]

Item = TypeVar("Item", bound=Hashable)


def l1_distance(estimate: FloatArray, truth: FloatArray) -> float:
    """Return L1 = Σ|p̂_i − p_i|.

    >>> round(l1_distance(np.array([0.5, 0.3]), np.array([0.4, 0.5])), 12)
    0.3
    """
    if estimate.shape != truth.shape:
        raise ParameterError(
            f"estimate and truth must be of one shape, got {estimate.shape} and {truth.shape}"
        )
    return float(np.abs(estimate - truth).sum())


def rescale(p: FloatArray) -> FloatArray:
    """Divide p by its sum, as the paper does after it discards ⋆."""
    total = p.sum()
    if not total > 0:
        raise ParameterError(f"only values with a positive sum can be rescaled, got {total}")
    return np.asarray(p / total)


def ndcg(estimate: Mapping[Record, float], truth: Mapping[Record, float]) -> float:
    """Return how well the queries and each query's URLs are ranked: 1 is the ideal order.

    With i the place in the estimated list and rel the item's true share of its list

        DCG_k = Σ (2^rel_i − 1)/log2(i+1)

    Each URL list gets DCG/ideal DCG; a query's term in the query list is multiplied by that of
    its URLs, and the sum is again divided by the ideal. k is the length of the estimated list;
    the ideal takes the k largest of the truth. Equal estimates rank by text.
    """
    if not truth:
        raise ParameterError("NDCG needs at least one true record to rank against")
    true_queries, estimated_queries = _by_query(truth), _by_query(estimate)
    quality = {
        query: _ndcg_of_list(_ranked(urls), true_queries.get(query, {}))
        for query, urls in estimated_queries.items()
    }
    query_truth = {query: sum(urls.values()) for query, urls in true_queries.items()}
    query_estimate = {query: sum(urls.values()) for query, urls in estimated_queries.items()}
    return _ndcg_of_list(_ranked(query_estimate), query_truth, quality)


def _by_query(values: Mapping[Record, float]) -> dict[str, dict[str, float]]:
    queries: dict[str, dict[str, float]] = {}
    for record, value in values.items():
        queries.setdefault(record.query, {})[record.url] = value
    return queries


def _ranked(values: Mapping[str, float]) -> list[str]:
    return sorted(values, key=lambda item: (-values[item], item))


def _ndcg_of_list(
    ranked: Sequence[Item],
    truth: Mapping[Item, float],
    quality: Mapping[Item, float] | None = None,
) -> float:
    total = sum(truth.values())
    if not ranked or total <= 0:
        return 0.0
    gains = [2 ** (truth.get(item, 0.0) / total) - 1 for item in ranked]
    earned = [g * (quality[i] if quality else 1.0) for g, i in zip(gains, ranked, strict=True)]
    best = sorted((2 ** (n / total) - 1 for n in truth.values()), reverse=True)[: len(ranked)]
    return _dcg(earned) / _dcg(best)


def _dcg(gains: Sequence[float]) -> float:
    return sum(gain / math.log2(place + 1) for place, gain in enumerate(gains, start=1))
