"""Which mode is right: the larger records are followed once under every mode.

A mode that says "no drift" and one that says "drifts by 2 % an epoch" foretell nearly the same for
the next epoch; only over many do they part. So the largest records, the *scouts*, have a state of
their own under every mode, and a mode's weight is how well its states have foretold the scouts so
far. All other records are then moved by these weights (`blender.over_time.filter.epoch_filter`).

The world may change, so a mode is left for another one with probability ν each epoch ("interacting
multiple models"): a mode of small weight w continues from

    (w(1−ν)·x + w⁰ν·x̄) / (w(1−ν) + w⁰ν)

with x its own state, x̄ the average of all and w⁰ its weight before anything was seen, and the
weight itself becomes the denominator. So a mode that was long wrong starts again from where the
others are.

Promises: post-processing only. One record moves the odds of two modes by at most e^LOG_CAP in an
epoch: a forged one cannot move them all.
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
    Observed,
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

#: How often the world changes from one mode to another: what was learned a hundred epochs ago
#: counts little. Higher forgets sooner and is never sure; lower is slow to notice.
SWITCH = 0.01

#: A record may be a scout from this many expected holders on; fewer say little, and not normally.
LEAST_HOLDERS = 20

#: How many scouts at most. Two hundred tell drift to a tenth in ten epochs; each costs as much as
#: hundreds of other records.
MOST_SCOUTS = 200

#: How often all records change alike, and by which part of themselves; and from how many scouts on
#: that is looked for.
_COMMON_RATE, _COMMON, _FEWEST = 0.02, 0.1, 10

#: The most that one record says against a mode, as a logarithm.
LOG_CAP = 4.0


@dataclass(frozen=True, slots=True)
class ReferenceRecords:
    """`rows` are the scouts' places among all records; states by mode and scout, flattened."""

    rows: NDArray[np.int64]
    mean: FloatArray
    covariance: FloatArray
    weights: FloatArray
    modes: FilterModes

    def __post_init__(self) -> None:
        """Refuse a state that is not finite, with the number of its record among all."""
        try:
            lanes = len(self.weights), len(self.rows)
            require_finite("a scout's mean", self.mean.reshape(SIZE, *lanes))
            require_finite("a scout's covariance", self.covariance.reshape(SIZE, SIZE, *lanes))
        except NotFinite as error:
            raise NotFinite(error.quantity, int(self.rows[error.record])) from None
        # All scouts together decide the weights: no single record is to blame.
        if not np.isfinite(self.weights).all():
            raise ParameterError("the weights of the modes must be finite")

    @classmethod
    def none(cls, modes: FilterModes) -> ReferenceRecords:
        """Before the first publication."""
        nothing = np.zeros((SIZE, 0)), np.zeros((SIZE, SIZE, 0))
        return cls(np.zeros(0, dtype=np.int64), *nothing, modes.prior, modes)

    def chosen(
        self, mean: FloatArray, covariance: FloatArray, users: FloatArray, seen: NDArray[np.bool_]
    ) -> ReferenceRecords:
        """The largest of all records, new scouts from where all modes together see them.

        An epoch that says nothing of any record leaves the scouts as they are.
        """
        if not seen.any():
            return self
        large = np.flatnonzero(seen & (mean[P] * users >= LEAST_HOLDERS))
        rows = np.sort(large[np.argsort(-mean[P][large], kind="stable")[:MOST_SCOUTS]])
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

    def renumbered(self, place: NDArray[np.int64]) -> ReferenceRecords:
        """After records were forgotten: record i is now at place[i], or gone (−1)."""
        rows = place[self.rows]
        stay = rows >= 0
        shape = len(self.weights), len(self.rows)
        mean = self.mean.reshape(SIZE, *shape)[:, :, stay].reshape(SIZE, -1)
        covariance = self.covariance.reshape(SIZE, SIZE, *shape)[:, :, :, stay]
        return ReferenceRecords(
            rows[stay], mean, covariance.reshape(SIZE, SIZE, -1), self.weights, self.modes
        )

    def advanced(
        self,
        optin: Observed,
        clients: Observed,
        sampling: tuple[FloatArray, FloatArray],
        reached: FloatArray,
        common: tuple[float, float],
        tau: float,
    ) -> ReferenceRecords:
        """After one more epoch; all arguments run over the scouts.

        `reached` is about where p is now, by all that is seen; `common` is c with its variance.
        """
        modes, scouts = len(self.weights), len(self.rows)
        if scouts == 0:
            return self
        mean, covariance, prior = self._mixed()
        h, lag, habit, kappa, rate = (np.repeat(c, scouts) for c in self.modes.columns)

        def over_modes(values: FloatArray) -> FloatArray:
            return np.tile(values, modes)

        def group(of: Observed) -> Observed:
            return Observed(*(over_modes(a) for a in (of.share, of.users, of.noise)))

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
        by_scout = both.reshape(modes, scouts)
        capped = np.maximum(by_scout - by_scout.max(axis=0), -LOG_CAP).sum(axis=1)
        weights = prior * np.exp(capped - capped.max())
        return ReferenceRecords(self.rows, mean, c0, weights / weights.sum(), self.modes)

    def common_change(
        self, optin: Observed, clients: Observed, sampling: tuple[FloatArray, FloatArray]
    ) -> tuple[float, float]:
        """c and its variance: by which part of themselves all records have changed alike.

        Under the likeliest mode each y should be off by x·c, x being how much of a change it shows.
        Least squares over all scouts, in which records that are far off count less (Huber).
        """
        scouts = len(self.rows)
        if scouts < _FEWEST:
            return 0.0, 0.0
        likeliest = int(np.argmax(self.weights))
        h, lag, habit, kappa, _ = (float(c[likeliest]) for c in self.modes.columns)
        lanes = slice(likeliest * scouts, (likeliest + 1) * scouts)
        state = self.mean[:, lanes], self.covariance[:, :, lanes]
        level = np.maximum(state[0][P], 0.0)
        motion = Motion(h, lag, habit, self.modes.client_stay(h, habit), *sampling)
        mean, c = predict(*state, motion, kappa**2 * level**2)
        # What y_O and y_C are off by, made independent and of variance 1.
        o, k = np.array([1.0, 1.0, habit, 1.0, 0.0]), np.array([1.0, 0.0, 0.0, 0.0, 1.0])
        exact_o, exact_c = (np.einsum("i,ijr,j->r", v, c, v) for v in (o, k))
        oo = innovation(c, exact_o) + optin.noise
        # A y that is missing has no part in the sum: its terms are 0, never NaN.
        told = optin.seen
        part = np.where(told, np.einsum("i,ijr,j->r", o, c, k) / oo, 0.0)
        left = innovation(c, exact_c - part**2 * oo) + clients.noise
        off = np.where(told, optin.share - o @ mean, 0.0)
        shows = np.where(told, (1 - lag - habit) * level, 0.0)
        seen = clients.seen
        off_c = np.where(seen, clients.share - k @ mean - part * off, 0.0)
        shows_c = np.where(seen, level - part * shows, 0.0)
        e = np.concatenate([off / np.sqrt(oo), off_c / np.sqrt(left)])
        x = np.concatenate([shows / np.sqrt(oo), shows_c / np.sqrt(left)])
        change, weight = 0.0, np.ones_like(e)
        for _ in range(8):
            change = float((weight * x * e).sum() / max(float((weight * x * x).sum()), 1e-300))
            weight = np.minimum(1.0, 2 / np.maximum(np.abs(e - x * change), 1e-9))
        variance = 1 / max(float((weight * x * x).sum()), 1e-300)
        # Most epochs have no such change: it counts in proportion to how likely one is.
        wide = variance + _COMMON**2
        odds = _COMMON_RATE / (1 - _COMMON_RATE) * np.sqrt(variance / wide)
        odds *= np.exp(min(50.0, change**2 / 2 * (1 / variance - 1 / wide)))
        likely = float(odds / (1 + odds))
        inner = _COMMON**2 / wide
        mean_change = inner * change
        return (
            likely * mean_change,
            likely * (inner * variance + (1 - likely) * mean_change**2),
        )

    def merged(self) -> tuple[FloatArray, FloatArray]:
        """Each scout's mean and covariance, over all modes."""
        mean, covariance = self._by_mode(len(self.weights))
        average, spread, _ = _merge(self.weights[np.newaxis], mean, covariance)
        return average[:, 0], spread[:, :, 0]

    def _by_mode(self, modes: int) -> tuple[FloatArray, FloatArray]:
        """States as [i, (j,) one group of modes, mode, scout]."""
        groups, scouts = len(self.weights) // modes, len(self.rows)
        return (
            self.mean.reshape(SIZE, groups, modes, scouts),
            self.covariance.reshape(SIZE, SIZE, groups, modes, scouts),
        )

    def _mixed(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """States and weights after the world may have changed its mode.

        Records change how they move; people do not change how they stay. So states are mixed among
        modes of one way of staying only: the others' are not about the same thing.
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
    """Mean and covariance over the modes of each group, and how far each mode is from the mean."""
    average = np.einsum("gk,igkr->igr", weights, mean)
    off = mean - average[:, :, np.newaxis]
    spread = np.einsum("gk,ijgkr->ijgr", weights, covariance)
    spread += np.einsum("gk,igkr,jgkr->ijgr", weights, off, off)
    return average, spread, off
