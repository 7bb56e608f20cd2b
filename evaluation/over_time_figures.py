"""Figures of many epochs: error over time, error by total budget, and list length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from blendstream.evaluation.drawing import Line, Panel
from blendstream.evaluation.over_time_experiments import EPOCHS, PAPER, SHOCK, TOTALS, series_of
from blendstream.evaluation.populations import Setting
from blendstream.evaluation.summary import Curve, Summary

__all__ = ["error_by_total", "error_over_time", "list_over_time"]

_NAME = "over_time"
_TICKS = (1, 5, 10, 15, 20, 25, 30)
_WORLDS = {
    "stationary": "nothing changes",
    "drifting": "5 % drift an epoch",
    "shocked": f"a shock in epoch {SHOCK}",
}


def _top_label(setting: Setting) -> str:
    return f"L1 over the true top {setting.list_size}"


def error_over_time(summary: Summary, settings: Mapping[str, Setting]) -> Iterator[Panel]:
    """Yield the error per epoch: from that epoch alone, filtered, and with one budget for all."""
    for population in summary.populations(_NAME):
        for world, words in _WORLDS.items():
            each, once = (
                series_of("each epoch", 120, world), series_of("one budget", 4, world)
            )  # fmt: skip
            yield Panel(
                f"{settings[population].label}: {words}",
                "epoch",
                _top_label(settings[population]),
                [
                    Line(summary.curve(_NAME, population, metric, name).after(0), label, colour)
                    for metric, name, label, colour in (
                        ("own_top_l1", each, "epoch alone, ε 120", "sharp"),
                        ("top_l1", once, "one budget, ε 4", "third"),
                        ("top_l1", each, "filtered, ε 120", "limit"),
                    )
                ],
                y_scale="log",
                x_ticks=_TICKS,
            )


def error_by_total(summary: Summary, settings: Mapping[str, Setting]) -> Iterator[Panel]:
    """Yield the panels of error against the total ε of one person, for every way of spending."""
    for population in summary.populations(_NAME):
        yield Panel(
            settings[population].title,
            f"ε that a person spends in all {EPOCHS} epochs",
            _top_label(settings[population]),
            [
                Line(_curve_by_total(summary, population, way, metric), label, colour, dash)
                for way, metric, label, colour, dash in (
                    (PAPER, "own_top_l1", "paper", "paper", 0),
                    ("rotated", "own_top_l1", "sharp, rotated", "fourth", 0),
                    ("each epoch", "own_top_l1", "sharp", "sharp", 0),
                    ("each epoch", "top_l1", "sharp, filtered", "limit", 1),
                    ("one budget", "top_l1", "one budget", "third", 0),
                )
            ],
            x_scale="log",
            y_scale="log",
            x_ticks=TOTALS,
        )


def _curve_by_total(summary: Summary, population: str, way: str, metric: str) -> Curve:
    found = [
        (total, mean)
        for total in TOTALS
        if (mean := summary.at(_NAME, population, metric, series_of(way, total), 0.0))
    ]
    return Curve(way, [total for total, _ in found], [mean for _, mean in found])


def list_over_time(summary: Summary, settings: Mapping[str, Setting]) -> Iterator[Panel]:
    """Yield the panels of records shown, and of those truly among the largest."""
    for population in summary.populations(_NAME):
        for metric, label in (
            ("shown", "records shown"),
            ("on_top", "of them truly among the largest"),
        ):
            yield Panel(
                settings[population].title,
                "epoch",
                label,
                [
                    Line(summary.curve(_NAME, population, metric, name).after(0), name_, colour)
                    for name, name_, colour in (
                        (series_of("each epoch, all in S", 120), "each epoch, ε 120", "limit"),
                        (series_of(PAPER, 120), "paper, ε 120", "paper"),
                        (series_of("one budget", 4), "one budget, ε 4", "third"),
                    )
                ],
                y_scale="log" if metric == "shown" else "linear",
                y_range=(None, None) if metric == "shown" else (None, 1.01),
                percent_y=metric == "on_top",
                x_ticks=_TICKS,
            )
