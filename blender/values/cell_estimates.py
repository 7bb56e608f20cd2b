"""Estimates of many cells: a probability, its variance and a 95 % interval each.

Arrays are in the published order of the head list's cells (or queries). p̂ is unbiased and so may be
negative; the interval is for a probability and within [0, 1]. Without participants p̂ = 0, σ̂² = ∞
and the interval is [0, 1]; with one participant the sample variance does not exist and σ̂² = ∞ too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from blendstream.blender.values.arrays import FloatArray
from blendstream.blender.values.errors import ParameterError

__all__ = ["Estimates", "GroupEstimates", "unknown_group"]


@dataclass(frozen=True, slots=True)
class Estimates:
    """p̂, σ̂² and the 95 % interval [low, high] of each cell or query."""

    probability: FloatArray
    variance: FloatArray
    low: FloatArray
    high: FloatArray

    def __post_init__(self) -> None:
        """Check that the four arrays fit together and have valid values; make them read-only."""
        arrays = (self.probability, self.variance, self.low, self.high)
        sizes = {a.shape for a in arrays}
        if len(sizes) != 1:
            raise ParameterError(f"all arrays of an estimate must have one shape, got {sizes}")
        # Written so that a NaN, for which every comparison is false, fails too.
        if not np.isfinite(self.probability).all():
            raise ParameterError("an estimated probability must be finite")
        if not (self.variance >= 0).all():
            raise ParameterError("a variance must be at least 0, or ∞ where nothing is known")
        if not ((self.low >= 0) & (self.low <= self.high) & (self.high <= 1)).all():
            raise ParameterError("an interval must have 0 <= low <= high <= 1")
        for array in arrays:
            array.setflags(write=False)

    def __len__(self) -> int:
        """The number of cells or queries."""
        return len(self.probability)


@dataclass(frozen=True, slots=True)
class GroupEstimates:
    """One group's estimates (opt-in or clients) over the head list.

    `participants` are users. `query_totals` sums each query's *listed* records with their
    covariance; `query_marginals` is the paper's p̂_q, which includes ⟨q,⋆⟩, if there is such a cell.
    `variance_at(p)` is the variance of this group's cell estimates if p were the truth: the blend
    weighs with it, so that weights do not depend on one group's own noise.
    """

    participants: int
    cells: Estimates
    query_totals: Estimates
    query_marginals: Estimates | None
    variance_at: Callable[[FloatArray], FloatArray]


def unknown_group(cells: int, queries: int) -> GroupEstimates:
    """Return the estimates of a group without participants."""

    def unknown(size: int) -> Estimates:
        return Estimates(np.zeros(size), np.full(size, np.inf), np.zeros(size), np.ones(size))

    return GroupEstimates(
        participants=0,
        cells=unknown(cells),
        query_totals=unknown(queries),
        query_marginals=unknown(queries),
        variance_at=lambda p: np.full(len(p), np.inf),
    )
