"""Figures of the baselines: error and NDCG by opt-in proportion; Figure 12 with local methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from blendstream.evaluation.baseline_series import (
    ALONE,
    GIVEN,
    LDP_MINER,
    LDP_MINER_PADDED,
    LDP_MINER_QUERIES,
    NOTHING,
    PEM,
)
from blendstream.evaluation.drawing import Line, Panel
from blendstream.evaluation.populations import Setting
from blendstream.evaluation.summary import Curve, Summary

__all__ = ["list_of_ten_beside_local", "shares_beside_baselines"]

_SHARE, _TEN = "baselines", "baselines_list_of_ten"
_TICKS = (0.0, 0.001, 0.01, 0.1, 1.0)

Panels = Callable[[Summary, Mapping[str, Setting]], Iterator[Panel]]


def shares_beside_baselines(*, search_shaped: bool) -> Panels:
    """Return the panels of error and NDCG by opt-in share, from nobody to everybody.

    `search_shaped` selects the populations shaped like the paper's; otherwise the others.
    """

    def panels(summary: Summary, settings: Mapping[str, Setting]) -> Iterator[Panel]:
        for population in summary.populations(_SHARE):
            if (population in ("aol", "yandex")) == search_shaped:
                for metric in ("top_l1", "ndcg"):
                    yield _panel_by_share(summary, settings[population], metric)

    return panels


def _panel_by_share(summary: Summary, setting: Setting, metric: str) -> Panel:
    lines = [
        Line(summary.curve(_SHARE, setting.name, metric, series), label, colour)
        for series, label, colour in (
            ("paper", "paper", "paper"),
            ("sharp", "sharp", "sharp"),
            (ALONE, "opt-in alone", "third"),
        )
    ]
    lines += [
        Line(_level_line(summary, setting.name, metric, series), label, colour, dash)
        for series, label, colour, dash in (
            (GIVEN, "local, given", "limit", 1),
            (PEM, "local, PEM", "fourth", 1),
            (LDP_MINER, "LDPMiner", "fourth", 2),
            (NOTHING, "empty list", "plain", 2),
        )
    ]
    everyone = summary.at(_SHARE, setting.name, metric, ALONE, 1.0)
    is_error = metric == "top_l1"
    size = setting.list_size
    return Panel(
        setting.title,
        "share of users who opt in",
        f"L1 over the true top {size}" if is_error else f"NDCG of a whole list of {size}",
        lines,
        x_scale="symlog",
        y_scale="log" if is_error else "linear",
        y_range=(None, None) if is_error else (-0.02, 1.02),
        percent_x=True,
        mark=(everyone.mean, "everyone trusts the curator") if everyone and is_error else None,
        x_ticks=_TICKS,
    )


def _level_line(summary: Summary, population: str, metric: str, series: str) -> Curve:
    """Return the value at x = 0 as a level line, for a method that opt-in users do not change."""
    mean = summary.at(_SHARE, population, metric, series, 0.0)
    return Curve(series, [0.0, 1.0], [mean, mean]) if mean else Curve(series, [], [])


def list_of_ten_beside_local(summary: Summary, settings: Mapping[str, Setting]) -> Iterator[Panel]:
    """Yield Figure 12 with simulated local methods added: the paper's NDCG, and NDCG of ranks."""
    for population in summary.populations(_TEN):
        for metric, label in (
            ("ndcg", "NDCG of a list of 10"),
            ("ndcg_ranks", "NDCG by rank of a list of 10"),
        ):
            yield Panel(
                settings[population].title,
                "privacy budget ε (smaller is more private)",
                label,
                [
                    Line(summary.curve(_TEN, population, metric, series), name, colour, dash)
                    for series, name, colour, dash in (
                        ("paper", "paper", "paper", 0),
                        ("sharp", "sharp", "sharp", 0),
                        (GIVEN, "local, given", "limit", 1),
                        (PEM, "local, PEM", "fourth", 1),
                        (LDP_MINER, "LDPMiner", "third", 0),
                        (LDP_MINER_QUERIES, "of queries", "third", 1),
                        (LDP_MINER_PADDED, "padded", "third", 2),
                    )
                ],
                y_range=(-0.02, 1.02),
                mark=(0.3, "30 %: what the paper quotes for LDPMiner"),
            )
