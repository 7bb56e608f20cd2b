"""Which mechanisms fill the paper's roles, by the names that head lists and publications carry.

A better mechanism is one new file and one line here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from blender.blend import VarianceBlender
from blender.cells import Cells, HeadList, RandomizerSpec
from blender.errors import ParameterError
from blender.gaussian_histogram import GaussianHistogram
from blender.head_list import ThresholdSelector
from blender.local import TwoStage
from blender.roles import Blender, HeadListSelector, LocalRandomizer
from blender.stable_blend import StableBlender
from blender.stable_histogram import StableHistogram
from blender.subset_or_none import SubsetOrNone
from blender.subset_selection import RandomizedResponse, SubsetSelection

__all__ = ["BLENDERS", "RANDOMIZERS", "SELECTORS", "randomizer_for"]

SELECTORS: Final[Mapping[str, Callable[[], HeadListSelector]]] = {
    "threshold": ThresholdSelector,
    "stable-histogram": StableHistogram,
    "gaussian-histogram": GaussianHistogram,
}

RANDOMIZERS: Final[Mapping[str, Callable[[Cells, RandomizerSpec], LocalRandomizer]]] = {
    "two-stage": TwoStage,
    "randomized-response": RandomizedResponse,
    "subset-selection": SubsetSelection,
    "subset-or-none": SubsetOrNone,
}

BLENDERS: Final[Mapping[str, Callable[[], Blender]]] = {
    "inverse-variance": VarianceBlender,
    "pooled-score": StableBlender,
}


def randomizer_for(head_list: HeadList) -> LocalRandomizer:
    """The randomizer that this head list names, built for its cells."""
    spec = head_list.randomizer
    if spec.name not in RANDOMIZERS:
        raise ParameterError(
            f"randomizer must be one of {', '.join(sorted(RANDOMIZERS))}, got {spec.name!r}; "
            "a newer release of this software may know it"
        )
    return RANDOMIZERS[spec.name](head_list.cells, spec)
