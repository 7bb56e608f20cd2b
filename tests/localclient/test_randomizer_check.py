"""The device's own look at its randomizer: broken ones must not be used."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from blendstream.blender.paper.local import TwoStage
from blendstream.blender.registry import RANDOMIZERS
from blendstream.blender.values.cells import HeadList
from blendstream.blender.values.random_source import RandomSource, SystemRandomSource
from blendstream.blender.values.record import Record
from blendstream.localclient import HeadListRefused
from blendstream.localclient.randomizer_check import build_randomizer, check_channel
from tests.localclient.support import LISTED, SeededDice, head_list, spec


def heads(name: str = "two-stage", epsilon: float = 4.0, records: int = 3) -> HeadList:
    listed = tuple(Record(f"query {i // 3}", f"https://{i}.example/") for i in range(records))
    wildcards = getattr(RANDOMIZERS[name], "query_wildcards", False)
    delta = 1e-5 if wildcards else 0.0
    return HeadList(
        listed, records, spec(name=name, epsilon=epsilon, delta=delta), query_wildcards=wildcards
    )


@pytest.mark.parametrize("name", sorted(RANDOMIZERS))
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0, 8.0])
@pytest.mark.parametrize("records", [0, 1, 2, 50, 500, 3_000])
def test_every_registered_randomizer_passes(name: str, epsilon: float, records: int) -> None:
    head = heads(name, epsilon, records)
    try:
        built = build_randomizer(head, SeededDice(1))
    except HeadListRefused as refused:
        # The paper's randomizer refuses budgets that carry no signal; that is no fault of it.
        assert "signal" in str(refused)  # noqa: PT017
        return
    assert built.spec == head.randomizer


class TellsTooMuch(TwoStage):
    """States ε but tells the truth more often."""

    def report_probability(self, record: Record | None, answer: tuple[int, ...]) -> Fraction:
        stated = super().report_probability(record, answer)
        held = answer == (self.cells.number(record),)
        return stated + Fraction(9, 10) * (1 - stated) if held else stated / 10


class TellsWhoHasNothing(TwoStage):
    """Answers differently for a device without records only."""

    def report_probability(self, record: Record | None, answer: tuple[int, ...]) -> Fraction:
        if record is None:
            return Fraction(int(answer == (len(self.cells) - 1,)))
        return super().report_probability(record, answer)


class LosesSome(TwoStage):
    """Probabilities that do not add up."""

    def report_probability(self, record: Record | None, answer: tuple[int, ...]) -> Fraction:
        return super().report_probability(record, answer) / 2


class OutOfRange(TwoStage):
    """Answers with cells that are not there, when there are too many cells to sum over."""

    def answer(self, cell: int, dice: RandomSource) -> tuple[int, ...]:
        return (len(self.cells),)


@pytest.mark.parametrize("broken", [TellsTooMuch, TellsWhoHasNothing, LosesSome])
def test_a_broken_randomizer_is_caught(broken: type[TwoStage]) -> None:
    head = head_list().head_list
    with pytest.raises(HeadListRefused, match="and does not"):
        check_channel(broken(head.cells, head.randomizer), head, SystemRandomSource())


@pytest.mark.parametrize("broken", [TellsTooMuch, OutOfRange])
def test_a_broken_randomizer_over_many_cells_is_caught_by_drawing(broken: type[TwoStage]) -> None:
    head = heads(epsilon=8.0, records=3_000)
    with pytest.raises(HeadListRefused, match="and does not"):
        check_channel(broken(head.cells, head.randomizer), head, SeededDice(3))


def test_a_randomizer_built_for_another_list_is_caught() -> None:
    head = head_list().head_list
    other = head_list(records=LISTED[:1]).head_list
    with pytest.raises(HeadListRefused, match="this head list's cells"):
        check_channel(TwoStage(other.cells, other.randomizer), head, SystemRandomSource())


@pytest.mark.parametrize("name", sorted(RANDOMIZERS))
def test_a_list_that_states_another_width_than_follows_is_refused(name: str) -> None:
    """Its gateway would refuse the report, and the budget would be spent for nothing."""
    head = heads(name, 1.0, 60)
    width = build_randomizer(head, SeededDice(1)).cells_per_answer
    for stated in (width - 1, width, width + 1):
        if stated < 1:
            continue
        stating = replace(head, randomizer=replace(head.randomizer, cells_per_answer=stated))
        if stated == width:
            assert build_randomizer(stating, SeededDice(1)).cells_per_answer == width
            continue
        with pytest.raises(HeadListRefused, match=f"cells_per_answer must be {width}"):
            build_randomizer(stating, SeededDice(1))
