"""docs/benchmarks.md is what its writer makes of the stored results, and lacks no benchmark."""

from __future__ import annotations

import pkgutil

import pytest

import bench
from bench.__main__ import main
from bench._page import GROUPS, PAGE, RESULTS, Result, Table, load, page

NAMES = [name for names in GROUPS.values() for name in names]


def test_the_page_is_what_the_stored_results_give() -> None:
    """Nobody has edited a figure by hand: `python -m bench --page` would change nothing."""
    assert PAGE.read_text() == page()


def test_every_benchmark_has_a_section() -> None:
    modules = {module.name for module in pkgutil.iter_modules(bench.__path__)}

    assert sorted(NAMES) == sorted(name for name in modules if not name.startswith("_"))


def test_every_stored_result_belongs_to_a_benchmark() -> None:
    """One of a benchmark that was removed would be read by nobody."""
    assert {path.stem for path in RESULTS.glob("*")} <= set(NAMES)


def test_a_section_names_its_day_commit_command_and_machine() -> None:
    result = load("counting")

    assert result is not None
    assert result.measured().replace("\n", " ") in PAGE.read_text().replace("\n", " ")
    for part in (result.commit, result.command, result.machine):
        assert part in result.measured().replace("\n", " ")


def test_a_row_of_another_width_is_refused() -> None:
    """It would shift every figure behind it into another column."""
    with pytest.raises(ValueError, match="must have 2 cells, not 1"):
        Table(["what", "measured"]).add("alone")


def test_a_table_reads_as_markdown() -> None:
    table = Table(["work", "time"], "Title", [["a", "1 s"]])

    assert table.markdown() == "**Title**\n\n| work | time |\n| --- | ---: |\n| a | 1 s |"


def test_a_run_states_its_machine() -> None:
    begun = Result.begin("python -m bench counting")

    assert "cores" in begun.machine
    assert "load" in begun.machine


@pytest.mark.parametrize("words", [["no_such_benchmark"], ["counting", "growth", "--quick"]])
def test_a_wrong_command_runs_nothing(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "benchmark" in capsys.readouterr().out
