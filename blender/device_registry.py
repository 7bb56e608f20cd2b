"""The randomizers for devices, without NumPy, by the names in head lists.

`blender.registry` has them with their estimators, for servers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from blendstream.blender.paper.local import TwoStage
from blendstream.blender.randomizers.subset_or_none import SubsetOrNone
from blendstream.blender.randomizers.subset_selection import RandomizedResponse, SubsetSelection
from blendstream.blender.values.cells import Cells, HeadList, RandomizerSpec
from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.interfaces import DeviceRandomizer

__all__ = ["DEVICE_RANDOMIZERS", "device_randomizer_for", "find_randomizer"]

_Randomizer = TypeVar("_Randomizer")

DEVICE_RANDOMIZERS: Final[Mapping[str, Callable[[Cells, RandomizerSpec], DeviceRandomizer]]] = {
    "two-stage": TwoStage,
    "randomized-response": RandomizedResponse,
    "subset-selection": SubsetSelection,
    "subset-or-none": SubsetOrNone,
}


def device_randomizer_for(head_list: HeadList) -> DeviceRandomizer:
    """Build the randomizer that this head list names, for its cells."""
    spec = head_list.randomizer
    return find_randomizer(DEVICE_RANDOMIZERS, spec.name)(head_list.cells, spec)


def find_randomizer(known: Mapping[str, _Randomizer], name: str) -> _Randomizer:
    """Return the randomizer of that name; raise `ParameterError` if there is none."""
    if name not in known:
        raise ParameterError(
            f"randomizer must be one of {', '.join(sorted(known))}, got {name!r}; "
            "a newer release of this software may know it"
        )
    return known[name]
