"""What the opt-in users' counts say about each listed record, selection included.

A record is listed because its noisy count was high, so its count is too high more often than not:
by 10 % for the last tenth of a list, more beside a threshold. The cure is old (Eddington 1913,
Robbins 1956): ask how common shares of each size are, and take the mean of p *given* the count:

    P(p | y) ∝ g(p)·P(y | p),          p̂_O = E(p | y).

g is the law of shares over *all* records, listed or not. Given y, that a record was listed says
nothing more about p, because y alone decided it: so neither threshold nor cut appears above, and
what is listed by luck is not mistaken for what is frequent. (That it was on the *last* list does
say something, if people change: `listing_likelihood`.) g itself is not known; it is fitted to
the released counts, all of them and not only the M listed, as counts that had to reach θ:

    log g(p) per unit of log p = α₁·z + α₂·z²,   z = log₁₀(users·p/θ),
    maximise Σ log [ Σ_p g(p)·P(y | p) / Σ_p g(p)·P(Y ≥ θ | p) ] over the counts y ≥ θ.

α₂ = 0 is a power law; Zipf's is α₁ = −ln 10. Both are drawn to that by a prior as wide as what
lists of search records show, so that a list of three records has a law too.

Promises: post-processing only, of released counts and public numbers. By published rank p̂_O is
centred and its interval covers 95 %, as far as g fits (docs/decisions/0025-records-have-a-law.md).
Assumes: m_O = 1 where S's counts estimate; otherwise T's alone, which had no part in the choice.
Symbols: S, T = users who select and who estimate, Y, y = noisy counts, θ = threshold, M = listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.paper.optin import NoisyCounts
from blendstream.blender.sharp.count_law import ShareGrid, count_likelihood, pass_probability
from blendstream.blender.sharp.likelihood_bands import Band, Likelihood, LogLikelihood
from blendstream.blender.sharp.listing_likelihood import known_likelihood
from blendstream.blender.values.arrays import FloatArray, IntArray

__all__ = ["OptinShares", "SelectionCounts", "optin_shares", "ranked_shares"]

#: Where α is drawn to, and how far it may go: Zipf's law of exponent 1, and all of exponents from
#: 0.5 up are within a deviation of it.
_ZIPF = np.array([-np.log(10), 0.0])
_LOOSE = np.array([2.0, 1.0])

#: Laws of *listed* records, where S's counts cannot tell: a power of p down to a cut. Powers
#: (Zipf's is 1) and cuts (in decades from the mean share) that are averaged over.
_POWERS = np.linspace(0.2, 2.5, 24)
_CUTS = np.linspace(-2.0, 0.2, 23)

#: Records whose grids are worked on at once. More would have less of the grid in common, which is
#: all that is looked at; fewer cost more calls.
_BLOCK = 200

#: Where a law is e^−80 of its highest or less it is left out of sums: no digit of them shows it.
#: One share in so many is looked at to find out.
_NOTHING, _COARSE = 80.0, 8


@dataclass(frozen=True, slots=True)
class SelectionCounts:
    """S's released counts, of every selected record, the listed ones first.

    `threshold` is θ, from which on *every* record shows. Counts below it (known records, lucky
    ones) do not help to fit g. `known` marks those of the last head list, if there was one.
    """

    noisy: IntArray
    users: int
    noise: FloatArray
    threshold: int
    known: NDArray[np.bool_] | None = None


class OptinShares:
    """P(p | what opt-in users released) of each listed record, over a grid of p.

    `mean`, `variance`, `low`, `high` are of p; the whole law is made again when asked for.
    """

    def __init__(
        self,
        grid: ShareGrid,
        prior: FloatArray,
        sources: list[tuple[LogLikelihood, IntArray]],
        users: int,
    ) -> None:
        """`sources` are likelihoods and which row of them is each record's; `prior` is g·width."""
        self.grid = grid
        self.users = users
        self._log_prior = np.log(np.maximum(prior, 1e-300))
        self._sources = sources
        # Records with the same counts have the same law, and rare ones share theirs with hundreds.
        different, record = np.unique(
            np.stack([row for _, row in sources]), axis=1, return_inverse=True
        )
        moments = np.empty((4, different.shape[1]))
        for some, where in self._where_it_matters(different):
            p = grid.p[where]
            law = self._law(different[:, some], where)
            mean = law @ p
            below = np.cumsum(law, axis=1)
            moments[:, some] = (
                mean,
                law @ p**2 - mean**2,
                _quantile(below, p, 0.025),
                _quantile(below, p, 0.975),
            )
        self.mean, self.variance, self.low, self.high = moments[:, record.reshape(-1)]

    def __len__(self) -> int:
        """M."""
        return len(self.mean)

    def law(self, part: slice) -> FloatArray:
        """P(p) of some records, a row each."""
        return self._law(np.stack([row[part] for _, row in self._sources]), slice(None))

    def _where_it_matters(self, places: IntArray) -> Iterator[tuple[IntArray, slice]]:
        """Records whose laws lie beside one another, and the shares outside which they are nothing.

        Every eighth share shows where: laws are smooth, and eight are three deviations at most.
        """
        first, last = np.empty((2, places.shape[1]), dtype=np.int64)
        for start in range(0, places.shape[1], _BLOCK):
            part = slice(start, start + _BLOCK)
            seen = self._log_law(places[:, part], slice(None, None, _COARSE))
            matters = seen > seen.max(axis=1, keepdims=True) - _NOTHING
            first[part] = (matters.argmax(axis=1) - 1) * _COARSE
            last[part] = (seen.shape[1] - matters[:, ::-1].argmax(axis=1)) * _COARSE + 1
        order = np.argsort(first, kind="stable")
        for start in range(0, len(order), _BLOCK):
            some = order[start : start + _BLOCK]
            yield some, slice(max(int(first[some].min()), 0), int(last[some].max()))

    def _log_law(self, places: IntArray, where: slice) -> FloatArray:
        return np.asarray(
            self._log_prior[where]
            + sum(
                likelihood.logs(row, where)
                for (likelihood, _), row in zip(self._sources, places, strict=True)
            )
        )

    def _law(self, places: IntArray, where: slice) -> FloatArray:
        log_law = self._log_law(places, where)
        law = np.exp(log_law - log_law.max(axis=1, keepdims=True))
        return np.asarray(law / law.sum(axis=1, keepdims=True))


def optin_shares(selected: SelectionCounts | None, t: NoisyCounts, listed: int) -> OptinShares:
    """From S's counts and T's of the first `listed` cells; at least one of the two has users."""
    if selected is None:
        return _from_t(t, listed)
    users = selected.users + t.users
    largest = float(selected.noisy[:listed].max()) / selected.users
    if t.users:
        largest = max(largest, float(t.counts[:listed].max()) / t.users)
    grid = ShareGrid.up_to(largest, users)
    likelihood, row = count_likelihood(selected.noisy, selected.users, selected.noise, grid.p)
    high = np.bincount(row[selected.noisy >= selected.threshold], minlength=len(likelihood))
    passes = pass_probability(selected.threshold, selected.users, selected.noise, grid.p)
    g = _fitted(grid, likelihood, high, passes, selected.threshold / selected.users)
    sources: list[tuple[LogLikelihood, IntArray]] = [(likelihood, row[:listed])]
    if t.users:
        sources.append(count_likelihood(t.counts[:listed], t.users, t.law, grid.p))
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
    return OptinShares(grid, g, sources, users)


def _from_t(t: NoisyCounts, listed: int) -> OptinShares:
    """From T's counts alone, which had no part in the choice of the list.

    S's counts are of another quantity then, so g is the law of the *listed* records: a power law,
    of which the list took what lies above some cut. T is small, so no one law is chosen: all are
    averaged, each as likely as T's counts make it.
    """
    counts, noise = t.counts[:listed], t.law
    grid = ShareGrid.up_to(float(counts.max()) / t.users, t.users)
    likelihood, row = count_likelihood(counts, t.users, noise, grid.p)
    times = np.bincount(row, minlength=len(likelihood))
    g = _listed_law(grid, likelihood, times, max(float(counts.mean()), 1.0) / t.users)
    return OptinShares(grid, g, [(likelihood, row)], t.users)


def ranked_shares(
    t: NoisyCounts, listed: int, cut: int | None, estimate: FloatArray, variance: FloatArray
) -> OptinShares:
    """From T's counts alone, where they also chose the list: each had to reach `cut` people.

    T is small, and its counts leave g uncertain. Where the groups agree clients know it better:
    g is fitted to their estimates as well, each normal with its variance. p is still T's alone.
    """
    counts, noise = t.to_people(t.counts[:listed]), t.law
    grid = ShareGrid.up_to(float(counts.max()) / t.users, t.users, finer=10.0)
    likelihood, row = count_likelihood(counts, t.users, noise, grid.p)
    high = np.flatnonzero(counts >= (counts.min() if cut is None else cut))
    distance = (estimate[high, np.newaxis] - grid.p) ** 2 / (2 * variance[high, np.newaxis])
    joint = likelihood.logs(row[high], slice(None)) - distance
    both = Likelihood([Band(0, np.exp(joint - joint.max(axis=1, keepdims=True)))], len(grid.p))
    passes = np.ones(len(grid.p))
    if cut is not None:
        passes = pass_probability(cut, t.users, noise, grid.p)
    once = np.ones(len(high), dtype=np.int64)
    g = _fitted(grid, both, once, passes, max(cut or 1, 1) / t.users)
    return OptinShares(grid, g, [(likelihood, row)], t.users)


def _fitted(
    grid: ShareGrid,
    likelihood: Likelihood,
    times: IntArray,
    passes: FloatArray,
    centre: float,
) -> FloatArray:
    """g·width, of the likeliest α (times its prior), for records that had to pass.

    `times` says how many of them each row of `likelihood` is of; `centre` is the p at which z = 0.
    """
    from scipy.optimize import minimize  # noqa: PLC0415

    z = np.log10(grid.p / centre)
    features = np.stack([z, z**2], axis=1)
    total = float(times.sum())

    def law(alpha: FloatArray) -> FloatArray:
        log_g = features @ alpha
        return np.asarray(np.exp(log_g - log_g.max()) * grid.width)

    def objective(alpha: FloatArray) -> tuple[float, FloatArray]:
        # The slope is what the features are on average given each count, less what they are on
        # average among all that pass.
        g = law(alpha)
        seen, all_pass = likelihood.weighed(g), float(passes @ g)
        pull = (alpha - _ZIPF) / _LOOSE
        fit = times @ np.log(seen) - total * np.log(all_pass)
        slope = (likelihood.summed(times / seen) * g) @ features
        slope -= total * ((passes * g) @ features) / all_pass
        return float(-fit + pull @ pull / 2), np.asarray(-slope + pull / _LOOSE)

    return law(minimize(objective, _ZIPF, jac=True, method="BFGS").x)


def _listed_law(
    grid: ShareGrid, likelihood: Likelihood, times: IntArray, centre: float
) -> FloatArray:
    """g·width of listed records, over all powers and cuts."""
    z = np.log10(grid.p / centre)
    # A cut is blurred by a twentieth of a decade: S's counts, which make it, are noisy.
    above = 1 / (1 + np.exp(-np.clip((z - _CUTS[:, np.newaxis]) / 0.05, -500, 500)))
    laws = 10 ** (-_POWERS[:, np.newaxis, np.newaxis] * z) * above * grid.width
    laws = laws.reshape(-1, len(z))
    laws /= laws.sum(axis=1, keepdims=True)
    fit = np.log(likelihood.weighed(laws)) @ times
    fit -= np.repeat((_POWERS - 1) ** 2 * 2, len(_CUTS))  # powers between 0.5 and 1.5 are usual
    return np.asarray(np.exp(fit - fit.max()) @ laws)


def _quantile(below: FloatArray, p: FloatArray, at: float) -> FloatArray:
    """The p that a part `at` of each row lies below, linear between points of the grid."""
    place = np.clip((below < at).sum(axis=1), 1, len(p) - 1)
    rows = np.arange(len(below))
    low, high = below[rows, place - 1], below[rows, place]
    part = np.clip((at - low) / np.maximum(high - low, 1e-300), 0.0, 1.0)
    return np.asarray(p[place - 1] + part * (p[place] - p[place - 1]))
