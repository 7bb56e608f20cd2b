"""By how much the groups differ, from all remembered epochs together.

One epoch's blend knows τ only as far as its own reports tell. Where clients take turns these are
few, and what is thought beforehand decides. Over epochs they add up: the mean of S's shares of a
record and the mean of the clients' estimates of it differ by what the groups differ by, once noise
and sampling have averaged out.

    c̄ − s̄ ~ N(0, v_S + v_C + (τ·p)²),     P(τ) as in `blender.sharp.group_difference`

S's people may be the same in every epoch, so that their sampling error is not taken to average out.

Promises: post-processing of published numbers. The answer is a point of a grid, the next above the
mean of P(τ | all): publications that tell the same give the same number on every machine, but for
one that lies on the edge.
Symbols: τ = how far a record's probability differs between the groups, as a part of itself; s̄, c̄ =
means over epochs of S's share and of the clients' estimate.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blendstream.blender.over_time.publication_filter import Publication
from blendstream.blender.values.record import Record

__all__ = ["pooled_difference"]

#: The grid, evenly in log τ: coarse, because each new value means reading every publication again.
_GRID = np.array([0.005, 0.01, 0.02, 0.03, 0.045, 0.065, 0.09, 0.13, 0.18, 0.25, 0.35, 0.5, 0.8])
#: Half of all groups differ by less than this (half-Cauchy).
_TYPICAL = 0.1
#: Records with fewer holders in S say nothing of τ that is not noise.
_LEAST_HOLDERS = 20.0


def pooled_difference(publications: Sequence[Publication]) -> float:
    """τ from all of them; what is thought beforehand where no clients reported."""
    shares: dict[Record, list[float]] = {}
    of_clients: dict[Record, tuple[float, float]] = {}
    for publication in publications:
        clients = publication.clients
        if clients is None or clients.reports == 0:
            continue
        known = np.isfinite(clients.variance) & np.isfinite(clients.probability)
        for i in np.flatnonzero(known).tolist():
            record, weight = publication.records[i], 1 / max(float(clients.variance[i]), 1e-300)
            pull, total = of_clients.get(record, (0.0, 0.0))
            of_clients[record] = (
                pull + weight * float(clients.probability[i]), total + weight,
            )  # fmt: skip
            shares.setdefault(record, []).append(publication.counts[i] / publication.users)
    log_prior = -np.log1p((_GRID / _TYPICAL) ** 2) + np.log(np.gradient(_GRID))
    weight = log_prior.copy()
    if publications:
        users, noise = publications[-1].users, publications[-1].noise
        for record, seen in shares.items():
            s, k = float(np.mean(seen)), len(seen)
            pull, total = of_clients[record]
            c = pull / total
            p = max((s + c) / 2, 0.0)
            if p * users < _LEAST_HOLDERS:
                continue
            variance = p / users + noise / users**2 / k + 1 / total + (_GRID * p) ** 2
            weight -= (c - s) ** 2 / (2 * variance) + np.log(variance) / 2
    law = np.exp(weight - weight.max())
    mean = float((law * _GRID).sum() / law.sum())
    return float(_GRID[min(int(np.searchsorted(_GRID, mean)), len(_GRID) - 1)])
