"""Remember what earlier epochs learned: one estimate of each known record, carried through epochs.

Not in the paper, where every epoch starts from nothing. Here each known record has a *state*
(`blender.over_time.filter.filter_model`), and each epoch's publication moves it: by a lot if
records change quickly, by little if they do not. How quickly they change, and how many of the
people stay the same, is not given by anyone: a grid of *modes*
(`blender.over_time.filter.filter_modes`) is weighed by how well each foretold the larger records
(`blender.over_time.filter.filter_scouts`).

Why it matters who stays: with nine in ten opt-in users the same from epoch to epoch, their
sampling error hardly averages out, and intervals that ignore it cover two times in three.

Promises: post-processing only, of numbers in published documents; the same documents give the same
state up to the rounding of floats. Draws no noise and sees no raw count.
Assumes: known records are released at any count, so nothing is selected after its first sight;
there are the more records the rarer they are: at first sight P(p) ∝ p⁻² (Zipf's law).

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
    Observed,
    P,
    absorb_clients,
    absorb_optin,
    predict,
    require_finite,
)
from blendstream.blender.over_time.filter.filter_modes import FilterModes, default_modes
from blendstream.blender.over_time.filter.filter_scouts import ReferenceRecords
from blendstream.blender.values.arrays import FloatArray
from blendstream.blender.values.errors import ParameterError, require

__all__ = ["FilterState", "Observed", "advance", "empty_state"]

#: Modes below this weight have no part in moving the states. Lower costs time and moves nothing.
NEGLIGIBLE = 5e-3

#: At most this many motions (a way of staying and a drift) move the states, the likeliest. After a
#: few epochs one to four are left; this bounds the work of the first ones.
MOST_MOTIONS = 16

#: Points of p at which P(p | y) is worked out for a new record, and records worked on at a time.
_STEPS, _CHUNK = 81, 2_048

#: A record is taken for at least this many of n people where a variance is worked out.
LEAST_COUNT = 0.5


@dataclass(frozen=True, slots=True)
class FilterState:
    """Means `[i, r]` and covariances `[i, j, r]` of every known record, and the scouts."""

    mean: FloatArray
    covariance: FloatArray
    scouts: ReferenceRecords

    def __post_init__(self) -> None:
        """Refuse a state that is not finite, with the record's number."""
        require_finite("a filter's mean", self.mean)
        require_finite("a filter's covariance", self.covariance)
        variance = self.covariance[P, P]
        require_finite("a filter's deviation", np.sqrt(np.where(variance >= 0, variance, np.nan)))

    @property
    def size(self) -> int:
        """How many records are known."""
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
        """ĥ: the correlation of what opt-in users hold from one epoch to the next."""
        h, _, habit, _, _ = self.scouts.modes.columns
        return self.scouts.modes.average(self.scouts.weights, np.maximum(h, habit**2))

    @property
    def drift(self) -> float:
        """κ̂: by which part of itself a record changes in an epoch."""
        kappa = self.scouts.modes.columns[3]
        return self.scouts.modes.average(self.scouts.weights, kappa)

    def keep(self, records: NDArray[np.bool_]) -> FilterState:
        """Without the records that are forgotten."""
        place = np.where(records, np.cumsum(records) - 1, -1)
        return FilterState(
            self.mean[:, records], self.covariance[:, :, records], self.scouts.renumbered(place)
        )


def empty_state(modes: FilterModes | None = None) -> FilterState:
    """Before the first publication."""
    chosen = default_modes() if modes is None else modes
    return FilterState(
        np.zeros((SIZE, 0)), np.zeros((SIZE, SIZE, 0)), ReferenceRecords.none(chosen)
    )


def advance(
    state: FilterState, optin: Observed, clients: Observed, *, between_groups: float = 0.0
) -> FilterState:
    """The state after one more epoch. New records come behind those already known.

    `between_groups` is τ, by which part of itself a record's probability typically differs between
    the opt-in group and the clients; the blend estimates it.
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
        state = _moved(state, optin.at(slice(0, known)), clients.at(slice(0, known)), tau)
    if size == known:
        return state
    weights, habit = state.scouts.weights, state.scouts.modes.columns[2]
    habits = float(weights @ habit), float(weights @ habit**2)
    mean, covariance = _first_sight(
        optin.at(slice(known, size)), clients.at(slice(known, size)), tau, habits
    )
    return replace(
        state,
        mean=np.concatenate([state.mean, mean], axis=1),
        covariance=np.concatenate([state.covariance, covariance], axis=2),
    )


def _first_sight(
    optin: Observed, clients: Observed, tau: float, habits: tuple[float, float]
) -> tuple[FloatArray, FloatArray]:
    """What is thought of a record after the epoch that first shows it."""
    y, n, noise = optin.share, optin.users, optin.noise
    if not np.isfinite(y).all():
        raise ParameterError("a new record must have a count of the opt-in group")
    mean, variance = _after_first_count(y, n, noise, tau)
    level = np.clip(mean, LEAST_COUNT / n, 1.0)
    sampling = level * (1 - level) / n
    # y − p = d + a·f + s_O + noise. Given p, these parts are normal: what is known of each before,
    # and its covariance with y − p. `habits` are the averages of a and a² over modes.
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
    """Mean and variance of P(p | y) ∝ p⁻²·P(y | p).

    That a record is new only because y passed a threshold changes nothing: given y, that it passed
    is certain, and says no more of p. But there are many more rare records than frequent ones, so
    that what passed is more likely a rarer one in luck; p⁻² says by how much.
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


def _level(state: FilterState, optin: Observed, clients: Observed) -> FloatArray:
    """A level of p at which variances are worked out.

    Not at one group's own p̂, which would give weight to what happens to be low, nor only at the
    mean so far, which a jump leaves behind: at what all of them say together.
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


def _likely(odds: FloatArray) -> list[tuple[int, int]]:
    """Which motions move the states."""
    order = np.argsort(-odds, axis=None, kind="stable")[:MOST_MOTIONS]
    chosen = order[odds.ravel()[order] > NEGLIGIBLE]
    return list(zip(*(i.tolist() for i in np.unravel_index(chosen, odds.shape)), strict=True))


def _moved(state: FilterState, optin: Observed, clients: Observed, tau: float) -> FilterState:
    """Every record after this epoch: the likely modes' states, with their first two moments."""
    level = _level(state, optin, clients)
    spread = level * (1 - level)
    at_o, at_c = spread / np.maximum(optin.users, 1), spread / np.maximum(clients.users, 1)
    scouts = state.scouts.chosen(state.mean, state.covariance, optin.users, optin.seen)
    rows = scouts.rows
    seen = optin.at(rows), clients.at(rows), (at_o[rows], at_c[rows])
    common = scouts.common_change(*seen)
    scouts = scouts.advanced(*seen, level[rows], common, tau)
    modes = scouts.modes
    odds, rates = modes.by_motion(scouts.weights)
    m = np.maximum(state.mean[P], 0.0)
    leap = np.maximum(m, level) ** 2
    total = np.zeros(state.size)
    first, second = np.zeros_like(state.mean), np.zeros_like(state.covariance)
    within = np.zeros_like(state.mean)
    for a, b in _likely(odds):
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
        # The scouts have been followed under every mode from the start: nothing was merged away.
        mean[:, rows], second[:, :, rows] = scouts.merged()
    return FilterState(mean, second, scouts)
