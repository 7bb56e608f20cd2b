"""Filter all known records over epochs: a Kalman filter per record, with modes learned from data.

Not in the paper, where every epoch starts without memory. Here each known record has a *state*
(`blender.over_time.filter.filter_model`), which each epoch's publication updates: by a lot if
records change quickly, by little if they do not. How quickly they change, and how many people take
part again, is unknown: the filter weights a grid of *modes*
(`blender.over_time.filter.filter_modes`) by how well each predicted the largest records
(`blender.over_time.filter.reference_records`).

Retention matters: if nine in ten opt-in users take part again in the next epoch, their sampling
error hardly averages out, and intervals that ignore this cover only two times in three.

Promises: post-processing only, of numbers in published documents; the same documents give the same
state up to the rounding of floats. Draws no noise and sees no raw count.
Assumes: known records are released at any count, so no selection acts after the first publication;
rarer records are more numerous: the prior of a new record is P(p) ∝ p⁻² (Zipf's law).

Symbols: p, d, f, s_O, s_C, h, ℓ, a, κ, π as in `filter_model`; τ = between_groups; n = people.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.over_time.filter.filter_model import (
    S_C,
    S_O,
    SIZE,
    D,
    F,
    Motion,
    Observation,
    P,
    absorb_clients,
    absorb_optin,
    predict,
    require_finite,
)
from blendstream.blender.over_time.filter.filter_modes import FilterModes, default_modes
from blendstream.blender.over_time.filter.reference_records import ReferenceRecords
from blendstream.blender.values.arrays import FloatArray
from blendstream.blender.values.errors import ParameterError, require

__all__ = ["FilterState", "Observation", "advance", "empty_state"]

#: Smaller weights of (retention, drift) are skipped in the update. Lower costs time, changes
#: nothing.
NEGLIGIBLE = 5e-3

#: At most this many motions (pairs of retention and drift) enter the update, the likeliest. After a
#: few epochs one to four are left; this bounds the work of the first ones.
MAX_MOTIONS = 16

#: Points of p at which P(p | y) is computed for a new record, and records processed at a time.
_STEPS, _CHUNK = 81, 2_048

#: Variances are computed at no fewer than this many holders among n people.
LEAST_COUNT = 0.5


@dataclass(frozen=True, slots=True)
class FilterState:
    """Means `[i, r]` and covariances `[i, j, r]` of known records, and the reference records."""

    mean: FloatArray
    covariance: FloatArray
    reference: ReferenceRecords

    def __post_init__(self) -> None:
        """Refuse a state that is not finite, with the record's number."""
        require_finite("a filter's mean", self.mean)
        require_finite("a filter's covariance", self.covariance)
        variance = self.covariance[P, P]
        require_finite("a filter's deviation", np.sqrt(np.where(variance >= 0, variance, np.nan)))

    @property
    def size(self) -> int:
        """The number of known records."""
        return int(self.mean.shape[1])

    @property
    def probability(self) -> FloatArray:
        """p̂ of each record; not below 0."""
        return np.asarray(np.maximum(self.mean[P], 0.0))

    @property
    def variance(self) -> FloatArray:
        """The variance of p̂."""
        return np.asarray(self.covariance[P, P])

    @property
    def shared_deviation(self) -> FloatArray:
        """The part of p̂'s standard deviation that comes from d: |Cov(p, d)|/√Var(d)."""
        of_d = self.covariance[D, D]
        known = np.asarray(of_d > 0)
        part = np.abs(self.covariance[P, D]) / np.sqrt(np.where(known, of_d, np.inf))
        # No part is larger than the whole, also after rounding.
        return np.asarray(np.minimum(part, np.sqrt(self.variance)))

    @property
    def staying(self) -> float:
        """ĥ: correlation of the opt-in sample between successive epochs."""
        h, _, habit, _, _ = self.reference.modes.columns
        return self.reference.modes.average(self.reference.weights, np.maximum(h, habit**2))

    @property
    def drift(self) -> float:
        """κ̂: relative drift of a record per epoch."""
        kappa = self.reference.modes.columns[3]
        return self.reference.modes.average(self.reference.weights, kappa)

    def keep(self, records: NDArray[np.bool_]) -> FilterState:
        """Return the state of these records alone."""
        place = np.where(records, np.cumsum(records) - 1, -1)
        return FilterState(
            self.mean[:, records], self.covariance[:, :, records], self.reference.renumber(place)
        )


def empty_state(modes: FilterModes | None = None) -> FilterState:
    """Return the state before the first publication."""
    chosen = default_modes() if modes is None else modes
    return FilterState(
        np.zeros((SIZE, 0)), np.zeros((SIZE, SIZE, 0)), ReferenceRecords.empty(chosen)
    )


def advance(
    state: FilterState, optin: Observation, clients: Observation, *, between_groups: float = 0.0
) -> FilterState:
    """Return the state after one more epoch. New records follow those already known.

    `between_groups` is τ, the typical relative difference of a record's probability between the
    opt-in group and the clients; the blend estimates it.
    """
    size, known, tau = len(optin.share), state.size, between_groups
    require(
        len(clients.share) == size >= known,
        f"both groups must speak of the same records, at least the {known} known ones, "
        f"got {size} and {len(clients.share)}",
    )
    require(
        np.isfinite(tau) and tau >= 0,
        f"between_groups must be finite and at least 0, got {tau!r}",
    )
    if known:
        state = _update(state, optin.select(slice(0, known)), clients.select(slice(0, known)), tau)
    if size == known:
        return state
    weights, habit = state.reference.weights, state.reference.modes.columns[2]
    habits = float(weights @ habit), float(weights @ habit**2)
    mean, covariance = _first_sight(
        optin.select(slice(known, size)), clients.select(slice(known, size)), tau, habits
    )
    return replace(
        state,
        mean=np.concatenate([state.mean, mean], axis=1),
        covariance=np.concatenate([state.covariance, covariance], axis=2),
    )


def _first_sight(
    optin: Observation, clients: Observation, tau: float, habits: tuple[float, float]
) -> tuple[FloatArray, FloatArray]:
    """Compute the state of new records after the epoch that first publishes them."""
    y, n, noise = optin.share, optin.users, optin.noise
    if not np.isfinite(y).all():
        raise ParameterError("a new record must have a count of the opt-in group")
    mean, variance = _after_first_count(y, n, noise, tau)
    level = np.clip(mean, LEAST_COUNT / n, 1.0)
    sampling = level * (1 - level) / n
    # y − p = d + a·f + s_O + noise. Given p, these parts are normal: their prior variances, and
    # their covariances with y − p. `habits` are the averages of a and a² over modes.
    once, twice = habits
    before, shared = np.zeros((SIZE, len(y))), np.zeros((SIZE, len(y)))
    before[D] = shared[D] = (tau * level) ** 2
    before[F], shared[F] = sampling, once * sampling
    before[S_O] = shared[S_O] = (1 - twice) * sampling
    beyond = (tau * level) ** 2 + sampling + noise
    # p's own uncertainty carries over to them with the opposite sign.
    slope = -shared / beyond
    slope[P] = 1.0
    means = -slope * (y - mean)
    means[P] = mean
    covariances = variance * slope[:, np.newaxis] * slope[np.newaxis]
    covariances -= shared[:, np.newaxis] * shared[np.newaxis] / beyond
    for i in (D, F, S_O):
        covariances[i, i] += before[i]
    covariances[S_C, S_C] = level * (1 - level) / np.maximum(clients.users, 1)
    absorb_clients(means, covariances, clients)
    return means, covariances


def _after_first_count(
    y: FloatArray, n: FloatArray, noise: FloatArray, tau: float
) -> tuple[FloatArray, FloatArray]:
    """Compute mean and variance of P(p | y) ∝ p⁻²·P(y | p).

    The threshold that y passed needs no correction: given y, passing is certain and adds nothing
    about p. But rare records are far more numerous than frequent ones, so a record that passed is
    more likely a rarer one with high noise; the prior p⁻² accounts for that.
    """
    mean, variance = np.empty_like(y), np.empty_like(y)
    steps = np.linspace(0.0, 1.0, _STEPS)[:, np.newaxis]
    for start in range(0, len(y), _CHUNK):
        rows = slice(start, start + _CHUNK)
        y_, n_, noise_ = y[rows], n[rows], noise[rows]
        spread = np.sqrt(np.maximum(y_, LEAST_COUNT / n_) / n_ + noise_ + (tau * y_) ** 2)
        lowest = np.maximum(y_ - 6 * spread, 0.05 / n_)
        highest = np.maximum(y_ + 5 * spread, lowest + 1 / n_)
        p = lowest * (highest / lowest) ** steps  # evenly in ln p, where dp = p·d(ln p)
        v = p / n_ + noise_ + (tau * p) ** 2
        log_weight = -((y_ - p) ** 2) / (2 * v) - np.log(v) / 2 - np.log(p)
        weight = np.exp(log_weight - log_weight.max(axis=0))
        weight /= weight.sum(axis=0)
        mean[rows] = (weight * p).sum(axis=0)
        variance[rows] = (weight * (p - mean[rows]) ** 2).sum(axis=0)
    return mean, variance


def _level(state: FilterState, optin: Observation, clients: Observation) -> FloatArray:
    """Return the p at which sampling variances are computed: the blend of state and observations.

    One group's own p̂ would weigh low observations too much, and the mean so far lags behind a jump.
    """
    least = LEAST_COUNT / np.maximum(optin.users, 1)
    level = np.maximum(state.mean[P], least)
    prior = state.covariance[P, P] + (0.1 * level) ** 2
    for _ in range(3):
        pull, precision = state.mean[P] / prior, 1 / prior
        for group in (optin, clients):
            variance = level / np.maximum(group.users, 1) + group.noise
            part = np.where(group.seen, 1 / np.maximum(variance, 1e-300), 0.0)
            pull = pull + part * np.where(group.seen, group.share, 0.0)
            precision = precision + part
        level = np.clip(pull / precision, least, 1.0)
    return np.asarray(level)


def _likely_motions(odds: FloatArray) -> list[tuple[int, int]]:
    """Choose the motions that enter the update: the likeliest pairs of retention and drift."""
    order = np.argsort(-odds, axis=None, kind="stable")[:MAX_MOTIONS]
    chosen = order[odds.ravel()[order] > NEGLIGIBLE]
    return list(zip(*(i.tolist() for i in np.unravel_index(chosen, odds.shape)), strict=True))


def _update(
    state: FilterState, optin: Observation, clients: Observation, tau: float
) -> FilterState:
    """Update all records: mix the likely modes' states into one mean and covariance each."""
    level = _level(state, optin, clients)
    spread = level * (1 - level)
    at_o, at_c = spread / np.maximum(optin.users, 1), spread / np.maximum(clients.users, 1)
    reference = state.reference.select(state.mean, state.covariance, optin.users, optin.seen)
    rows = reference.rows
    seen = optin.select(rows), clients.select(rows), (at_o[rows], at_c[rows])
    common = reference.common_change(*seen)
    reference = reference.advance(*seen, level[rows], common, tau)
    modes = reference.modes
    odds, rates = modes.by_motion(reference.weights)
    m = np.maximum(state.mean[P], 0.0)
    leap = np.maximum(m, level) ** 2
    total = np.zeros(state.size)
    first, second = np.zeros_like(state.mean), np.zeros_like(state.covariance)
    within = np.zeros_like(state.mean)
    for a, b in _likely_motions(odds):
        h, lag, habit = modes.staying[a]
        motion = Motion(h, lag, habit, float(modes.client_stay(h, habit)), at_o, at_c)
        parts = []
        for jumped in (0.0, leap):
            q = (modes.drifts[b] ** 2 + common[1]) * m**2 + jumped
            mean, covariance = predict(state.mean, state.covariance, motion, q, common[0] * m)
            covariance[D, D] += tau**2 * jumped
            likely = absorb_optin(mean, covariance, optin, habit)
            likely += absorb_clients(mean, covariance, clients)
            parts.append((mean - state.mean, covariance, likely))
        gain = np.exp(np.clip(parts[1][2] - parts[0][2], -50.0, 50.0)) * rates[a, b]
        jump = gain / (gain + 1 - rates[a, b])
        for part, (off, covariance, _) in zip((1 - jump, jump), parts, strict=True):
            weight = odds[a, b] * part
            total += weight
            first += weight * off
            for i in range(SIZE):
                second[i] += weight * (covariance[i] + off[i] * off)
                within[i] += weight * covariance[i, i]
    first /= total
    second /= total
    second -= first[:, np.newaxis] * first[np.newaxis]
    # A mixture varies at least as its parts do; where they agree, the difference above is rounding.
    for i in range(SIZE):
        second[i, i] = np.maximum(second[i, i], within[i] / total)
    mean = state.mean + first
    if len(rows):
        # Reference records keep their state under every mode, which is more exact than the mixture.
        mean[:, rows], second[:, :, rows] = reference.merge()
    return FilterState(mean, second, reference)
