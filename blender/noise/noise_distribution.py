"""Return noise distributions as arrays of floats, for estimates; no draw uses them.

Symbols: X = noise, b, σ = its scale.
"""

from __future__ import annotations

import math

import numpy as np

from blendstream.blender.values.arrays import FloatArray

__all__ = ["gaussian_distribution", "in_people", "laplace_distribution"]

#: Noise beyond this many scales is omitted: e^−25 of Laplace noise, 1e-30 of Gaussian noise. A
#: shorter array would make counts impossible that a record of share 0 does have, if hardly ever.
_LAPLACE_REACH, _GAUSSIAN_REACH = 25.0, 12.0


def laplace_distribution(scale: float) -> FloatArray:
    """Return P(X = x) for x = −h … h of discrete Laplace noise.

    >>> round(float(laplace_distribution(0.5)[len(laplace_distribution(0.5)) // 2]), 4)
    0.7616
    """
    half = math.ceil(_LAPLACE_REACH * scale)
    weights = np.exp(-np.abs(np.arange(-half, half + 1)) / scale)
    return np.asarray(weights / weights.sum())


def gaussian_distribution(scale: float) -> FloatArray:
    """Return P(X = x) for x = −h … h of discrete Gaussian noise."""
    half = math.ceil(_GAUSSIAN_REACH * scale)
    weights = np.exp(-(np.arange(-half, half + 1) ** 2) / (2 * scale**2))
    return np.asarray(weights / weights.sum())


def in_people(distribution: FloatArray, grid: int) -> FloatArray:
    """Return the distribution of X/G rounded to integers (halves up), for −h … h.

    >>> in_people(np.full(5, 0.2), 4).round(1).tolist()  # x = −2 … 2 units; 2 of 4 is a half
    [0.0, 0.8, 0.2]
    """
    if grid == 1:
        return distribution
    half = len(distribution) // 2
    people = (np.arange(-half, half + 1) + grid // 2) // grid
    reach = int(np.abs(people).max())
    return np.bincount(people + reach, weights=distribution, minlength=2 * reach + 1).astype(
        np.float64
    )
