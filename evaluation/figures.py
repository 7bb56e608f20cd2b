"""The curves of each figure; `evaluation.drawing` draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from blendstream.evaluation.baseline_figures import (
    list_of_ten_beside_local,
    shares_beside_baselines,
)
from blendstream.evaluation.drawing import Line, Panel, draw_figure
from blendstream.evaluation.over_time_figures import error_by_total, error_over_time, list_over_time
from blendstream.evaluation.parameter_figures import (
    by_answers,
    by_list_length,
    by_selection_share,
)
from blendstream.evaluation.populations import Setting
from blendstream.evaluation.summary import REACHED, Curve, Summary

__all__ = ["FIGURES", "draw_all", "without_lines"]

EPSILON_LABEL = "privacy budget ε (smaller is more private)"
L1_LABEL = "L1 over records, ⋆ discarded, rescaled"
QUERIES_LABEL = "L1 over queries, ⋆ discarded, rescaled"
PLAIN_LABEL = "L1 over the listed records"
NDCG_LABEL = "NDCG (1 is perfect)"

Panels = Callable[[Summary, Mapping[str, Setting]], Iterator[Panel]]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: its file name and its panels."""

    name: str
    panels: Panels
    columns: int = 2


def draw_all(
    summary: Summary,
    settings: Mapping[str, Setting],
    folder: Path,
    kinds: Sequence[str] = ("svg", "png"),
) -> Iterator[Path]:
    """Draw every figure that has measurements, and yield the files."""
    for figure in FIGURES:
        panels = [p for p in figure.panels(summary, settings) if any(c.curve.x for c in p.lines)]
        if panels:
            yield from draw_figure(panels, folder / figure.name, figure.columns, kinds)


def without_lines(summary: Summary, settings: Mapping[str, Setting]) -> Iterator[str]:
    """Yield the names of figures without a line to draw although their experiment was measured."""
    for figure in FIGURES:
        panels = list(figure.panels(summary, settings))
        if panels and not any(line.curve.x for panel in panels for line in panel.lines):
            yield figure.name


def _budget_split(summary: Summary, settings: Mapping[str, Setting]) -> Iterator[Panel]:
    for metric, label in (("l1_queries", QUERIES_LABEL), ("ndcg", NDCG_LABEL), ("l1", L1_LABEL)):
        for population in summary.populations("budget_split"):
            yield Panel(
                settings[population].title,
                "share of the device's budget spent on the query (f_C)",
                label,
                [
                    Line(summary.curve("budget_split", population, metric, series), name, colour)
                    for series, name, colour in (
                        ("paper, clients", "paper: clients", "fourth"),
                        ("paper, opt-in", "paper: opt-in", "third"),
                        ("paper", "paper: blend", "paper"),
                        ("sharp", "sharp: blend", "sharp"),
                    )
                ],
            )
    yield from _click_shapes(summary, settings)


def _first_url(series: str) -> str:
    """Return the share of a query's clicks on the first of its ten URLs, from the series' exponent.

    >>> _first_url("URL of rank j ∝ j^−2")
    '65 % on first URL'
    """
    exponent = float(series.rsplit("−", 1)[1])
    return f"{1 / sum(j**-exponent for j in range(1, 11)):.0%} on first URL".replace("%", " %")


def _click_shapes(summary: Summary, settings: Mapping[str, Setting]) -> Iterator[Panel]:
    roles = ("fourth", "paper", "third", "limit")
    for population in summary.populations("click_shapes"):
        names = sorted(summary.series("click_shapes", population, "ndcg"))
        yield Panel(
            f"{settings[population].label}, paper: clients, by where clicks go",
            "share of the device's budget spent on the query (f_C)",
            NDCG_LABEL,
            [
                Line(
                    summary.curve("click_shapes", population, "ndcg", name),
                    _first_url(name), role, dash,
                )
                for dash, (name, role) in enumerate(zip(names, roles, strict=False))
            ],
        )  # fmt: skip


def _list_of_ten(summary: Summary, settings: Mapping[str, Setting]) -> Iterator[Panel]:
    """Yield both readings of NDCG: a favourite that is not listed costs, or it does not."""
    for population in summary.populations("list_of_ten"):
        yield Panel(
            settings[population].title,
            EPSILON_LABEL,
            "NDCG of a head list of 10",
            [
                Line(
                    summary.reached("list_of_ten", population, metric, f"{p}, M = 10"),
                    p + name, p, dash,
                )
                for p in ("paper", "sharp")
                for dash, (metric, name) in enumerate(
                    (("ndcg", ""), ("ndcg_listed", ", listed only"))
                )
            ],
            y_range=(None, 1.01),
            mark=(0.95, "95 %"),
        )  # fmt: skip


def _panels(experiment: str, metric: str, label: str, *, tables: bool) -> Panels:
    """Return the panels of L1 or NDCG against ε or the opt-in share, one per population."""

    def panels(summary: Summary, settings: Mapping[str, Setting]) -> Iterator[Panel]:
        for population in summary.populations(experiment):
            if settings[population].is_table == tables:
                share = experiment == "optin_share"
                yield Panel(
                    settings[population].title,
                    "share of users who opt in" if share else EPSILON_LABEL,
                    label,
                    list(_size_lines(summary, experiment, population, metric)),
                    y_scale="linear" if metric == "ndcg" else "log",
                    y_range=(None, 1.005) if metric == "ndcg" else (None, None),
                    percent_x=share,
                    mark=(0.95, "95 %") if metric == "ndcg" else None,
                )

    return panels


def _size_lines(summary: Summary, experiment: str, population: str, metric: str) -> Iterator[Line]:
    """Yield a line per profile (its colour) and head-list size (its dash)."""
    names = summary.series(experiment, population, "reached")
    sizes = sorted({int(name.rsplit(" ", 1)[1]) for name in names})
    for name in names:
        profile, size = name.split(",")[0], int(name.rsplit(" ", 1)[1])
        shown = summary.reached(experiment, population, metric, name)
        label = f"{profile}, {size}" if len(sizes) > 1 else profile
        yield Line(shown, label, profile, sizes.index(size))


def _head_list(summary: Summary, settings: Mapping[str, Setting]) -> Iterator[Panel]:
    for population in summary.populations("head_list"):
        yield Panel(
            settings[population].title,
            EPSILON_LABEL,
            "records on the head list",
            [
                Line(summary.curve("head_list", population, "found", series), name, colour)
                for series, name, colour in (
                    ("threshold (paper)", "paper", "paper"),
                    ("keeps its counts (sharp)", "sharp, first epoch", "sharp"),
                    ("and known keys, epoch 12", "sharp, 12th epoch", "limit"),
                    ("10 records a user", "10 records a user", "third"),
                    ("30 records a user", "30 records a user", "fourth"),
                )
            ],
            y_scale="log",
        )


def _known_keys(summary: Summary, settings: Mapping[str, Setting]) -> Iterator[Panel]:
    for population in summary.populations("known_keys"):
        yield Panel(
            settings[population].title,
            "epoch",
            "records on the head list",
            [
                Line(summary.curve("known_keys", population, "found", series), name, colour, dash)
                for series, name, colour, dash in (
                    ("known keys", "sharp", "sharp", 0),
                    ("same, without memory", "sharp, no memory", "sharp", 2),
                    ("paper", "paper", "paper", 0),
                )
            ],
            y_range=(0, None),
            x_ticks=range(1, 13),
        )


def _coverage(summary: Summary, settings: Mapping[str, Setting]) -> Iterator[Panel]:
    for population in summary.populations("coverage"):
        for metric, label in (
            ("covered", "intervals that hold the truth"),
            ("relative_width", "mean width / mean true probability"),
        ):
            # x = 0 is the whole list.
            curves = [
                Line(curve.where(lambda x, _: x > 0), curve.series, curve.series)
                for curve in (
                    summary.curve("coverage", population, metric, profile)
                    for profile in ("paper", "sharp")
                )
            ]
            ticks = sorted({x for line in curves for x in line.curve.x})
            yield Panel(
                settings[population].title,
                "place on the list (up to)",
                label,
                curves,
                x_scale="log",
                y_scale="linear" if metric == "covered" else "log",
                y_range=(None, 1.005),
                percent_y=metric == "covered",
                mark=(0.95, "95 %") if metric == "covered" else None,
                x_ticks=ticks,
            )


def _agreement(summary: Summary, settings: Mapping[str, Setting]) -> Iterator[Panel]:
    for population in summary.populations("agreement"):
        yield Panel(
            settings[population].title,
            "how much more or less popular each record is among clients",
            "epochs in which the test says “they differ”",
            [
                Line(summary.curve("agreement", population, "rejected", profile), profile, profile)
                for profile in ("paper", "sharp")
            ],
            percent_x=True,
            percent_y=True,
            y_range=(0, 1.02),
            mark=(0.05, "5 %, wanted where nothing differs"),
        )


def _limit(summary: Summary, settings: Mapping[str, Setting]) -> Iterator[Panel]:
    for population in summary.populations("limit"):
        yield Panel(
            "AOL-shaped, M = 50, ε = 4",
            "people in the population",
            PLAIN_LABEL,
            [
                Line(summary.curve("limit", population, "l1_plain", series), name, colour)
                for series, name, colour in (
                    ("paper", "paper", "paper"),
                    ("sharp", "sharp", "sharp"),
                    ("no privacy", "no privacy", "limit"),
                )
            ],
            x_scale="log",
            y_scale="log",
        )
    for population in summary.populations("epsilon"):
        setting = settings[population]
        size = setting.list_size
        paper, sharp = f"paper, M = {size}", f"sharp, M = {size}"
        yield Panel(
            f"{setting.title}, M = {size}",
            EPSILON_LABEL,
            PLAIN_LABEL,
            [
                Line(summary.reached("epsilon", population, metric, series), name, colour)
                for metric, series, name, colour in (
                    ("l1_plain", paper, "paper", "paper"),
                    ("l1_plain", sharp, "sharp", "sharp"),
                    ("limit_l1_plain", sharp, "no privacy", "limit"),
                )
            ],
            y_scale="log",
        )


def _likeness(series: str) -> str:
    share = series.split("%", maxsplit=1)[0]
    return "no likeness" if share == "0" else f"{share} % return"


def _records_each(summary: Summary, settings: Mapping[str, Setting]) -> Iterator[Panel]:
    roles = ("sharp", "limit", "third")
    for population in summary.populations("records_each"):
        for metric, label, scale in (
            ("found", "records on the head list", "linear"),
            ("l1_plain", PLAIN_LABEL + " (M = 50)", "linear"),
        ):
            names = summary.series("records_each", population, metric)
            likeness = [name for name in names if name != "paper"]
            paper = summary.curve("records_each", population, metric, "paper")
            yield Panel(
                settings[population].title,
                "records per opt-in user (m_O)",
                label,
                [
                    *(
                        Line(
                            summary.curve("records_each", population, metric, name),
                            _likeness(name), role, dash,
                        )
                        for dash, (name, role) in enumerate(zip(likeness, roles, strict=False))
                    ),
                    Line(paper, "paper", "paper"),
                ],
                x_scale="log",
                y_scale=scale,
                y_range=(0, None),
                x_ticks=(1, 2, 3, 5, 10, 20, 30),
            )  # fmt: skip


def _in_half_the_runs(curve: Curve) -> Curve:
    """Return the curve without points at which few runs reached the list length."""
    most = max(mean.runs for mean in curve.means)
    return curve.where(lambda _, mean: mean.runs >= REACHED * most)


def _weights(summary: Summary, settings: Mapping[str, Setting]) -> Iterator[Panel]:
    """Yield T's weight by opt-in share, and each group's own L1 at the usual share."""
    roles = ("third", "paper", "fourth")
    for population in summary.populations("weights"):
        names = sorted(
            summary.series("weights", population, "weight"), key=lambda n: int(n.split("%")[0])
        )
        yield Panel(
            f"{settings[population].label}, list of 10, paper",
            EPSILON_LABEL,
            "the opt-in group's weight",
            [
                Line(
                    _in_half_the_runs(summary.curve("weights", population, "weight", name)),
                    name.replace("%", " %"), role, dash,
                )
                for dash, (name, role) in enumerate(zip(names, roles, strict=False))
            ],
            y_range=(0, 1.02),
            percent_y=True,
        )  # fmt: skip
        usual = f"{settings[population].optin_share:.0%} opt in"
        yield Panel(
            f"{settings[population].label}, list of 10, paper, {usual.replace('%', ' %')}",
            EPSILON_LABEL,
            L1_LABEL,
            [
                Line(summary.curve("weights", population, metric, usual), name, role)
                for metric, name, role in (
                    ("l1_clients", "clients", "fourth"),
                    ("l1_optin", "opt-in", "third"),
                    ("l1", "blend", "paper"),
                )
            ],
            y_scale="log",
        )


FIGURES = (
    Figure("figure-11-budget-split", _budget_split, columns=3),
    Figure("figure-12-list-of-ten", _list_of_ten),
    Figure("figure-13-l1-by-optin-share", _panels("optin_share", "l1", L1_LABEL, tables=False)),
    Figure(
        "figure-14-ndcg-by-optin-share", _panels("optin_share", "ndcg", NDCG_LABEL, tables=False)
    ),
    Figure("figure-15-l1-by-epsilon", _panels("epsilon", "l1", L1_LABEL, tables=False)),
    Figure("figure-16-ndcg-by-epsilon", _panels("epsilon", "ndcg", NDCG_LABEL, tables=False)),
    Figure("tables-l1-by-optin-share", _panels("optin_share", "l1", L1_LABEL, tables=True)),
    Figure("tables-ndcg-by-optin-share", _panels("optin_share", "ndcg", NDCG_LABEL, tables=True)),
    Figure("tables-l1-by-epsilon", _panels("epsilon", "l1", L1_LABEL, tables=True)),
    Figure("tables-ndcg-by-epsilon", _panels("epsilon", "ndcg", NDCG_LABEL, tables=True)),
    Figure("baselines-by-optin-share", shares_beside_baselines(search_shaped=True)),
    Figure("baselines-elsewhere", shares_beside_baselines(search_shaped=False)),
    Figure("baselines-list-of-ten", list_of_ten_beside_local),
    Figure("answers-per-client", by_answers),
    Figure("selection-share", by_selection_share),
    Figure("list-length", by_list_length),
    Figure("head-list-by-epsilon", _head_list),
    Figure("head-list-by-epoch", _known_keys),
    Figure("coverage-and-width", _coverage),
    Figure("agreement", _agreement, columns=1),
    Figure("sampling-limit", _limit),
    Figure("records-per-user", _records_each),
    Figure("weights", _weights),
    Figure("over-time-by-total", error_by_total),
    Figure("over-time-error", error_over_time, columns=3),
    Figure("over-time-list", list_over_time),
)
