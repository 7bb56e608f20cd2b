"""LocalAlg (Figure 6): what leaves a device, and what it may not tell."""

from __future__ import annotations

from fractions import Fraction

import pytest

from blendstream.blender import (
    HeadList,
    HeadListMismatch,
    ParameterError,
    RandomizerSpec,
    Record,
    local_alg,
)
from blendstream.blender.paper.local import TwoStage
from blendstream.blender.registry import RANDOMIZERS, randomizer_for
from tests.channels import all_answers, build, cells_of_shape, holder
from tests.doubles import ScriptedDice, SeededDice

SPEC = RandomizerSpec("two-stage", epsilon=4.0, delta=1e-5)


@pytest.mark.parametrize("name", RANDOMIZERS)
def test_a_record_outside_the_head_list_is_reported_as_the_wildcard_would_be(name):
    """Otherwise a device would tell the server that its record is rare."""
    randomizer = build(name, (2, 1), epsilon=4.0)
    unseen = Record("unseen query", "https://unseen.example/")

    for answer in all_answers(randomizer):
        as_unseen = randomizer.report_probability(unseen, answer)
        assert as_unseen == randomizer.report_probability(None, answer)


@pytest.mark.parametrize("name", RANDOMIZERS)
def test_a_device_always_sends_all_its_answers(name):
    """Fewer answers would tell how many records it has, and one without any says ⟨⋆,⋆⟩."""
    randomizer = build(name, (2, 1), epsilon=4.0, answers=3)
    for held in (None, holder(randomizer.cells, 0)):
        report = local_alg([held] * 3, randomizer, SeededDice(3))
        assert len(report) == 3
        for answer in report:
            assert len(answer) == randomizer.cells_per_answer
            assert list(answer) == sorted(set(answer))


@pytest.mark.parametrize("name", RANDOMIZERS)
def test_cells_outside_the_head_list_are_refused(name):
    """Numbers below 0 would wrap around and randomise another cell."""
    randomizer = build(name, (2, 1), epsilon=4.0)
    size = len(randomizer.cells)
    for cell in (-1, size):
        with pytest.raises(
            HeadListMismatch, match=rf"cell must lie in 0\.\.{size - 1}, got {cell}"
        ):
            randomizer.answer(cell, SeededDice(1))
    w = randomizer.cells_per_answer
    for impossible in ((-1,) * w, (size,) * w, tuple(range(w + 1))):
        assert randomizer.report_probability(None, impossible) == 0


@pytest.mark.parametrize("drawn", [0, 1, 3])
def test_every_answer_is_about_a_record_drawn_for_it(drawn):
    """Filled up with ⋆, one search among three answers would count as a third of a person."""
    randomizer = build("two-stage", (1,), epsilon=4.0, answers=2)
    with pytest.raises(ParameterError, match=rf"holds 2 answers .*got {drawn} records; draw one"):
        local_alg([Record("q", "u")] * drawn, randomizer, SeededDice(1))


def test_a_literal_star_is_a_query_like_any_other():
    """⋆ is not text. Somebody who searches for a star must not turn into the wildcard."""
    cells = cells_of_shape((1,), query_wildcards=True)
    star = Record("⋆", "⋆")
    listed = type(cells)((star, Record("q", "u")), True)
    randomizer = TwoStage(listed, SPEC)

    assert listed.number(star) == 0
    assert listed.number(Record("⋆", "other")) == 2
    assert listed.number(None) == 4
    told = randomizer.report_probability(star, (0,))
    assert told == randomizer.truth * randomizer.url_truth[2]
    assert randomizer.report_probability(None, (0,)) < told


def test_unicode_records_are_told_apart_by_what_they_are():
    names = ("straße", "strasse", "Ελλάδα", "北京", "🔍", "e\u0301", "é")
    cells = cells_of_shape((1,), query_wildcards=True)
    listed = type(cells)(tuple(Record(q, "https://example/") for q in names), True)
    assert [listed.number(Record(q, "https://example/")) for q in names] == list(range(7))


def test_the_only_cell_of_an_empty_head_list_is_reported_for_certain():
    """k = 1."""
    randomizer = TwoStage(cells_of_shape((), query_wildcards=True), SPEC)
    assert randomizer.truth == 1
    assert local_alg([Record("q", "u")], randomizer, ScriptedDice()) == ((0,),)
    assert randomizer.report_probability(None, (0,)) == 1


def test_the_wildcard_query_has_one_url_and_never_lies_about_it():
    """k_q = 1: whoever tells ⋆ as the query tells ⋆ as the URL."""
    randomizer = build("two-stage", (2,), epsilon=4.0)
    tell = 0  # any throw below the numerator tells the truth
    dice = ScriptedDice(tell)

    assert randomizer.answer(3, dice) == (3,)
    assert dice.bounds == [randomizer.truth.denominator]


def test_each_branch_is_chosen_by_one_whole_number():
    """Figure 6, lines 12 to 21, followed throw by throw on cells 0 1 (a), 2 (b), 3 a⋆, 4 b⋆, 5."""
    randomizer = build("two-stage", (2, 1), epsilon=4.0)
    t, t_a = randomizer.truth, randomizer.url_truth[3]
    lie, lie_url = t.numerator, t_a.numerator  # the smallest throws that lie

    tell_both = ScriptedDice(lie - 1, lie_url - 1)
    assert randomizer.answer(1, tell_both) == (1,)
    assert tell_both.bounds == [t.denominator, t_a.denominator]

    other_url = ScriptedDice(0, lie_url, 1)  # of cells 0 and 3, the second
    assert randomizer.answer(1, other_url) == (3,)
    assert other_url.bounds[-1] == 2

    other_query = ScriptedDice(lie, 0, 1)  # of b and ⋆, b; of cells 2 and 4, the second
    assert randomizer.answer(1, other_query) == (4,)
    assert other_query.bounds == [t.denominator, 2, 2]

    wildcard = ScriptedDice(lie, 1, 0)
    assert randomizer.answer(1, wildcard) == (5,)


def test_the_exact_probabilities_of_each_branch():
    randomizer = build("two-stage", (2, 1), epsilon=4.0, delta=1e-5)
    t, t_a = randomizer.truth, randomizer.url_truth[3]
    held = holder(randomizer.cells, 1)

    assert randomizer.report_probability(held, (1,)) == t * t_a
    assert randomizer.report_probability(held, (3,)) == t * (1 - t_a) / 2
    assert randomizer.report_probability(held, (4,)) == (1 - t) / 2 / 2
    assert randomizer.report_probability(held, (5,)) == (1 - t) / 2
    assert isinstance(randomizer.report_probability(held, (5,)), Fraction)


def test_a_channel_without_signal_is_refused():
    """2^-32 is enough for one stage, but not for two."""
    with pytest.raises(ParameterError, match=r"truth must exceed 1/k .* epsilon=2.4e-10"):
        build("two-stage", (2,), epsilon=2.4e-10)


def test_cells_that_cannot_carry_the_randomizer_are_refused():
    with pytest.raises(HeadListMismatch, match="needs cells with query wildcards"):
        TwoStage(cells_of_shape((1,), query_wildcards=False), SPEC)


def test_a_head_list_names_the_randomizer_that_is_built_for_it():
    head_list = HeadList((Record("q", "u"),), 1, SPEC, query_wildcards=True)
    randomizer = randomizer_for(head_list)
    assert randomizer.name == "two-stage"
    assert randomizer.spec == SPEC
    assert len(randomizer.cells) == 3


def test_an_unknown_randomizer_is_refused_with_what_to_do():
    spec = RandomizerSpec("from the future", epsilon=1.0)
    head_list = HeadList((), 0, spec, query_wildcards=True)
    with pytest.raises(ParameterError, match=r"must be one of .*two-stage.* newer release"):
        randomizer_for(head_list)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be finite and above 0, got epsilon=0.0"),
        ({"epsilon": float("inf")}, "epsilon must be finite"),
        ({"delta": 1.0}, r"delta must lie in \[0, 1\), got delta=1.0"),
        ({"answers": 0}, "answers must be an integer of at least 1"),
        ({"answers": 1.5}, "answers must be an integer"),
        ({"query_budget_share": 1.0}, r"query_budget_share must lie in \(0, 1\)"),
        ({"max_cells_per_answer": 0}, "max_cells_per_answer must be"),
    ],
)
def test_a_device_refuses_a_spec_that_no_randomizer_could_honour(changed, message):
    """It came from a server."""
    with pytest.raises(ParameterError, match=message):
        RandomizerSpec(**{"name": "two-stage", "epsilon": 4.0, **changed})
