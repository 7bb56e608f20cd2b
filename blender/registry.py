"""Which mechanisms fill the paper's roles, by the names that head lists and publications carry.

A better mechanism is one new file and one line here; a profile then names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from blender.cells import Cells, HeadList, RandomizerSpec
from blender.errors import ParameterError
from blender.gaussian_histogram import GaussianHistogram
from blender.head_list import ThresholdSelector
from blender.interfaces import HeadListSelector, LocalRandomizer
from blender.local import TwoStage
from blender.stable_histogram import StableHistogram
from blender.subset_or_none import SubsetOrNone
from blender.subset_selection import RandomizedResponse, SubsetSelection

__all__ = ["RANDOMIZERS", "SELECTORS", "randomizer_for", "selector_of"]

_Filled = TypeVar("_Filled")

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


def randomizer_for(head_list: HeadList) -> LocalRandomizer:
    """The randomizer that this head list names, built for its cells."""
    spec = head_list.randomizer
    return _named("randomizer", RANDOMIZERS, spec.name)(head_list.cells, spec)


def selector_of(name: str) -> HeadListSelector:
    """The head-list selector of that name."""
    return _named("selector", SELECTORS, name)()


def _named(role: str, known: Mapping[str, _Filled], name: str) -> _Filled:
    if name not in known:
        raise ParameterError(
            f"{role} must be one of {', '.join(sorted(known))}, got {name!r}; "
            "a newer release of this software may know it"
        )
    return known[name]
