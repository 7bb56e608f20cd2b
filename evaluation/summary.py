"""Means and standard errors over runs, and the CSV files that the figures are drawn from."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from blendstream.evaluation.measurements import Measurement

__all__ = ["REACHED", "Curve", "Mean", "Summary"]

#: A point is left out if the list reached its length in a smaller proportion of the runs.
REACHED = 0.5


class Mean(NamedTuple):
    """The mean of several runs, and its standard error."""

    mean: float
    error: float
    runs: int


class Curve(NamedTuple):
    """One series of one metric, along x."""

    series: str
    x: list[float]
    means: list[Mean]

    def where(self, keep: Callable[[float, Mean], bool]) -> Curve:
        """Return the curve of the points that `keep` accepts."""
        kept = [(x, mean) for x, mean in zip(self.x, self.means, strict=True) if keep(x, mean)]
        return Curve(self.series, [x for x, _ in kept], [mean for _, mean in kept])

    def after(self, x: float) -> Curve:
        """Return the points beyond x. A point at x ≤ 0, if any, is a mean over the whole curve."""
        return self.where(lambda at, _: at > x)


class _Key(NamedTuple):
    experiment: str
    population: str
    metric: str
    series: str
    x: float


class Summary:
    """Means of all measurements, by experiment, population, metric and curve.

    NaN values (a query that is not on the list) are left out.
    """

    def __init__(self, measurements: Iterable[Measurement]) -> None:
        """Gather the runs of each place on each curve."""
        values: dict[_Key, list[float]] = {}
        for unit, value in ((m.unit, m.value) for m in measurements):
            if np.isfinite(value.value):
                key = _Key(unit.experiment, unit.population, value.metric, value.series, value.x)
                values.setdefault(key, []).append(value.value)
        self._means = {key: _mean(numbers) for key, numbers in values.items()}

    @classmethod
    def read(cls, folder: Path, populations: Iterable[str] = ()) -> Summary:
        """Read the (rounded) CSV files of `write`; these populations come first, in their order."""
        summary = cls(())
        for path in sorted(folder.glob("*.csv")):
            with path.open(encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file):
                    key = _Key(
                        path.stem, row["population"], row["metric"], row["series"], float(row["x"])
                    )
                    error, runs = float(row["standard_error"]), int(row["runs"])
                    summary._means[key] = Mean(float(row["mean"]), error, runs)
        place = {name: i for i, name in enumerate(populations)}
        in_order = sorted(summary._means, key=lambda k: place.get(k.population, len(place)))
        summary._means = {key: summary._means[key] for key in in_order}
        return summary

    def populations(self, experiment: str | None = None) -> list[str]:
        """List the populations of an experiment, or of all, in order of first appearance."""
        made = (k.population for k in self._means if experiment in (None, k.experiment))
        return list(dict.fromkeys(made))

    def series(self, experiment: str, population: str, metric: str) -> list[str]:
        """List the names of the curves."""
        wanted = (experiment, population, metric)
        return list(dict.fromkeys(k.series for k in self._means if k[:3] == wanted))

    def curve(self, experiment: str, population: str, metric: str, series: str) -> Curve:
        """Return one curve in order of x; empty if nothing was measured."""
        wanted = (experiment, population, metric, series)
        points = sorted((k.x, mean) for k, mean in self._means.items() if k[:4] == wanted)
        return Curve(series, [x for x, _ in points], [mean for _, mean in points])

    def reached(self, experiment: str, population: str, metric: str, series: str) -> Curve:
        """Return the curve without points at which few runs reached the list length."""
        often = self.curve(experiment, population, "reached", series)
        drawn = often.where(lambda _, mean: mean.mean >= REACHED).x
        return self.curve(experiment, population, metric, series).where(lambda x, _: x in drawn)

    def at(
        self, experiment: str, population: str, metric: str, series: str, x: float
    ) -> Mean | None:
        """Return one point of a curve, if it was measured."""
        return self._means.get(_Key(experiment, population, metric, series, x))

    def write(self, folder: Path) -> list[Path]:
        """Write one CSV per experiment, with mean, standard error and number of runs per point."""
        written = []
        for experiment in dict.fromkeys(key.experiment for key in self._means):
            path = folder / f"{experiment}.csv"
            with path.open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(
                    ["population", "series", "x", "metric", "mean", "standard_error", "runs"]
                )
                writer.writerows(self._rows(experiment))
            written.append(path)
        return written

    def _rows(self, experiment: str) -> Iterator[list[str | int]]:
        for key in sorted(k for k in self._means if k.experiment == experiment):
            mean = self._means[key]
            yield [
                key.population, key.series, f"{key.x:g}", key.metric,
                f"{mean.mean:.6g}", f"{mean.error:.4g}", mean.runs,
            ]  # fmt: skip


def _mean(values: list[float]) -> Mean:
    runs = len(values)
    error = float(np.std(values, ddof=1) / np.sqrt(runs)) if runs > 1 else 0.0
    # Rounded as in the CSV, so that a report from that file has identical text.
    return Mean(float(f"{np.mean(values):.6g}"), float(f"{error:.4g}"), runs)
