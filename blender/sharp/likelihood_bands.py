"""A banded matrix of likelihoods: many counts over a grid of shares, negligible entries omitted.

A count of k among n people is likely at shares near k/n and all but impossible at others. Likely
shares are a tenth of a long grid or less, so rows of neighbouring counts are stored as a *band*:
neighbouring rows at neighbouring shares. All other likelihoods are `MIN_LIKELIHOOD`.

Symbols: p = a share of the grid, y = the count of a row, g = a weight for each p.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from blendstream.blender.values.arrays import FloatArray, IntArray

__all__ = ["MIN_LIKELIHOOD", "Band", "Likelihood", "LogLikelihood"]

#: Smaller likelihoods are raised to this: if one count excluded a share completely, a second count
#: that requires this share would leave no probability anywhere.
MIN_LIKELIHOOD = 1e-280


class LogLikelihood(Protocol):
    """log P(y | p) at given rows and shares."""

    def logs(self, rows: IntArray, shares: slice) -> FloatArray:
        """Return log P(y | p) of these rows at these shares."""


@dataclass(frozen=True, slots=True)
class Band:
    """Neighbouring rows, from the end of the previous band, at shares from `begin` on."""

    begin: int
    values: FloatArray

    @property
    def shares(self) -> slice:
        """The shares of the grid that the band covers."""
        return slice(self.begin, self.begin + self.values.shape[1])


class Likelihood:
    """P(y | p), one row per y, over a grid of `grid` shares.

    >>> likelihood = Likelihood([Band(0, np.array([[0.5]])), Band(1, np.array([[0.2, 0.4]]))], 3)
    >>> likelihood.weighed(np.array([1.0, 1.0, 2.0])).tolist()
    [0.5, 1.0]
    >>> likelihood.summed(np.array([1.0, 10.0])).tolist()
    [0.5, 2.0, 4.0]
    """

    def __init__(self, bands: Sequence[Band], grid: int) -> None:
        """`bands` are in the order of their rows."""
        sizes = [len(band.values) for band in bands]
        self._bands = bands
        self._grid = grid
        self._ends = np.cumsum(sizes)
        self._logs: list[FloatArray] | None = None

    def __len__(self) -> int:
        """Number of rows."""
        return int(self._ends[-1]) if len(self._ends) else 0

    def weighed(self, g: FloatArray) -> FloatArray:
        """Return Σ_p P(y | p)·g(p) for each y; several g may be stacked as rows."""
        parts = [g[..., band.shares] @ band.values.T for band in self._bands]
        return np.asarray(
            np.concatenate(parts, axis=-1) + MIN_LIKELIHOOD * g.sum(axis=-1, keepdims=True)
        )

    def summed(self, weights: FloatArray) -> FloatArray:
        """Return Σ_y weight(y)·P(y | p) at each p."""
        total = np.full(self._grid, MIN_LIKELIHOOD * weights.sum())
        for band, part in zip(self._bands, np.split(weights, self._ends[:-1]), strict=True):
            total[band.shares] += part @ band.values
        return total

    def logs(self, rows: IntArray, shares: slice) -> FloatArray:
        """Return log P(y | p) for these rows at these shares."""
        if self._logs is None:
            self._logs = [np.log(band.values) for band in self._bands]
        asked = np.arange(*shares.indices(self._grid))
        found = np.full((len(rows), len(asked)), np.log(MIN_LIKELIHOOD))
        band_of = np.searchsorted(self._ends, rows, side="right")
        for number in np.unique(band_of).tolist():
            band, first = self._bands[number], int(self._ends[number - 1]) if number else 0
            here = slice(*np.searchsorted(asked, (band.shares.start, band.shares.stop)))
            these = np.flatnonzero(band_of == number)
            of_band = np.ix_(rows[these] - first, asked[here] - band.begin)
            found[these, here] = self._logs[number][of_band]
        return found
