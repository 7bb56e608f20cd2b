"""Baseline with a trusted curator, who receives every record that is used.

A stability-based histogram: noise on the count of every record that somebody holds, a threshold
that a singleton passes with probability at most δ, the M largest with their noisy counts.
Source: A. Korolova, K. Kenthapadi, N. Mishra, A. Ntoulas, "Releasing Search Queries and Clicks
Privately" (WWW 2009), in the form of `blender.sharp.stable_histogram`, which has the proof.

Promises: (ε,δ)-DP for everyone in it; neighbouring: replace-one.
Assumes: the curator sees every record in the clear, and publishes nothing but the list.
"""

from __future__ import annotations

import numpy as np

from blendstream.blender.sharp.stable_histogram import StableHistogram
from blendstream.blender.values.arrays import IntArray
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.evaluation.baselines.published_list import PublishedList
from blendstream.evaluation.simulated_noise import SimulatedNoise

__all__ = ["publish_by_curator"]


def publish_by_curator(
    held: IntArray, parameters: PrivacyParameters, rng: np.random.Generator
) -> PublishedList:
    """Publish the M records with the largest noisy counts that pass, and p̂ = (N + X)/n."""
    numbers, counts = np.unique(held, return_counts=True)
    selection = StableHistogram().select(
        counts.astype(np.int64), np.zeros(len(counts), np.bool_), parameters, SimulatedNoise(rng)
    )
    noisy = selection.noisy_counts
    if noisy is None:
        raise TypeError("stable-histogram keeps its noisy counts")
    best = np.argsort(-noisy, kind="stable")[: parameters.head_list_cells]
    return PublishedList(
        np.asarray(numbers[selection.kept[best]], dtype=np.int64), noisy[best] / max(len(held), 1)
    )
