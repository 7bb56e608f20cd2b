"""Choose the mechanism for each role, and build an epoch's head list: the opt-in group's draw.

One setting chooses between two profiles. `paper` is Figures 2 to 7; the README lists departures.
`sharp`, the default, has mechanisms of less error at the same budget:

    role                paper                       sharp
    head list           threshold, β = δ/2          keeps its noisy counts, β = δ, known records
                                                    (m_O > 1: Gaussian noise, distinct records)
    order of the list   T's noisy counts            S's noisy counts
    opt-in estimate     T                           S and T, empirical Bayes
    randomizer          two stages                  the best one for this list
    blend               each group's own σ̂²         σ̂² widened by the groups' difference

With one budget for a period of epochs `sharp` draws Gaussian noise for all of them
(`blender.over_time.period_budget`), keeps known records at any count, and orders the list by the
filtered estimate over all epochs so far.

Promises: `build_head_list` is (ε,δ)-DP for S and (ε,0)-DP for T, who are different people, so
(ε,δ)-DP for the opt-in group; neighbouring: replace-one. In a period that holds for all its epochs
together. Everything after it (`blender.epoch_estimates`) is post-processing of what it
returns and of what devices sent.
Assumes: the counting limited a user's records to m_O and, for m_O > 1, to distinct ones; T counts
one record per user (the one in slot 0); `known` is already published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.epoch_estimates import FROM_S_AND_T, Mechanisms, OptinRelease
from blendstream.blender.noise.exact_noise import GRID, Noise, laplace_scale, laplace_variance
from blendstream.blender.over_time.epoch_memory import EpochMemory, ListRanking, remember
from blendstream.blender.over_time.period_budget import (
    PERIOD_HISTOGRAM,
    PeriodRule,
    check_rule,
    select_in_period,
)
from blendstream.blender.paper.blend import VarianceBlender
from blendstream.blender.paper.head_list import ThresholdSelector, create_head_list
from blendstream.blender.paper.local import TwoStage
from blendstream.blender.paper.optin import NoisyCounts, add_noise, estimate_optin_probabilities
from blendstream.blender.randomizers.subset_or_none import TYPICAL_64THS
from blendstream.blender.sharp.best_randomizer import best_randomizer, share_in_64ths
from blendstream.blender.sharp.difference_blend import NAME as BETWEEN_GROUPS
from blendstream.blender.sharp.gaussian_histogram import GaussianHistogram, calibrate
from blendstream.blender.sharp.stable_histogram import StableHistogram, stable_threshold
from blendstream.blender.values.arrays import IntArray
from blendstream.blender.values.cells import HeadList, RandomizerSpec
from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.interfaces import HeadListSelector, OptinCounts, Selection
from blendstream.blender.values.parameters import SELECTION_SHARES, PrivacyParameters
from blendstream.blender.values.record import Record

__all__ = [
    "PROFILES",
    "SELECTION_SHARES",
    "build_head_list",
    "choose_selector",
    "listing_threshold",
    "prepare_head_list",
]


#: Values of the setting `privacy.profile`.
PROFILES: Final = ("paper", "sharp")


def prepare_head_list(
    profile: str, parameters: PrivacyParameters, period: PeriodRule | None = None
) -> None:
    """Compute or refuse everything that a draw needs and that does not depend on data.

    Calibrating noise for several records per user takes seconds; this process caches the result.
    """
    if period is not None:
        check_rule(period)
    elif profile == "sharp":
        _noise_scale(parameters)


def build_head_list(
    profile: str,
    counts: OptinCounts,
    parameters: PrivacyParameters,
    noise: Noise,
    known: Sequence[Record] = (),
    memory: EpochMemory | None = None,
) -> OptinRelease:
    """Build the head list: draw all of the opt-in group's noise for one epoch.

    `known` is the last list without its forgotten records. With `memory`, known records stay at any
    count until they are forgotten; without it they are dropped as soon as their noisy count is
    likely for a record that no one holds.
    """
    if memory is not None and profile != "sharp":
        raise ParameterError(f"only the profile sharp remembers records, got {profile!r}")
    if profile == "paper":
        return _paper_head_list(counts, parameters, noise)
    if profile == "sharp":
        return _sharp_head_list(counts, parameters, noise, known, memory)
    raise ParameterError(f"profile must be one of {', '.join(PROFILES)}, got {profile!r}")


def choose_selector(profile: str, parameters: PrivacyParameters) -> HeadListSelector:
    """Return the selector of the head list."""
    if profile == "paper":
        return ThresholdSelector()
    one_record = parameters.records_per_optin_user == 1
    return StableHistogram() if one_record else GaussianHistogram()


def listing_threshold(profile: str, parameters: PrivacyParameters) -> float:
    """Return the noisy count, in people, from which an epoch with its own budget lists new records.

    >>> listing_threshold("paper", PrivacyParameters())
    6.7578125
    >>> listing_threshold("sharp", PrivacyParameters())
    7
    """
    if profile == "paper":
        return ThresholdSelector.threshold(parameters) / GRID
    if parameters.records_per_optin_user == 1:
        return stable_threshold(parameters.epsilon, parameters.delta)
    return calibrate(
        parameters.epsilon, parameters.delta, parameters.records_per_optin_user
    ).threshold


def _paper_head_list(
    counts: OptinCounts, parameters: PrivacyParameters, noise: Noise
) -> OptinRelease:
    spec = RandomizerSpec(
        name=TwoStage.name,
        epsilon=parameters.epsilon,
        delta=parameters.delta,
        answers=parameters.records_per_client,
        query_budget_share=parameters.query_budget_share,
        cells_per_answer=1,
    )
    selected = create_head_list(counts, parameters, noise)
    optin = estimate_optin_probabilities(selected, counts, parameters, noise, randomizer=spec)
    names = Mechanisms(
        "paper",
        ThresholdSelector.name,
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
        below_threshold_probability=0.0,
        known=(),
        best_trimmed=optin.best_trimmed,
    )


def _sharp_head_list(
    counts: OptinCounts,
    parameters: PrivacyParameters,
    noise: Noise,
    known: Sequence[Record],
    memory: EpochMemory | None,
) -> OptinRelease:
    one_record = parameters.records_per_optin_user == 1
    rule = (
        None if memory is None or memory.rule is None else _check_rule_of(memory.rule, parameters)
    )
    scale = _noise_scale(parameters) if rule is None else rule.scale
    name, kept, selection = _select_records(
        counts, parameters, noise, known, rule, keep_known=memory is not None
    )
    noisy_s = selection.noisy_counts
    if noisy_s is None:
        raise ParameterError(f"{name} must keep its noisy counts")
    # Ranked by S's noisy counts, or in a period by the filtered estimate; ties by text. T does not
    # affect the choice, so T stays unbiased.
    own = noisy_s.astype(np.float64)
    ranking = ListRanking(own, np.zeros(len(kept), dtype=np.bool_))
    if memory is not None:
        variance = laplace_variance(scale) if name == StableHistogram.name else scale**2
        ranking = remember(
            memory, kept, noisy_s, users=counts.selection_users, noise_variance=variance
        )
    value = own if rule is None else ranking.value
    places = sorted(range(len(kept)), key=lambda i: (-value[i], kept[i]))
    order = tuple(kept[i] for i in places)
    listed = min(parameters.head_list_cells, len(order))
    # Post-processing of released numbers: noisy counts, and the number of S's users. With several
    # records per user the counts are another quantity, and the typical share is assumed.
    share = TYPICAL_64THS
    if one_record:
        share = share_in_64ths(noisy_s[places[:listed]].tolist(), counts.selection_users)
    spec = best_randomizer(order[:listed], parameters, parameters.max_cells_per_answer, share)
    head_list = HeadList(
        records=order,
        listed=listed,
        randomizer=spec,
        query_wildcards=False,
        noisy_counts=tuple(noisy_s[places].tolist()),
    )
    noisy = _noise_for_t(counts, head_list, parameters, noise, rule)
    names = Mechanisms(
        "sharp",
        name,
        FROM_S_AND_T if one_record else "noisy-counts",
        spec.name,
        BETWEEN_GROUPS,
    )
    listed_before = set(known)
    still_known = tuple(i for i, record in enumerate(order) if record in listed_before)
    return OptinRelease(
        mechanisms=names,
        head_list=head_list,
        noisy=noisy,
        threshold=selection.threshold,
        selection_users=counts.selection_users,
        selection_scale=scale,
        below_threshold_probability=selection.below_threshold_probability,
        known=still_known,
        best_trimmed=None,
        forgotten=tuple(np.flatnonzero(ranking.forgotten[places]).tolist()),
        filter_failure=ranking.failure,
    )


def _select_records(
    counts: OptinCounts,
    parameters: PrivacyParameters,
    noise: Noise,
    known: Sequence[Record],
    rule: PeriodRule | None,
    *,
    keep_known: bool,
) -> tuple[str, list[Record], Selection]:
    """Draw S's noise; return the selector's name, the kept records and the selection."""
    absent, raw, is_known = _add_known(counts, known)
    if rule is None:
        selector = choose_selector("sharp", parameters)
        name = selector.name
        selection = selector.select(raw, is_known, parameters, noise, keep_known=keep_known)
    else:
        name = PERIOD_HISTOGRAM
        selection = select_in_period(rule, raw, is_known, noise)
    counted = len(counts.table)
    kept = [
        counts.table[i] if i < counted else absent[i - counted] for i in selection.kept.tolist()
    ]
    return name, kept, selection


def _check_rule_of(rule: PeriodRule, parameters: PrivacyParameters) -> PeriodRule:
    """Return the period's rule; refuse one of other parameters than this epoch's."""
    fixed = (rule.epsilon, rule.delta, rule.records_per_user)
    here = (parameters.epsilon, parameters.delta, parameters.records_per_optin_user)
    if fixed != here:
        raise ParameterError(
            f"an epoch's epsilon, delta and m_O must be those of its period, {fixed}, got {here}"
        )
    check_rule(rule)
    return rule


def _add_known(
    counts: OptinCounts, known: Sequence[Record]
) -> tuple[Sequence[Record], IntArray, NDArray[np.bool_]]:
    """Return the known records that no one has, S's counts followed by their zeros, and a mask of
    the known records among these.
    """
    place = counts.table.places(known)
    absent = sorted(known[i] for i in np.flatnonzero(place < 0).tolist())
    raw = np.concatenate([counts.selection, np.zeros(len(absent), dtype=np.int64)])
    is_known = np.zeros(len(raw), dtype=np.bool_)
    is_known[place[place >= 0]] = True
    is_known[len(counts.table) :] = True
    return absent, raw, is_known


def _noise_for_t(
    counts: OptinCounts,
    head_list: HeadList,
    parameters: PrivacyParameters,
    noise: Noise,
    rule: PeriodRule | None,
) -> NoisyCounts:
    cells = head_list.cells
    if counts.estimation_users == 0:
        nothing = np.zeros(len(cells), dtype=np.int64)
        scale = laplace_scale(sensitivity=2, epsilon=parameters.epsilon)
        return NoisyCounts(nothing, nothing, scale, 0)
    if rule is not None:
        # One of T's users changes two cells per epoch by one, no more than one of S's.
        raw, users = counts.estimation_by_cell(cells), counts.estimation_users
        noisy = noise.discrete_gaussian(raw, scale=rule.scale)
        return NoisyCounts(noisy, np.ones_like(noisy), rule.scale, users, gaussian=True)
    # T counts one record per user at any m_O, so its sensitivity is that of m_O = 1.
    return add_noise(
        counts.estimation_by_cell(cells),
        users=counts.estimation_users,
        parameters=replace(parameters, records_per_optin_user=1),
        noise=noise,
    )


def _noise_scale(parameters: PrivacyParameters) -> float:
    """Return the scale of S's noise."""
    if parameters.records_per_optin_user == 1:
        return laplace_scale(sensitivity=2, epsilon=parameters.epsilon)
    return calibrate(parameters.epsilon, parameters.delta, parameters.records_per_optin_user).scale
