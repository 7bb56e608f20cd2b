"""An evaluation can be stopped anywhere and goes on from there, with the same numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blendstream.blender.values.errors import ParameterError
from blendstream.evaluation.measurements import Measurements, Unit, Value, generator_for

FIRST, SECOND = Unit("epsilon", "aol", 1.5, 0), Unit("epsilon", "aol", 1.5, 1)
VALUES = [Value("paper, M = 10", 1.5, "l1", 0.25), Value("sharp, M = 10", 1.5, "l1", 0.125)]


def filled(path: Path) -> Measurements:
    measurements = Measurements(path, "seed 1")
    measurements.add(FIRST, VALUES, 2.0)
    measurements.add(SECOND, VALUES, 4.0)
    return measurements


def test_what_was_finished_is_there_again(tmp_path: Path) -> None:
    """Otherwise a resumed evaluation would compute it twice, and average it twice."""
    written = filled(tmp_path / "m.csv")
    read = Measurements(tmp_path / "m.csv", "seed 1")

    assert FIRST in read
    assert SECOND in read
    assert list(read) == list(written)
    assert read.seconds("epsilon", "aol") == [2.0, 4.0]


@given(cut=st.integers(min_value=1, max_value=200))
def test_wherever_the_file_was_cut_a_unit_is_whole_or_gone(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    """Half a unit would bias its averages without anyone noticing."""
    path = tmp_path_factory.mktemp("cut") / "m.csv"
    whole = list(filled(path))
    text = path.read_text()
    start = text.index("epsilon,")
    path.write_text(text[: max(start, len(text) - cut)])

    left = list(Measurements(path, "seed 1"))

    assert left in ([], whole[: len(VALUES)], whole)
    again = Measurements(path, "seed 1")
    for unit, seconds in ((FIRST, 2.0), (SECOND, 4.0)):
        if unit not in again:
            again.add(unit, VALUES, seconds)
    assert list(Measurements(path, "seed 1")) == whole


def test_what_is_in_memory_is_what_the_file_will_say(tmp_path: Path) -> None:
    """A figure drawn right after computing once differed in its last digits from a later one."""
    measurements = Measurements(tmp_path / "m.csv", "seed 1")
    measurements.add(FIRST, [Value("paper", 1.5, "l1", 1 / 3)], 1 / 7)

    assert list(measurements) == list(Measurements(tmp_path / "m.csv", "seed 1"))


def test_a_file_made_with_other_options_is_not_mixed_in(tmp_path: Path) -> None:
    """Two seeds or scales in one average would be neither."""
    filled(tmp_path / "m.csv")

    with pytest.raises(ParameterError, match=r"other options \(seed 1, now seed 2\).*--out"):
        Measurements(tmp_path / "m.csv", "seed 2")


def test_a_population_that_changed_is_not_mixed_in_and_others_may_join(tmp_path: Path) -> None:
    """Another table of the same name was once taken for measured already."""
    path, january = tmp_path / "m.csv", {"clicks": "sha256 1"}
    Measurements(path, "seed 1", january).add(FIRST, VALUES, 2.0)
    both = Measurements(path, "seed 1", {**january, "votes": "sha256 2"})
    assert FIRST in both
    assert FIRST in Measurements(path, "seed 1")

    for changed in ({"clicks": "sha256 3"}, {"votes": "sha256 3"}):
        with pytest.raises(ParameterError, match=r"another \w+ \(sha256 \d, now sha256 3\).*--out"):
            Measurements(path, "seed 1", changed)


def test_a_unit_draws_the_same_whatever_was_drawn_before_it() -> None:
    """Order, processes and resumption must not show in the figures."""
    alone = generator_for(FIRST, 7).random(3).tolist()
    generator_for(SECOND, 7).random(1000)

    assert generator_for(FIRST, 7).random(3).tolist() == alone
    assert generator_for(SECOND, 7).random(3).tolist() != alone
    assert generator_for(FIRST, 8).random(3).tolist() != alone
