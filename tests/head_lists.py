"""Head lists for tests: complete, as the jobs write them."""

from __future__ import annotations

from dataclasses import replace

from blendstream.blender.registry import randomizer_for
from blendstream.blender.values.cells import HeadList

#: A sentence where no test asks what it says.
QUANTITY = "Records are ranked by noisy counts."


def stating_width(head_list: HeadList) -> HeadList:
    """The list with the length of an answer that follows from it, which every document states."""
    spec = head_list.randomizer
    if spec.cells_per_answer is not None:
        return head_list
    width = randomizer_for(head_list).cells_per_answer
    return replace(head_list, randomizer=replace(spec, cells_per_answer=width))
