"""Simulate opt-in users of whom a part returns with the same records in the next epoch.

Records become known by the counts of earlier epochs. If the same people are counted again, their
sampling error is counted again too.

Promises: the generator determines the epochs.
Symbols: S, T = the opt-in users who select and who estimate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench._two_groups import Groups
from blendstream.blender.epoch_estimates import EpochEstimates, OptinRelease, estimate_epoch
from blendstream.blender.profiles import build_head_list
from blendstream.blender.registry import randomizer_for
from blendstream.blender.values.arrays import FloatArray
from blendstream.blender.values.interfaces import OptinCounts
from blendstream.blender.values.record import Record
from blendstream.evaluation.simulated_noise import SimulatedNoise
from blendstream.evaluation.simulated_reports import draw_report_counts

__all__ = ["LastEpoch", "last_of_some_epochs"]


@dataclass(frozen=True, slots=True)
class LastEpoch:
    """The last of some epochs: what was released, estimated and true of the listed records."""

    release: OptinRelease
    estimates: EpochEstimates
    truth: FloatArray
    known: NDArray[np.bool_]


def last_of_some_epochs(
    groups: Groups, staying: float, epochs: int, rng: np.random.Generator
) -> LastEpoch:
    """In each epoch a part `staying` of the opt-in users is as before, the others are new."""
    people, users = groups.people, groups.optin_users
    in_s = round(users * groups.selection_share)
    held = people.draw(users, rng)
    known: tuple[Record, ...] = ()
    number: dict[Record, int] = {}
    for epoch in range(epochs):
        if epoch:
            held = np.where(rng.random(users) < staying, held, people.draw(users, rng))
        numbers, where = np.unique(held, return_inverse=True)
        records = people.records(numbers)
        number |= dict(zip(records, numbers.tolist(), strict=True))
        s, t = (
            np.bincount(part, minlength=len(numbers)).astype(np.int64)
            for part in (where[:in_s], where[in_s:])
        )
        counts = OptinCounts(records, s, t, in_s, users - in_s)
        release = build_head_list("sharp", counts, groups.parameters, SimulatedNoise(rng), known)
        known = release.head_list.records
    listed = known[: release.head_list.listed]
    p = people.probability(np.array([number[record] for record in listed], dtype=np.int64))
    clients = groups.users - users
    holders = rng.multinomial(clients, np.append(p, max(1 - p.sum(), 0.0)))
    reports = draw_report_counts(randomizer_for(release.head_list), holders, rng)
    is_known = np.zeros(len(known), dtype=np.bool_)
    is_known[list(release.known)] = True
    return LastEpoch(release, estimate_epoch(release, reports, clients), p, is_known[: len(p)])
