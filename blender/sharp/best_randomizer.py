"""Choose the randomizer that leaves the least noise on the worst record of a head list.

All candidates keep the same ε for the device, and none of them needs δ: they differ in how much of
it reaches the estimates. The paper's two stages are none: they were never the best
(docs/decisions/0024-devices-may-say-none.md).
The choice depends only on the published head list: its shape, and the share of people whose record
is listed, by its noisy counts. So it spends nothing, and every server makes the same choice again.

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
    """The randomizer with the least worst-case variance over the listed records.

    Worst over records, each taken to be rare: that is where the noise, and not the record itself,
    is the variance. `max_cells` caps the length of an answer (ω), which the result states, and the
    choice knows it; `listed_64ths` is the share of people who hold something listed
    (`share_in_64ths`). Ties go to the simpler: randomized response, subset selection, subset or
    none.

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
    """How many of 64 people hold something listed, by S's published counts of the listed records.

    >>> share_in_64ths([2000, 1000, 500], 20_000)
    11
    """
    share = Fraction(max(sum(noisy_counts), 0), max(users, 1))
    return min(max(round(64 * share), 1), 63)


def worst_variance(listed: Sequence[Record], spec: RandomizerSpec) -> float:
    """n·Var(p̂) of the worst listed record, one that hardly anyone holds.

    For `subset-or-none` it matters how many hold something else that is listed.
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
    """ω. The randomizers compute it themselves, and refuse another."""
    cap = spec.max_cells_per_answer
    if spec.name == SubsetOrNone.name:
        return best_named_size(records, _likelihood(spec), cap, spec.listed_64ths)
    if spec.name == SubsetSelection.name:
        return best_subset_size(records + 1, _likelihood(spec), cap)
    return 1


def _likelihood(spec: RandomizerSpec) -> Fraction:
    return exp_rounded_down(Fraction(spec.epsilon) / spec.answers)
