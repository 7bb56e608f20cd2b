"""Estimate how far the groups differ, from all remembered epochs together.

One epoch's blend estimates τ from that epoch's reports alone. Under cohort rotation these are few,
and the prior decides. Over epochs they add up: once noise and sampling have averaged out, the mean
of S's shares of a record and the mean of the clients' estimates differ by the group difference.

    c̄ − s̄ ~ N(0, v_S + v_C + (τ·p)²),     P(τ) as in `blender.sharp.group_difference`

S's people may be the same in every epoch, so their sampling error does not average out here.

Promises: post-processing of published numbers. The result is a point of a grid, the next above the
mean of P(τ | all), so that every machine finds the same number, unless the mean is within a
rounding error of a point.
Symbols: τ = relative difference of a record's probability between the groups; s̄, c̄ = means over
epochs of S's share and of the clients' estimate.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blendstream.blender.over_time.publication_filter import Publication
from blendstream.blender.values.record import Record

__all__ = ["pooled_difference"]

#: Grid of τ, even in log τ; coarse, because each new value means reading every publication again.
_GRID = np.array([0.005, 0.01, 0.02, 0.03, 0.045, 0.065, 0.09, 0.13, 0.18, 0.25, 0.35, 0.5, 0.8])
#: Half of all groups differ by less than this (half-Cauchy).
_TYPICAL = 0.1
#: Records with fewer holders in S are skipped: their difference is noise.
_LEAST_HOLDERS = 20.0


def pooled_difference(publications: Sequence[Publication]) -> float:
    """Return the pooled estimate of τ; the mean of the prior if no clients reported."""
    shares: dict[Record, list[float]] = {}
    client_sums: dict[Record, tuple[float, float]] = {}
    for publication in publications:
        clients = publication.clients
        if clients is None or clients.reports == 0:
            continue
        known = np.isfinite(clients.variance) & np.isfinite(clients.probability)
        for i in np.flatnonzero(known).tolist():
            record, weight = publication.records[i], 1 / max(float(clients.variance[i]), 1e-300)
            pull, total = client_sums.get(record, (0.0, 0.0))
            client_sums[record] = (
                pull + weight * float(clients.probability[i]), total + weight,
            )  # fmt: skip
            shares.setdefault(record, []).append(publication.counts[i] / publication.users)
    log_prior = -np.log1p((_GRID / _TYPICAL) ** 2) + np.log(np.gradient(_GRID))
    weight = log_prior.copy()
    if publications:
        users, noise = publications[-1].users, publications[-1].noise
        for record, of_epochs in shares.items():
            s, k = float(np.mean(of_epochs)), len(of_epochs)
            pull, total = client_sums[record]
            c = pull / total
            p = max((s + c) / 2, 0.0)
            if p * users < _LEAST_HOLDERS:
                continue
            variance = p / users + noise / users**2 / k + 1 / total + (_GRID * p) ** 2
            weight -= (c - s) ** 2 / (2 * variance) + np.log(variance) / 2
    posterior = np.exp(weight - weight.max())
    mean = float((posterior * _GRID).sum() / posterior.sum())
    return float(_GRID[min(int(np.searchsorted(_GRID, mean)), len(_GRID) - 1)])
