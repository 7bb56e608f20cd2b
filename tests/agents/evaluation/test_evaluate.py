"""`blendstream evaluate` from the outside: a small whole evaluation, twice, and what it refuses."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from agents.cli import main
from agents.evaluation.claims import CLAIMS
from agents.evaluation.experiments import EXPERIMENTS
from agents.evaluation.figures import FIGURES

#: Some 25 s of one core; this is for machines that have many other things to do.
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def evaluate(out: Path, *options: str) -> int:
    return main(["evaluate", "--out", str(out), *options])


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The smoke size: every experiment on a fifth of the people, both ends of each axis."""
    out = tmp_path_factory.mktemp("smoke")
    assert evaluate(out, "--smoke") == 0
    return out


def test_the_smoke_run_measures_every_experiment(smoke: Path) -> None:
    """An experiment that breaks must not wait for the full run to be noticed."""
    for experiment in EXPERIMENTS:
        with (smoke / f"{experiment.name}.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert rows, experiment.name
        assert all(int(row["runs"]) >= 1 for row in rows)


def test_every_figure_comes_in_both_themes(smoke: Path) -> None:
    """Readers choose light or dark; tables' figures need a table and are left out here."""
    for figure in FIGURES:
        if not figure.name.startswith(("tables", "figure-13", "figure-14")):
            for theme in ("light", "dark"):
                for kind in ("svg", "png"):
                    assert (smoke / f"{figure.name}-{theme}.{kind}").stat().st_size > 5_000


def test_the_report_puts_the_papers_claims_beside_ours(smoke: Path) -> None:
    """Which of them hold at smoke size does not matter; that they are judged does."""
    report = (smoke / "report.md").read_text(encoding="utf-8")

    assert CLAIMS[0].says in report
    assert "| query 10 |" in report
    assert "**`sharp`**" in report


def test_one_process_and_two_agree_and_a_second_run_computes_nothing(
    smoke: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither the order in which processes finish nor a resumption may show in any file."""
    options = ["--smoke", "--only", "list_of_ten", "--processes", "1"]
    assert evaluate(tmp_path, *options) == 0
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.suffix != ".png"}
    assert evaluate(tmp_path, *options, "--publish", str(tmp_path / "published")) == 0

    assert first["list_of_ten.csv"] == (smoke / "list_of_ten.csv").read_bytes()
    assert "units are there already" in capsys.readouterr().err
    assert {name: (tmp_path / name).read_bytes() for name in first} == first
    published = {path.name for path in (tmp_path / "published").iterdir()}
    assert published == set(first) - {"measurements.csv"}


def test_a_table_is_a_population_of_its_own(tmp_path: Path) -> None:
    """From a file to figures in one command."""
    lines = [f"query {i},site{i % 7}.example,{60_000 // (i + 1)}" for i in range(400)]
    table = tmp_path / "clicks.csv"
    table.write_text("\n".join(["query,url,count", *lines]))
    out = tmp_path / "out"
    options = ["--populations", "none", "--only", "list_of_ten", "--runs", "1", "--smoke"]

    assert evaluate(out, "--table", str(table), "--columns", "query,url,count", *options) == 0
    assert "clicks" in (out / "list_of_ten.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--only", "figure12"], "it does not know figure12"),
        (["--populations", "bing"], "it does not know bing"),
        (["--populations", "none"], "name a population or a --table"),
        (["--table", "a.csv"], "each --table needs one --columns"),
        (["--table", "a.csv", "--columns", "q,u,n"], "cannot read the table a.csv"),
        (["--runs", "-1"], "runs must be at least 1"),
        (["--scale", "-2"], "scale must lie in"),
    ],
)
def test_bad_options_are_one_clear_line(
    tmp_path: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing is computed or written."""
    assert evaluate(tmp_path / "out", *options) == 1

    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_without_matplotlib_nothing_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The full run takes an hour and more; it used to end with this message."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if it were not installed

    assert evaluate(tmp_path / "out", "--smoke") == 1

    assert "Run: pip install 'blendstream[eval]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
