"""Estimate the clients' share of each listed record from both groups, which may differ.

The published quantity is the share p_C of each record among *clients*. Opt-in counts estimate p_O,
which predicts p_C only as far as the groups are alike. The list itself shows how alike they are:

    p_C = p_O·f(record)·(1 + ξ),    f = e^(β₀ + β₁·x),   ξ of mean 0 and variance τ²

f is the general difference between the groups (opt-in users search more, or like rare records less;
x = log of the opt-in share, standardised). τ is the spread of single records around f; it adds to
the opt-in group's variance before the groups are weighed. A few records fit neither: with
probability η a record is an *outlier*, with a standard deviation of 1 or more in ln(p_C/p_O). An
outlier does not widen τ for the other records, and its estimate falls back on the clients'.

Promises: post-processing only. All four unknowns come from released numbers, and every interval
contains their uncertainty: the estimates average over the posterior of τ and η, and add the
variance of β.
Assumes: fewer than half of the records are outliers; the two groups answered independently. Forged
reports look like any other difference: `ClientPosterior.outlier_probability` shows which records
differ, not why.
Symbols: m, v = mean and variance of p_O (`OptinPosterior`); c, σ²(p) = the clients' estimate and
its variance at p; β, τ, η as above.

Decision: docs/decisions/0026-groups-may-differ.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from blendstream.blender.sharp.optin_posterior import OptinPosterior
from blendstream.blender.values.arrays import FloatArray
from blendstream.blender.values.intervals import Z_95

__all__ = ["ClientPosterior", "Difference", "estimate_client_shares"]

#: Grids of τ and η, and the scales of their priors. τ has a half-Cauchy prior: in half of all cases
#: records differ by less than 10 %. η has P(η > x) = 1/(1 + 200·x): in half of all cases fewer than
#: one record in 200 is an outlier, in one of 40 more than a fifth. The priors matter where clients
#: have little information (ε = 1). A larger TYPICAL_TAU would widen intervals there though the
#: groups agree; a smaller one would trust opt-in users whose difference the list cannot show.
TAUS = np.array(
    [0.005, 0.02, 0.03, 0.045, 0.065, 0.09, 0.12, 0.16, 0.2, 0.25, 0.32, 0.4, 0.5, 0.65, 0.85, 1.1]
)
ETAS = np.array([1e-4, 0.003, 0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3])
TYPICAL_TAU, TYPICAL_ETA = 0.1, 1 / 200

#: Prior standard deviations of β₀ and β₁. Clients usually determine both to 0.02; then the prior
#: has no effect.
TREND = np.array([0.1, 0.05])

#: Standard deviation of ln(p_C/p_O) of outliers: three times, or a third, is within 1.1.
_OUTLIER_SPREAD = 1.0

#: The grid of p of each record: so many points around each of three centres, as far as so many
#: standard deviations.
_REACH, _POINTS = 6.0, 49

#: Records processed together; some megabytes.
_BLOCK = 1000

#: Smaller weights of (τ, η) are skipped: together they change no digit that is published.
_NEGLIGIBLE = 1e-5

_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between the two groups, estimated from one list.

    `typical` is the relative difference of a record's share between the groups, a root mean square
    over the listed records that are no outliers; `low` and `high` are its 95 % interval. `common`
    is the general factor between clients and opt-in users, `spread` is τ.
    """

    typical: float
    low: float
    high: float
    common: float
    spread: float


@dataclass(frozen=True, slots=True)
class ClientPosterior:
    """The posterior of the clients' share of each listed record, given both groups' numbers.

    `low` and `high` are its 95 % interval. `outlier_probability` is the probability that the record
    is an outlier. `predicted_low` to `predicted_high` is the 95 % interval that opt-in users'
    counts alone predict for a record that is none.
    """

    mean: FloatArray
    variance: FloatArray
    low: FloatArray
    high: FloatArray
    outlier_probability: FloatArray
    predicted_low: FloatArray
    predicted_high: FloatArray
    difference: Difference


def estimate_client_shares(
    optin: OptinPosterior, estimate: FloatArray, variance_at: Callable[[FloatArray], FloatArray]
) -> ClientPosterior:
    """Return p_C of each listed record; `estimate` and `variance_at(p)` are the clients' own."""
    variance = _quadratic(variance_at, len(estimate))
    f, f_variance, trend = _general_factor(optin, estimate, variance)
    m = optin.mean * f
    v = optin.variance * f**2 + m**2 * f_variance
    size = len(m)
    parts = [slice(start, start + _BLOCK) for start in range(0, size, _BLOCK)]

    # First pass: the posterior of (τ, η), from all records together. Second pass: each record,
    # averaged over that posterior.
    typical, outlier = np.empty((len(TAUS), size)), np.empty(size)
    for part in parts:
        record = _Records(m[part], v[part], estimate[part], [a[part] for a in variance])
        outlier[part] = record.outlier.sum(axis=1)
        for i, tau in enumerate(TAUS):
            typical[i, part] = record.typical(tau).sum(axis=1)
    weights = _weights(typical, outlier)
    mean, spread, low, high = (np.empty(size) for _ in range(4))
    for part in parts:
        record = _Records(m[part], v[part], estimate[part], [a[part] for a in variance])
        posterior = record.mixture(weights, typical[:, part], outlier[part])
        mean[part] = (posterior * record.p).sum(axis=1)
        spread[part] = (posterior * (record.p - mean[part, np.newaxis]) ** 2).sum(axis=1)
        below = np.cumsum(posterior, axis=1) - posterior / 2
        low[part], high[part] = (_quantiles(below, record.p, q) for q in (0.025, 0.975))
    tau_weights = weights.sum(axis=1)
    tau_2 = float(tau_weights @ TAUS**2)
    # Nearly log-normal, with the mean and variance of `_Records.typical`.
    reach = np.exp(Z_95 * np.sqrt(np.log1p((v + tau_2 * (m**2 + v)) / m**2)))
    return ClientPosterior(
        mean,
        spread,
        low,
        high,
        _outlier_probability(weights, typical, outlier),
        m / reach,
        np.minimum(m * reach, 1.0),
        _difference(tau_weights, trend, f),
    )


def _difference(tau_weights: FloatArray, trend: FloatArray, f: FloatArray) -> Difference:
    general = float(np.mean((f - 1) ** 2))
    below = np.cumsum(tau_weights)
    low, high = (float(TAUS[np.searchsorted(below, q)]) for q in (0.025, 0.975))
    tau = float(np.sqrt(tau_weights @ TAUS**2))
    typical = [float(np.sqrt(general + t**2)) for t in (tau, low, high)]
    return Difference(
        typical[0], min(typical[:2]), max(typical[0], typical[2]), float(np.exp(trend[0])), tau
    )


class _Records:
    """Some records, each with its own grid of p, the clients' likelihood and the opt-in prior."""

    def __init__(
        self, m: FloatArray, v: FloatArray, estimate: FloatArray, variance: list[FloatArray]
    ) -> None:
        from scipy.special import gammaln  # noqa: PLC0415

        self._gammaln: Callable[[FloatArray], FloatArray] = gammaln
        column = np.newaxis
        self._m, self._v = m[:, column], v[:, column]
        self.p = _points(m, v, estimate, variance)
        at = _variance_at(variance, self.p)
        log_client = -((estimate[:, column] - self.p) ** 2) / (2 * at) - np.log(at) / 2
        log_client -= log_client.max(axis=1, keepdims=True)
        widths = np.zeros_like(self.p)
        steps = np.diff(self.p, axis=1) / 2
        widths[:, 1:] += steps
        widths[:, :-1] += steps
        self._client = np.exp(log_client) * widths
        self._log_p = np.log(self.p)
        # ln(p_C) of an outlier is normal; the uncertainty of m and the outliers' spread add up.
        wide = np.log1p(self._v / self._m**2) + _OUTLIER_SPREAD**2
        distance = (self._log_p - np.log(self._m)) ** 2 / (2 * wide)
        lognormal = np.exp(-distance - self._log_p) / np.sqrt(2 * np.pi * wide)
        self.outlier = lognormal * self._client

    def typical(self, tau: float) -> FloatArray:
        """Return opt-in prior × clients' likelihood if p_C = m·(1 + ξ) with this τ.

        m is a mean of counts, so p_C is modelled as a Gamma variable of mean m and variance
        v + τ²·(m² + v): never negative, and exact where m is a count alone.
        """
        variance = self._v + tau**2 * (self._m**2 + self._v)
        shape, scale = self._m**2 / variance, variance / self._m
        log_gamma = (shape - 1) * self._log_p - self.p / scale
        log_gamma -= shape * np.log(scale) + self._gammaln(shape)
        return np.asarray(np.exp(log_gamma) * self._client)

    def mixture(self, weights: FloatArray, typical: FloatArray, outlier: FloatArray) -> FloatArray:
        """Return the posterior of p_C, a row per record, averaged over all τ and η."""
        posterior = np.zeros_like(self.p)
        outside = np.zeros(len(self.p))
        for i in np.flatnonzero(weights.sum(axis=1) > _NEGLIGIBLE):
            inside = np.zeros(len(self.p))
            for j, total in _totals(weights, typical, outlier, int(i)):
                inside += weights[i, j] * (1 - ETAS[j]) / total
                outside += weights[i, j] * ETAS[j] / total
            posterior += inside[:, np.newaxis] * self.typical(TAUS[i])
        posterior += outside[:, np.newaxis] * self.outlier
        return np.asarray(posterior / np.maximum(posterior.sum(axis=1, keepdims=True), _TINY))


def _points(
    m: FloatArray, v: FloatArray, estimate: FloatArray, variance: list[FloatArray]
) -> FloatArray:
    """Return p around both groups' estimates and their blend; ascending, above 0."""
    deviation = np.sqrt(_variance_at(variance, np.clip(np.maximum(m, estimate), 1e-12, 1.0)))
    precision = np.stack([1 / deviation**2, 1 / v])
    meeting = (precision * np.stack([estimate, m])).sum(axis=0) / precision.sum(axis=0)
    centres = (
        (estimate, deviation), (m, np.sqrt(v)), (meeting, 1 / np.sqrt(precision.sum(axis=0))),
    )  # fmt: skip
    reach = np.linspace(-_REACH, _REACH, _POINTS)
    points = [c[:, np.newaxis] + reach * s[:, np.newaxis] for c, s in centres]
    lowest = 1e-3 * np.minimum(m, deviation)[:, np.newaxis]
    return np.asarray(np.clip(np.sort(np.concatenate(points, axis=1), axis=1), lowest, 1.0))


def _general_factor(
    optin: OptinPosterior, estimate: FloatArray, variance: list[FloatArray]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Fit f of each record, the variance of ln f, and β by iterated weighted least squares.

    Weights are 1/(σ² + v + τ²m²), times the probability that a record is no outlier; τ and that
    probability come from the residuals of the previous iteration, taken as normal.
    """
    log_m = np.log(optin.mean)
    x = np.stack([np.ones(len(log_m)), (log_m - log_m.mean()) / max(log_m.std(), 1e-9)], axis=1)
    beta, prior = np.zeros(2), np.diag(1 / TREND**2)
    covariance = np.diag(TREND**2)
    outlier_variance = np.expm1(_OUTLIER_SPREAD**2)
    for _ in range(8):
        f = np.exp(x @ beta)
        m, v = optin.mean * f, optin.variance * f**2
        own = _variance_at(variance, np.clip(m, 1e-12, 1.0)) + v
        residual = estimate - m
        typical, outlier = _normal(
            residual, own, m**2 * TAUS[:, np.newaxis] ** 2, outlier_variance * m**2
        )
        weights = _weights(typical, outlier)
        tau_2 = float(weights.sum(axis=1) @ TAUS**2)
        weight = (1 - _outlier_probability(weights, typical, outlier)) / (own + tau_2 * m**2)
        slope = x * m[:, np.newaxis]  # d(m·e^(β·x))/dβ
        covariance = np.linalg.inv((slope * weight[:, np.newaxis]).T @ slope + prior)
        before = beta
        beta = covariance @ (slope.T @ (weight * (residual + slope @ beta)))
        if float(np.abs(beta - before).max()) < 1e-3:
            break
    return np.exp(x @ beta), np.einsum("ij,jk,ik->i", x, covariance, x), beta


def _weights(typical: FloatArray, outlier: FloatArray) -> FloatArray:
    """P(τ, η | list): prior × Π over records of (1−η)·P(record | τ) + η·P(record | outlier)."""
    between = np.sqrt(TAUS[1:] * TAUS[:-1])
    prior_tau = np.diff(np.arctan(np.concatenate([[0.0], between, [1.3]]) / TYPICAL_TAU))
    between = np.sqrt(ETAS[1:] * ETAS[:-1])
    prior_eta = -np.diff(1 / (1 + np.concatenate([[0.0], between, [0.4]]) / TYPICAL_ETA))
    fit = np.empty((len(TAUS), len(ETAS)))
    for j, eta in enumerate(ETAS):
        fit[:, j] = np.log((1 - eta) * typical + eta * outlier + _TINY).sum(axis=1)
    log_weight = fit + np.log(prior_tau)[:, np.newaxis] + np.log(prior_eta)
    weight = np.exp(log_weight - log_weight.max())
    return np.asarray(weight / weight.sum())


def _totals(
    weights: FloatArray, typical: FloatArray, outlier: FloatArray, i: int
) -> Iterator[tuple[int, FloatArray]]:
    """For τ number i and each η that matters: the number of η, and P(record | τ, η)."""
    for j in np.flatnonzero(weights[i] > _NEGLIGIBLE / len(ETAS)):
        yield int(j), (1 - ETAS[j]) * typical[i] + ETAS[j] * outlier + _TINY


def _outlier_probability(
    weights: FloatArray, typical: FloatArray, outlier: FloatArray
) -> FloatArray:
    """Return each record's probability of being an outlier."""
    probability = np.zeros(len(outlier))
    for i in np.flatnonzero(weights.sum(axis=1) > _NEGLIGIBLE):
        for j, total in _totals(weights, typical, outlier, int(i)):
            probability += weights[i, j] * ETAS[j] * outlier / total
    return np.clip(probability, 0.0, 1.0)


def _normal(
    residual: FloatArray, own: FloatArray, typical: FloatArray, outlier: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the normal densities of each residual, for every τ and for an outlier.

    `typical` and `outlier` are the variances that the difference between the groups adds to `own`.
    Each record's densities are divided by the largest of them, since all could underflow.
    """
    variance = own + np.concatenate([typical, outlier[np.newaxis]])
    log_density = -(residual**2) / (2 * variance) - np.log(variance) / 2
    density = np.exp(log_density - log_density.max(axis=0))
    return density[:-1], density[-1]


def _quadratic(variance_at: Callable[[FloatArray], FloatArray], size: int) -> list[FloatArray]:
    """Return a, b and c of σ²(p) = a + b·p + c·p²; a sum of indicators has a quadratic variance."""
    at_0, at_half, at_1 = (variance_at(np.full(size, p)) for p in (0.0, 0.5, 1.0))
    c = 2 * (at_1 + at_0 - 2 * at_half)
    return [at_0, at_1 - at_0 - c, c]


def _variance_at(variance: list[FloatArray], p: FloatArray) -> FloatArray:
    a, b, c = (x[:, np.newaxis] if p.ndim == 2 else x for x in variance)
    return np.asarray(np.maximum(a + p * (b + c * p), 1e-30))


def _quantiles(below: FloatArray, p: FloatArray, at: float) -> FloatArray:
    return np.array([np.interp(at, row, points) for row, points in zip(below, p, strict=True)])
