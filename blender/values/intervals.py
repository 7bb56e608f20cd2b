"""Compute 95 % intervals for both groups, valid for small counts too.

Promises: post-processing only. The opt-in interval inverts the exact distribution of a noisy count
and covers at least 95 % for every p (on a fixed head list). The client interval contains every p
within z of its own standard errors of p̂: Wilson's interval, carried through the denoising; a normal
interval with a plug-in variance fails at small counts. `score_interval` does so for any variance
that is known as a function of p.
Assumes: SciPy is installed where the opt-in interval is computed (servers; imported when needed).
Symbols: n = users, r = observed share, b = noise scale, z = 97.5 % point of the normal.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from blendstream.blender.values.arrays import FloatArray, IntArray

__all__ = [
    "Z_95",
    "noisy_count_interval",
    "score_interval",
    "sum_of_gaussians",
    "sum_of_laplace",
    "wilson_interval",
]

#: Φ(Z_95) = 0.975.
Z_95 = 1.959963984540054

#: The exact sums omit a tail of the noise of this probability. It bounds the error in a coverage of
#: 95 %, so a smaller one would cost time and change no published digit.
_TAIL = 1e-9

#: Tolerance of an interval's end, in people: far below every digit that is published.
_ROOT = 1e-8


def wilson_interval(
    share: FloatArray, n: float, *, pull: FloatArray, total: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return all r with (r̂ − r)² ≤ (z²/n)·v(r), for a share r̂ corrected by its query's total.

    Denoising estimates p from r̂ + C·r̂_q (C = `pull`, r̂_q = `total`), where r̂ is part of r̂_q, so

        v(r) = r(1−r) + C²·r_q(1−r_q) + 2C·r(1−r_q)

    which makes the condition a quadratic in r. C = 0 gives Wilson's interval.
    """
    kappa = Z_95**2 / n
    rest = 1 - total
    a = 1 + kappa
    b = 2 * share + kappa * (1 + 2 * pull * rest)
    c = share**2 - kappa * pull**2 * total * rest
    root = np.sqrt(np.maximum(b**2 - 4 * a * c, 0))
    return (b - root) / (2 * a), (b + root) / (2 * a)


def score_interval(
    estimate: FloatArray,
    variance_at: Callable[[FloatArray], FloatArray],
    *,
    z: float,
) -> tuple[FloatArray, FloatArray]:
    """Return the lowest and highest p in [0, 1] that are within z deviations of p̂:

        { p in [0, 1] : (p̂ − p)² ≤ z²·Var(p̂ at p) }.

    A Wald interval p̂ ± z·σ̂ uses the variance at the estimate; if p̂ happens to be low, so is σ̂, and
    the interval misses p. Var must be quadratic in p, as that of a sum of indicators is.

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


def sum_of_laplace(terms: int, *, scale: float) -> FloatArray:
    """Return P(X₁ + … + X_terms = x) for x = −h … h, discrete Laplace X, beyond h negligible.

    >>> pmf = sum_of_laplace(3, scale=0.5)
    >>> round(float(pmf.sum()), 9), len(pmf) % 2
    (1.0, 1)
    """
    if terms == 0:
        return np.ones(1)
    # The sum's tail is at most e^{−h/b}·(what independent terms can add); 40 b is far beyond
    # 1e-12 for one term, and √terms standard deviations more for many.
    half = math.ceil(scale * (30 + 12 * math.sqrt(2 * terms)))
    frequencies = np.fft.rfftfreq(2 * half + 1)
    r = math.exp(-1 / scale)
    # The characteristic function of one term: (1−r)² / (1 − 2r·cos ω + r²).
    one = (1 - r) ** 2 / (1 - 2 * r * np.cos(2 * np.pi * frequencies) + r * r)
    pmf = np.fft.irfft(one**terms, n=2 * half + 1)
    return np.maximum(np.fft.fftshift(pmf), 0)


def sum_of_gaussians(terms: int, *, scale: float) -> FloatArray:
    """Return P(X₁ + … + X_terms = x) for x = −h … h, discrete Gaussian X, beyond h negligible.

    >>> pmf = sum_of_gaussians(3, scale=2.0)
    >>> round(float(pmf.sum()), 9), len(pmf) % 2
    (1.0, 1)
    """
    if terms == 0:
        return np.ones(1)
    # 12 deviations of the sum: the probability beyond is below 1e-30.
    half = math.ceil(12 * scale * math.sqrt(terms)) + 1
    x = np.arange(-half, half + 1)
    one = np.exp(-(x**2) / (2 * scale**2))
    frequencies = np.fft.rfft(np.fft.ifftshift(one / one.sum()))
    pmf = np.fft.irfft(frequencies**terms, n=2 * half + 1)
    return np.maximum(np.fft.fftshift(pmf), 0)


def noisy_count_interval(
    noisy: IntArray,
    users: int,
    *,
    noise_terms: IntArray,
    scale: float,
    gaussian: bool = False,
    grid: int = 1,
) -> tuple[FloatArray, FloatArray]:
    """For Y = G·Binomial(users, p) + X, return all p with both tails at the observed y ≥ 2.5 %.

    `noisy` and `scale` are in units of 1/G people (G = `grid`). Y grows with p, so each end is
    where one tail is 2.5 %. The ends are computed at some counts (`_knots`) and interpolated
    between them, to 1/100 of a person or of the count's deviation, so that cells with similar
    counts share the work.
    """
    if users == 0:
        return np.zeros(len(noisy)), np.ones(len(noisy))
    low, high = np.empty(len(noisy)), np.empty(len(noisy))
    for terms in np.unique(noise_terms):
        where = np.flatnonzero(noise_terms == terms)
        knots = _knots(noisy[where], users, grid)
        pmf = (sum_of_gaussians if gaussian else sum_of_laplace)(int(terms), scale=scale)
        for ends, upper in ((low, False), (high, True)):
            at_knots = _end(knots, users, pmf, grid, upper=upper)
            ends[where] = np.interp(noisy[where], knots, at_knots)
    return low, high


def _knots(counts: IntArray, users: int, grid: int) -> IntArray:
    """Return counts that enclose these: 1/8 of a person apart, or 1/8 of a count's deviation."""
    people = np.minimum(counts / grid, users - counts / grid)
    deviation = 2 ** np.floor(np.log2(np.maximum(people, 1.0)) / 2)
    step = np.maximum(grid * deviation.astype(np.int64) // 8, 1)
    below = counts - counts % step
    return np.unique(np.concatenate([below, below + np.where(below == counts, 0, step)]))


def _end(counts: IntArray, users: int, pmf: FloatArray, grid: int, *, upper: bool) -> FloatArray:
    """Return the p at which P(Y ≤ y) (upper end) or P(Y ≥ y) (lower end) is 2.5 %."""
    # Imported here: a device has numpy alone, and only servers compute this interval.
    from scipy.optimize.elementwise import find_root  # noqa: PLC0415
    from scipy.special import bdtr, bdtrc  # noqa: PLC0415

    holders, weight = _holders(counts, pmf, grid, upper=upper)

    def excess(p: FloatArray, place: FloatArray) -> FloatArray:
        row = place.astype(np.int64)
        k, at = holders[row], p[:, np.newaxis]
        if upper:  # P(Binomial ≤ k)
            inside = bdtr(np.clip(k, 0, users), users, at)
            tail = np.where(k < 0, 0.0, np.where(k >= users, 1.0, inside))
        else:  # P(Binomial ≥ k)
            inside = bdtrc(np.clip(k - 1, 0, users), users, at)
            tail = np.where(k <= 0, 1.0, np.where(k > users, 0.0, inside))
        return np.asarray((tail * weight[row]).sum(axis=1) - 0.025)

    # Twelve deviations around the estimate enclose the end, unless that is 0 or 1.
    x = np.arange(len(pmf)) - len(pmf) // 2
    people = counts / grid
    deviation = np.sqrt(np.maximum(people, 0) + 1 + float(pmf @ x**2) / grid**2)
    first = np.clip((people - 12 * deviation) / users, 0.0, 1.0)
    last = np.clip((people + 12 * deviation) / users, 0.0, 1.0)
    place = np.arange(len(counts), dtype=np.float64)
    found = find_root(excess, (first, last), args=(place,), tolerances={"xatol": _ROOT / users})
    at_first = excess(first, place) <= 0 if upper else excess(first, place) >= 0
    return np.asarray(np.where(found.success, found.x, np.where(at_first, first, last)))


def _holders(
    counts: IntArray, pmf: FloatArray, grid: int, *, upper: bool
) -> tuple[IntArray, FloatArray]:
    """Return for each y the critical numbers of holders k, and their probabilities by the noise.

    Y ≥ y if the holders are at least k = ⌈(y − X)/G⌉, Y ≤ y if they are at most ⌊(y − X)/G⌋:

        P(Y ≥ y) = Σ_k P(⌈(y−X)/G⌉ = k)·P(Binomial ≥ k)
    """
    half = len(pmf) // 2
    below = np.cumsum(pmf)

    def at_most(x: IntArray) -> FloatArray:
        return np.where(x < -half, 0.0, below[np.clip(x + half, 0, 2 * half)])

    reach = (half - int(np.searchsorted(below, _TAIL))) // grid + 2
    holders = counts[:, np.newaxis] // grid + np.arange(-reach, reach + 1)
    x = counts[:, np.newaxis] - grid * holders
    # ⌊(y−X)/G⌋ = k means y−(k+1)G < X ≤ y−kG, and ⌈(y−X)/G⌉ = k means y−kG ≤ X < y−(k−1)G.
    last = x if upper else x + grid - 1
    return holders, at_most(last) - at_most(last - grid)
