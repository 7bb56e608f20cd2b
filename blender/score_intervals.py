"""95 % intervals by asking of every p whether it could have given this estimate.

A Wald interval p̂ ± z·σ̂ takes the variance at the estimate; when p̂ happens to be low, so is σ̂, and
the interval misses. A score interval takes the variance at each p it considers:

    { p in [0, 1] : |p̂ − p| ≤ z·√Var(p̂ at p) }.

Promises: post-processing only.
Assumes: an estimate that is close to normal at the p under question.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from blender.estimates import FloatArray

__all__ = ["Z95", "score_interval"]

#: The normal quantile that leaves 2.5 % on each side.
Z95 = 1.959963984540054

#: Halvings of [0, 1]: 2^-50 is far below any width that matters, and every one costs one pass.
_HALVINGS = 50


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
    centre = np.clip(estimate, 0.0, 1.0)

    def possible(p: FloatArray) -> np.ndarray:
        return np.asarray((estimate - p) ** 2 <= z**2 * variance_at(p))

    low = _boundary(centre, np.zeros_like(centre), possible)
    high = _boundary(centre, np.ones_like(centre), possible)
    return low, high


def _boundary(
    inside: FloatArray, outside: FloatArray, possible: Callable[[FloatArray], np.ndarray]
) -> FloatArray:
    """From a possible p towards `outside`, the last possible one."""
    near, far = inside.copy(), outside.copy()
    near = np.where(possible(far), far, near)
    for _ in range(_HALVINGS):
        middle = (near + far) / 2
        keep = possible(middle)
        near, far = np.where(keep, middle, near), np.where(keep, far, middle)
    return near
