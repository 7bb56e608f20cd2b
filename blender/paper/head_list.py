"""Find the records that are common enough to be published.

Paper: CreateHeadList (Figure 3).

Promises: (ε,δ)-DP for the opt-in users in S (Theorem 1); neighbouring: replace-one, the records
of one user change. Only records present in S are considered, absent ones never appear.
Assumes: m_O = 1 record a user, enforced when counting; exact integer noise.
Symbols: N = how many users hold the record, b = noise scale, X = noise, θ = threshold,
β = the chance we allow a record of one single user to pass.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.noise.exact_noise import Noise, absence_bound, laplace_scale, rare_noise
from blendstream.blender.values.arrays import IntArray
from blendstream.blender.values.errors import require
from blendstream.blender.values.interfaces import OptinCounts, Selection
from blendstream.blender.values.kept_records import keep_records
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.blender.values.record import Record

__all__ = ["ThresholdSelector", "create_head_list", "threshold_for"]


class ThresholdSelector:
    """Figure 3: keep what passes a noisy threshold, throw the noisy counts away."""

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
        """Indices of the records that pass. `known` changes nothing in the paper's rule."""
        _require_theorem_1(parameters)
        # One user who changes their record moves two counts by one: b_S = 2·m_O/ε.
        scale = laplace_scale(sensitivity=2, epsilon=parameters.epsilon)
        # Departure: an integer θ from the exact tail in place of τ
        # (docs/decisions/0003-integer-thresholds.md). β = δ/2, as in the paper's proof.
        theta = threshold_for(scale=scale, pass_probability=Fraction(parameters.delta) / 2)
        draw = partial(noise.discrete_laplace, scale=scale)
        kept = keep_records(counts, np.zeros_like(known), draw, threshold=theta, drop=None)
        return replace(kept, noisy_counts=None)


def threshold_for(*, scale: float, pass_probability: Fraction) -> int:
    """The smallest θ that a count of 1 reaches with at most this probability.

        P(1 + X ≥ θ) = P(X ≥ θ−1) ≤ β,   so   θ = 1 + min{ j : P(X ≥ j) ≤ β }

    and β is never above the bound beyond which the absence of one person's record reveals too much,
    which only matters for a δ near 1 (docs/privacy.md, the head list).

    >>> threshold_for(scale=0.5, pass_probability=Fraction(1, 200_000))
    8
    """
    beta = min(pass_probability, absence_bound(scale=scale))
    return 1 + rare_noise(scale=scale, at_most=beta)


def create_head_list(
    counts: OptinCounts,
    parameters: PrivacyParameters,
    noise: Noise,
) -> tuple[Record, ...]:
    """HL_S: the records of S that pass, ordered by text so that the order reveals nothing more."""
    nothing_known = np.zeros(len(counts.table), dtype=np.bool_)
    selection = ThresholdSelector().select(counts.selection, nothing_known, parameters, noise)
    return tuple(sorted(counts.table[i] for i in selection.kept.tolist()))


def _require_theorem_1(parameters: PrivacyParameters) -> None:
    require(
        parameters.records_per_optin_user == 1,
        "Theorem 1 (CreateHeadList) holds for m_O = 1 record an opt-in user, "
        f"got records_per_optin_user={parameters.records_per_optin_user}",
    )
    require(
        parameters.epsilon > math.log(2),
        "Theorem 1 (CreateHeadList) holds for epsilon above ln 2 = 0.693…, "
        f"got epsilon={parameters.epsilon!r}",
    )
    # Its third condition, τ = 1 − (2/ε)·ln δ ≥ 1, says δ ≤ 1; PrivacyParameters asks for δ < 1.
