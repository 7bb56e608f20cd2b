"""Select records of users who send up to m_O distinct records each, with Gaussian noise.

Not in the paper, whose theorem needs m_O = 1. One user who replaces m distinct records moves at
most 2m counts by one each: an L1 distance of 2m, but an L2 distance of only √(2m), which is what
calibrates Gaussian noise. At ε = 4, δ = 1e-5, m = 10 a record then needs 25 holders where Laplace
noise would need 72.

    new record      kept if N + X ≥ θ;  considered only if someone has it
    known record    noised even if no one has it;  kept if N + X ≥ drop, or always (keep_known)

Promises: (ε,δ)-DP for S, noisy counts included; neighbouring: replace-one (all of one user's
records). Let π = P(1 + X ≥ θ). If j ≤ m of a user's former records were new singletons, each is
published with probability π, and at most 2m − j other counts differ:

    δ  ≥  max over 0 ≤ j ≤ m of  j·π + δ_G(ε + m·ln(1−π), 2m − j)

where δ_G(ε, d) is the divergence between d discrete Gaussians and the same shifted by one each.
The ln(1−π) pays for the new records that the *other* data set might have published but did not
(docs/privacy-sharp.md). δ_G comes from dp-accounting's discrete-Gaussian privacy loss, rounded
towards privacy; the exact sums below only guide the search.
Assumes: a user's records are distinct (`agents.worker.entry_checks` refuses a repetition): a
record sent m times would move one count by m.

Symbols: m = m_O, σ = scale, θ = threshold, d = how many counts differ, X = noise.

Decision: docs/decisions/0023-gaussian-noise-for-many-records.md
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.noise.exact_noise import Noise
from blendstream.blender.sharp.stable_histogram import SURVIVAL_PROBABILITY
from blendstream.blender.values.arrays import FloatArray, IntArray
from blendstream.blender.values.errors import ParameterError, require
from blendstream.blender.values.interfaces import Selection
from blendstream.blender.values.kept_records import keep_records
from blendstream.blender.values.parameters import PrivacyParameters

__all__ = [
    "GaussianCalibration",
    "GaussianHistogram",
    "calibrate",
    "gaussian_delta",
    "gaussian_tail",
]

#: dp-accounting's convolutions carry errors of about 1e-14; below this δ they would matter.
MIN_DELTA = 1e-12

#: Attempts at finding the pair; the second nearly always succeeds.
_ATTEMPTS = 6


@dataclass(frozen=True, slots=True)
class GaussianCalibration:
    """Noise and thresholds for one (ε, δ, m): the least θ, and the least σ that has it."""

    scale: float
    threshold: int
    drop: int
    delta_spent: float


class GaussianHistogram:
    """Selector for m_O ≥ 1 distinct records per user; its counts rank, they do not estimate.

    A count here is of users who hold the record among their m_O, while clients and T send one
    record each: the two shares differ for m_O > 1, so S's counts never enter an estimate then.
    """

    name = "gaussian-histogram"

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

        With `keep_known`, keep every known record.
        """
        rule = calibrate(parameters.epsilon, parameters.delta, parameters.records_per_optin_user)
        draw = partial(noise.discrete_gaussian, scale=rule.scale)
        drop = None if keep_known else rule.drop
        return keep_records(counts, known, draw, threshold=rule.threshold, drop=drop)


@lru_cache(maxsize=256)
def calibrate(epsilon: float, delta: float, records_per_user: int) -> GaussianCalibration:
    """Return the least threshold that the rule allows, and the least noise that reaches it.

    Depends on no data, so it can run before any is read.
    """
    m = records_per_user
    require(
        MIN_DELTA <= delta < 1,
        f"gaussian-histogram needs delta of at least {MIN_DELTA} to account for, got {delta!r}",
    )
    # The accountant rounds up, by up to a few per cent at small ε: search for a pair a little below
    # δ, and further below if the accountant finds more than δ. Its result decides.
    goal, spent, threshold, scale = delta * (1 - 2e-3), math.inf, 0, 0.0
    for _ in range(_ATTEMPTS):
        threshold, scale = _least_pair(epsilon, goal, m)
        spent = _accounted_delta(scale, threshold, epsilon, m)
        if spent <= delta:
            break
        goal *= delta / spent * (1 - 1e-3)
    require(
        spent <= delta,
        f"the accountant finds delta={spent} for epsilon={epsilon}, m_O={m}, above {delta}",
    )
    drop = next(j for j in itertools.count(1) if gaussian_tail(j, scale) <= SURVIVAL_PROBABILITY)
    return GaussianCalibration(scale, threshold, drop, spent)


def _least_pair(epsilon: float, goal: float, m: int) -> tuple[int, float]:
    """Return the least θ that some σ allows, and the least of those σ."""
    least = _least_scale(epsilon, goal, 2 * m)
    # Larger σ leaves more of δ for π but widens the noise; the best σ is close to the least one.
    tried = [
        (_least_threshold(scale, epsilon, goal, m), float(scale))
        for scale in least * (1 + np.geomspace(1e-4, 0.3, 24))
    ]
    possible = [(theta, scale) for theta, scale in tried if theta is not None]
    if not possible:
        raise ParameterError(f"no threshold satisfies epsilon={epsilon}, delta={goal}, m_O={m}")
    return min(possible)


def _accounted_delta(scale: float, threshold: int, epsilon: float, m: int) -> float:
    """Return the maximum over j of jπ + δ_G, with an upper bound of δ_G by dp-accounting."""
    # Imported here: a device has NumPy alone, and only servers account.
    from dp_accounting.pld import (  # noqa: PLC0415
        privacy_loss_distribution as pld,
    )

    pi = gaussian_tail(threshold - 1, scale)
    effective = epsilon + m * math.log1p(-pi)
    exact = {
        j: j * pi + delta_g
        for j, delta_g in (
            (2 * m - d, delta_g)
            for d, delta_g in _gaussian_deltas(effective, scale, m, 2 * m).items()
        )
    }
    one: Any = pld.from_discrete_gaussian_mechanism(
        scale, sensitivity=1, pessimistic_estimate=True, value_discretization_interval=1e-4
    )
    # Rounding cannot make an exact sum that is a fifth below the largest one the maximum.
    close = [j for j, spent in exact.items() if spent > 0.8 * max(exact.values())]
    return max(
        j * pi + float(one.self_compose(2 * m - j).get_delta_for_epsilon(effective)) for j in close
    )


def _least_scale(epsilon: float, goal: float, differing: int) -> float:
    low, high = 0.0, 1.0
    while gaussian_delta(epsilon, high, differing) > goal:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        if gaussian_delta(epsilon, middle, differing) > goal:
            low = middle
        else:
            high = middle
    return high


def _least_threshold(scale: float, epsilon: float, goal: float, m: int) -> int | None:
    """Return the least θ with max over j of jπ + δ_G(ε + m·ln(1−π), 2m−j) ≤ goal, or None."""

    def holds(theta: int) -> bool:
        pi = gaussian_tail(theta - 1, scale)
        if m * pi > goal:
            return False
        effective = epsilon + m * math.log1p(-pi)
        deltas = _gaussian_deltas(effective, scale, m, 2 * m)
        return all((2 * m - d) * pi + deltas[d] <= goal for d in deltas)

    # Beyond 12σ the tail is below 1e-30 and only δ_G is left: then no θ helps.
    highest = 2 + math.ceil(12 * scale)
    if not holds(highest):
        return None
    low = 1
    high = highest
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def gaussian_tail(j: int, scale: float) -> float:
    """Return P(X ≥ j) for the discrete Gaussian, summed from the smallest term up.

    >>> round(gaussian_tail(0, 2.0) + gaussian_tail(1, 2.0), 12)
    1.0
    """
    weights = _weights(scale)
    middle = len(weights) // 2
    if j > middle:
        # The largest |x| of the table has probability below 1e-29, and the tail falls faster.
        return float(weights[0]) * 2
    return float(weights[max(0, middle + j) :][::-1].sum())


def gaussian_delta(epsilon: float, scale: float, differing: int) -> float:
    """Compute δ_G(ε, d) by exact summation.

    With each of d counts one higher on one side, the privacy loss of noise (x₁,…,x_d) is
    (d − 2Σxᵢ)/(2σ²): it depends on the sum alone, whose distribution is a d-fold convolution.

        δ_G = Σ_s P(Σx = s) · max(0, 1 − e^(ε − loss(s)))
    """
    return _gaussian_deltas(epsilon, scale, differing, differing)[differing]


def _gaussian_deltas(epsilon: float, scale: float, lowest: int, highest: int) -> dict[int, float]:
    """Compute δ_G for every d from `lowest` to `highest`, one convolution after another."""
    result = {}
    for d, (sums, cut) in _sum_distributions(scale, highest).items():
        if d < lowest:
            continue
        half = len(sums) // 2
        loss = (d - 2 * np.arange(-half, half + 1)) / (2 * scale**2)
        above = loss > epsilon
        result[d] = float((sums[above] * -np.expm1(epsilon - loss[above])).sum()) + cut
    return result


@lru_cache(maxsize=4)
def _sum_distributions(scale: float, highest: int) -> dict[int, tuple[FloatArray, float]]:
    """For d = 1…highest, return P(sum of d draws = s) around 0, and a bound on the rest."""
    single = _weights(scale)
    sums, cut = single, 1e-29
    result = {1: (sums, cut)}
    for d in range(2, highest + 1):
        sums = np.convolve(sums, single)
        # Keep 12 standard deviations of the sum; beyond, less than 1e-31 is lost and is added to δ.
        keep = math.ceil(12 * scale * math.sqrt(d)) + 1
        half = len(sums) // 2
        if half > keep:
            sums = sums[half - keep : half + keep + 1]
        cut += 2e-29
        result[d] = (sums, cut)
    return result


@lru_cache(maxsize=64)
def _weights(scale: float) -> FloatArray:
    """Return P(X = x) for |x| ≤ 12σ, which omits less than 1e-30 of it."""
    reach = math.ceil(12 * scale) + 1
    x = np.arange(-reach, reach + 1, dtype=np.float64)
    weights = np.exp(-(x**2) / (2 * scale**2))
    return np.asarray(weights / weights.sum(), dtype=np.float64)
