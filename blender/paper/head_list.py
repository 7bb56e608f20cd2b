"""Select the records that are frequent enough to be published.

Paper: CreateHeadList (Figure 3).

Promises: (ε,δ)-DP for the opt-in users in S (Theorem 1); neighbouring: replace-one, the records
of one user change. It considers only records present in S; absent ones never appear.
Assumes: m_O = 1 record per user, enforced by the counting; exact integer noise.
Symbols: N = how many users hold the record, b = noise scale in people, G = units per person,
X = noise in units, θ = threshold in units, β = the largest permitted probability that a
singleton (a record of one user) passes.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.noise.exact_noise import (
    GRID,
    Noise,
    absence_bound,
    laplace_scale,
    rare_noise,
)
from blendstream.blender.values.arrays import IntArray
from blendstream.blender.values.errors import require
from blendstream.blender.values.interfaces import OptinCounts, Selection
from blendstream.blender.values.kept_records import keep_records
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.blender.values.record import Record

__all__ = ["ThresholdSelector", "create_head_list", "threshold_for"]


class ThresholdSelector:
    """Figure 3: keep the records that pass a noisy threshold, discard the noisy counts."""

    name = "threshold"

    def select(
        self,
        counts: IntArray,
        known: NDArray[np.bool_],
        parameters: PrivacyParameters,
        noise: Noise,
        *,
        keep_known: bool = False,
    ) -> Selection:
        """Select the records that pass. The paper's rule ignores `known`."""
        _require_theorem_1(parameters)
        # One user who changes their record moves two counts by one: b_S = 2·m_O/ε.
        scale = laplace_scale(sensitivity=2, epsilon=parameters.epsilon)
        # Departure: exact noise and threshold on a grid of 1/G people in place of real numbers
        # (docs/decisions/0003-noise-on-a-fine-grid.md).
        theta = self.threshold(parameters)
        draw = partial(noise.discrete_laplace, scale=scale * GRID)
        units = counts * GRID
        kept = keep_records(units, np.zeros_like(known), draw, threshold=theta, drop=None)
        return replace(kept, noisy_counts=None)

    @staticmethod
    def threshold(parameters: PrivacyParameters) -> int:
        """Return θ in units of 1/G people, with β = δ/2 as in the paper's proof."""
        scale = laplace_scale(sensitivity=2, epsilon=parameters.epsilon)
        return threshold_for(
            scale=scale, pass_probability=Fraction(parameters.delta) / 2, grid=GRID
        )


def threshold_for(*, scale: float, pass_probability: Fraction, grid: int) -> int:
    """Return the smallest θ, in units, that a count of 1 reaches with at most this probability.

        P(G + X ≥ θ) = P(X ≥ θ−G) ≤ β,   so   θ = G + min{ j : P(X ≥ j) ≤ β }

    where X has the scale b·G (`scale`·`grid`). β is never above the bound beyond which the absence
    of one person's record reveals too much, which only matters for a δ near 1 (docs/privacy.md, the
    head list). In people this is the paper's τ = 6.76, and τ = 9.06 for its second data set:

    >>> threshold_for(scale=0.5, pass_probability=Fraction(1, 200_000), grid=1024) / 1024
    6.7578125
    >>> threshold_for(scale=0.5, pass_probability=Fraction(1, 20_000_000), grid=1024) / 1024
    9.0595703125
    """
    beta = min(pass_probability, absence_bound(scale=scale))
    return grid + rare_noise(scale=scale * grid, at_most=beta)


def create_head_list(
    counts: OptinCounts,
    parameters: PrivacyParameters,
    noise: Noise,
) -> tuple[Record, ...]:
    """Return HL_S: the records of S that pass the threshold, in the order of their text."""
    nothing_known = np.zeros(len(counts.table), dtype=np.bool_)
    selection = ThresholdSelector().select(counts.selection, nothing_known, parameters, noise)
    return tuple(sorted(counts.table[i] for i in selection.kept.tolist()))


def _require_theorem_1(parameters: PrivacyParameters) -> None:
    require(
        parameters.records_per_optin_user == 1,
        "Theorem 1 (CreateHeadList) holds for m_O = 1 record per opt-in user, "
        f"got records_per_optin_user={parameters.records_per_optin_user}",
    )
    require(
        parameters.epsilon > math.log(2),
        "Theorem 1 (CreateHeadList) holds for epsilon above ln 2 = 0.693…, "
        f"got epsilon={parameters.epsilon!r}",
    )
    # Its third condition, τ = 1 − (2/ε)·ln δ ≥ 1, says δ ≤ 1; PrivacyParameters asks for δ < 1.
