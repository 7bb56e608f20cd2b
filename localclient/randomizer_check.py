"""Build the device's randomizer, and check it before use.

Promises: this module builds the randomizer from the head list's shape and ε; no probability comes
from the server. Before use, it checks the randomizer's stated probabilities against the definition
of (ε,δ)-differential privacy, on all inputs and outputs if there are few enough, otherwise on a
sample. So the device spends no budget with a wrong build of the library, or on a list designed to
hit a corner case of it.
Assumes: a passing sample is a safeguard, not a proof; the proofs are beside each randomizer.
Symbols: ε′ = ε/m, δ′ = δ/m for one of m answers; neighbouring inputs: any two cells.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import permutations

from blendstream.blender.device_registry import DEVICE_RANDOMIZERS, device_randomizer_for
from blendstream.blender.values.answer_shape import AnswerShape
from blendstream.blender.values.cells import HeadList
from blendstream.blender.values.errors import BlenderError
from blendstream.blender.values.interfaces import DeviceRandomizer
from blendstream.blender.values.random_source import RandomSource
from blendstream.blender.values.record import Record
from blendstream.localclient.errors import HeadListRefused

__all__ = ["build_randomizer", "check_answer", "check_channel"]

#: Maximum number of inputs that are compared. The first, the last and ⋆ cover the corner cases.
_INPUTS = 4
#: With one cell per answer and at most this many cells, the check sums over every output.
_ALL_OUTPUTS = 512
#: Number of outputs to draw if there are too many to enumerate.
_DRAWN_OUTPUTS = 16


def build_randomizer(head_list: HeadList, dice: RandomSource) -> DeviceRandomizer:
    """Build the randomizer that the head list names, and check it."""
    known = ", ".join(sorted(DEVICE_RANDOMIZERS))
    _require(head_list.randomizer.name in DEVICE_RANDOMIZERS, f"be one of {known}")
    try:
        built = device_randomizer_for(head_list)
    except BlenderError as error:
        raise HeadListRefused(f"the head list's randomizer cannot be built: {error}") from None
    check_channel(built, head_list, dice)
    return built


def check_channel(built: DeviceRandomizer, head_list: HeadList, dice: RandomSource) -> None:
    """Raise unless the randomizer's own probabilities satisfy the head list's ε and δ."""
    _require(
        built.spec == head_list.randomizer and len(built.cells) == len(head_list.cells),
        "answer this head list's cells at its stated budget",
    )
    inputs = _sample_inputs(head_list)
    if built.cells_per_answer == 1 and len(built.cells) <= _ALL_OUTPUTS:
        outputs: list[tuple[int, ...]] = [(cell,) for cell in range(len(built.cells))]
        complete = True
    else:
        # These draws reveal nothing: the inputs are the list's records, not the person's.
        cells = [built.cells.number(record) for record in inputs]
        drawn = [built.answer(cells[i % len(cells)], dice) for i in range(_DRAWN_OUTPUTS)]
        outputs = list(dict.fromkeys(drawn))  # each output counts once in the sums below
        complete = False
    for output in outputs:
        check_answer(built, output)
    probabilities = {
        record: [built.report_probability(record, o) for o in outputs] for record in inputs
    }
    if complete:
        _require(
            all(sum(row) == 1 for row in probabilities.values()), "have probabilities that sum to 1"
        )

    # (ε′,δ′): Σ over outputs of max(0, P(y|x) − e^ε′·P(y|x′)) ≤ δ′ for all x, x′. The device's e^ε′
    # is a fraction rounded down, so a correct randomizer passes a comparison with the float rounded
    # up by 1e-12.
    spec = head_list.randomizer
    e = Fraction(math.exp(spec.epsilon / spec.answers)) * (1 + Fraction(1, 10**12))
    delta = Fraction(spec.delta) / spec.answers
    for x, other in permutations(probabilities, 2):
        excess = sum(
            (
                max(Fraction(0), p - e * q)
                for p, q in zip(probabilities[x], probabilities[other], strict=True)
            ),
            Fraction(0),
        )
        _require(excess <= delta, "keep its stated epsilon and delta between any two records")


def check_answer(built: DeviceRandomizer, answer: tuple[int, ...]) -> None:
    """Raise unless servers would accept the answer's form."""
    _require(
        AnswerShape.from_randomizer(built).allows_answer(answer),
        "give strictly increasing cells of the head list",
    )


def _sample_inputs(head_list: HeadList) -> list[Record | None]:
    listed = head_list.records[: head_list.listed]
    some = [*listed[: _INPUTS - 2], *listed[-1:]]
    if listed and head_list.query_wildcards:
        some.append(Record(listed[0].query, ""))  # no URL is empty, so this one is not listed
    return [*dict.fromkeys(some), None]


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise HeadListRefused(
            f"the randomizer built from the head list must {what}, and does not. "
            "Nothing is reported with it; update the client."
        )
