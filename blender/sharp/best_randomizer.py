"""Choose the randomizer with the least worst-case variance for a head list.

All candidates give the device the same ε, and none needs δ: they differ in the variance of the
estimates. The paper's two-stage randomizer is not among them: it never was the best
(docs/decisions/0024-devices-may-say-none.md).
The choice depends only on the published head list: its shape, and the share of people whose record
is listed, by its noisy counts. So it spends no budget, and every server makes the same choice.

Symbols: K = cells, ω = cells per answer, n = devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from blendstream.blender.randomizers.subset_or_none import (
    TYPICAL_64THS,
    SubsetOrNone,
    best_named_size,
    named_variance,
)
from blendstream.blender.randomizers.subset_selection import (
    RandomizedResponse,
    SubsetSelection,
    best_subset_size,
    rare_variance,
)
from blendstream.blender.values.cells import RandomizerSpec
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.blender.values.rational import exp_rounded_down
from blendstream.blender.values.record import Record

__all__ = ["best_randomizer", "share_in_64ths", "worst_variance"]


def best_randomizer(
    listed: Sequence[Record],
    parameters: PrivacyParameters,
    max_cells: int = 32,
    listed_64ths: int = TYPICAL_64THS,
) -> RandomizerSpec:
    """Return the randomizer with the least worst-case variance over the listed records.

    The worst case is a rare record, whose variance is all noise and no sampling. `max_cells` caps
    the length of an answer (ω), which the result states; `listed_64ths` is the share of people who
    hold a listed record (`share_in_64ths`). Ties go to the simpler one: randomized response, subset
    selection, subset or none.

    >>> best_randomizer([Record(f"q{i}", "u") for i in range(500)], PrivacyParameters()).name
    'subset-or-none'
    """
    candidates = [
        RandomizerSpec(
            name=name,
            epsilon=parameters.epsilon,
            delta=0.0,
            answers=parameters.records_per_client,
            query_budget_share=parameters.query_budget_share,
            max_cells_per_answer=max_cells,
            listed_64ths=listed_64ths,
        )
        for name in (RandomizedResponse.name, SubsetSelection.name, SubsetOrNone.name)
    ]
    best = min(candidates, key=lambda spec: worst_variance(listed, spec))
    return replace(best, cells_per_answer=_width(len(listed), best))


def share_in_64ths(noisy_counts: Sequence[int], users: int) -> int:
    """Return how many of 64 people hold a listed record, by S's published counts of these.

    >>> share_in_64ths([2000, 1000, 500], 20_000)
    11
    """
    share = Fraction(max(sum(noisy_counts), 0), max(users, 1))
    return min(max(round(64 * share), 1), 63)


def worst_variance(listed: Sequence[Record], spec: RandomizerSpec) -> float:
    """Return n·Var(p̂) in the worst case, a listed record that hardly anyone holds.

    For `subset-or-none` it depends on how many people hold another listed record.
    """
    if not listed:
        return 0.0
    records, width, likelihood = len(listed), _width(len(listed), spec), _likelihood(spec)
    if spec.name == SubsetOrNone.name:
        variance = named_variance(records, likelihood, width, spec.listed_64ths)
    else:
        variance = rare_variance(records + 1, likelihood, width)
    return spec.answers * float(variance)


def _width(records: int, spec: RandomizerSpec) -> int:
    """Return ω. The randomizers compute it too, and refuse a different one."""
    cap = spec.max_cells_per_answer
    if spec.name == SubsetOrNone.name:
        return best_named_size(records, _likelihood(spec), cap, spec.listed_64ths)
    if spec.name == SubsetSelection.name:
        return best_subset_size(records + 1, _likelihood(spec), cap)
    return 1


def _likelihood(spec: RandomizerSpec) -> Fraction:
    return exp_rounded_down(Fraction(spec.epsilon) / spec.answers)
