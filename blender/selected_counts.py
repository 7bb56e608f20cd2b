"""What the counts behind the head list say about a record, given that it was listed at all.

A record is listed because its noisy count Y = N + X was high enough, so Y is high more often than
p explains: near the threshold, and near the cut at M, by 20-40 %. Seen another way nothing is
wrong with Y. Whoever else is listed, record i is listed exactly if Y_i ≥ c_i, where

    c_i = the larger of its own threshold (θ for a new record, the drop level for a known one) and
          the count of the first record that was *not* listed (one more if it would lose the tie),

and c_i does not depend on Y_i. So the honest question is how large Y is *given Y ≥ c*:

    m(p) = E(Y | Y ≥ c)/S,      τ²(p) = Var(Y | Y ≥ c)/S².

The distance Y/S − m(p) is zero on average at the true p, and says most about p when weighed with
m′(p)/τ²(p); its information is then m′²/τ². Where Y ≥ c is certain, m(p) = p and τ² is the plain
variance: the count is as good as a fresh one and is weighed by its inverse variance. Where it
hardly ever happens the excess is memoryless, m is flat, m′ = 0: the count gets no weight
(docs/decisions/0021-listed-counts-are-conditional.md).

Promises: post-processing only; looks at released noisy counts.
Assumes: m_O = 1, discrete Laplace noise, records counted independently (S is large).
Symbols: S = users of S, Y = noisy count, c = least count that lists the record.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from blender.cell_estimates import FloatArray
from blender.errors import HeadListMismatch
from blender.noise import IntArray, laplace_variance

__all__ = ["SelectedCounts"]

#: A chance of being listed below this is not looked into: the sums would be all rounding.
_MIRACLE = 1e-13

#: Points of p at which m and τ² are summed exactly; between them they are interpolated. The curves
#: bend over about one standard deviation, and the table spans some fifteen.
_POINTS = 241


@dataclass(frozen=True, slots=True)
class SelectedCounts:
    """S's released counts of the listed records, with what listing each of them took."""

    noisy: IntArray
    least: IntArray  # c
    users: int
    scale: float
    _tables: _Tables = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Tabulate m and τ² once for each different c."""
        if self.noisy.shape != self.least.shape or (self.noisy < self.least).any():
            raise HeadListMismatch("every listed record must have reached its least count")
        object.__setattr__(self, "_tables", _tabulate_all(self.least, self.users, self.scale))

    @property
    def share(self) -> FloatArray:
        """Y/S."""
        return np.asarray(self.noisy / self.users, dtype=np.float64)

    def plain_variance_at(self, p: FloatArray) -> FloatArray:
        """Var(Y)/S² without selection: p(1−p)/S + Var(X)/S²."""
        inside = np.clip(p, 0.0, 1.0)
        noise = laplace_variance(self.scale) / self.users**2
        return np.asarray(inside * (1 - inside) / self.users + noise)

    def score_at(self, p: FloatArray) -> tuple[FloatArray, FloatArray]:
        """m′/τ²·(Y/S − m) and its information m′²/τ², at p, for each listed record."""
        mean, variance, slope = self._tables.at(p)
        certain = p >= self._tables.highest
        mean = np.where(certain, p, mean)
        variance = np.where(certain, self.plain_variance_at(p), variance)
        weight = np.where(certain, 1.0, slope) / variance
        return weight * (self.share - mean), np.where(certain, weight, weight * slope)


@dataclass(frozen=True, slots=True)
class _Tables:
    """m, τ² and m′ at rising p, from where listing is next to impossible to where it is certain.

    One table for each c, all in `lines`, one behind the other; the others say which is a record's.
    They are even in √p, so the place of a p is computed and not searched for: an epoch of 50 000
    records looks millions of them up.
    """

    lines: tuple[tuple[FloatArray, FloatArray], ...]  # m, τ², m′ as straight lines, piece by piece
    first: IntArray  # line of the record's table
    root: FloatArray  # √p there
    step: FloatArray  # of √p, from row to row
    lowest: FloatArray  # p below which all is as there
    highest: FloatArray

    def at(self, p: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """m, τ² and m′, interpolated."""
        inside = np.clip(p, self.lowest, self.highest)
        place = ((np.sqrt(inside) - self.root) / self.step).astype(np.int64)
        line = self.first + np.clip(place, 0, _POINTS - 2)
        mean, variance, slope = (at[line] + inside * rise[line] for at, rise in self.lines)
        return mean, variance, slope


def _tabulate_all(least: IntArray, users: int, scale: float) -> _Tables:
    levels, level = np.unique(least, return_inverse=True)
    tables = [_tabulate(int(c), users, scale) for c in levels]
    p = np.stack([rows[:, 0] for rows, _ in tables])
    lines = []
    for column in (1, 2, 3):
        value = np.stack([rows[:, column] for rows, _ in tables])
        rise = np.diff(value) / np.diff(p)
        lines.append(((value[:, :-1] - rise * p[:, :-1]).ravel(), rise.ravel()))
    root, highest = np.sqrt(p[level, 0]), p[level, -1]
    return _Tables(
        lines=tuple(lines),
        first=level * (_POINTS - 1),
        root=root,
        step=(np.sqrt(highest) - root) / (_POINTS - 1),
        lowest=np.array([lowest for _, lowest in tables])[level],
        highest=highest,
    )


def _tabulate(least: int, users: int, scale: float) -> tuple[FloatArray, float]:
    """The rows for one c, and the p from which on they are good."""
    # Imported here: a device has numpy alone, and only servers blend.
    from scipy.special import bdtrc  # noqa: PLC0415

    # P(X = x) in closed form: far out, where listing is decided, a Fourier sum is all rounding.
    half = math.ceil(40 * scale) + 1
    noise = np.exp(-np.abs(np.arange(-half, half + 1)) / scale)
    noise /= noise.sum()
    spread = math.sqrt(max(least, 1) + laplace_variance(scale))
    lowest = max(min(least - 8 * spread - 3 * scale, users / 2), 0.05)
    highest = min(max(least + 7 * spread + 12 * scale + 12, lowest + 1), users)
    # Evenly in √count, where the spread is even.
    p = np.linspace(math.sqrt(lowest / users), math.sqrt(highest / users), _POINTS) ** 2

    # P(Y ≥ j) for j = c … c+reach: the binomial's tail, averaged over the noise.
    reach = math.ceil(16 * spread + 30 * scale + 20)
    needed = np.arange(least - half, least + reach + half + 1)
    tail = bdtrc(np.clip(needed - 1, 0, users), users, p[:, np.newaxis])
    tail = np.where(needed <= 0, 1.0, np.where(needed > users, 0.0, tail))
    windows = np.lib.stride_tricks.sliding_window_view(tail, len(noise), axis=1)
    at_least = windows @ noise  # noise is symmetric, so its direction does not matter

    # E(Y | Y ≥ c) = c + Σ_{j>c} P(Y ≥ j)/P(Y ≥ c), and with (j−c)² = Σ (2i−1) the same for squares.
    ratio = at_least[:, 1:] / at_least[:, :1]
    steps = np.arange(1, ratio.shape[1] + 1)
    excess = ratio.sum(axis=1)
    square = ratio @ (2 * steps - 1)
    mean = (least + excess) / users
    slope = np.gradient(mean, p)
    variance = (square - excess**2) / users**2
    # Where listing would be a miracle S's count rules p out whatever m is: the table starts above.
    start = int(np.argmax(at_least[:, 0] > _MIRACLE))
    for column in (mean, variance, slope):
        column[:start] = column[start]
    return np.stack([p, mean, variance, slope], axis=1), float(p[start])
