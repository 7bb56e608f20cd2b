"""Compute an epoch's estimates from both groups' releases: the opt-in group's, then the blend.

    opt-in release ──▶ its `optin` and `shares` ──┐
    cell counts of reports ───────────────────────┴──▶ `estimate_epoch`: denoise, blend

Paper: EstimateClientProbabilities and BlendProbabilities (Figures 5 and 7), in either profile.

Promises: post-processing only, of the result of `blender.profiles.build_head_list` and of devices'
reports; deterministic.
Assumes: the counts are of reports on this release's head list.
Symbols: S, T = the opt-in users who select and who estimate; p̂_O = the opt-in group's estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.noise.noise_distribution import gaussian_distribution, laplace_distribution
from blendstream.blender.over_time.period_budget import PERIOD_HISTOGRAM
from blendstream.blender.paper.blend import VarianceBlender
from blendstream.blender.paper.optin import NoisyCounts, estimate_noisy_counts
from blendstream.blender.registry import randomizer_for
from blendstream.blender.sharp.difference_blend import blend_groups, optin_group
from blendstream.blender.sharp.group_difference import Difference
from blendstream.blender.sharp.optin_posterior import (
    OptinPosterior,
    SelectionCounts,
    estimate_optin_shares,
)
from blendstream.blender.values.arrays import IntArray
from blendstream.blender.values.cell_estimates import GroupEstimates
from blendstream.blender.values.cells import HeadList

__all__ = [
    "FROM_S_AND_T",
    "EpochEstimates",
    "Mechanisms",
    "OptinRelease",
    "estimate_epoch",
]

#: Name of the estimator of p_O in `sharp` with one record per user.
FROM_S_AND_T: Final = "listed-and-noisy-counts"


@dataclass(frozen=True, slots=True)
class Mechanisms:
    """The name of the mechanism in each role, as every publication states it."""

    profile: str
    selector: str
    optin_estimator: str
    randomizer: str
    blender: str


@dataclass(frozen=True)
class OptinRelease:
    """The opt-in group's whole release of an epoch, and the estimates that follow from it.

    `noisy` are T's counts over the list's cells (`users` = 0 if there is no T). S's counts are in
    the head list; new records are published from `threshold` on, and one below it with
    `below_threshold_probability`. `known` are the places in the head list of records that were on
    the last one too, `forgotten` those of records that are new again in the next epoch.
    `filter_failure` is the error if records were ranked and forgotten without the filter.

    `optin` and `shares` are post-processing: computed at first use and not by the draw, which must
    not be repeated if they fail.
    """

    mechanisms: Mechanisms
    head_list: HeadList
    noisy: NoisyCounts
    threshold: int | None
    selection_users: int
    selection_scale: float
    below_threshold_probability: float
    known: tuple[int, ...]
    best_trimmed: int | None
    forgotten: tuple[int, ...] = ()
    filter_failure: Exception | None = None

    @property
    def optin(self) -> GroupEstimates:
        """p̂_O, before any device reports."""
        return self._estimates[0]

    @property
    def shares(self) -> OptinPosterior | None:
        """The posterior of p_O for the blend; `None` without opt-in data, and in `paper`."""
        return self._estimates[1]

    @cached_property
    def _estimates(self) -> tuple[GroupEstimates, OptinPosterior | None]:
        return _optin_estimates(self)


@dataclass(frozen=True, slots=True)
class EpochEstimates:
    """Both groups' estimates and their blend, for every cell and query.

    `difference` is how far the groups differ, in `sharp`; for a `disputed` cell the blend has one
    group's value, and an interval that spans both groups'.
    """

    mechanisms: Mechanisms
    optin: GroupEstimates
    client: GroupEstimates
    blended: GroupEstimates
    difference: Difference | None
    disputed: NDArray[np.bool_]


def estimate_epoch(
    release: OptinRelease, cell_counts: IntArray, reports: int, *, devices_admitted: bool = False
) -> EpochEstimates:
    """Estimate from the devices' answers and blend with the opt-in release. Post-processing.

    `devices_admitted`: every report came from a checked device. Otherwise reports may be forged,
    and a disputed record gets the opt-in users' value.
    """
    client = randomizer_for(release.head_list).estimate(cell_counts, reports)
    cells = release.head_list.cells
    if release.mechanisms.profile == "paper":
        blended = release.optin
        if reports > 0:
            blended = VarianceBlender().blend(release.optin, client, cells)
        nothing = np.zeros(len(cells), dtype=np.bool_)
        return EpochEstimates(release.mechanisms, release.optin, client, blended, None, nothing)
    blend = blend_groups(
        release.shares, release.optin, client, cells, devices_admitted=devices_admitted
    )
    return EpochEstimates(
        release.mechanisms, release.optin, client, blend.estimates, blend.difference, blend.disputed
    )


def _optin_estimates(release: OptinRelease) -> tuple[GroupEstimates, OptinPosterior | None]:
    """Compute p̂_O and the posterior of p_O from the released numbers, deterministically."""
    head_list, noisy, names = release.head_list, release.noisy, release.mechanisms
    cells, listed = head_list.cells, head_list.listed
    if names.profile == "paper":
        return estimate_noisy_counts(noisy, cells), None
    selected = _selection_counts(release)
    # If S's counts are used, T's exact intervals, which take most of the time, are needed for the
    # wildcards alone. Otherwise T's intervals are published as they are, and the prior of shares
    # enters the blend only.
    own_of = 0 if selected is None else listed
    t_alone = estimate_noisy_counts(noisy, cells, intervals_from=own_of)
    if listed == 0 or (selected is None and noisy.users == 0):
        return t_alone, None
    shares = estimate_optin_shares(selected, noisy, listed)
    return (t_alone if selected is None else optin_group(shares, t_alone, cells)), shares


def _selection_counts(release: OptinRelease) -> SelectionCounts | None:
    """Return S's counts if estimates use them: one record per user, and S has users."""
    counts, threshold = release.head_list.noisy_counts, release.threshold
    names, users = release.mechanisms, release.selection_users
    if names.optin_estimator != FROM_S_AND_T or not (counts and threshold and users):
        return None
    is_known = np.zeros(len(counts), dtype=np.bool_)
    is_known[list(release.known)] = True
    in_period = names.selector == PERIOD_HISTOGRAM
    distribution = gaussian_distribution if in_period else laplace_distribution
    noise = distribution(release.selection_scale)
    return SelectionCounts(np.array(counts), users, noise, threshold, is_known)
