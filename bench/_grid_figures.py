"""Draw the figures of `bench.blend_grid`: coverage and error by the groups' difference and by rank.

Cells with one difference are pooled over activity and size; bands are two standard errors.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from blendstream.evaluation.drawing import Line, Panel, draw_figure
from blendstream.evaluation.summary import Curve, Mean

__all__ = ["draw_grid"]

#: By what differences that have a size are drawn along it.
SPREADS = {"none": 0.0, "lognormal .1": 0.1, "lognormal .2": 0.2, "lognormal .3": 0.3,
           "lognormal .5": 0.5}  # fmt: skip
ESTIMATORS = (("blend", "blend", "sharp"), ("plain", "as one group", "paper"),
              ("clients", "clients alone", "fourth"))  # fmt: skip
Rows = Sequence[Mapping[str, str]]


def draw_grid(cells: Path, tenths: Path, folder: Path) -> list[Path]:
    """Draw both figures in both themes, of the CSVs that the grid wrote."""
    drawn = []
    for name, panels in (
        ("groups-that-differ", _by_difference(_read(cells))),
        ("groups-that-agree-by-rank", _by_rank(_read(tenths))),
    ):
        drawn += list(draw_figure(list(panels), folder / name, 2, ["svg"]))
    return drawn


def _read(path: Path) -> Rows:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _by_difference(rows: Rows) -> Iterator[Panel]:
    for metric, label, mark in (
        ("coverage", "95 % intervals that hold the truth", (0.93, "asked for: 93 %")),
        ("error", "squared error / clients'", (1.0, "clients alone")),
    ):
        for size in ("50", "500"):
            here = [row for row in rows if row["M"] == size]
            yield Panel(
                f"M = {size}",
                "σ: clients' shares differ by a factor e^(N(0, σ²))",
                label,
                [
                    *(
                        Line(_pooled(here, estimator, metric), name, colour)
                        for estimator, name, colour in ESTIMATORS
                        if metric == "coverage" or estimator != "clients"
                    ),
                    Line(_worst(here, metric), "blend, worst cell", "sharp", dash=1),
                ],
                y_scale="linear" if metric == "coverage" else "log",
                percent_y=metric == "coverage",
                mark=mark,
                x_ticks=list(SPREADS.values()),
            )


def _pooled(rows: Rows, estimator: str, metric: str) -> Curve:
    """The mean over cells, which are independent, with its standard error."""
    means = []
    for difference in SPREADS:
        of = [r for r in rows if (r["difference"], r["estimator"]) == (difference, estimator)]
        values, errors = (np.array([float(r[key]) for r in of]) for key in
                          (metric, f"{metric}_se"))  # fmt: skip
        off = float(np.sqrt((errors**2).sum())) / len(of)
        means.append(Mean(float(values.mean()), off, len(of)))
    return Curve(estimator, list(SPREADS.values()), means)


def _worst(rows: Rows, metric: str) -> Curve:
    """The cell in which the blend covers least, or is furthest off."""
    worst = min if metric == "coverage" else max
    means = []
    for difference in SPREADS:
        of = [r for r in rows if (r["difference"], r["estimator"]) == (difference, "blend")]
        cell = worst(of, key=lambda r: float(r[metric]))
        means.append(Mean(float(cell[metric]), float(cell[f"{metric}_se"]), int(cell["epochs"])))
    return Curve("worst", list(SPREADS.values()), means)


def _by_rank(rows: Rows) -> Iterator[Panel]:
    for metric, label, mark in (
        ("bias", "bias, as a part of p", (0.0, "none")),
        ("coverage", "95 % intervals that hold the truth", (0.93, "asked for: 93 %")),
    ):
        for size in ("50", "500"):
            here = [r for r in rows if (r["M"], r["difference"]) == (size, "none")]
            yield Panel(
                f"M = {size}, groups that agree",
                "tenth of the published list, most frequent first",
                label,
                [
                    Line(_tenths(here, estimator, metric), name, colour)
                    for estimator, name, colour in ESTIMATORS
                    # Ordered by their noise, the last are far too low: it would hide the others.
                    if metric == "coverage" or estimator != "clients"
                ],
                percent_y=True,
                mark=mark,
                x_ticks=list(range(1, 11)),
            )


def _tenths(rows: Rows, estimator: str, metric: str) -> Curve:
    of = [row for row in rows if row["estimator"] == estimator]
    means = [Mean(float(r[metric]), float(r[f"{metric}_se"]), int(r["records"])) for r in of]
    return Curve(estimator, [float(row["tenth"]) for row in of], means)
