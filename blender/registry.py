"""Which mechanisms fill the paper's roles, by the names that head lists and publications carry.

A better mechanism is one new file for devices and one that estimates from its answers, a line here
and one in `blender.device_registry`; a profile then names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from blendstream.blender.device_registry import named
from blendstream.blender.paper.head_list import ThresholdSelector
from blendstream.blender.paper.two_stage_estimates import TwoStageEstimator
from blendstream.blender.randomizers.subset_estimates import (
    RandomizedResponseEstimator,
    SubsetSelectionEstimator,
)
from blendstream.blender.randomizers.subset_or_none_estimates import SubsetOrNoneEstimator
from blendstream.blender.sharp.gaussian_histogram import GaussianHistogram
from blendstream.blender.sharp.stable_histogram import StableHistogram
from blendstream.blender.values.cells import Cells, HeadList, RandomizerSpec
from blendstream.blender.values.interfaces import HeadListSelector, LocalRandomizer

__all__ = ["RANDOMIZERS", "SELECTORS", "randomizer_for", "selector_of"]

SELECTORS: Final[Mapping[str, Callable[[], HeadListSelector]]] = {
    "threshold": ThresholdSelector,
    "stable-histogram": StableHistogram,
    "gaussian-histogram": GaussianHistogram,
}

RANDOMIZERS: Final[Mapping[str, Callable[[Cells, RandomizerSpec], LocalRandomizer]]] = {
    "two-stage": TwoStageEstimator,
    "randomized-response": RandomizedResponseEstimator,
    "subset-selection": SubsetSelectionEstimator,
    "subset-or-none": SubsetOrNoneEstimator,
}


def randomizer_for(head_list: HeadList) -> LocalRandomizer:
    """The randomizer that this head list names, built for its cells."""
    spec = head_list.randomizer
    return named("randomizer", RANDOMIZERS, spec.name)(head_list.cells, spec)


def selector_of(name: str) -> HeadListSelector:
    """The head-list selector of that name."""
    return named("selector", SELECTORS, name)()
