"""Estimate the proportion of opt-in users that hold each head-list record, from subgroup T.

Paper: EstimateOptinProbabilities (Figure 4).

Promises: (ε,0)-DP for the opt-in users in T (Theorem 2); neighbouring: replace-one. All noise is
drawn in `add_noise`; ranking, trimming, merging and estimating read noisy counts only.
Assumes: T and S are disjoint users, so that their releases compose in parallel; the number of
users in T is public (replace-one does not hide who takes part); exact integer noise.
Symbols: T = users of T, N = how many of them fall into a cell, b_T = noise scale in people,
G = units per person, X = noise in units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from blendstream.blender.noise.exact_noise import GRID, Noise, laplace_scale, laplace_variance
from blendstream.blender.noise.noise_distribution import (
    gaussian_distribution,
    in_people,
    laplace_distribution,
)
from blendstream.blender.values.arrays import FloatArray, IntArray
from blendstream.blender.values.cell_estimates import Estimates, GroupEstimates, unknown_group
from blendstream.blender.values.cells import Cells, HeadList, RandomizerSpec
from blendstream.blender.values.errors import HeadListMismatch, require
from blendstream.blender.values.interfaces import OptinCounts
from blendstream.blender.values.intervals import noisy_count_interval
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.blender.values.record import Record

__all__ = [
    "NoisyCounts",
    "OptinEstimates",
    "add_noise",
    "estimate_noisy_counts",
    "estimate_optin_probabilities",
    "probability_and_variance",
]


@dataclass(frozen=True, slots=True)
class NoisyCounts:
    """T's release: a noisy count per cell, with the parameters of its noise.

    `counts` and `scale` are in units of 1/`grid` people. `noise_terms[c]` is the number of
    independent draws in cell c: one, or more if trimmed cells were merged into it. Noise is
    discrete Laplace, or discrete Gaussian where one budget covers a period of epochs.
    """

    counts: IntArray
    noise_terms: IntArray
    scale: float
    users: int
    gaussian: bool = False
    grid: int = 1

    def __post_init__(self) -> None:
        """Check that counts and terms are parallel."""
        if self.counts.shape != self.noise_terms.shape:
            raise HeadListMismatch(
                "counts and noise_terms must be of one length, got "
                f"{len(self.counts)} and {len(self.noise_terms)}"
            )

    def merge(self, into: IntArray, size: int) -> NoisyCounts:
        """Add cell c to cell `into[c]` of `size` cells. Post-processing."""
        counts, terms = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        np.add.at(counts, into, self.counts)
        np.add.at(terms, into, self.noise_terms)
        return replace(self, counts=counts, noise_terms=terms)

    def to_people(self, units: IntArray) -> IntArray:
        """Round counts in units to people; their noise then has `noise_distribution`.

        Y = N·G + X rounds to N plus X rounded, so rounding only changes the noise.
        """
        return (units + self.grid // 2) // self.grid

    @property
    def noise_distribution(self) -> FloatArray:
        """Distribution of one draw, rounded to people, for −h … h (see `to_people`)."""
        distribution = gaussian_distribution if self.gaussian else laplace_distribution
        return in_people(distribution(self.scale), self.grid)

    @property
    def noise_variance(self) -> float:
        """Variance of one draw in people²; that of discrete Gaussian noise is at most σ²."""
        units = self.scale**2 if self.gaussian else laplace_variance(self.scale)
        return units / self.grid**2


@dataclass(frozen=True)
class OptinEstimates:
    """Figure 4's result: HL, T's noisy counts over its cells, and the estimates that follow.

    `best_trimmed` is the largest noisy count (in units, as all of `noisy`) of a trimmed record, if
    there is one: the listed records had to be at least as high.
    """

    head_list: HeadList
    noisy: NoisyCounts
    best_trimmed: int | None

    @cached_property
    def estimates(self) -> GroupEstimates:
        """p̂_O with σ̂²_O over the cells of HL; computed when first used, since no noise is drawn."""
        return estimate_noisy_counts(self.noisy, self.head_list.cells)


def estimate_optin_probabilities(
    selected: Sequence[Record],
    counts: OptinCounts,
    parameters: PrivacyParameters,
    noise: Noise,
    *,
    randomizer: RandomizerSpec,
    query_wildcards: bool = True,
) -> OptinEstimates:
    """Add noise to T's counts over HL_S (`selected`), keep the M largest records, and estimate.

    Departure: T is counted over the clients' cells, with noise on every ⟨q,⋆⟩ too
    (docs/decisions/0001-one-set-of-cells.md).
    """
    every_cell = Cells(tuple(selected), query_wildcards)
    noisy = add_noise(
        counts.estimation_by_cell(every_cell),
        users=counts.estimation_users,
        parameters=parameters,
        noise=noise,
        grid=GRID,
    )
    # Figure 4, lines 14 and 15: the M records with the largest p̂, here with ties broken by text;
    # the others' counts are added to their query's ⋆.
    released = noisy.counts[: len(selected)].tolist()
    ranked = sorted(zip(selected, released, strict=True), key=lambda pair: (-pair[1], pair[0]))
    head_list = HeadList(
        records=tuple(record for record, _ in ranked),
        listed=min(parameters.head_list_cells, len(ranked)),
        randomizer=randomizer,
        query_wildcards=query_wildcards,
    )
    trimmed = [count for _, count in ranked[head_list.listed :]]
    noisy = noisy.merge(_new_home(every_cell, head_list.cells), len(head_list.cells))
    return OptinEstimates(head_list, noisy, best_trimmed=trimmed[0] if trimmed else None)


def add_noise(
    counts: IntArray, *, users: int, parameters: PrivacyParameters, noise: Noise, grid: int = 1
) -> NoisyCounts:
    """Release T's counts over disjoint cells. The only step here that touches raw data."""
    require(
        parameters.records_per_optin_user == 1,
        "Theorem 2 (EstimateOptinProbabilities) holds for m_O = 1 record per opt-in user, "
        f"got records_per_optin_user={parameters.records_per_optin_user}",
    )
    # One user who changes their record leaves one cell and enters another: b_T = 2·m_O/ε people.
    # In units both the change and the scale are `grid` times as large, which leaves ε as it is.
    scale = laplace_scale(sensitivity=2, epsilon=parameters.epsilon) * grid
    noisy = noise.discrete_laplace(counts * grid, scale=scale)
    return NoisyCounts(noisy, np.ones(len(counts), dtype=np.int64), scale, users, grid=grid)


def _new_home(before: Cells, after: Cells) -> IntArray:
    """Return, for each cell before trimming, the cell after trimming to which its count is added.

    A trimmed record is added to ⟨q,⋆⟩ if its query stays, else to ⟨⋆,⋆⟩; ⟨q,⋆⟩ of a removed query
    is added to ⟨⋆,⋆⟩.
    """
    stays = {query: number for number, query in enumerate(after.queries)}
    homes = [after.number(record) for record in before.records]
    if before.query_wildcards:
        elsewhere, first = len(after) - 1, len(after.records)
        homes += [first + stays[q] if q in stays else elsewhere for q in before.queries]
    return np.array([*homes, len(after) - 1], dtype=np.int64)


def estimate_noisy_counts(
    noisy: NoisyCounts, cells: Cells, *, intervals_from: int = 0
) -> GroupEstimates:
    """Estimate p̂_O, σ̂²_O and exact intervals for cells and queries. Post-processing.

    Intervals take most of the time. Callers that compute their own skip them ([0, 1]): those of the
    cells before `intervals_from`, and of all queries if that is above 0.
    """
    if len(noisy.counts) != len(cells):
        raise HeadListMismatch(
            f"the head list has {len(cells)} cells, got counts for {len(noisy.counts)}"
        )
    queries = len(cells.queries)
    if noisy.users == 0:
        return unknown_group(len(cells), queries)

    # A sum of cells is a binomial count with more noise terms, so one estimator serves both.
    elsewhere = queries
    query = np.where(cells.query_of_cell < 0, elsewhere, cells.query_of_cell)
    listed_query = np.where(np.arange(len(cells)) < len(cells.records), query, elsewhere)
    of_queries = queries if intervals_from else 0
    totals = _estimates(noisy.merge(listed_query, queries + 1), queries, of_queries)
    marginals = None
    if cells.query_wildcards:
        marginals = _estimates(noisy.merge(query, queries + 1), queries, of_queries)

    noise_variance = _noise_variance(noisy)
    return GroupEstimates(
        participants=noisy.users,
        cells=_estimates(noisy, len(cells), intervals_from),
        query_totals=totals,
        query_marginals=marginals,
        variance_at=lambda p: p * (1 - p) / noisy.users + noise_variance,
    )


def _noise_variance(noisy: NoisyCounts) -> FloatArray:
    """Return the part of σ² that is noise: its variance times the terms, over T²."""
    # The variance of noise on a grid is the paper's 2b² to six digits.
    return np.asarray(noisy.noise_terms * noisy.noise_variance / noisy.users**2)


def probability_and_variance(noisy: NoisyCounts) -> tuple[FloatArray, FloatArray]:
    """Return p̂ and σ̂² of each count (Figure 4, lines 12 and 13, Theorem 4); needs a user."""
    #     p̂ = (N + X/G)/T,     σ̂² = T/(T−1) · ( p̂(1−p̂)/T + Var(X/G)/T² )
    #
    # Departure: a merged cell has the variance of all its noise, where the paper takes the
    # expression for one; and σ̂² is at least that noise, since the plug-in for p̂ < 0 is not
    # (docs/decisions/0004-variance-floors.md).
    users = noisy.users
    p = noisy.counts / (noisy.grid * users)
    if users == 1:
        return p, np.full(len(p), np.inf)
    from_noise = _noise_variance(noisy)
    variance = users / (users - 1) * (p * (1 - p) / users + from_noise)
    return p, np.maximum(variance, from_noise)


def _estimates(noisy: NoisyCounts, size: int, intervals_from: int) -> Estimates:
    """Estimate the first `size` counts; sums over "elsewhere" come last and are omitted."""
    first = replace(noisy, counts=noisy.counts[:size], noise_terms=noisy.noise_terms[:size])
    p, variance = probability_and_variance(first)
    low, high = np.zeros(size), np.ones(size)
    low[intervals_from:], high[intervals_from:] = noisy_count_interval(
        first.counts[intervals_from:],
        first.users,
        noise_terms=first.noise_terms[intervals_from:],
        scale=first.scale,
        gaussian=first.gaussian,
        grid=first.grid,
    )
    return Estimates(p, variance, low, high)
