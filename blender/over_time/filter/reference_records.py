"""Learn the weights of the modes from reference records, which have a state under every mode.

Modes with no drift and with 2 % drift per epoch predict nearly the same next epoch; they diverge
only over many epochs. Therefore the largest records, the *reference records*, keep a separate state
under every mode, and a mode's weight is the likelihood of their observations so far. All other
records are updated with these weights (`blender.over_time.filter.epoch_filter`).

The world may change: each epoch the mode switches with probability ν (the interacting multiple
model, IMM). A mode of small weight w continues from

    (w(1−ν)·x + w⁰ν·x̄) / (w(1−ν) + w⁰ν)

with x its own state, x̄ the average of all modes and w⁰ its prior weight, and the denominator
becomes its weight. So a mode that was wrong for long restarts from the state of the others.

Promises: post-processing only. One record changes the odds of two modes by at most a factor
e^LOG_CAP per epoch, so a single forged record cannot decide them.
Symbols: w = weights, ν = SWITCH; the others as in `filter_model`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.over_time.filter.filter_model import (
    SIZE,
    D,
    Motion,
    Observation,
    P,
    absorb_clients,
    absorb_optin,
    innovation,
    predict,
    require_finite,
)
from blendstream.blender.over_time.filter.filter_modes import FilterModes
from blendstream.blender.values.arrays import FloatArray
from blendstream.blender.values.errors import NotFinite, ParameterError

__all__ = ["ReferenceRecords"]

#: Probability per epoch that the mode changes: evidence a hundred epochs old has little weight. A
#: higher value forgets sooner and is never certain; a lower one is slow to react.
SWITCH = 0.01

#: Least number of expected holders of a reference record. Fewer holders carry little information,
#: and their counts are not normal.
LEAST_HOLDERS = 20

#: Most reference records. Two hundred determine drift to a tenth in ten epochs; each costs as much
#: as hundreds of other records.
MAX_REFERENCE_RECORDS = 200

#: Probability per epoch of a change common to all records, the standard deviation of its factor,
#: and the fewest reference records from which it is estimated.
_COMMON_RATE, _COMMON_SPREAD, _FEWEST = 0.02, 0.1, 10

#: Largest log-likelihood ratio by which one record counts against a mode in an epoch.
LOG_CAP = 4.0


@dataclass(frozen=True, slots=True)
class ReferenceRecords:
    """States of the reference records by mode, flattened; `rows` index them among all records."""

    rows: NDArray[np.int64]
    mean: FloatArray
    covariance: FloatArray
    weights: FloatArray
    modes: FilterModes

    def __post_init__(self) -> None:
        """Refuse a state that is not finite; the error has the record's number among all."""
        try:
            lanes = len(self.weights), len(self.rows)
            covariance = self.covariance.reshape(SIZE, SIZE, *lanes)
            require_finite("a reference record's mean", self.mean.reshape(SIZE, *lanes))
            require_finite("a reference record's covariance", covariance)
        except NotFinite as error:
            raise NotFinite(error.quantity, int(self.rows[error.record])) from None
        # All reference records together decide the weights, so this error names no single one.
        if not np.isfinite(self.weights).all():
            raise ParameterError("the weights of the modes must be finite")

    @classmethod
    def empty(cls, modes: FilterModes) -> ReferenceRecords:
        """Return the state before the first publication."""
        nothing = np.zeros((SIZE, 0)), np.zeros((SIZE, SIZE, 0))
        return cls(np.zeros(0, dtype=np.int64), *nothing, modes.prior, modes)

    def select(
        self, mean: FloatArray, covariance: FloatArray, users: FloatArray, seen: NDArray[np.bool_]
    ) -> ReferenceRecords:
        """Select the largest records as reference records.

        A newly selected one starts, under every mode, from its state in the filter of all records.
        Without observations in this epoch, the selection does not change.
        """
        if not seen.any():
            return self
        large = np.flatnonzero(seen & (mean[P] * users >= LEAST_HOLDERS))
        rows = np.sort(large[np.argsort(-mean[P][large], kind="stable")[:MAX_REFERENCE_RECORDS]])
        modes = len(self.weights)
        kept, place = np.isin(rows, self.rows), np.searchsorted(self.rows, rows)
        means = np.repeat(mean[:, np.newaxis, rows], modes, axis=1)
        covariances = np.repeat(covariance[:, :, np.newaxis, rows], modes, axis=2)
        old = place[kept]
        shape = modes, len(self.rows)
        means[:, :, kept] = self.mean.reshape(SIZE, *shape)[:, :, old]
        covariances[:, :, :, kept] = self.covariance.reshape(SIZE, SIZE, *shape)[:, :, :, old]
        return ReferenceRecords(
            rows, means.reshape(SIZE, -1), covariances.reshape(SIZE, SIZE, -1), self.weights,
            self.modes,
        )  # fmt: skip

    def renumber(self, place: NDArray[np.int64]) -> ReferenceRecords:
        """Renumber after records were forgotten: record i is now at place[i], −1 if forgotten."""
        rows = place[self.rows]
        stay = rows >= 0
        shape = len(self.weights), len(self.rows)
        mean = self.mean.reshape(SIZE, *shape)[:, :, stay].reshape(SIZE, -1)
        covariance = self.covariance.reshape(SIZE, SIZE, *shape)[:, :, :, stay]
        return ReferenceRecords(
            rows[stay], mean, covariance.reshape(SIZE, SIZE, -1), self.weights, self.modes
        )

    def advance(
        self,
        optin: Observation,
        clients: Observation,
        sampling: tuple[FloatArray, FloatArray],
        reached: FloatArray,
        common: tuple[float, float],
        tau: float,
    ) -> ReferenceRecords:
        """Update after one more epoch; all arguments are parallel to the reference records.

        `reached` is a first estimate of p in this epoch; `common` is the mean and variance of c.
        """
        modes, size = len(self.weights), len(self.rows)
        if size == 0:
            return self
        mean, covariance, prior = self._mix()
        h, lag, habit, kappa, rate = (np.repeat(c, size) for c in self.modes.columns)

        def over_modes(values: FloatArray) -> FloatArray:
            return np.tile(values, modes)

        def group(of: Observation) -> Observation:
            return Observation(*(over_modes(a) for a in (of.share, of.users, of.noise)))

        in_optin, in_clients = group(optin), group(clients)
        client_stay = self.modes.client_stay(h, habit)
        motion = Motion(h, lag, habit, client_stay, *(over_modes(v) for v in sampling))
        level = np.maximum(mean[P], 0.0)
        parts = []
        leap = np.maximum(level, over_modes(reached)) ** 2
        for jumped in (0.0, leap):
            q = (kappa**2 + common[1]) * level**2 + jumped
            m, c = predict(mean, covariance, motion, q, common[0] * level)
            c[D, D] += tau**2 * jumped
            likely = absorb_optin(m, c, in_optin, habit)
            likely += absorb_clients(m, c, in_clients)
            parts.append((m, c, likely))
        (m0, c0, l0), (m1, c1, l1) = parts
        l0, l1 = l0 + np.log1p(-rate), l1 + np.log(rate)
        both = np.logaddexp(l0, l1)
        jump = np.exp(l1 - both)
        off = m1 - m0
        mean = m0 + jump * off
        for i in range(SIZE):
            c0[i] += jump * (c1[i] - c0[i]) + (jump * (1 - jump) * off[i]) * off
        by_record = both.reshape(modes, size)
        capped = np.maximum(by_record - by_record.max(axis=0), -LOG_CAP).sum(axis=1)
        weights = prior * np.exp(capped - capped.max())
        return ReferenceRecords(self.rows, mean, c0, weights / weights.sum(), self.modes)

    def common_change(
        self, optin: Observation, clients: Observation, sampling: tuple[FloatArray, FloatArray]
    ) -> tuple[float, float]:
        """Estimate c and its variance: the relative change common to all records.

        Under the likeliest mode the residual of each y is x·c plus noise, where x is its
        sensitivity to such a change. Robust least squares over all reference records (Huber
        weights).
        """
        size = len(self.rows)
        if size < _FEWEST:
            return 0.0, 0.0
        likeliest = int(np.argmax(self.weights))
        h, lag, habit, kappa, _ = (float(c[likeliest]) for c in self.modes.columns)
        lanes = slice(likeliest * size, (likeliest + 1) * size)
        state = self.mean[:, lanes], self.covariance[:, :, lanes]
        level = np.maximum(state[0][P], 0.0)
        motion = Motion(h, lag, habit, self.modes.client_stay(h, habit), *sampling)
        mean, c = predict(*state, motion, kappa**2 * level**2)
        # Residuals of y_O and y_C, decorrelated and scaled to variance 1.
        o, k = np.array([1.0, 1.0, habit, 1.0, 0.0]), np.array([1.0, 0.0, 0.0, 0.0, 1.0])
        exact_o, exact_c = (np.einsum("i,ijr,j->r", v, c, v) for v in (o, k))
        oo = innovation(c, exact_o) + optin.noise
        # The terms of a missing y are 0, never NaN.
        seen_o = optin.seen
        part = np.where(seen_o, np.einsum("i,ijr,j->r", o, c, k) / oo, 0.0)
        left = innovation(c, exact_c - part**2 * oo) + clients.noise
        off = np.where(seen_o, optin.share - o @ mean, 0.0)
        shift = np.where(seen_o, (1 - lag - habit) * level, 0.0)
        seen_c = clients.seen
        off_c = np.where(seen_c, clients.share - k @ mean - part * off, 0.0)
        shift_c = np.where(seen_c, level - part * shift, 0.0)
        e = np.concatenate([off / np.sqrt(oo), off_c / np.sqrt(left)])
        x = np.concatenate([shift / np.sqrt(oo), shift_c / np.sqrt(left)])
        change, weight = 0.0, np.ones_like(e)
        for _ in range(8):
            change = float((weight * x * e).sum() / max(float((weight * x * x).sum()), 1e-300))
            weight = np.minimum(1.0, 2 / np.maximum(np.abs(e - x * change), 1e-9))
        variance = 1 / max(float((weight * x * x).sum()), 1e-300)
        # Most epochs have no such change: shrink the estimate by the probability that there is one.
        wide = variance + _COMMON_SPREAD**2
        odds = _COMMON_RATE / (1 - _COMMON_RATE) * np.sqrt(variance / wide)
        odds *= np.exp(min(50.0, change**2 / 2 * (1 / variance - 1 / wide)))
        likely = float(odds / (1 + odds))
        inner = _COMMON_SPREAD**2 / wide
        mean_change = inner * change
        return (
            likely * mean_change,
            likely * (inner * variance + (1 - likely) * mean_change**2),
        )

    def merge(self) -> tuple[FloatArray, FloatArray]:
        """Return each record's mean and covariance, mixed over all modes."""
        mean, covariance = self._by_mode(len(self.weights))
        average, spread, _ = _merge(self.weights[np.newaxis], mean, covariance)
        return average[:, 0], spread[:, :, 0]

    def _by_mode(self, modes: int) -> tuple[FloatArray, FloatArray]:
        """Return the states as [i, (j,) group of modes, mode, record]."""
        groups, size = len(self.weights) // modes, len(self.rows)
        return (
            self.mean.reshape(SIZE, groups, modes, size),
            self.covariance.reshape(SIZE, SIZE, groups, modes, size),
        )

    def _mix(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mix states and weights for a possible change of mode.

        Drift and jumps may change; retention does not. So states are mixed only among the modes of
        one retention: under different ones they describe different quantities.
        """
        ways = self.modes.shape[0]
        mean, covariance = self._by_mode(len(self.weights) // ways)
        weights, before = (w.reshape(ways, -1) for w in (self.weights, self.modes.prior))
        prior = (1 - SWITCH) * self.weights + SWITCH * self.modes.prior
        within = np.maximum(weights, 1e-300)
        within = within / within.sum(axis=1, keepdims=True)
        fresh = SWITCH * before / before.sum(axis=1, keepdims=True)
        own = ((1 - SWITCH) * within / ((1 - SWITCH) * within + fresh))[:, :, np.newaxis]
        average, spread, off = _merge(within, mean, covariance)
        new_mean = average[:, :, np.newaxis] + own * off
        new = own * covariance + (1 - own) * spread[:, :, :, np.newaxis]
        new += (own * (1 - own)) * off[:, np.newaxis] * off[np.newaxis]
        return new_mean.reshape(SIZE, -1), new.reshape(SIZE, SIZE, -1), prior


def _merge(
    weights: FloatArray, mean: FloatArray, covariance: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return mean and covariance over each group's modes, and each mode's offset from the mean."""
    average = np.einsum("gk,igkr->igr", weights, mean)
    off = mean - average[:, :, np.newaxis]
    spread = np.einsum("gk,ijgkr->ijgr", weights, covariance)
    spread += np.einsum("gk,igkr,jgkr->ijgr", weights, off, off)
    return average, spread, off
