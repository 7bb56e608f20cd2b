"""What the opt-in users' counts say about each listed record, selection included.

A record is listed because its noisy count was high, so its count is too high more often than not:
by 10 % for the last tenth of a list, more beside a threshold. The cure is old (Eddington 1913,
Robbins 1956): ask how common shares of each size are, and take the mean of p *given* the count:

    P(p | y) ∝ g(p)·P(y | p),          p̂_O = E(p | y).

g is the law of shares over *all* records, listed or not. Given y, that a record was listed says
nothing more about p, because y alone decided it: so neither threshold nor cut appears above, and
what is listed by luck is not mistaken for what is frequent. g itself is not known; it is fitted to
the released counts, all of them and not only the M listed, as counts that had to reach θ:

    log g(p) per unit of log p = α₁·z + α₂·z²,   z = log₁₀(users·p/θ),
    maximise Σ log [ Σ_p g(p)·P(y | p) / Σ_p g(p)·P(Y ≥ θ | p) ] over the counts y ≥ θ.

α₂ = 0 is a power law; Zipf's is α₁ = −ln 10. Both are drawn to that by a prior as wide as what
lists of search records show, so that a list of three records has a law too.

Promises: post-processing only, of released counts and public numbers. By published rank p̂_O is
centred and its interval covers 95 %, as far as g fits (docs/decisions/0025-records-have-a-law.md).
Assumes: m_O = 1 where S's counts estimate; otherwise T's alone, which had no part in the choice.
People who stay from epoch to epoch do not upset it: a known record whose *people* were once many by
luck shows that luck again in y, and g, the law of all records, takes it off again. (A law fitted to
known records alone would not.)
Symbols: S, T = users who select and who estimate, Y, y = noisy counts, θ = threshold, M = listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from blender.cell_estimates import FloatArray
from blender.count_law import ShareGrid, count_likelihood, laplace_law, pass_probability
from blender.noise import IntArray
from blender.optin import NoisyCounts

__all__ = ["OptinShares", "SelectionCounts", "optin_shares", "ranked_shares"]

#: Where α is drawn to, and how far it may go: Zipf's law of exponent 1 and its inverse, e.g. search
#: logs between 0.7 and 1.5, lie within one deviation of α₁.
_ZIPF = np.array([-np.log(10), 0.0])
_LOOSE = np.array([2.0, 1.0])

#: Records whose grids are worked on at once: 2 000 times some hundred shares are a few megabytes.
_BLOCK = 2000


@dataclass(frozen=True, slots=True)
class SelectionCounts:
    """S's released counts, of every selected record, the listed ones first.

    `threshold` is θ, from which on *every* record shows. Counts below it (known records, lucky
    ones) do not help to fit g.
    """

    noisy: IntArray
    users: int
    noise: FloatArray
    threshold: int


class OptinShares:
    """P(p | what opt-in users released) of each listed record, over a grid of p.

    `mean`, `variance`, `low`, `high` are of p; the whole law is made again when asked for.
    """

    def __init__(
        self,
        grid: ShareGrid,
        prior: FloatArray,
        sources: list[tuple[FloatArray, IntArray]],
        users: int,
    ) -> None:
        """`sources` are likelihoods as `count_likelihood` gives them; `prior` is g·width."""
        self.grid = grid
        self.users = users
        self._log_prior = np.log(np.maximum(prior, 1e-300))
        self._sources = [(np.log(rows), row) for rows, row in sources]
        size = len(self._sources[0][1])
        self.mean, self.variance, self.low, self.high = (np.empty(size) for _ in range(4))
        for part, law in self._laws():
            self.mean[part] = law @ grid.p
            self.variance[part] = law @ grid.p**2 - self.mean[part] ** 2
            below = np.cumsum(law, axis=1)
            self.low[part] = _quantile(below, grid.p, 0.025)
            self.high[part] = _quantile(below, grid.p, 0.975)

    def __len__(self) -> int:
        """M."""
        return len(self.mean)

    def law(self, part: slice) -> FloatArray:
        """P(p) of some records, a row each."""
        log_law = self._log_prior + sum(rows[row[part]] for rows, row in self._sources)
        law = np.exp(log_law - log_law.max(axis=1, keepdims=True))
        return np.asarray(law / law.sum(axis=1, keepdims=True))

    def _laws(self) -> Iterator[tuple[slice, FloatArray]]:
        for start in range(0, len(self._sources[0][1]), _BLOCK):
            part = slice(start, start + _BLOCK)
            yield part, self.law(part)


def optin_shares(selected: SelectionCounts | None, t: NoisyCounts, listed: int) -> OptinShares:
    """From S's counts and T's of the first `listed` cells; at least one of the two has users."""
    if selected is None:
        return _from_one(t, listed, threshold=None)
    users = selected.users + t.users
    largest = float(selected.noisy[:listed].max()) / selected.users
    if t.users:
        largest = max(largest, float(t.counts[:listed].max()) / t.users)
    grid = ShareGrid.up_to(largest, users)
    high = selected.noisy[selected.noisy >= selected.threshold]
    g = _fitted(grid, high, selected.users, selected.noise, selected.threshold)
    sources = [count_likelihood(selected.noisy[:listed], selected.users, selected.noise, grid.p)]
    if t.users:
        noise = laplace_law(t.scale)
        sources.append(count_likelihood(t.counts[:listed], t.users, noise, grid.p))
    return OptinShares(grid, g, sources, users)


def ranked_shares(t: NoisyCounts, listed: int, cut: int | None) -> OptinShares:
    """From T's counts alone, where they also chose the list: each had to reach `cut`."""
    return _from_one(t, listed, threshold=cut)


def _from_one(t: NoisyCounts, listed: int, threshold: int | None) -> OptinShares:
    counts, noise = t.counts[:listed], laplace_law(t.scale)
    grid = ShareGrid.up_to(float(counts.max()) / t.users, t.users)
    fitted_to = counts if threshold is None else counts[counts >= threshold]
    g = _fitted(grid, fitted_to, t.users, noise, threshold)
    return OptinShares(grid, g, [count_likelihood(counts, t.users, noise, grid.p)], t.users)


def _fitted(
    grid: ShareGrid, counts: IntArray, users: int, noise: FloatArray, threshold: int | None
) -> FloatArray:
    """g·width, of the likeliest α (times its prior)."""
    from scipy.optimize import minimize  # noqa: PLC0415

    z = np.log10(users * grid.p / max(threshold or 1, 1))
    features = np.stack([z, z**2], axis=1)
    passes = np.ones(len(grid.p))
    if threshold is not None:
        passes = pass_probability(threshold, users, noise, grid.p)
    rows, row = count_likelihood(counts, users, noise, grid.p)
    times = np.bincount(row, minlength=len(rows)).astype(np.float64)

    def law(alpha: FloatArray) -> FloatArray:
        log_g = features @ alpha
        return np.asarray(np.exp(log_g - log_g.max()) * grid.width)

    def objective(alpha: FloatArray) -> tuple[float, FloatArray]:
        # The slope is what the features are on average given each count, less what they are on
        # average among all that pass.
        g = law(alpha)
        seen, all_pass = rows @ g, float(passes @ g)
        pull = (alpha - _ZIPF) / _LOOSE
        fit = times @ np.log(seen) - times.sum() * np.log(all_pass)
        slope = times @ ((rows * g) @ features / seen[:, np.newaxis])
        slope -= times.sum() * ((passes * g) @ features) / all_pass
        return float(-fit + pull @ pull / 2), np.asarray(-slope + pull / _LOOSE)

    return law(minimize(objective, _ZIPF, jac=True, method="BFGS").x)


def _quantile(below: FloatArray, p: FloatArray, at: float) -> FloatArray:
    """The p that a part `at` of each row lies below, linear between points of the grid."""
    place = np.clip((below < at).sum(axis=1), 1, len(p) - 1)
    rows = np.arange(len(below))
    low, high = below[rows, place - 1], below[rows, place]
    part = np.clip((at - low) / np.maximum(high - low, 1e-300), 0.0, 1.0)
    return np.asarray(p[place - 1] + part * (p[place] - p[place - 1]))
