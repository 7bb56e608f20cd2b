"""Estimate the opt-in users' share of each listed record by empirical Bayes, selection included.

A record is listed because its noisy count was high, so its count is more often too high than too
low: by 10 % in the last tenth of a list, by more close to a threshold. The remedy is empirical
Bayes (Eddington 1913, Robbins 1956): fit the distribution of shares, and take the posterior mean of
p:

    P(p | y) ∝ g(p)·P(y | p),          p̂_O = E(p | y).

The prior g is the distribution of shares over *all* records, listed or not. Given y, being listed
adds nothing about p, because y alone decided it: therefore neither threshold nor cut appears above,
and a rare record with high noise is not mistaken for a frequent one. (Being on the *last* list does
add something if people change: `listing_likelihood`.) g is unknown; it is fitted to all released
counts, not only the M listed ones, as counts that had to reach θ:

    log g(p) per unit of log p = α₁·z + α₂·z²,   z = log₁₀(users·p/θ),
    maximise Σ log [ Σ_p g(p)·P(y | p) / Σ_p g(p)·P(Y ≥ θ | p) ] over the counts y ≥ θ.

α₂ = 0 is a power law; Zipf's law has α₁ = −ln 10. A prior on α is centred there, as wide as the
variation between lists of search records, so that a list of three records has a g too.

Promises: post-processing only, of released counts and public numbers. At each published rank p̂_O
is unbiased and its interval covers 95 %, as far as g fits
(docs/decisions/0025-a-prior-for-records.md).
Assumes: m_O = 1 where S's counts are used; otherwise T's counts alone are, which did not select the
list.
Symbols: S, T = users who select and who estimate, Y, y = noisy counts, θ = threshold, M = listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.paper.optin import NoisyCounts
from blendstream.blender.sharp.count_distribution import (
    ShareGrid,
    count_likelihood,
    pass_probability,
)
from blendstream.blender.sharp.likelihood_bands import Band, Likelihood, LogLikelihood
from blendstream.blender.sharp.listing_likelihood import known_likelihood
from blendstream.blender.values.arrays import FloatArray, IntArray

__all__ = ["OptinPosterior", "SelectionCounts", "estimate_optin_shares", "estimate_ranked_shares"]

#: Mean and standard deviation of the prior on α: Zipf's law of exponent 1; all exponents from 0.5
#: up are within one deviation.
_ZIPF = np.array([-np.log(10), 0.0])
_LOOSE = np.array([2.0, 1.0])

#: Distributions of the shares of *listed* records, where S's counts are not usable: a power law
#: down to a cut. The estimate averages over these powers (Zipf's law is 1) and cuts (in decades
#: from the mean share).
_POWERS = np.linspace(0.2, 2.5, 24)
_CUTS = np.linspace(-2.0, 0.2, 23)

#: Records processed together, on the part of the grid that matters to any of them. More records
#: would have less of the grid in common; fewer cost more calls.
_BLOCK = 200

#: Sums skip the shares at which a posterior is e^−80 of its maximum or less: that changes no digit.
#: One share in so many is evaluated to find them.
_NEGLIGIBLE, _COARSE = 80.0, 8


@dataclass(frozen=True, slots=True)
class SelectionCounts:
    """S's released counts of every selected record, the listed ones first.

    Every record with a noisy count of at least `threshold` (θ) is published. Lower counts (known
    records, new ones admitted by a coin) do not help to fit g. `known` marks the records of the
    last head list, if there was one.
    """

    noisy: IntArray
    users: int
    noise: FloatArray
    threshold: int
    known: NDArray[np.bool_] | None = None


class OptinPosterior:
    """The posterior of each listed record's share p, given the opt-in release, over a grid of p.

    `mean`, `variance`, `low`, `high` are of p. `distribution` recomputes the whole posterior.
    """

    def __init__(
        self,
        grid: ShareGrid,
        prior: FloatArray,
        sources: list[tuple[LogLikelihood, IntArray]],
        users: int,
    ) -> None:
        """Compute the moments; a source is a likelihood and each record's row, `prior` g·width."""
        self.grid = grid
        self.users = users
        self._log_prior = np.log(np.maximum(prior, 1e-300))
        self._sources = sources
        # Records with equal counts have equal posteriors; rare ones share theirs with hundreds.
        distinct, record = np.unique(
            np.stack([row for _, row in sources]), axis=1, return_inverse=True
        )
        moments = np.empty((4, distinct.shape[1]))
        for some, where in self._relevant_shares(distinct):
            p = grid.p[where]
            posterior = self._posterior(distinct[:, some], where)
            mean = posterior @ p
            below = np.cumsum(posterior, axis=1)
            moments[:, some] = (
                mean,
                posterior @ p**2 - mean**2,
                _quantile(below, p, 0.025),
                _quantile(below, p, 0.975),
            )
        self.mean, self.variance, self.low, self.high = moments[:, record.reshape(-1)]

    def __len__(self) -> int:
        """M, the number of listed records."""
        return len(self.mean)

    def distribution(self, part: slice) -> FloatArray:
        """Return P(p) of some records, a row each."""
        return self._posterior(np.stack([row[part] for _, row in self._sources]), slice(None))

    def _relevant_shares(self, places: IntArray) -> Iterator[tuple[IntArray, slice]]:
        """Yield records with similar posteriors, and the shares outside which these are negligible.

        Every eighth share suffices: posteriors are smooth, and eight are three deviations at most.
        """
        first, last = np.empty((2, places.shape[1]), dtype=np.int64)
        for start in range(0, places.shape[1], _BLOCK):
            part = slice(start, start + _BLOCK)
            coarse = self._log_posterior(places[:, part], slice(None, None, _COARSE))
            relevant = coarse > coarse.max(axis=1, keepdims=True) - _NEGLIGIBLE
            first[part] = (relevant.argmax(axis=1) - 1) * _COARSE
            last[part] = (coarse.shape[1] - relevant[:, ::-1].argmax(axis=1)) * _COARSE + 1
        order = np.argsort(first, kind="stable")
        for start in range(0, len(order), _BLOCK):
            some = order[start : start + _BLOCK]
            yield some, slice(max(int(first[some].min()), 0), int(last[some].max()))

    def _log_posterior(self, places: IntArray, where: slice) -> FloatArray:
        return np.asarray(
            self._log_prior[where]
            + sum(
                likelihood.logs(row, where)
                for (likelihood, _), row in zip(self._sources, places, strict=True)
            )
        )

    def _posterior(self, places: IntArray, where: slice) -> FloatArray:
        log_posterior = self._log_posterior(places, where)
        posterior = np.exp(log_posterior - log_posterior.max(axis=1, keepdims=True))
        return np.asarray(posterior / posterior.sum(axis=1, keepdims=True))


def estimate_optin_shares(
    selected: SelectionCounts | None, t: NoisyCounts, listed: int
) -> OptinPosterior:
    """Estimate from S's and T's counts of the first `listed` cells; S or T must have users."""
    if selected is None:
        return _from_t(t, listed)
    users = selected.users + t.users
    largest = float(selected.noisy[:listed].max()) / selected.users
    if t.users:
        largest = max(largest, float(t.counts[:listed].max()) / t.users)
    grid = ShareGrid.build(largest, users)
    likelihood, row = count_likelihood(selected.noisy, selected.users, selected.noise, grid.p)
    high = np.bincount(row[selected.noisy >= selected.threshold], minlength=len(likelihood))
    passes = pass_probability(selected.threshold, selected.users, selected.noise, grid.p)
    g = _fit_prior(grid, likelihood, high, passes, selected.threshold / selected.users)
    sources: list[tuple[LogLikelihood, IntArray]] = [(likelihood, row[:listed])]
    if t.users:
        sources.append(count_likelihood(t.counts[:listed], t.users, t.noise_distribution, grid.p))
    known = selected.known
    if known is not None and known.any():
        listed_before, row = known_likelihood(
            selected.noisy,
            known,
            users=selected.users,
            noise=selected.noise,
            threshold=selected.threshold,
            p=grid.p,
            prior=g,
        )
        sources.append((listed_before, row[:listed]))
    return OptinPosterior(grid, g, sources, users)


def _from_t(t: NoisyCounts, listed: int) -> OptinPosterior:
    """Estimate from T's counts alone, which did not select the list.

    S's counts measure another quantity then, so g is the distribution of the *listed* records: a
    power law above some cut. T is small, so g is an average over all powers and cuts, weighted by
    the likelihood of T's counts.
    """
    counts, noise = t.counts[:listed], t.noise_distribution
    grid = ShareGrid.build(float(counts.max()) / t.users, t.users)
    likelihood, row = count_likelihood(counts, t.users, noise, grid.p)
    times = np.bincount(row, minlength=len(likelihood))
    g = _average_prior(grid, likelihood, times, max(float(counts.mean()), 1.0) / t.users)
    return OptinPosterior(grid, g, [(likelihood, row)], t.users)


def estimate_ranked_shares(
    t: NoisyCounts, listed: int, cut: int | None, estimate: FloatArray, variance: FloatArray
) -> OptinPosterior:
    """Estimate from T's counts alone, which also selected the list: each had to reach `cut` people.

    T is small, and its counts leave g uncertain. If the groups agree, the clients determine it
    better: g is fitted to their estimates as well, each normal with its variance. The likelihood of
    p is still T's alone.
    """
    counts, noise = t.to_people(t.counts[:listed]), t.noise_distribution
    grid = ShareGrid.build(float(counts.max()) / t.users, t.users, finer=10.0)
    likelihood, row = count_likelihood(counts, t.users, noise, grid.p)
    high = np.flatnonzero(counts >= (counts.min() if cut is None else cut))
    distance = (estimate[high, np.newaxis] - grid.p) ** 2 / (2 * variance[high, np.newaxis])
    joint = likelihood.logs(row[high], slice(None)) - distance
    both = Likelihood([Band(0, np.exp(joint - joint.max(axis=1, keepdims=True)))], len(grid.p))
    passes = np.ones(len(grid.p))
    if cut is not None:
        passes = pass_probability(cut, t.users, noise, grid.p)
    once = np.ones(len(high), dtype=np.int64)
    g = _fit_prior(grid, both, once, passes, max(cut or 1, 1) / t.users)
    return OptinPosterior(grid, g, [(likelihood, row)], t.users)


def _fit_prior(
    grid: ShareGrid,
    likelihood: Likelihood,
    times: IntArray,
    passes: FloatArray,
    centre: float,
) -> FloatArray:
    """Return g·width at the α of the highest posterior, for records that had to pass.

    `times` is the number of records of each row of `likelihood`; z = 0 at p = `centre`.
    """
    from scipy.optimize import minimize  # noqa: PLC0415

    z = np.log10(grid.p / centre)
    features = np.stack([z, z**2], axis=1)
    total = float(times.sum())

    def prior(alpha: FloatArray) -> FloatArray:
        log_g = features @ alpha
        return np.asarray(np.exp(log_g - log_g.max()) * grid.width)

    def objective(alpha: FloatArray) -> tuple[float, FloatArray]:
        # The slope is the posterior mean of the features, summed over the counts, less their mean
        # over all records that pass.
        g = prior(alpha)
        evidence, all_pass = likelihood.weighed(g), float(passes @ g)
        pull = (alpha - _ZIPF) / _LOOSE
        fit = times @ np.log(evidence) - total * np.log(all_pass)
        slope = (likelihood.summed(times / evidence) * g) @ features
        slope -= total * ((passes * g) @ features) / all_pass
        return float(-fit + pull @ pull / 2), np.asarray(-slope + pull / _LOOSE)

    return prior(minimize(objective, _ZIPF, jac=True, method="BFGS").x)


def _average_prior(
    grid: ShareGrid, likelihood: Likelihood, times: IntArray, centre: float
) -> FloatArray:
    """Return g·width of listed records, averaged over all powers and cuts."""
    z = np.log10(grid.p / centre)
    # A cut is blurred by a twentieth of a decade, because it comes from S's counts, which are
    # noisy.
    above = 1 / (1 + np.exp(-np.clip((z - _CUTS[:, np.newaxis]) / 0.05, -500, 500)))
    priors = 10 ** (-_POWERS[:, np.newaxis, np.newaxis] * z) * above * grid.width
    priors = priors.reshape(-1, len(z))
    priors /= priors.sum(axis=1, keepdims=True)
    fit = np.log(likelihood.weighed(priors)) @ times
    fit -= np.repeat((_POWERS - 1) ** 2 * 2, len(_CUTS))  # powers between 0.5 and 1.5 are usual
    return np.asarray(np.exp(fit - fit.max()) @ priors)


def _quantile(below: FloatArray, p: FloatArray, at: float) -> FloatArray:
    """Return the quantile `at` of each row, interpolated linearly between points of the grid."""
    place = np.clip((below < at).sum(axis=1), 1, len(p) - 1)
    rows = np.arange(len(below))
    low, high = below[rows, place - 1], below[rows, place]
    part = np.clip((at - low) / np.maximum(high - low, 1e-300), 0.0, 1.0)
    return np.asarray(p[place - 1] + part * (p[place] - p[place - 1]))
