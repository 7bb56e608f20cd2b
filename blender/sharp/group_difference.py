"""By how much opt-in users differ from other people, and how much their counts still weigh.

The published quantity is the *clients'* share p_C of each record. Opt-in users' counts tell p_O,
which is as good as p_C only if the groups are alike. How alike they are is seen in the list itself:

    p_C = p_O·f(record)·(1 + ξ),    f = e^(β₀ + β₁·x),   ξ of mean 0 and variance τ²

f is what the groups differ by in general (opt-in users search more, or like rare records less;
x = log of the opt-in share, standardised); τ is how far single records lie from that, and it is
added to the opt-in group's variance before anything is weighed. A few records fit nothing: with
probability η a record *stands out*, its ln(p_C/p_O) spread by a factor e and more. Such a record
neither widens τ for all others nor hides behind it, and its estimate falls back on the clients'.

Promises: post-processing only. All four unknowns come from released numbers, and their own
uncertainty is in every interval: τ and η are summed over with the probability that the whole list
gives them, β adds its variance.
Assumes: fewer than half of the records are outliers; the two groups answered independently. Forged
reports look like any other difference: `ClientPosterior.outlier_probability` shows which records
differ, not why.
Symbols: m, v = mean and variance of p_O (`OptinShares`), c, σ²(p) = the clients' estimate and its
variance at p, β, τ, η as above.

Decision: docs/decisions/0026-groups-may-differ.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from blendstream.blender.sharp.optin_shares import OptinShares
from blendstream.blender.values.arrays import FloatArray
from blendstream.blender.values.intervals import Z_95

__all__ = ["ClientPosterior", "Difference", "client_shares"]

#: Values of τ and η that are tried, and what is thought of each before the list is seen: half of
#: all groups differ by less than 10 % a record (half-Cauchy), and half have less than one record in
#: 200 that stands out, one group in 40 more than a fifth: P(η > x) = 1/(1 + 200·x). Both matter
#: where clients say little (ε = 1). A larger TYPICAL would widen intervals there though the groups
#: agree; a smaller one would trust opt-in users who differ, unseen.
TAUS = np.array(
    [0.005, 0.02, 0.03, 0.045, 0.065, 0.09, 0.12, 0.16, 0.2, 0.25, 0.32, 0.4, 0.5, 0.65, 0.85, 1.1]
)
ETAS = np.array([1e-4, 0.003, 0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3])
TYPICAL, STANDING_OUT = 0.1, 1 / 200

#: Prior deviations of β₀ and β₁. Clients usually know both to 0.02, and then these say nothing.
TREND = np.array([0.1, 0.05])

#: Spread of ln(p_C/p_O) for records that stand out: three times, or a third, is within 1.1.
_OUTLYING = 1.0

#: Points of p at which a record is judged: so many around each of three centres.
_REACH, _POINTS = 6.0, 49

#: Records worked on at once; some megabytes.
_BLOCK = 1000

#: Weights of (τ, η) below this are left out: together they move no digit that is published.
_NEGLIGIBLE = 1e-5

_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class Difference:
    """What one list says of the two groups.

    `typical` is by what part of itself a record's share differs between the groups, a root mean
    square over the listed ones that do not stand out, with its 95 % interval; `common` the factor
    between clients and opt-in users in general; `spread` is τ.
    """

    typical: float
    low: float
    high: float
    common: float
    spread: float


@dataclass(frozen=True, slots=True)
class ClientPosterior:
    """The clients' shares of the listed records, by both groups' numbers.

    `outlier_probability`: the probability that a record differs by more than the others do.
    `foretold_low` to `foretold_high` are 95 % of what opt-in users alone let expect, if it is not.
    """

    mean: FloatArray
    variance: FloatArray
    low: FloatArray
    high: FloatArray
    outlier_probability: FloatArray
    foretold_low: FloatArray
    foretold_high: FloatArray
    difference: Difference


def client_shares(
    optin: OptinShares, estimate: FloatArray, variance_at: Callable[[FloatArray], FloatArray]
) -> ClientPosterior:
    """p_C of each listed record; `estimate` and `variance_at(p)` are the clients' own."""
    variance = _quadratic(variance_at, len(estimate))
    f, f_variance, trend = _general_factor(optin, estimate, variance)
    m = optin.mean * f
    v = optin.variance * f**2 + m**2 * f_variance
    size = len(m)
    parts = [slice(start, start + _BLOCK) for start in range(0, size, _BLOCK)]

    # First how likely each τ and η is, by all records together; then each record, over all of them.
    alike, apart = np.empty((len(TAUS), size)), np.empty(size)
    for part in parts:
        record = _Records(m[part], v[part], estimate[part], [a[part] for a in variance])
        apart[part] = record.standing_out.sum(axis=1)
        for i, tau in enumerate(TAUS):
            alike[i, part] = record.alike(tau).sum(axis=1)
    weights = _weights(alike, apart)
    mean, spread, low, high = (np.empty(size) for _ in range(4))
    for part in parts:
        record = _Records(m[part], v[part], estimate[part], [a[part] for a in variance])
        law = record.mixture(weights, alike[:, part], apart[part])
        mean[part] = (law * record.p).sum(axis=1)
        spread[part] = (law * (record.p - mean[part, np.newaxis]) ** 2).sum(axis=1)
        below = np.cumsum(law, axis=1) - law / 2
        low[part], high[part] = (_quantiles(below, record.p, q) for q in (0.025, 0.975))
    tau_weights = weights.sum(axis=1)
    tau_2 = float(tau_weights @ TAUS**2)
    # Close to log-normal, of the mean and variance that `_Records.alike` takes.
    reach = np.exp(Z_95 * np.sqrt(np.log1p((v + tau_2 * (m**2 + v)) / m**2)))
    return ClientPosterior(
        mean,
        spread,
        low,
        high,
        _standing_out(weights, alike, apart),
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
    """Some records on grids of p of their own: what clients say, what opt-in users foretell."""

    def __init__(
        self, m: FloatArray, v: FloatArray, estimate: FloatArray, variance: list[FloatArray]
    ) -> None:
        from scipy.special import gammaln  # noqa: PLC0415

        self._gammaln: Callable[[FloatArray], FloatArray] = gammaln
        column = np.newaxis
        self._m, self._v = m[:, column], v[:, column]
        self.p = _points(m, v, estimate, variance)
        at = _at(variance, self.p)
        log_client = -((estimate[:, column] - self.p) ** 2) / (2 * at) - np.log(at) / 2
        log_client -= log_client.max(axis=1, keepdims=True)
        widths = np.zeros_like(self.p)
        steps = np.diff(self.p, axis=1) / 2
        widths[:, 1:] += steps
        widths[:, :-1] += steps
        self._client = np.exp(log_client) * widths
        self._log_p = np.log(self.p)
        # ln(p_C) of a record that stands out: normal, as wide as m is uncertain and more.
        wide = np.log1p(self._v / self._m**2) + _OUTLYING**2
        distance = (self._log_p - np.log(self._m)) ** 2 / (2 * wide)
        lognormal = np.exp(-distance - self._log_p) / np.sqrt(2 * np.pi * wide)
        self.standing_out = lognormal * self._client

    def alike(self, tau: float) -> FloatArray:
        """What opt-in users foretell × what clients say, if p_C = m·(1 + ξ) with this τ.

        m is a mean of counts, so p_C is taken as a Gamma variable of mean m and variance
        v + τ²·(m² + v): never negative, and exact where m is a count alone.
        """
        variance = self._v + tau**2 * (self._m**2 + self._v)
        shape, scale = self._m**2 / variance, variance / self._m
        log_gamma = (shape - 1) * self._log_p - self.p / scale
        log_gamma -= shape * np.log(scale) + self._gammaln(shape)
        return np.asarray(np.exp(log_gamma) * self._client)

    def mixture(self, weights: FloatArray, alike: FloatArray, apart: FloatArray) -> FloatArray:
        """P(p_C), a row for each record, over all τ and η."""
        law = np.zeros_like(self.p)
        outside = np.zeros(len(self.p))
        for i in np.flatnonzero(weights.sum(axis=1) > _NEGLIGIBLE):
            inside = np.zeros(len(self.p))
            for j, total in _totals(weights, alike, apart, int(i)):
                inside += weights[i, j] * (1 - ETAS[j]) / total
                outside += weights[i, j] * ETAS[j] / total
            law += inside[:, np.newaxis] * self.alike(TAUS[i])
        law += outside[:, np.newaxis] * self.standing_out
        return np.asarray(law / np.maximum(law.sum(axis=1, keepdims=True), _TINY))


def _points(
    m: FloatArray, v: FloatArray, estimate: FloatArray, variance: list[FloatArray]
) -> FloatArray:
    """Around what clients say, what opt-in users say, and where both meet; ascending, above 0."""
    deviation = np.sqrt(_at(variance, np.clip(np.maximum(m, estimate), 1e-12, 1.0)))
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
    optin: OptinShares, estimate: FloatArray, variance: list[FloatArray]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """f of each record, the variance of ln f, and β; by weighted least squares, some rounds.

    Weights are 1/(σ² + v + τ²m²), times the probability that a record does not stand out; τ and
    that probability come from the residuals of the round before, taken as normal.
    """
    log_m = np.log(optin.mean)
    x = np.stack([np.ones(len(log_m)), (log_m - log_m.mean()) / max(log_m.std(), 1e-9)], axis=1)
    beta, prior = np.zeros(2), np.diag(1 / TREND**2)
    covariance = np.diag(TREND**2)
    outlying = np.expm1(_OUTLYING**2)
    for _ in range(8):
        f = np.exp(x @ beta)
        m, v = optin.mean * f, optin.variance * f**2
        own = _at(variance, np.clip(m, 1e-12, 1.0)) + v
        residual = estimate - m
        alike, apart = _normal(residual, own, m**2 * TAUS[:, np.newaxis] ** 2, outlying * m**2)
        weights = _weights(alike, apart)
        tau_2 = float(weights.sum(axis=1) @ TAUS**2)
        weight = (1 - _standing_out(weights, alike, apart)) / (own + tau_2 * m**2)
        slope = x * m[:, np.newaxis]  # of m·e^(β·x) in β
        covariance = np.linalg.inv((slope * weight[:, np.newaxis]).T @ slope + prior)
        before = beta
        beta = covariance @ (slope.T @ (weight * (residual + slope @ beta)))
        if float(np.abs(beta - before).max()) < 1e-3:
            break
    return np.exp(x @ beta), np.einsum("ij,jk,ik->i", x, covariance, x), beta


def _weights(alike: FloatArray, apart: FloatArray) -> FloatArray:
    """P(τ, η | the list): prior × Π over records of (1−η)·P(record | τ) + η·P(record | apart)."""
    between = np.sqrt(TAUS[1:] * TAUS[:-1])
    of_tau = np.diff(np.arctan(np.concatenate([[0.0], between, [1.3]]) / TYPICAL))
    between = np.sqrt(ETAS[1:] * ETAS[:-1])
    of_eta = -np.diff(1 / (1 + np.concatenate([[0.0], between, [0.4]]) / STANDING_OUT))
    fit = np.empty((len(TAUS), len(ETAS)))
    for j, eta in enumerate(ETAS):
        fit[:, j] = np.log((1 - eta) * alike + eta * apart + _TINY).sum(axis=1)
    log_weight = fit + np.log(of_tau)[:, np.newaxis] + np.log(of_eta)
    weight = np.exp(log_weight - log_weight.max())
    return np.asarray(weight / weight.sum())


def _totals(
    weights: FloatArray, alike: FloatArray, apart: FloatArray, i: int
) -> Iterator[tuple[int, FloatArray]]:
    for j in np.flatnonzero(weights[i] > _NEGLIGIBLE / len(ETAS)):
        yield int(j), (1 - ETAS[j]) * alike[i] + ETAS[j] * apart + _TINY


def _standing_out(weights: FloatArray, alike: FloatArray, apart: FloatArray) -> FloatArray:
    """P(the record is of those that stand out)."""
    chance = np.zeros(len(apart))
    for i in np.flatnonzero(weights.sum(axis=1) > _NEGLIGIBLE):
        for j, total in _totals(weights, alike, apart, int(i)):
            chance += weights[i, j] * ETAS[j] * apart / total
    return np.clip(chance, 0.0, 1.0)


def _normal(
    residual: FloatArray, own: FloatArray, alike: FloatArray, apart: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Normal densities of each residual, for every τ and for a record that stands out.

    Each record's are divided by its largest: far out all of them are below any float.
    """
    variance = own + np.concatenate([alike, apart[np.newaxis]])
    log_density = -(residual**2) / (2 * variance) - np.log(variance) / 2
    density = np.exp(log_density - log_density.max(axis=0))
    return density[:-1], density[-1]


def _quadratic(variance_at: Callable[[FloatArray], FloatArray], size: int) -> list[FloatArray]:
    """The coefficients of σ²(p) = a + b·p + c·p², as that of a sum of indicators is."""
    at_0, at_half, at_1 = (variance_at(np.full(size, p)) for p in (0.0, 0.5, 1.0))
    c = 2 * (at_1 + at_0 - 2 * at_half)
    return [at_0, at_1 - at_0 - c, c]


def _at(variance: list[FloatArray], p: FloatArray) -> FloatArray:
    a, b, c = (x[:, np.newaxis] if p.ndim == 2 else x for x in variance)
    return np.asarray(np.maximum(a + p * (b + c * p), 1e-30))


def _quantiles(below: FloatArray, p: FloatArray, at: float) -> FloatArray:
    return np.array([np.interp(at, row, points) for row, points in zip(below, p, strict=True)])
