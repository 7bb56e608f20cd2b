"""Write the evaluation's tables as Markdown: both profiles, the paper's claims, Figure 9."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from blendstream.blender.profiles import PROFILES
from blendstream.evaluation.claims import PaperClaim, check_claims
from blendstream.evaluation.measurements import Measurement, Value
from blendstream.evaluation.paper_checks import Shown
from blendstream.evaluation.paper_experiments import TOP_TEN_COLUMNS
from blendstream.evaluation.populations import Setting
from blendstream.evaluation.search_logs import LogTally
from blendstream.evaluation.summary import Mean, Summary

__all__ = ["NO_EVIDENCE", "TOP_TEN", "write_report", "write_top_ten"]


#: The first paragraph in the report of a smoke run.
NO_EVIDENCE = (
    "**No evidence.** A smoke run: one repetition with a fifth of the people, made to see that "
    "everything works. Its numbers say nothing about any claim, so nothing is judged by them."
)


def write_report(
    summary: Summary,
    settings: Mapping[str, Setting],
    folder: Path,
    *,
    evidence: bool = True,
    logs: Mapping[str, LogTally] | None = None,
) -> Path:
    """Write report.md: every table except Figure 9's.

    Without `evidence` the report opens with `NO_EVIDENCE` and has no verdicts on the paper's
    sentences. `logs` has the counts of rows of each search log.
    """
    claims = list(_claims(summary, evidence=evidence))
    parts = [
        "# The evaluation in tables",
        *([] if evidence else [NO_EVIDENCE]),
        "Made by `blendstream evaluate`; what the figures show is in the CSV files beside it.\n"
        "± is one standard error of the mean; without it there was one run.",
        *_read_logs(logs or {}),
        "## Both profiles at ε = 4",
        "\n".join(_headline(summary, settings)),
    ]
    if len(claims) > 2:  # checks need the generated populations
        parts += ["## What the paper says, and what the `paper` profile shows", "\n".join(claims)]
    if (folder / TOP_TEN).exists():
        parts.append(f"Figure 9's table, the ingredients of ten estimates: [{TOP_TEN}]({TOP_TEN}).")
    path = folder / "report.md"
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path


def _read_logs(logs: Mapping[str, LogTally]) -> Iterator[str]:
    """Yield the section on the logs: the row counts of each."""
    if logs:
        yield "## The logs"
        yield "\n".join(f"- {name}: {tally.describe()}" for name, tally in logs.items())


#: A separate file: it shows one run, which the CSV files do not contain.
TOP_TEN = "top_ten.md"


def write_top_ten(
    measurements: Sequence[Measurement],
    summary: Summary,
    settings: Mapping[str, Setting],
    folder: Path,
) -> Iterator[Path]:
    """Write Figure 9 for each profile and each measured population."""
    measured = summary.populations("top_ten")
    if measured:
        parts = [_NINE]
        for population in measured:
            first = [
                m.value
                for m in measurements
                if (m.unit.experiment, m.unit.population, m.unit.run) == ("top_ten", population, 0)
            ]
            if len(measured) > 1:
                parts.append(f"## {settings[population].title}")
            parts += [
                _top_ten(first, summary, population, profile)
                for profile in settings[population].profiles
            ]
        path = folder / TOP_TEN
        path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
        yield path


_NINE = """\
# Figure 9: ten queries and the ingredients of their estimates

One run (the first), in 1/10 000. **Bold**: out of order, that is larger than the line above.
The last line counts these over all runs, on average. *p, everyone* is the probability of the query
with any URL. *Query itself* estimates just that, the paper's p̂_q; `sharp` asks for whole records
and has no such estimate. Sums over listed URLs leave out the clicks that are not listed and fall
short of it. With ⟨q,⋆⟩ in the sum the clients' two columns would be equal: Figure 5's estimates of
a query's URLs, ⋆ among them, add up to its estimate of the query."""


def _headline(summary: Summary, settings: Mapping[str, Setting]) -> Iterator[str]:
    yield "| population | measure | `paper` | `sharp` | sharp / paper | no privacy |"
    yield "|---|---|---:|---:|---:|---:|"
    for name, setting in settings.items():
        for metric, label in _HEADLINE:
            paper, sharp, limit = (
                summary.at("epsilon", name, wanted, f"{profile}, M = {setting.list_size}", 4.0)
                for wanted, profile in (
                    (metric, "paper"),
                    (metric, "sharp"),
                    (f"limit_{metric}", "sharp"),
                )
            )
            if paper and sharp:
                label_m = label.replace("M", str(setting.list_size))
                yield (
                    f"| {setting.title} | {label_m} | {_format(paper)} | {_format(sharp)} "
                    f"| {sharp.mean / paper.mean:.2f} | {_format(limit) if limit else ''} |"
                )
        for label, experiment, x, series in _LENGTHS:
            paper, sharp = (summary.at(experiment, name, "found", s, x) for s in series)
            if paper and sharp:
                yield (
                    f"| {setting.title} | {label} | {_format(paper)} "
                    f"| {_format(sharp)} | {sharp.mean / paper.mean:.2f} | |"
                )
        paper, sharp = (
            summary.at("coverage", name, "covered", profile, 0.0) for profile in PROFILES
        )
        if paper and sharp:
            yield (
                f"| {setting.title} | 95 % intervals that hold the truth | {paper.mean:.1%} "
                f"| {sharp.mean:.1%} | | |"
            )


_HEADLINE = (
    ("l1", "L1 over M records, rescaled"),
    ("l1_plain", "L1 over M records, plain"),
    ("ndcg", "NDCG of M records"),
)

#: The head-list lengths to report, each from the figure that shows it: label, experiment, x, and
#: the series of both profiles.
_LENGTHS = (
    (
        "records on the list, first epoch", "head_list", 4.0,
        ("threshold (paper)", "keeps its counts (sharp)"),
    ),
    ("records on the list, 12th epoch", "known_keys", 12.0, ("paper", "known keys")),
)  # fmt: skip


def _format(mean: Mean) -> str:
    value = f"{mean.mean:.3g}" if mean.mean < 1000 else f"{mean.mean:.0f}"
    return value if mean.runs < 2 else f"{value} ± {mean.error:.1g}"


def _claims(summary: Summary, *, evidence: bool) -> Iterator[str]:
    yield "| figure | section | the paper says | our `paper` profile |" + " same? |" * evidence
    yield "|---|---|---|---|" + "---|" * evidence
    for claim, shown in check_claims(summary):
        row = f"| {claim.figure} | {claim.section} | {claim.says} | {shown.text} |"
        yield row + f" {_verdict(claim, shown)} |" * evidence


def _verdict(claim: PaperClaim, shown: Shown) -> str:
    if shown.verdict == "yes":
        return f"yes ({claim.given})" if claim.given else "yes"
    return f"**{shown.verdict}**: {claim.why}" if claim.why else f"**{shown.verdict}**"


def _top_ten(first_run: Sequence[Value], summary: Summary, population: str, profile: str) -> str:
    columns: dict[str, dict[float, float]] = {}
    for value in first_run:
        if value.metric == "p":
            of_profile, column = value.series.split("/")
            if of_profile == profile:
                columns.setdefault(column, {})[value.x] = value.value
    names = [name for name in TOP_TEN_COLUMNS if name in columns]
    names = [name for name in names if any(not math.isnan(v) for v in columns[name].values())]
    lines = [
        f"**`{profile}`**\n",
        "| | " + " | ".join(TOP_TEN_COLUMNS[name] for name in names) + " |",
        "|---|" + "---:|" * len(names),
    ]
    above = dict.fromkeys(names, float("inf"))
    for rank in range(1, 11):
        cells = []
        for name in names:
            p = columns[name].get(float(rank), float("nan"))
            if math.isnan(p):
                cells.append("not listed")
                continue
            text = f"{p * 1e4:.1f}"
            cells.append(f"**{text}**" if p > above[name] else text)
            above[name] = p
        lines.append(f"| query {rank} | " + " | ".join(cells) + " |")
    counted = [summary.at("top_ten", population, "regressions", f"{profile}/{n}", 0) for n in names]
    means = [f"{mean.mean:.2f}" if mean else "" for mean in counted]
    lines.append("| out of order | " + " | ".join(means) + " |")
    return "\n".join(lines)
