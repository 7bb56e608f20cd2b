"""`blendstream evaluate` from the outside: a small whole evaluation, twice, and what it refuses."""

from __future__ import annotations

import contextlib
import csv
import io
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from blendstream.agents.cli import main
from blendstream.agents.commands.evaluate import EXPERIMENTS
from blendstream.evaluation.claims import CLAIMS
from blendstream.evaluation.figures import FIGURES
from blendstream.evaluation.paper_experiments import PAPER_EXPERIMENTS
from blendstream.evaluation.report import NO_EVIDENCE
from tests.evaluation.aol_log import write_aol_log

#: Some 25 s of one core; this is for machines that have many other things to do.
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def evaluate(out: Path, *options: str) -> int:
    return main(["evaluate", "--out", str(out), *options])


class SmokeRun(NamedTuple):
    out: Path
    #: On standard error, and on standard output.
    told: str
    said: str


@pytest.fixture(scope="module")
def smoke_run(tmp_path_factory: pytest.TempPathFactory) -> SmokeRun:
    """The smoke size: every experiment on a fifth of the people, both ends of each axis.

    In the folder it chooses for itself, beside that of a full run.
    """
    folder, told, said = tmp_path_factory.mktemp("smoke"), io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stderr(told),
        contextlib.redirect_stdout(said),
    ):
        assert main(["evaluate", "--smoke"]) == 0
    return SmokeRun(folder / "evaluation-smoke", told.getvalue(), said.getvalue())


@pytest.fixture(scope="module")
def smoke(smoke_run: SmokeRun) -> Path:
    return smoke_run.out


def test_it_says_how_long_it_will_take(smoke_run: SmokeRun) -> None:
    """Before most of the work is done: the full run is worth going away for."""
    assert re.search(r"^about [\d.]+ (seconds|minutes|hours) to go$", smoke_run.told, re.MULTILINE)


def test_the_smoke_run_measures_every_experiment(smoke: Path) -> None:
    """An experiment that breaks must not wait for the full run to be noticed."""
    for experiment in EXPERIMENTS:
        with (smoke / f"{experiment.name}.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert rows, experiment.name
        assert all(int(row["runs"]) >= 1 for row in rows)


#: What needs a table, or longer lists than a fifth of the people find.
UNREACHED = ("tables", "figure-13", "figure-14", "answers-per-client")


def test_every_figure_comes_in_both_themes(smoke: Path) -> None:
    """Readers choose light or dark; tables' figures need a table and are left out here."""
    for figure in FIGURES:
        if not figure.name.startswith(UNREACHED):
            for theme in ("light", "dark"):
                for kind in ("svg", "png"):
                    assert (smoke / f"{figure.name}-{theme}.{kind}").stat().st_size > 5_000


def test_a_smoke_run_is_marked_as_no_evidence_and_judges_nothing(smoke_run: SmokeRun) -> None:
    """One run of a fifth of the people once said "no" to sentences of the paper that hold."""
    report = (smoke_run.out / "report.md").read_text(encoding="utf-8")

    assert NO_EVIDENCE in report
    assert "same?" not in report
    assert not any(word in report for word in ("**no**", "**partly**", "| yes"))
    assert "no evidence" in smoke_run.said


def test_the_report_puts_the_papers_claims_beside_ours(smoke: Path) -> None:
    report, top_ten = (
        (smoke / name).read_text(encoding="utf-8") for name in ("report.md", "top_ten.md")
    )

    assert CLAIMS[0].says in report
    assert "(top_ten.md)" in report
    assert "| query 10 |" in top_ten
    assert "**`sharp`**" in top_ten


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


def test_publishing_some_experiments_keeps_the_others(
    smoke: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A report of one experiment once replaced that of all."""
    published, out = tmp_path / "published", tmp_path / "out"
    published.mkdir()
    for name in ("top_ten.csv", "top_ten.md", "weights.csv"):
        shutil.copy(smoke / name, published)
    options = ["--smoke", "--only", "list_of_ten", "--publish", str(published)]

    assert evaluate(out, *options) == 0
    report = (published / "report.md").read_text(encoding="utf-8")
    assert {line[:5] for line in report.splitlines()} >= {"| 9 |", "| 12 "}
    assert "(top_ten.md)" in report
    for name in ("figure-12-list-of-ten-light.svg", "weights-dark.svg"):
        assert (published / name).read_bytes() == (smoke / name).read_bytes()

    assert evaluate(out, *options, *a_table(tmp_path / "other.csv"), "--populations", "none") == 1
    assert "also has aol: name every population" in capsys.readouterr().err


def test_what_is_interrupted_says_how_to_go_on(tmp_path: Path) -> None:
    """Ctrl-C once worked off a queue, threw it away and ended without a word."""
    options = ["evaluate", "--out", str(tmp_path), "--only", "list_of_ten", "--runs", "200"]
    command = [sys.executable, "-m", "blendstream.agents.cli", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        while "to go" not in (line := running.stderr.readline()):
            assert line, "ended before it began"
        running.send_signal(signal.SIGINT)
        told = running.stderr.read()

    assert running.returncode == 130
    computed = re.search(
        r"^(\d+) units computed; the same command continues from here$", told, re.M
    )
    assert computed
    kept = (tmp_path / "measurements.csv").read_text(encoding="utf-8").count(",seconds,")
    assert kept >= int(computed[1]) >= 1  # one more if it was just being written
    assert "Traceback" not in told


def a_table(path: Path) -> list[str]:
    lines = [f"query {i},site{i % 7}.example,{60_000 // (i + 1)}" for i in range(400)]
    path.write_text("\n".join(["query,url,count", *lines]))
    return ["--table", str(path), "--columns", "query,url,count"]


def test_a_table_is_a_population_of_its_own(tmp_path: Path) -> None:
    """From a file to figures in one command."""
    out, table = tmp_path / "out", a_table(tmp_path / "clicks.csv")
    options = ["--populations", "none", "--only", "list_of_ten", "--runs", "1", "--smoke"]

    assert evaluate(out, *table, *options) == 0
    assert "clicks" in (out / "list_of_ten.csv").read_text(encoding="utf-8")


def test_the_top_ten_and_the_budget_split_of_a_table_are_measured(tmp_path: Path) -> None:
    """They once wrote empty tables, without a word."""
    table = a_table(tmp_path / "clicks.csv")
    options = ["--populations", "none", "--only", "top_ten,budget_split", "--smoke"]

    assert evaluate(tmp_path / "out", *table, *options) == 0
    for name in ("top_ten", "budget_split"):
        assert "clicks,paper" in (tmp_path / "out" / f"{name}.csv").read_text(encoding="utf-8")


def test_an_experiment_that_a_population_cannot_have_is_refused_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty table would look like a result."""
    table = a_table(tmp_path / "clicks.csv")
    options = ["--populations", "none", "--only", "weights,epsilon"]

    assert evaluate(tmp_path / "out", *table, *options) == 1
    assert (
        "weights cannot be measured on clicks: its question does not depend on the data, so it is "
        "measured on one generated population" in capsys.readouterr().err
    )
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def of_a_log(tmp_path_factory: pytest.TempPathFactory) -> SmokeRun:
    """All figures, from a file in the AOL release's format, with parameters of one's own."""
    folder, told, said = tmp_path_factory.mktemp("log"), io.StringIO(), io.StringIO()
    write_aol_log(folder / "searches.txt.gz")
    options = ["--smoke", "--scale", "1", "--list-size", "2,3", "--optin-share", "0.4"]
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(said):
        assert evaluate(folder / "out", "--log", str(folder / "searches.txt.gz"), *options) == 0
    return SmokeRun(folder / "out", told.getvalue(), said.getvalue())


def test_a_log_has_every_figure_of_the_paper(of_a_log: SmokeRun) -> None:
    """Figures 9 and 11 to 16, in one command."""
    for experiment in PAPER_EXPERIMENTS:
        with (of_a_log.out / f"{experiment.name}.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert {row["population"] for row in rows} == {"searches"}
        assert {row["series"].split(",")[0].split("/")[0] for row in rows} == {"paper", "sharp"}
    drawn = {path.name for path in of_a_log.out.glob("figure-*-light.svg")}
    assert {name[:9] for name in drawn} == {f"figure-{n}" for n in (11, 12, 13, 14, 15, 16)}
    assert "| query 10 |" in (of_a_log.out / "top_ten.md").read_text(encoding="utf-8")


def test_a_logs_rows_are_accounted_for_and_what_it_cannot_have_is_said(of_a_log: SmokeRun) -> None:
    """With the lines of malformed rows, in the report too; no text of the log is in any file."""
    rows = r"searches: [\d ]+ rows: [\d ]+ clicks of 2 001 users; skipped: [\d ]+ rows without a"
    malformed = r"3 malformed \(line \d+: it must have 5 columns, got 6; line \d+: "
    report = (of_a_log.out / "report.md").read_text(encoding="utf-8")
    for text in (of_a_log.said, report):
        assert re.search(rows, text)
        assert re.search(malformed, text)
    assert (
        "searches: no over_time: it needs every person's records of thirty epochs; a log has one "
        "per user" in of_a_log.said
    )
    assert "to go" in of_a_log.told
    for path in of_a_log.out.iterdir():
        if path.suffix != ".png":
            text = path.read_text(encoding="utf-8")
            assert not any(word in text for word in ("question", "strasse", "busy", ".example"))


def test_a_log_may_have_columns_and_parameters_of_its_own(tmp_path: Path) -> None:
    """One profile, m_O above 1 and another ε; what is measured with others is not mixed in."""
    lines = [f"{i},thing {i % 5},{i % 5}.example" for i in range(3_000)]
    (tmp_path / "my.csv").write_text("\n".join(["person,search,link", *lines]), encoding="utf-8")
    out = tmp_path / "out"
    options = [
        "--log", str(tmp_path / "my.csv"), "--log-columns", "person,search,link", "--smoke",
        "--scale", "1", "--only", "top_ten", "--epsilon", "2", "--delta", "1e-6",
    ]  # fmt: skip
    own = ["--profiles", "sharp", "--records-per-optin-user", "2", "--selection-share", "0.8"]

    assert evaluate(out, *options, *own) == 0
    assert "paper" not in (out / "top_ten.csv").read_text(encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["evaluate", "--epsilon", "much"])
    assert evaluate(out, *options) == 1


def test_two_tables_of_one_name_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of them was once dropped without a word."""
    twice = [*a_table(tmp_path / "my_clicks.csv"), *a_table(tmp_path / "my-clicks.csv")]

    assert evaluate(tmp_path / "out", *twice) == 1
    assert "two populations are called my-clicks" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_was_not_drawn_is_not_announced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The top ten is a table; it has no figure."""
    assert evaluate(tmp_path, "--smoke", "--only", "top_ten") == 0

    assert f"3 files in {tmp_path}: report.md, CSV\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--only", "figure12"], "it does not know figure12"),
        (["--populations", "bing"], "it does not know bing"),
        (["--populations", "none"], "name a population, a --table or a --log"),
        (["--table", "a.csv"], "each --table needs one --columns"),
        (["--table", "a.csv", "--columns", "q,u,n"], "cannot read the table a.csv"),
        (["--runs", "-1"], "runs must be at least 1"),
        (["--scale", "-2"], "scale must lie in"),
        (["--log", "a.txt"], "cannot read the log a.txt: No such file"),
        (["--log", "a.txt", "--log-columns", "user,query"], "must name three or four columns"),
        (["--log", "a.txt", "--log-columns", "a,b,c", "--log-columns", "a,b,c"], "got 2 and 1"),
        (["--epsilon", "0"], "epsilon must be finite and above 0"),
        (["--optin-share", "1"], "--optin-share must lie between 0 and 1, got 1"),
        (["--list-size", "0,10"], "--list-size must be at least 1, got 0"),
        (["--selection-share", "2"], "--selection-share must lie in (0, 1], got 2"),
        (["--profiles", "paper,best"], "--profiles knows paper, sharp, got best"),
        (["--records-per-optin-user", "3"], "above 1 needs --profiles sharp: Theorem 1"),
        (["--scale", "0.05"], "scale must lie in [0.1, 100], got 0.05; with fewer people"),
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
