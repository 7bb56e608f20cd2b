"""The randomizers with their estimators, for servers, by the names in head lists.

A better one needs one new file for devices and one with its estimator, a line here and one in
`blender.device_registry`; a profile then names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from blendstream.blender.device_registry import find_randomizer
from blendstream.blender.paper.two_stage_estimates import TwoStageEstimator
from blendstream.blender.randomizers.subset_estimates import (
    RandomizedResponseEstimator,
    SubsetSelectionEstimator,
)
from blendstream.blender.randomizers.subset_or_none_estimates import SubsetOrNoneEstimator
from blendstream.blender.values.cells import Cells, HeadList, RandomizerSpec
from blendstream.blender.values.interfaces import LocalRandomizer

__all__ = ["RANDOMIZERS", "randomizer_for"]

RANDOMIZERS: Final[Mapping[str, Callable[[Cells, RandomizerSpec], LocalRandomizer]]] = {
    "two-stage": TwoStageEstimator,
    "randomized-response": RandomizedResponseEstimator,
    "subset-selection": SubsetSelectionEstimator,
    "subset-or-none": SubsetOrNoneEstimator,
}


def randomizer_for(head_list: HeadList) -> LocalRandomizer:
    """Build the randomizer that this head list names, for its cells."""
    spec = head_list.randomizer
    return find_randomizer(RANDOMIZERS, spec.name)(head_list.cells, spec)
