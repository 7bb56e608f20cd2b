"""The state-space model of one record over epochs: Kalman prediction and update.

The state of one record is five numbers with their covariance:

    p      its probability among clients, the quantity to estimate
    d      the opt-in group's difference from p, constant over epochs; Var(d) = (τ·p)²
    f      sampling error of the participating opt-in users' favourites, relative to p + d
    s_O    further sampling error of the records that these users hold in this epoch
    s_C    sampling error of the records that the participating clients hold

An epoch's publication observes, for each record,

    y_O = p + d + a·f + s_O + noise     counts of S and T, divided by their users
    y_C = p + s_C + noise               denoised reports of clients; listed records only

From one epoch to the next, with fresh standard normal z in each line and v_g = p(1−p)/n_g:

    Δ   = c·p + κ·p·z, with probability π plus a jump p⁺·z
    p   → p + Δ
    d   → d
    f   → f − Δ                                             favourites do not follow
    s_O → h·s_O − ℓ·Δ + √((1−h²)(1−a²)·v_O)·z
    s_C → h_C·s_C + √((1−h_C²)·v_C)·z

p⁺ is the larger of p before and after: a record that rises twentyfold has jumped by its new size.

Derivation of s_O: of n people a binomial number, a share h on average, stays, and new people
replace the others. The share that holds the record then has sampling variance p(1−p)/n in every
epoch and correlation h between successive epochs. Those who stay and keep their records miss a
share h of p's change. If everybody stays and holds a favourite in a share a of epochs, the
correlation is a² at any distance.

c is 0 in most epochs. Shares add up to one, so if some records jump all others change by a common
factor; all records together show that long before any single one does.

Arrays run over records, or over records and modes, in their last axis.

Decision: docs/decisions/0031-a-filter-over-epochs.md
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.values.arrays import FloatArray
from blendstream.blender.values.errors import NotFinite

__all__ = ["Motion", "Observation", "absorb_clients", "absorb_optin", "predict", "require_finite"]

#: Indices of the state's numbers.
P, D, F, S_O, S_C = range(5)
SIZE = 5

#: Least variance of an observation, relative to the state's: float64 has 16 digits, and a
#: difference of variances keeps 6 of them. No real publication is that precise.
ROUNDING = 1e-10
#: Added to variances, so that nothing divides by 0 where the state is certain.
TINY = 1e-200


@dataclass(frozen=True, slots=True)
class Observation:
    """One group's observation of each record: y, the number of people and the noise variance.

    `share` is NaN where there is no observation. `noise` is the variance of the privacy noise,
    without the sampling of people; `users` may differ by record. Both must be numbers even where
    `share` is NaN: a NaN times a weight of 0 is NaN, and would spread to all other records.
    """

    share: FloatArray
    users: FloatArray
    noise: FloatArray

    def __post_init__(self) -> None:
        """Refuse numbers that no publication can contain."""
        require_finite("an observed share", np.where(np.isnan(self.share), 0.0, self.share))
        require_finite("a number of people", np.where(self.users > 0, self.users, np.nan))
        require_finite("a variance of noise", np.where(self.noise >= 0, self.noise, np.nan))

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Mask of the records that were observed."""
        return np.asarray(np.isfinite(self.share))

    def select(self, rows: slice | NDArray[np.int64]) -> Observation:
        """Return the observation of some of the records."""
        return Observation(self.share[rows], self.users[rows], self.noise[rows])


def require_finite(quantity: str, values: FloatArray) -> None:
    """Raise `NotFinite` with the number of the first record (last axis) that is not finite.

    Called where a state or an observation is created: a NaN would spread to all records of the
    following epochs, which would be published as missing.
    """
    finite = np.isfinite(values)
    if not finite.all():
        by_record = finite.reshape(-1, values.shape[-1]).all(axis=0)
        raise NotFinite(quantity, int(np.argmin(by_record)))


@dataclass(frozen=True, slots=True)
class Motion:
    """h, ℓ, a and h_C, each one number or one per lane (mode and record); v_O and v_C."""

    stay: FloatArray | float
    lag: FloatArray | float
    habit: FloatArray | float
    client_stay: FloatArray | float
    optin_sampling: FloatArray
    client_sampling: FloatArray


def predict(
    mean: FloatArray,
    covariance: FloatArray,
    motion: Motion,
    q: FloatArray,
    shift: FloatArray | float = 0.0,
) -> tuple[FloatArray, FloatArray]:
    """Predict the state of the next epoch, before its observation; E(Δ) = shift, Var(Δ) = q."""
    mean, covariance = mean.copy(), covariance.copy()
    for part, stay in ((S_O, motion.stay), (S_C, motion.client_stay)):
        mean[part] *= stay
        covariance[part] *= stay
        covariance[:, part] *= stay
    # Δ enters p with 1, f with −1 and s_O with −ℓ.
    lag = motion.lag
    mean[P] += shift
    mean[F] -= shift
    mean[S_O] -= lag * shift
    missed = lag * q
    covariance[P, P] += q
    covariance[F, F] += q
    covariance[S_O, S_O] += lag * missed
    for i, j, shared in ((P, F, -q), (P, S_O, -missed), (F, S_O, missed)):
        covariance[i, j] += shared
        covariance[j, i] += shared
    fresh = (1 - np.square(motion.stay)) * (1 - np.square(motion.habit))
    covariance[S_O, S_O] += fresh * motion.optin_sampling
    covariance[S_C, S_C] += (1 - np.square(motion.client_stay)) * motion.client_sampling
    return mean, covariance


def absorb_optin(
    mean: FloatArray, covariance: FloatArray, group: Observation, habit: FloatArray | float
) -> FloatArray:
    """Update in place with y_O = p + d + a·f + s_O + noise; return ln P(y_O) of each lane."""
    along = covariance[:, P] + covariance[:, D] + habit * covariance[:, F] + covariance[:, S_O]
    inner = innovation(covariance, along[P] + along[D] + habit * along[F] + along[S_O])
    off = group.share - (mean[P] + mean[D] + habit * mean[F] + mean[S_O])
    return _absorb(mean, covariance, along, inner, off, group)


def absorb_clients(mean: FloatArray, covariance: FloatArray, group: Observation) -> FloatArray:
    """Update in place with y_C = p + s_C + noise; return ln P(y_C) of each lane."""
    along = covariance[:, P] + covariance[:, S_C]
    inner = innovation(covariance, along[P] + along[S_C])
    off = group.share - (mean[P] + mean[S_C])
    return _absorb(mean, covariance, along, inner, off, group)


def innovation(covariance: FloatArray, exact: FloatArray) -> FloatArray:
    """Return Var(y) without its noise, at least as large as rounding errors can be.

    `exact` is a sum of covariances that may cancel to less than their rounding errors, or below 0.
    """
    size = sum(covariance[i, i] for i in range(SIZE))
    return np.asarray(np.maximum(exact, ROUNDING * size + TINY))


def _absorb(
    mean: FloatArray,
    covariance: FloatArray,
    along: FloatArray,
    inner: FloatArray,
    off: FloatArray,
    group: Observation,
) -> FloatArray:
    # Without an observation the gain is 0 and the likelihood 1.
    seen = group.seen
    variance = np.where(seen, inner + group.noise, np.inf)
    off = np.where(seen, off, 0.0)
    # Enforce Cov(x, y)² ≤ Var(x)·Var(y) (Cauchy-Schwarz) after rounding, so that no gain explodes.
    for i in range(SIZE):
        most = np.sqrt(covariance[i, i] * inner)
        along[i] = np.clip(along[i], -most, most)
    gain = along / variance
    mean += gain * off
    for i in range(SIZE):
        covariance[i] -= gain[i] * along
        covariance[i, i] = np.maximum(covariance[i, i], 0.0)
    safe = np.where(seen, variance, 1 / (2 * math.pi))
    return np.asarray(-0.5 * (np.log(2 * math.pi * safe) + off * off / safe))
