"""Blend both groups' estimates, weighted by inverse variance.

Paper: BlendProbabilities (Figure 7).

Promises: post-processing only; draws no noise and spends no budget.
Assumes: the groups are independent and estimate one quantity over the same cells.
Symbols: p̂ and σ̂² with O = opt-in and C = clients, w = the opt-in group's weight.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blendstream.blender.values.arrays import FloatArray
from blendstream.blender.values.cell_estimates import Estimates, GroupEstimates
from blendstream.blender.values.cells import Cells
from blendstream.blender.values.errors import HeadListMismatch, ParameterError
from blendstream.blender.values.intervals import Z_95

__all__ = [
    "VarianceBlender",
    "blend_probabilities",
    "blend_variance",
    "optin_weight",
    "project_onto_simplex",
    "query_totals",
]


def optin_weight(optin_variance: FloatArray, client_variance: FloatArray) -> FloatArray:
    """Return w = σ̂²_C/(σ̂²_O + σ̂²_C), Figure 7, line 3, which minimises the variance of the sum.

    A group without information (σ̂² = ∞) gets no weight. With equal variances (also both 0, or both
    ∞) each group gets half.

    >>> optin_weight(np.array([1.0, np.inf, 0.0]), np.array([3.0, 1.0, 0.0])).tolist()
    [0.75, 0.0, 0.5]
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        weight = client_variance / (optin_variance + client_variance)
    weight = np.where(np.isinf(optin_variance), 0.0, weight)
    weight = np.where(np.isinf(client_variance), 1.0, weight)
    return np.where(optin_variance == client_variance, 0.5, weight)


def blend_probabilities(
    optin: Estimates, client: Estimates, *, weight: FloatArray | None = None
) -> Estimates:
    """Return p̂ = w·p̂_O + (1−w)·p̂_C (Figure 7, line 4), its variance and normal interval.

    `weight` defaults to the paper's, from each group's own σ̂², which has two faults: the weight is
    correlated with the noise of its p̂, which biases small records downwards, and their intervals
    cover less than 95 % (docs/decisions/0005-the-papers-blend.md).
    """
    w = optin_weight(optin.variance, client.variance) if weight is None else weight
    p = w * optin.probability + (1 - w) * client.probability
    variance = blend_variance(optin.variance, client.variance, weight=w)
    margin = Z_95 * np.sqrt(variance)
    return Estimates(p, variance, np.clip(p - margin, 0, 1), np.clip(p + margin, 0, 1))


def blend_variance(optin: FloatArray, client: FloatArray, *, weight: FloatArray) -> FloatArray:
    """Return w²·σ²_O + (1−w)²·σ²_C."""
    return _variance_part(weight, optin) + _variance_part(1 - weight, client)


def _variance_part(weight: FloatArray, variance: FloatArray) -> FloatArray:
    """Return w²·σ², which is 0 for a group without weight even if its σ² is ∞."""
    with np.errstate(invalid="ignore"):  # 0·∞ is replaced
        return np.where(weight == 0, 0.0, weight**2 * variance)


def query_totals(
    probability: FloatArray,
    parts: Sequence[tuple[FloatArray, GroupEstimates | None]],
    cells: Cells,
) -> Estimates:
    """Estimate each query's total: the sum of its listed records' blended p̂, with covariances.

    `parts` add up to each cell's variance. The records of a group are correlated: its own totals
    show Var(Σ)/ΣVar for each query, a factor that multiplies its part of the variance. A part of
    `None` belongs to nearly independent records (their covariances of −p·p′/n are neglected, which
    makes intervals wider, not narrower).
    """
    listed, queries = len(cells.records), len(cells.queries)
    query = cells.query_of_cell[:listed]

    def by_query(values: FloatArray) -> FloatArray:
        sums = np.bincount(query, weights=values[:listed], minlength=queries)
        return np.asarray(sums, dtype=np.float64)

    variance = np.zeros(queries)
    for part, group in parts:
        inflation = np.ones(queries)
        if group is not None:
            separate = by_query(group.cells.variance)
            known = np.isfinite(separate) & (separate > 0)
            np.divide(group.query_totals.variance, separate, out=inflation, where=known)
        variance += inflation * by_query(part)
    total = by_query(probability)
    margin = Z_95 * np.sqrt(variance)
    return Estimates(
        total, variance, np.clip(total - margin, 0.0, 1.0), np.clip(total + margin, 0.0, 1.0)
    )


class VarianceBlender:
    """Figure 7 with each group's own σ̂²."""

    name = "inverse-variance"

    def blend(
        self,
        optin: GroupEstimates,
        client: GroupEstimates,
        cells: Cells,
    ) -> GroupEstimates:
        """Blend cells and, if both groups have them, query marginals; sum the cells by query.

        S's counts are not used, as in the paper, which discards them.
        """
        if len(optin.cells) != len(client.cells):
            raise HeadListMismatch(
                "both groups must estimate the same cells, got "
                f"{len(optin.cells)} opt-in and {len(client.cells)} client cells"
            )
        weight = optin_weight(optin.cells.variance, client.cells.variance)
        blended = blend_probabilities(optin.cells, client.cells, weight=weight)
        parts = [
            (_variance_part(weight, optin.cells.variance), optin),
            (_variance_part(1 - weight, client.cells.variance), client),
        ]
        marginals = None
        if optin.query_marginals is not None and client.query_marginals is not None:
            marginals = blend_probabilities(optin.query_marginals, client.query_marginals)
        return GroupEstimates(
            participants=optin.participants + client.participants,
            cells=blended,
            query_totals=query_totals(blended.probability, parts, cells),
            query_marginals=marginals,
            variance_at=lambda p: blend_variance(
                optin.variance_at(p), client.variance_at(p), weight=weight
            ),
        )


def project_onto_simplex(p: FloatArray) -> FloatArray:
    """Return the nearest vector that is a probability distribution (Figure 7, line 5: optional).

    It is max(p − λ, 0): with p in descending order and ρ the last place j at which p_j still
    exceeds λ_j = (p_1 + … + p_j − 1)/j, λ = λ_ρ.

    >>> project_onto_simplex(np.array([0.75, 0.5, -0.5])).tolist()
    [0.625, 0.375, 0.0]
    """
    if len(p) == 0:
        raise ParameterError("the simplex needs at least one cell, got none")
    if not np.isfinite(p).all():
        raise ParameterError("only finite estimates can be projected onto the simplex")
    falling = np.sort(p)[::-1]
    lambdas = (np.cumsum(falling) - 1) / np.arange(1, len(p) + 1)
    rho = np.flatnonzero(falling > lambdas)[-1]
    return np.asarray(np.maximum(p - lambdas[rho], 0))
