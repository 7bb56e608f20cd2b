"""Estimate the proportion of devices that hold each record, from two-stage randomised reports.

Paper: EstimateClientProbabilities (Figure 5), with input from LocalAlg (Figure 6).

Promises: post-processing only. The estimates have the privacy guarantee of the reports; this module
draws no noise and spends no budget. p̂ is unbiased and, for m_C = 1, so is σ̂² (unless p̂ is outside
[0, 1]: σ̂² is then computed at the nearer end).
Assumes: the randomizer that the head list names drew every report; devices are independent and
identically distributed. For m_C > 1 a device's answers are correlated, and counts do not show their
covariance: variances are m_C times those of independent answers, which is a bound.
Symbols: k = queries with ⋆, k_q = URLs of q with ⋆, t and t_q = P(tell query, URL),
r = observed share, p = wanted probability, n = answers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.values.arrays import FloatArray, IntArray
from blendstream.blender.values.cell_estimates import Estimates, GroupEstimates, unknown_group
from blendstream.blender.values.cells import Cells
from blendstream.blender.values.errors import HeadListMismatch
from blendstream.blender.values.intervals import wilson_interval

__all__ = ["TwoStageChannel", "estimate_client_probabilities"]


def estimate_client_probabilities(
    counts: IntArray, *, reports: int, channel: TwoStageChannel, answers: int = 1
) -> GroupEstimates:
    """Estimate p̂_C and σ̂²_C of every cell and query from the `counts[…, c]` answers with cell c.

    Simulations may stack any number of runs in leading axes.
    """
    n, size, queries = reports * answers, len(channel.query), len(channel.k_q) - 1
    if counts.shape[-1] != size or (counts < 0).any() or (counts.sum(axis=-1) != n).any():
        raise HeadListMismatch(
            f"{reports} reports of {answers} answers make {n} counts over {size} cells, "
            f"got a total of {counts.sum(axis=-1)} over {counts.shape[-1]}"
        )
    if size == 1:
        return _certain(reports)
    if reports == 0:
        return unknown_group(size, queries)

    r = counts / n
    r_q = channel.sum_by_query(r)
    r_listed = channel.sum_by_query(np.where(channel.is_listed, r, 0))[..., :-1]

    def of_mean(spread: FloatArray) -> FloatArray:
        """Return σ̂² of a mean over the answers; those of one device count as a single one."""
        return spread / (reports - 1) if reports > 1 else np.full_like(spread, np.inf)

    # A device reports its query with probability t, else one of the other k − 1. So
    #
    #     r_q = t·p_q + lie·(1 − p_q),     lie = (1−t)/(k−1),     d = t − lie
    #
    # and solving for p_q gives Figure 5, line 12.
    # Figure 5, line 13 is σ̂²_q = r̂_q(1−r̂_q) / ((n−1)d²).
    lie, d = channel.lie, channel.d
    p_q = (r_q - lie) / d
    # Departure: variances are computed at p̂ clipped to [0, 1]. Outside, the plug-in approaches 0
    # and would get nearly all the weight of a blend (docs/decisions/0004-variance-floors.md).
    r_q_likely = np.clip(r_q, lie, channel.t)
    p_q_likely = (r_q_likely - lie) / d
    variance_q = of_mean(r_q_likely * (1 - r_q_likely) / d**2)
    low_q, high_q = wilson_interval(r_q, reports, pull=np.zeros_like(r_q), total=r_q)
    low_q, high_q = _clip((low_q - lie) / d), _clip((high_q - lie) / d)

    def denoise(r_part: FloatArray, query: IntArray, urls: IntArray) -> Estimates:
        others = channel.from_others(p_q, query, urls)
        pull, gain = channel.pull(query, urls), channel.gain[query]
        least = channel.from_others(p_q_likely, query, urls)
        r_likely = np.clip(r_part, least, least + gain)
        spread = channel.spread(r_likely, r_q_likely, query, urls)
        low, high = wilson_interval(r_part, reports, pull=pull, total=r_q[..., query])
        low, high = _clip((low - others) / gain), _clip((high - others) / gain)
        # ⟨⋆,⋆⟩ is its query's only URL: it is the query, so its interval is the query's.
        is_star = query == queries
        low[..., is_star], high[..., is_star] = low_q[..., -1:], high_q[..., -1:]
        return Estimates((r_part - others) / gain, of_mean(spread), low, high)

    of_cells = denoise(r, channel.query, np.ones(size, dtype=np.int64))
    listed_urls = channel.k_q[:-1] - 1
    return GroupEstimates(
        participants=reports,
        cells=of_cells,
        query_totals=denoise(r_listed, np.arange(queries), listed_urls),
        query_marginals=Estimates(*(a[..., :-1] for a in (p_q, variance_q, low_q, high_q))),
        variance_at=lambda p: channel.variance_at(p, reports),
    )


@dataclass(frozen=True, slots=True)
class TwoStageChannel:
    """Figure 6's probabilities, per query, ⋆ last (for one URL: k_q = 1, t_q = 1, lie_q = 0)."""

    query: IntArray  # of each cell
    is_listed: NDArray[np.bool_]  # of each cell: ⟨q,u⟩, not ⟨q,⋆⟩ or ⟨⋆,⋆⟩
    t: float
    lie: float  # (1−t)/(k−1)
    d: float  # t − lie
    k_q: IntArray
    lie_q: FloatArray  # (1−t_q)/(k_q−1)
    gain: FloatArray  # t·g_q, g_q = t_q − lie_q

    @classmethod
    def from_cells(cls, cells: Cells, truth: float, url_truth: FloatArray) -> TwoStageChannel:
        """Build the channel from t and the t_q of each query, ⋆ last."""
        queries = len(cells.queries)
        query = np.where(cells.query_of_cell < 0, queries, cells.query_of_cell)
        k_q = np.bincount(query, minlength=queries + 1)
        lie = (1 - truth) / max(queries, 1)
        lie_q = (1 - url_truth) / np.maximum(k_q - 1, 1)
        return cls(
            query=query,
            is_listed=np.arange(len(cells)) < len(cells.records),
            t=truth,
            lie=lie,
            d=truth - lie,
            k_q=k_q,
            lie_q=lie_q,
            gain=truth * (url_truth - lie_q),
        )

    def sum_by_query(self, values: FloatArray) -> FloatArray:
        """Sum over each query's cells (last axis), ⋆ last."""
        flat = values.reshape(-1, values.shape[-1])
        rows, width = len(flat), len(self.k_q)
        place = np.arange(rows)[:, np.newaxis] * width + self.query
        sums = np.bincount(place.ravel(), weights=flat.ravel(), minlength=rows * width)
        return np.asarray(sums.reshape(*values.shape[:-1], width), dtype=np.float64)

    def from_others(self, p_q: FloatArray, query: IntArray, urls: IntArray) -> FloatArray:
        """Return the share of reports on a part of u URLs from devices that do not hold it."""
        # A cell is reported by holders who tell the truth (t·t_q), by holders of other URLs of its
        # query who lie about the URL (t·lie_q), and by holders of other queries (lie/k_q):
        #
        #     r_qu = t·t_q·p_qu + t·lie_q·(p_q − p_qu) + lie/k_q·(1 − p_q)
        #          = t·g_q·p_qu + [ t·lie_q·p_q + lie/k_q·(1 − p_q) ]
        #
        # This is the bracket; solving for p_qu gives Figure 5, line 16:
        #
        #     p̂_qu = (r̂_qu − t·lie_q·p̂_q − lie/k_q·(1−p̂_q)) / (t·g_q)
        #
        # The sum over u of a query's URLs has u brackets.
        wrong_url = self.t * self.lie_q * p_q
        wrong_query = self.lie / self.k_q * (1 - p_q)
        return np.asarray(urls * (wrong_url + wrong_query)[..., query])

    def pull(self, query: IntArray, urls: IntArray) -> FloatArray:
        """Return C = u·c_q/d, c_q = lie/k_q − t·lie_q: weight of r̂_q in p̂_qu, that of r̂_qu is 1."""
        return np.asarray(urls * ((self.lie / self.k_q - self.t * self.lie_q) / self.d)[query])

    def spread(
        self, r_part: FloatArray, r_q: FloatArray, query: IntArray, urls: IntArray
    ) -> FloatArray:
        """Return the variance of one answer's contribution to p̂ of a part."""
        # p̂_qu = (r̂_qu + C·r̂_q + const)/(t·g_q), and r̂_qu is part of r̂_q, so that
        # Cov(r̂_qu, r̂_q) = r_qu(1−r_q)/n and
        #
        #     n·σ²_qu = [ r_qu(1−r_qu) + C²·r_q(1−r_q) + 2C·r_qu(1−r_q) ] / (t·g_q)²
        #
        # which is the longer paper's Theorem 3.6 with Bessel's correction applied once.
        # Departure from Figure 5, line 17: its covariance lacks a 1/n and gives negative
        # variances (docs/decisions/0002-client-variance.md).
        total, c = r_q[..., query], self.pull(query, urls)
        own = r_part * (1 - r_part)
        query_part = c**2 * total * (1 - total)
        both = 2 * c * r_part * (1 - total)
        return np.asarray((own + query_part + both) / self.gain[query] ** 2)

    def expected_shares(self, p: FloatArray) -> FloatArray:
        """Return r of every cell if p is the truth."""
        p_q = self.sum_by_query(p)
        return self.gain[self.query] * p + self.from_others(p_q, self.query, self._one_url())

    def denoise(self, r: FloatArray) -> FloatArray:
        """Return p of every cell from r, the inverse of `expected_shares`."""
        p_q = (self.sum_by_query(r) - self.lie) / self.d
        return np.asarray(
            (r - self.from_others(p_q, self.query, self._one_url())) / self.gain[self.query]
        )

    def variance_at(self, p: FloatArray, reports: int) -> FloatArray:
        """Return σ² of each cell's p̂ if p is the truth."""
        r = self.expected_shares(p)
        return self.spread(r, self.sum_by_query(r), self.query, self._one_url()) / reports

    def _one_url(self) -> IntArray:
        return np.ones(len(self.query), dtype=np.int64)


def _clip(probability: FloatArray) -> FloatArray:
    return np.clip(probability, 0.0, 1.0)


def _certain(reports: int) -> GroupEstimates:
    """Return the estimates for k = 1: the head list is empty, and everyone is in ⟨⋆,⋆⟩."""
    none, one = np.zeros(0), np.ones(1)
    return GroupEstimates(
        participants=reports,
        cells=Estimates(one, np.zeros(1), one, one),
        query_totals=Estimates(none, none, none, none),
        query_marginals=Estimates(none, none, none, none),
        variance_at=lambda p: np.zeros(len(p)),
    )
