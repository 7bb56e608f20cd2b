"""Select the records that many people hold, and release their noisy counts with them.

Paper: CreateHeadList (Figure 3), which discards the counts, spends only half of δ and forgets the
records that it published before.

    new record (not on the last list)    kept if N + X ≥ θ, at θ − 1 with probability ρ;
                                         considered only if someone has it
    known record (published before)      noised even if no one has it;  kept if N + X ≥ drop,
                                         or at any count where another rule forgets (keep_known)

X is discrete Laplace of scale b = 2/ε, θ − 1 the least j with P(X ≥ j) ≤ β = min(δ, 1 − e^(−ε/2)).
Because θ is an integer, a large part of β would stay unused (46 % at ε = 4, δ = 1e-5); ρ spends it.
π, the probability that a singleton (a record that one person alone holds) is published, is

    π = P(X ≥ θ−1) + ρ·P(X = θ−2) = (1−ρ)·P(X ≥ θ−1) + ρ·P(X ≥ θ−2)  ≤  β.

Promises: (ε,δ)-DP for S, counts included; neighbouring: replace-one. A singleton is published with
probability π ≤ δ, and of two neighbouring data sets only one can publish a new record that the
other lacks *in the direction under test*, so all of δ may be spent on it; everything else is
within e^ε pointwise (docs/privacy-sharp.md has the proof, docs/decisions/0020 the choice).
Assumes: m_O = 1; `known` is public before this epoch's data are read, and lists *all* known
records, those of count 0 too: omitting those would reveal who was the last to hold them.

Symbols: N = count, X = noise, b = scale, θ = threshold, ρ = probability of keeping a new record at
θ − 1, drop = least noisy count of a known record that stays.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.noise.exact_noise import (
    COIN_BITS,
    Noise,
    laplace_scale,
    rare_noise,
    tail_bound,
)
from blendstream.blender.values.arrays import IntArray
from blendstream.blender.values.errors import require
from blendstream.blender.values.interfaces import Selection
from blendstream.blender.values.kept_records import keep_records
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.blender.values.rational import exp_rounded_down

__all__ = [
    "SURVIVAL_PROBABILITY",
    "StableHistogram",
    "below_threshold_heads",
    "drop_level",
    "stable_threshold",
]

#: Largest probability that a known record which no one holds any more survives an epoch. A lower
#: one would forget real but rare records sooner; a higher one would let dead ones accumulate. At ε
#: = 4 records with a noisy count below 2 are dropped.
SURVIVAL_PROBABILITY = Fraction(1, 50)


def stable_threshold(epsilon: float, delta: float) -> int:
    """Return θ = 1 + min{ j : P(X ≥ j) ≤ min(δ, 1 − e^(−ε/2)) }.

    The second bound matters only for δ near 1 or ε near 0: it keeps 1/(1−π) ≤ e^(ε/2), the cost of
    *not* publishing a new record, next to that of a known or frequent one.

    >>> stable_threshold(4.0, 1e-5), stable_threshold(4.0, 1e-7)
    (7, 9)
    """
    scale = laplace_scale(sensitivity=2, epsilon=epsilon)
    return 1 + rare_noise(scale=scale, at_most=_singleton_probability(epsilon, delta))


def below_threshold_heads(epsilon: float, delta: float) -> int:
    """Return ρ·2^32, where ρ is the probability of publishing a new record at θ − 1.

    ρ = (β − U(θ−1))/(U(θ−2) − U(θ−1)), rounded down, where U(j) ≥ P(X ≥ j) are exact fractions, so
    that π ≤ (1−ρ)·U(θ−1) + ρ·U(θ−2) ≤ β. No tail is bounded at 0, so θ = 2 leaves ρ = 0.

    >>> round(below_threshold_heads(4.0, 1e-5) / 2**32, 3)
    0.133
    """
    scale = laplace_scale(sensitivity=2, epsilon=epsilon)
    theta = stable_threshold(epsilon, delta)
    if theta <= 2:
        return 0
    here, below = (tail_bound(j, scale=scale) for j in (theta - 1, theta - 2))
    rho = (_singleton_probability(epsilon, delta) - here) / (below - here)
    return int(rho * 2**COIN_BITS)  # a positive fraction: rounded down


def _singleton_probability(epsilon: float, delta: float) -> Fraction:
    """Return β, the largest permitted probability of publishing a singleton."""
    return min(Fraction(delta), 1 - 1 / exp_rounded_down(Fraction(epsilon) / 2, bits=128))


def drop_level(scale: float) -> int:
    """Return the least noisy count with which a known record stays on the list.

    >>> drop_level(0.5)
    2
    """
    return rare_noise(scale=scale, at_most=SURVIVAL_PROBABILITY)


class StableHistogram:
    """Selector for m_O = 1 that releases its noisy counts."""

    name = "stable-histogram"

    def select(
        self,
        counts: IntArray,
        known: NDArray[np.bool_],
        parameters: PrivacyParameters,
        noise: Noise,
        *,
        keep_known: bool = False,
    ) -> Selection:
        """Keep new records with a noisy count of at least θ, and known ones from the drop level on.

        A new record at θ − 1 is kept with probability ρ.

        Which known records are kept is post-processing: all their noisy counts may be released.
        """
        require(
            parameters.records_per_optin_user == 1,
            "stable-histogram is proved for records_per_optin_user=1 "
            f"(m_O), got {parameters.records_per_optin_user}; gaussian-histogram takes more",
        )
        scale = laplace_scale(sensitivity=2, epsilon=parameters.epsilon)
        threshold = stable_threshold(parameters.epsilon, parameters.delta)
        heads = below_threshold_heads(parameters.epsilon, parameters.delta)
        kept = keep_records(
            counts,
            known,
            partial(noise.discrete_laplace, scale=scale),
            threshold=threshold,
            drop=None if keep_known else drop_level(scale),
            coins=partial(noise.coins, heads=heads),
        )
        return replace(kept, below_threshold_probability=heads / 2**COIN_BITS)
