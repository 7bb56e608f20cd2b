"""One rule says which reports there are, for one of them and for thousands."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blendstream.blender.registry import RANDOMIZERS
from blendstream.blender.values.answer_shape import AnswerShape
from blendstream.blender.values.cells import Cells, RandomizerSpec
from blendstream.blender.values.record import Record


@given(
    wide=st.integers(1, 4),
    answers=st.integers(1, 3),
    alone=st.booleans(),
    kind=st.sampled_from(["u1", "<u2", "<u4", "<i8"]),
    data=st.data(),
)
def test_a_column_is_judged_as_its_reports_would_be_one_by_one(wide, answers, alone, kind, data):
    """Gateways judge single reports and batches, counters frames: the fate must be the same."""
    shape = AnswerShape(cells=6, cells_per_answer=wide, answers=answers, wildcard_alone=alone)
    number = st.integers(-1 if kind == "<i8" else 0, 7)
    increasing = st.sets(st.integers(0, 5), min_size=wide, max_size=wide).map(sorted)
    answer = increasing | st.lists(number, min_size=wide, max_size=wide)
    reports = data.draw(st.lists(st.lists(answer, min_size=answers, max_size=answers), max_size=9))
    rows = np.array(reports, dtype=kind).reshape(len(reports), answers * wide)

    assert shape.allows_rows(rows).tolist() == [shape.allows(report) for report in reports]


@pytest.mark.parametrize("name", RANDOMIZERS)
@pytest.mark.parametrize("wide", [1, 3])
def test_what_is_allowed_is_what_some_device_can_answer(name, wide):
    """Each allowed row of numbers has a positive probability, and these add up to 1."""
    records = tuple(Record(f"q{i}", "u") for i in range(5))
    cells = Cells(records, name == "two-stage")
    randomizer = RANDOMIZERS[name](cells, RandomizerSpec(name, 0.5, max_cells_per_answer=wide))
    shape = AnswerShape.from_randomizer(randomizer)
    rows = product(range(len(cells) + 1), repeat=randomizer.cells_per_answer)
    allowed = [row for row in rows if shape.allows_answer(row)]

    for held in (*records, None):
        probabilities = [randomizer.report_probability(held, answer) for answer in allowed]
        assert min(probabilities) > 0
        assert sum(probabilities) == 1


@pytest.mark.parametrize("answers", [[], [[1, 2], [1, 2]], [[1]], [[1, 2, 3]], [[]], [[2, 1]]])
def test_a_report_of_another_form_is_none(answers):
    assert not AnswerShape(6, cells_per_answer=2, answers=1, wildcard_alone=False).allows(answers)
