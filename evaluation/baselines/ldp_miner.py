"""Baseline: LDPMiner, the only external method that the paper compares with (Figure 12).

Nobody trusts the curator. In phase 1 every device spends ε/2 on a report about all existing items;
the 2k items with most support become the candidates. In phase 2 every device spends the other
ε/2 on a report about the candidates alone; the k largest estimates are published.
Source: Z. Qin, Y. Yang, T. Yu, I. Khalil, X. Xiao, K. Ren, "Heavy Hitter Estimation over Set-Valued
Data with Local Differential Privacy" (CCS 2016), in the summary of T. Wang, N. Li, S. Jha, "Locally
Differentially Private Frequent Itemset Mining" (IEEE S&P 2018): succinct histogram, then basic
RAPPOR; sets are padded to a common length ℓ, of which a device reports one element.

Here everyone holds one item, and phase 1 has ℓ = 1, which is the best case. In phase 2 a device
pads the candidates that it holds to `padding` elements: 2k in that summary. 1 is enough here, as
everyone holds one item, and has (2k)² times less variance.

Promises: (ε,0)-DP for every device, both reports together; neighbouring: replace-one.
Assumes: the curator has a complete list of the items (a dictionary of all queries) and computes a
support for each; phase 2's candidates are post-processing of phase 1's reports.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blendstream.blender.values.arrays import FloatArray, IntArray
from blendstream.evaluation.baselines.frequency_oracles import (
    FrequencyOracle,
    draw_best,
    local_hashing,
    unary_encoding,
)
from blendstream.evaluation.baselines.held_items import HeldItems
from blendstream.evaluation.baselines.published_list import NOBODY, PublishedList

__all__ = ["PaddedReports", "publish_by_ldp_miner"]


@dataclass(frozen=True, slots=True)
class PaddedReports:
    """Reports about one of `padding` elements, of which the device's item is one."""

    oracle: FrequencyOracle
    padding: int

    def draw_estimates(self, holders: IntArray, users: int, rng: np.random.Generator) -> FloatArray:
        """Draw p̂ of each candidate, scaled because reports on padding elements support none."""
        reported = rng.binomial(holders, 1 / self.padding)
        supports = self.oracle.draw_supports(reported, users, rng)
        return self.padding * self.oracle.estimate(supports, users)

    def variance(self, probability: FloatArray, users: int) -> FloatArray:
        """Return Var(p̂), if each of `users` holds the candidate with this probability."""
        return self.padding**2 * self.oracle.variance(probability / self.padding, users)


def publish_by_ldp_miner(
    items: HeldItems, size: int, epsilon: float, rng: np.random.Generator, *, padding: int = 1
) -> PublishedList:
    """Find 2k candidates with half of ε, estimate them with the other half, publish the best k."""
    held, counts = np.unique(items.held, return_counts=True)
    counts = counts.astype(np.int64)
    best = draw_best(
        local_hashing(epsilon / 2, buckets=2), counts, items.domain, items.users, 2 * size, rng
    )
    numbers = np.where(best >= 0, held[best], NOBODY)
    holders = np.where(best >= 0, counts[best], 0)
    reports = PaddedReports(unary_encoding(epsilon / 2), padding)
    estimates = reports.draw_estimates(holders, items.users, rng)
    order = np.argsort(-estimates, kind="stable")[:size]
    return PublishedList(np.asarray(numbers[order], dtype=np.int64), estimates[order])
