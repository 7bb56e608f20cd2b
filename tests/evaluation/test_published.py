"""What docs/evaluation shows is what its own CSV files say, with as many runs as it promises."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from blendstream.agents.commands.evaluate import EXPERIMENTS
from blendstream.blender.profiles import PROFILES
from blendstream.evaluation.claims import CLAIMS, check_claims
from blendstream.evaluation.figures import FIGURES
from blendstream.evaluation.paper_experiments import TOP_TEN_COLUMNS
from blendstream.evaluation.populations import AOL, SETTING_A, SETTING_B, YANDEX
from blendstream.evaluation.report import TOP_TEN
from blendstream.evaluation.summary import Mean, Summary
from tests.evaluation.page import PAGE, TABLES

PUBLISHED = PAGE.parent / "evaluation"


def test_every_claim_of_the_paper_is_judged_by_the_published_numbers(summary: Summary) -> None:
    """A verdict in the report that its CSV files do not give would be a claim of ours."""
    report = (PUBLISHED / "report.md").read_text(encoding="utf-8")
    judged = list(check_claims(summary))

    assert [claim for claim, _ in judged] == list(CLAIMS)
    for claim, shown in judged:
        verdict = "yes" if shown.verdict == "yes" else f"**{shown.verdict}**: {claim.why}"
        row = f"| {claim.figure} | {claim.section} | {claim.says} | {shown.text} | {verdict}"
        assert row in report
        assert shown.verdict == "yes" or claim.why, f"say why: {claim.says}"


def test_the_page_has_every_claim_with_its_verdict(summary: Summary) -> None:
    """In few words; the report has the numbers, and says why."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for claim, shown in check_claims(summary):
        row = next(line for line in lines if line.startswith(f"| {claim.figure} | {claim.says} |"))
        lines.remove(row)  # "the same, if …" is said of several
        given = ", given" if claim.given and shown.verdict == "yes" else ""
        assert row.endswith(f"| {shown.verdict}{given} |"), row


def test_the_page_opens_with_what_it_says_in_short_and_one_figure() -> None:
    """Where its numbers come from stands last."""
    headings = [h for h in PAGE.read_text(encoding="utf-8").splitlines() if h.startswith("## ")]

    assert headings[0] == "## In short"
    assert headings[-1] == "## Appendix: where the numbers come from"
    assert "<picture>" in PAGE.read_text(encoding="utf-8").split("## In short")[1][:20]


#: What every run of an experiment measures, whether its list got long enough or not.
EVERY_RUN = {
    "top_ten": "regressions",
    "budget_split": "ndcg",
    "coverage": "covered",
    "agreement": "rejected",
    "limit": "l1_plain",
    "weights": "weight",
    "click_shapes": "queries",
    "over_time": "shown",
}

#: What the page's two tables are to an experiment; the tables themselves are not ours to hold.
TABLE_SETTINGS = [replace(AOL, name=name, is_table=True) for name in TABLES]


def test_every_point_has_the_runs_that_its_experiment_asks_for(summary: Summary) -> None:
    """An evaluation that was stopped early must not be published as a whole one."""
    for experiment in EXPERIMENTS:
        for setting in (AOL, YANDEX, SETTING_A, SETTING_B, *TABLE_SETTINGS):
            if not experiment.suits(setting):
                continue
            assert setting.name in summary.populations(experiment.name)
            metric = EVERY_RUN.get(experiment.name, "found")
            for series in summary.series(experiment.name, setting.name, metric):
                if series == "1% opt in":  # seldom ten records, and none where ε is small
                    continue
                curve = summary.curve(experiment.name, setting.name, metric, series)
                runs = {mean.runs for mean in curve.means}
                assert runs == {experiment.runs_on(setting)}, (experiment.name, series)


def test_the_top_ten_counts_what_its_csv_counts(summary: Summary) -> None:
    """Figure 9's table comes from the runs themselves; its last lines must not be older."""
    table = (PUBLISHED / TOP_TEN).read_text(encoding="utf-8")
    for profile in PROFILES:
        counted = [
            f"{mean.mean:.2f}"
            for name in TOP_TEN_COLUMNS
            if (mean := summary.at("top_ten", "aol", "regressions", f"{profile}/{name}", 0))
        ]
        assert f"| out of order | {' | '.join(counted)} |" in table


def test_every_figure_is_there_in_both_themes_and_shown_on_the_page() -> None:
    """A figure nobody links to is not published."""
    text = PAGE.read_text(encoding="utf-8")
    for figure in FIGURES:
        for theme in ("light", "dark"):
            assert (PUBLISHED / f"{figure.name}-{theme}.svg").stat().st_size > 5_000
            assert f"evaluation/{figure.name}-{theme}.svg" in text


def test_what_was_written_is_read_again(summary: Summary, tmp_path: Path) -> None:
    """To the digit that is written."""
    summary.write(tmp_path)
    again = Summary.read(tmp_path)

    at = ("epsilon", "aol", "l1", "sharp, M = 50", 4.0)
    assert again.at(*at) == summary.at(*at)
    assert isinstance(again.at(*at), Mean)
