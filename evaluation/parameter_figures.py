"""Figures of the paper's parameters m_C, f_O and M."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from blendstream.blender.profiles import PROFILES
from blendstream.evaluation.drawing import Line, Panel
from blendstream.evaluation.parameter_experiments import HELD
from blendstream.evaluation.populations import Setting
from blendstream.evaluation.summary import Curve, Summary

__all__ = ["by_answers", "by_list_length", "by_selection_share"]

_L1 = "L1 over records, ⋆ discarded, rescaled"
_NDCG = "NDCG (1 is perfect)"


def by_answers(summary: Summary, settings: Mapping[str, Setting]) -> Iterator[Panel]:
    """Yield L1 and NDCG by m_C, of the blend and of the clients alone (ten records each)."""
    name, held = "answers_per_client", HELD[-1]
    for population in summary.populations(name):
        for metric, label in (("l1", _L1), ("ndcg", _NDCG)):
            yield Panel(
                settings[population].title,
                "answers per client (m_C)",
                label,
                [
                    Line(
                        _reached(summary, name, population, metric, f"{profile}, {held} held", of),
                        f"{profile}{words}", profile, dash,
                    )
                    for profile in PROFILES
                    for dash, (of, words) in enumerate((("", ""), (", clients", ": clients")))
                ],
                y_scale="log" if metric == "l1" else "linear",
                y_range=(None, None) if metric == "l1" else (None, 1.005),
                x_ticks=(1, 2, 3, 5, 10),
            )  # fmt: skip


def by_selection_share(summary: Summary, settings: Mapping[str, Setting]) -> Iterator[Panel]:
    """Yield the panels for f_O: the head list's length, and the error of two lists."""
    name = "selection_share"
    for population in summary.populations(name):
        setting = settings[population]
        sizes = (setting.list_sizes[0], setting.list_size)
        for metric, label in (("found", "records on the head list"), ("l1", _L1)):
            of_lists = [
                (f"{profile}, M = {size}", f"{profile}, {size}", profile, dash)
                for profile in PROFILES
                for dash, size in enumerate(sizes)
            ]
            if metric == "found":
                of_lists = [(s, p, p, 0) for s, _, p, dash in of_lists if dash]
            yield Panel(
                setting.title,
                "share of the opt-in users who build the list (f_O)",
                label,
                [
                    Line(
                        summary.curve(name, population, metric, series)
                        if metric == "found"
                        else summary.reached(name, population, metric, series),
                        words, colour, dash,
                    )
                    for series, words, colour, dash in of_lists
                ],
                y_scale="linear" if metric == "found" else "log",
                y_range=(0, None) if metric == "found" else (None, None),
                percent_x=True,
            )  # fmt: skip


def by_list_length(summary: Summary, settings: Mapping[str, Setting]) -> Iterator[Panel]:
    """Yield the panels for M: the relative error and the NDCG of lists of different lengths."""
    name = "list_length"
    for population in summary.populations(name):
        for metric, label in (
            ("relative", "error of the listed records / their sum"),
            ("ndcg", _NDCG),
        ):
            yield Panel(
                settings[population].title,
                "records that are estimated (M)",
                label,
                [
                    Line(_reached(summary, name, population, metric, profile), profile, profile)
                    for profile in PROFILES
                ],
                y_scale="log" if metric == "relative" else "linear",
                y_range=(None, None) if metric == "relative" else (None, 1.005),
            )


def _reached(
    summary: Summary, experiment: str, population: str, metric: str, series: str, of: str = ""
) -> Curve:
    """Return the curve without points at which fewer than half of the runs reached the list length.

    `of` selects a group's curve by its suffix; by default the curve is the blend's.
    """
    points = summary.reached(experiment, population, metric, series).x
    curve = summary.curve(experiment, population, metric, series + of)
    return curve.where(lambda x, _: x in points)
