"""The mechanisms put together: from opt-in counts to a head list, from reports to a blend.

Two profiles, one setting. `paper` is Figures 2 to 7, departures listed in the README. `sharp`
fills the same roles with what makes more of the same budget, and is the default:

    role                paper                       sharp
    head list           threshold, β = δ/2          keeps its noisy counts, β = δ, known records
                                                    (m_O > 1: Gaussian noise, distinct records)
    order of the list   T's noisy counts            S's noisy counts
    opt-in estimate     T                           S given that it was listed, and T
    randomizer          two stages                  the best of all for the list at hand
    blend               each group's own σ̂²         pooled variances, intervals with selection

Promises: `build_head_list` is (ε,δ)-DP for S and (ε,0)-DP for T, who are different people, so
(ε,δ)-DP for the opt-in group; neighbouring: replace-one. Everything after it is post-processing
of what it returns and of what devices sent.
Assumes: a user's records were limited to m_O and, for m_O > 1, to distinct ones, when counted; T
is counted by one record a user (the one in slot 0); `known` is already published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from blender import registry
from blender.best_randomizer import best_randomizer
from blender.blend import VarianceBlender
from blender.cell_estimates import GroupEstimates, unknown_group
from blender.cells import HeadList, RandomizerSpec
from blender.count_law import laplace_law
from blender.errors import ParameterError
from blender.gaussian_histogram import calibrate
from blender.head_list import create_head_list
from blender.interfaces import HeadListSelector, OptinCounts
from blender.local import TwoStage
from blender.noise import IntArray, Noise, laplace_scale
from blender.optin import (
    NoisyCounts,
    add_noise,
    estimate_noisy_counts,
    estimate_optin_probabilities,
)
from blender.optin_shares import SelectionCounts
from blender.parameters import SELECTION_SHARES, PrivacyParameters
from blender.record import Record
from blender.selected_counts import SelectedCounts
from blender.stable_blend import StableBlender
from blender.stable_histogram import drop_level

__all__ = [
    "PROFILES",
    "SELECTION_SHARES",
    "EpochEstimates",
    "Mechanisms",
    "OptinRelease",
    "build_head_list",
    "estimate_epoch",
    "optin_estimates",
    "prepare_head_list",
    "selector_of",
]


#: What the one setting may say.
PROFILES: Final = ("paper", "sharp")


@dataclass(frozen=True, slots=True)
class Mechanisms:
    """Who filled each role, by name: every publication says so."""

    profile: str
    selector: str
    optin_estimator: str
    randomizer: str
    blender: str


@dataclass(frozen=True, slots=True)
class OptinRelease:
    """All that the opt-in group releases in an epoch, and all that the estimates need of it.

    `noisy` are T's counts over the list's cells (`users` = 0 if there is no T). S's counts are in
    the head list; `least[i]` says how high the i-th listed one had to be, and is `None` where S's
    counts do not estimate. `optin` is p̂_O as it can be told before any device reports.
    """

    mechanisms: Mechanisms
    head_list: HeadList
    noisy: NoisyCounts
    threshold: int | None
    selection_users: int
    selection_scale: float
    least: tuple[int, ...] | None
    best_trimmed: int | None
    optin: GroupEstimates

    @property
    def ranked_by_t(self) -> bool:
        """Whether T's own counts ordered the list: they did where S's were not kept."""
        return self.head_list.noisy_counts is None

    @property
    def selection_counts(self) -> SelectionCounts | None:
        """S's counts of all selected records, where they estimate: one record a user."""
        counts, theta = self.head_list.noisy_counts, self.threshold
        if self.least is None or counts is None or theta is None or not self.head_list.listed:
            return None
        noise = laplace_law(self.selection_scale)
        return SelectionCounts(np.array(counts), self.selection_users, noise, theta)

    @property
    def selected(self) -> SelectedCounts | None:
        """S's counts of the listed records, given that they were listed."""
        return _selected(self.head_list, self.least, self.selection_users, self.selection_scale)


@dataclass(frozen=True, slots=True)
class EpochEstimates:
    """What both groups and their blend say about every cell and query."""

    mechanisms: Mechanisms
    optin: GroupEstimates
    client: GroupEstimates
    blended: GroupEstimates


def prepare_head_list(profile: str, parameters: PrivacyParameters) -> None:
    """Work out what drawing needs and data does not change, or refuse it, before anything is drawn.

    Noise for several records a user takes seconds to find; it is remembered in this process.
    """
    if profile == "sharp":
        _noise_of(parameters)


def build_head_list(
    profile: str,
    counts: OptinCounts,
    parameters: PrivacyParameters,
    noise: Noise,
    known: Sequence[Record] = (),
) -> OptinRelease:
    """Draw all of the opt-in group's noise for one epoch; `known` is the last list, whole."""
    if profile == "paper":
        return _paper_head_list(counts, parameters, noise)
    if profile == "sharp":
        return _sharp_head_list(counts, parameters, noise, known)
    raise ParameterError(f"profile must be one of {', '.join(PROFILES)}, got {profile!r}")


def selector_of(profile: str, parameters: PrivacyParameters) -> HeadListSelector:
    """Who builds the head list."""
    if profile == "paper":
        return registry.selector_of("threshold")
    one_record = parameters.records_per_optin_user == 1
    return registry.selector_of("stable-histogram" if one_record else "gaussian-histogram")


def estimate_epoch(release: OptinRelease, cell_counts: IntArray, reports: int) -> EpochEstimates:
    """Denoise the devices' answers and blend them with the opt-in release. Post-processing."""
    client = registry.randomizer_for(release.head_list).estimate(cell_counts, reports)
    blended = release.optin
    if reports > 0:
        cells = release.head_list.cells
        t_alone = estimate_noisy_counts(release.noisy, cells, intervals=False)
        blender = registry.blender_of(release.mechanisms.blender)
        blended = blender.blend(t_alone, client, cells, release.selected)
    return EpochEstimates(release.mechanisms, release.optin, client, blended)


def _paper_head_list(
    counts: OptinCounts, parameters: PrivacyParameters, noise: Noise
) -> OptinRelease:
    spec = RandomizerSpec(
        name=TwoStage.name,
        epsilon=parameters.epsilon,
        delta=parameters.delta,
        answers=parameters.records_per_client,
        query_budget_share=parameters.query_budget_share,
    )
    selected = create_head_list(counts, parameters, noise)
    optin = estimate_optin_probabilities(selected, counts, parameters, noise, randomizer=spec)
    names = Mechanisms(
        "paper",
        selector_of("paper", parameters).name,
        "noisy-counts",
        spec.name,
        VarianceBlender.name,
    )
    return OptinRelease(
        mechanisms=names,
        head_list=optin.head_list,
        noisy=optin.noisy,
        threshold=None,
        selection_users=counts.selection_users,
        selection_scale=laplace_scale(sensitivity=2, epsilon=parameters.epsilon),
        least=None,
        best_trimmed=optin.best_trimmed,
        optin=optin.estimates,
    )


def _sharp_head_list(
    counts: OptinCounts, parameters: PrivacyParameters, noise: Noise, known: Sequence[Record]
) -> OptinRelease:
    one_record = parameters.records_per_optin_user == 1
    selector = selector_of("sharp", parameters)
    records, raw, is_known = _with_known(counts, known)
    selection = selector.select(raw, is_known, parameters, noise)
    if selection.noisy_counts is None:
        raise ParameterError(f"{selector.name} must keep its noisy counts")

    # Ranked by S's noisy counts, ties by text: T has no part in the choice, so T stays unbiased.
    kept = [(records[i], bool(is_known[i])) for i in selection.kept]
    shown = selection.noisy_counts.tolist()
    ranked = sorted(zip(kept, shown, strict=True), key=lambda item: (-item[1], item[0][0]))
    order = tuple(record for (record, _), _ in ranked)
    listed = min(parameters.head_list_cells, len(order))
    spec = best_randomizer(order[:listed], parameters, parameters.max_cells_per_answer)
    head_list = HeadList(
        records=order,
        listed=listed,
        randomizer=spec,
        query_wildcards=spec.name == TwoStage.name,
        noisy_counts=tuple(count for _, count in ranked),
    )
    noisy = _noise_for_t(counts, head_list, parameters, noise)
    scale, drop = _noise_of(parameters)
    least = None
    if one_record:
        own = [drop if was_known else selection.threshold for (_, was_known), _ in ranked]
        least = _least_counts(head_list, own)
    optin = _sharp_optin(head_list, noisy, least, counts.selection_users, scale)
    names = Mechanisms(
        "sharp",
        selector.name,
        "listed-and-noisy-counts" if one_record else "noisy-counts",
        spec.name,
        StableBlender.name,
    )
    return OptinRelease(
        mechanisms=names,
        head_list=head_list,
        noisy=noisy,
        threshold=selection.threshold,
        selection_users=counts.selection_users,
        selection_scale=scale,
        least=least,
        best_trimmed=None,
        optin=optin,
    )


def _with_known(
    counts: OptinCounts, known: Sequence[Record]
) -> tuple[Sequence[Record], IntArray, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Every counted record, and every known one that nobody holds, with its count of 0."""
    if not known:
        return counts.records, counts.selection, np.zeros(len(counts.records), dtype=np.bool_)
    is_known = set(known)
    present = set(counts.records)
    absent = sorted(is_known - present)
    records = [*counts.records, *absent]
    raw = np.concatenate([counts.selection, np.zeros(len(absent), dtype=np.int64)])
    flags = np.fromiter((record in is_known for record in records), np.bool_, len(records))
    return records, raw, flags


def _noise_for_t(
    counts: OptinCounts, head_list: HeadList, parameters: PrivacyParameters, noise: Noise
) -> NoisyCounts:
    cells = head_list.cells
    if counts.estimation_users == 0:
        nothing = np.zeros(len(cells), dtype=np.int64)
        scale = laplace_scale(sensitivity=2, epsilon=parameters.epsilon)
        return NoisyCounts(nothing, nothing, scale, 0)
    # T counts one record a user whatever m_O is, so its sensitivity is that of m_O = 1.
    return add_noise(
        counts.estimation_by_cell(cells),
        users=counts.estimation_users,
        parameters=replace(parameters, records_per_optin_user=1),
        noise=noise,
    )


def _noise_of(parameters: PrivacyParameters) -> tuple[float, int]:
    """The scale of S's noise and the drop level of known records."""
    if parameters.records_per_optin_user == 1:
        scale = laplace_scale(sensitivity=2, epsilon=parameters.epsilon)
        return scale, drop_level(scale)
    rule = calibrate(parameters.epsilon, parameters.delta, parameters.records_per_optin_user)
    return rule.scale, rule.drop


def _least_counts(head_list: HeadList, own: Sequence[int]) -> tuple[int, ...]:
    """How high each listed record's noisy count had to be, the others being what they are."""
    listed, records = head_list.listed, head_list.records
    if head_list.noisy_counts is None or listed == len(records):
        return tuple(own[:listed])
    # Whatever the listed record had shown, the first unlisted one would have taken its place.
    rival, rival_count = records[listed], head_list.noisy_counts[listed]
    return tuple(
        max(threshold, rival_count + (record > rival))
        for record, threshold in zip(records[:listed], own[:listed], strict=True)
    )


def optin_estimates(
    profile: str,
    head_list: HeadList,
    noisy: NoisyCounts,
    least: tuple[int, ...] | None,
    selection_users: int,
    selection_scale: float,
) -> GroupEstimates:
    """p̂_O again, from released numbers alone. Post-processing: the same numbers, the same p̂_O."""
    if profile == "paper":
        return estimate_noisy_counts(noisy, head_list.cells)
    return _sharp_optin(head_list, noisy, least, selection_users, selection_scale)


def _sharp_optin(
    head_list: HeadList,
    noisy: NoisyCounts,
    least: tuple[int, ...] | None,
    users: int,
    scale: float,
) -> GroupEstimates:
    """p̂_O before any device has reported: S's counts, given that they were listed, and T's."""
    cells = head_list.cells
    nobody = unknown_group(len(cells), len(cells.queries))
    selected = _selected(head_list, least, users, scale)
    t_alone = estimate_noisy_counts(noisy, cells, intervals=selected is None)
    return StableBlender().blend(t_alone, nobody, cells, selected)


def _selected(
    head_list: HeadList, least: tuple[int, ...] | None, users: int, scale: float
) -> SelectedCounts | None:
    if least is None or head_list.noisy_counts is None or not least or users == 0:
        return None
    shown = np.array(head_list.noisy_counts[: head_list.listed], dtype=np.int64)
    return SelectedCounts(shown, np.array(least, dtype=np.int64), users, scale)
