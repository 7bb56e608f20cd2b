"""The server's side of the paper's two-stage randomizer (`paper.local.TwoStage`).

Paper: EstimateClientProbabilities (Figure 5), with input from LocalAlg (Figure 6).

Promises: post-processing only; it draws no noise and spends no budget.
Assumes: that randomizer drew every answer, for these cells.
"""

from __future__ import annotations

from itertools import chain

import numpy as np

from blendstream.blender.paper.client import TwoStageChannel, estimate_client_probabilities
from blendstream.blender.paper.local import TwoStage
from blendstream.blender.values.arrays import FloatArray, IntArray
from blendstream.blender.values.cell_estimates import GroupEstimates
from blendstream.blender.values.cells import Cells, RandomizerSpec

__all__ = ["TwoStageEstimator"]


class TwoStageEstimator(TwoStage):
    """The two-stage randomizer with its estimator, and a channel for simulations."""

    def __init__(self, cells: Cells, spec: RandomizerSpec) -> None:
        """Derive the device's channel as arrays."""
        super().__init__(cells, spec)
        self._sizes = np.array([len(members) for members in self._members])
        self._start = np.concatenate([[0], np.cumsum(self._sizes)])
        self._in_order = np.fromiter(chain.from_iterable(self._members), dtype=np.int64)
        self._query_numbers = np.array(self._query_of_cell)
        self._places = np.array(self._place)
        self._url_truths = np.array([float(self.url_truth[int(k_q)]) for k_q in self._sizes])
        self._channel = TwoStageChannel.from_cells(cells, float(self.truth), self._url_truths)

    def answer_batch(self, cells: IntArray, rng: np.random.Generator) -> IntArray:
        """Simulate the channel for many devices, with floats; not for real use."""
        n, k = len(cells), len(self._sizes)
        q = self._query_numbers[cells]
        place = self._places[cells]

        lie_url = rng.random(n) >= self._url_truths[q]
        other_place = rng.integers(0, np.maximum(self._sizes[q] - 1, 1))
        other_place += other_place >= place
        place = np.where(lie_url & (self._sizes[q] > 1), other_place, place)

        if k > 1:
            liars = np.flatnonzero(rng.random(n) >= float(self.truth))
            other = rng.integers(0, k - 1, size=len(liars))
            other += other >= q[liars]
            q = q.copy()
            q[liars] = other
            place[liars] = rng.integers(0, self._sizes[other])
        return np.asarray(self._in_order[self._start[q] + place][:, np.newaxis])

    def expected_shares(self, p: FloatArray) -> FloatArray:
        """Return the expected shares of the reports if p is the truth."""
        return self._channel.expected_shares(p)

    def denoise(self, shares: FloatArray) -> FloatArray:
        """Return p̂ from observed shares: the inverse of `expected_shares`."""
        return self._channel.denoise(shares)

    def estimate(self, counts: IntArray, reports: int) -> GroupEstimates:
        """Estimate by Figure 5: see `blender.paper.client`."""
        return estimate_client_probabilities(
            counts, reports=reports, channel=self._channel, answers=self.spec.answers
        )
