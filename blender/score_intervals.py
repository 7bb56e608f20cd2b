"""95 % intervals by asking of every p whether it could have given this estimate.

A Wald interval p̂ ± z·σ̂ takes the variance at the estimate; when p̂ happens to be low, so is σ̂, and
the interval misses. A score interval takes the variance at each p it considers:

    { p in [0, 1] : (p̂ − p)² ≤ z²·Var(p̂ at p) }.

Promises: post-processing only.
Assumes: an estimate that is close to normal at the p under question, and a variance that is
quadratic in p, as that of a sum of indicators is.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from blender.cell_estimates import FloatArray

__all__ = ["score_interval"]


def score_interval(
    estimate: FloatArray,
    variance_at: Callable[[FloatArray], FloatArray],
    *,
    z: float,
) -> tuple[FloatArray, FloatArray]:
    """The lowest and highest p in [0, 1] that are not further than z deviations from p̂.

    >>> low, high = score_interval(np.array([0.0]), lambda p: p * (1 - p) / 100, z=2.0)
    >>> round(float(low[0]), 4), round(float(high[0]), 4)
    (0.0, 0.0385)
    """
    # Three values of Var(p) = v₀ + v₁p + v₂p² give its coefficients, and the condition becomes
    #
    #     (1 − z²v₂)·p² − (2p̂ + z²v₁)·p + p̂² − z²v₀ ≤ 0,
    #
    # true between the roots.
    at_0, at_half, at_1 = (variance_at(np.full_like(estimate, p)) for p in (0.0, 0.5, 1.0))
    v2 = 2 * (at_1 + at_0 - 2 * at_half)
    v1 = at_1 - at_0 - v2
    a = 1 - z**2 * v2
    b = 2 * estimate + z**2 * v1
    c = estimate**2 - z**2 * at_0
    root = np.sqrt(np.maximum(b**2 - 4 * a * c, 0.0))
    low, high = (np.clip((b + sign * root) / (2 * a), 0.0, 1.0) for sign in (-1, 1))
    return low, high
