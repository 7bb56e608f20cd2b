"""Store finished measurements, so that an interrupted evaluation can resume.

Each evaluation appends to one CSV file. A *unit* is one repetition of an experiment on a population
at one point, computed in one step. Its last line has the metric `seconds`. A unit without that line
was interrupted: reading the file drops it, and the evaluation computes it again.

Promises: a unit counts once or not at all, even after a power failure; values depend only on the
seed and the unit, not on order, resumption or the number of processes.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from blendstream.blender.values.errors import ParameterError

__all__ = ["SECONDS", "Measurement", "Measurements", "Unit", "Value", "generator_for"]

#: The metric of a unit's last line: its computing time.
SECONDS = "seconds"

_HEADING = ("experiment", "population", "point", "run", "series", "x", "metric", "value")


class Unit(NamedTuple):
    """One computation: `point` is x on the experiment's axis, `run` the repetition."""

    experiment: str
    population: str
    point: float
    run: int


class Value(NamedTuple):
    """One measured number: its curve (`series`), its x, its metric and its value."""

    series: str
    x: float
    metric: str
    value: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """A value and its unit."""

    unit: Unit
    value: Value


def generator_for(unit: Unit, seed: int) -> np.random.Generator:
    """Return the unit's generator, which does not depend on the machine or the order of units."""
    text = f"{seed}/{unit.experiment}/{unit.population}/{unit.point!r}/{unit.run}"
    return np.random.default_rng(int.from_bytes(sha256(text.encode()).digest()[:16], "big"))


class Measurements:
    """The file of one evaluation.

    A resumed evaluation must have the same `conditions` (seed, scale, version), and each of its
    populations the same entry in `sources`, because two tables may have one name. It may add
    populations.
    """

    def __init__(
        self, path: Path, conditions: str, sources: Mapping[str, str] | None = None
    ) -> None:
        """Read the finished units, drop interrupted ones, and prepare to append."""
        self._path = path
        self._finished: dict[Unit, list[Value]] = {}
        known = dict(sources or {})
        if path.exists():
            with path.open(encoding="utf-8", newline="") as lines:
                opening = list(takewhile(lambda line: line.startswith("# "), lines))
                made_with, *populations = opening or ["# nothing known"]
                self._must_equal("other options", made_with[2:].strip(), conditions)
                for line in populations:
                    name, _, source = line[2:].strip().partition(": ")
                    self._must_equal(f"another {name}", source, known.setdefault(name, source))
                self._read(lines)
        self._rewrite([conditions, *(f"{name}: {source}" for name, source in known.items())])

    def _must_equal(self, what: str, stored: str, now: str) -> None:
        if stored != now:
            raise ParameterError(
                f"{self._path} was made with {what} ({stored}, now {now}); "
                "name another folder with --out, or remove the file"
            )

    def __contains__(self, unit: Unit) -> bool:
        return unit in self._finished

    def __iter__(self) -> Iterator[Measurement]:
        """Iterate over the values of all finished units, except their times."""
        for unit, values in self._finished.items():
            yield from (Measurement(unit, v) for v in values if v.metric != SECONDS)

    def seconds(self, experiment: str, population: str, point: float | None = None) -> list[float]:
        """Return the seconds that finished units of this kind took (all points, or one)."""
        return [
            values[-1].value
            for unit, values in self._finished.items()
            if (unit.experiment, unit.population) == (experiment, population)
            and point in (None, unit.point)
        ]

    def add(self, unit: Unit, values: Sequence[Value], seconds: float) -> None:
        """Append a finished unit; it is on disk when this returns."""
        # Rounded as in the file, so that a resumed evaluation has identical digits.
        rows = [
            value._replace(value=float(_text(value.value)))
            for value in (*values, Value("", 0.0, SECONDS, seconds))
        ]
        with self._path.open("a", encoding="utf-8", newline="") as file:
            file.write(_lines(unit, rows))
            file.flush()
            os.fsync(file.fileno())
        self._finished[unit] = rows

    def _read(self, lines: Iterable[str]) -> None:
        open_units: dict[Unit, list[Value]] = {}
        for row in csv.reader(lines):
            try:
                experiment, population, point, run, series, x, metric, value = row
                unit = Unit(experiment, population, float(point), int(run))
                entry = Value(series, float(x), metric, float(value))
            except ValueError:  # the line that was being written when the power failed
                continue
            open_units.setdefault(unit, []).append(entry)
            if metric == SECONDS:
                self._finished[unit] = open_units.pop(unit)

    def _rewrite(self, opening: Iterable[str]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        aside = self._path.with_suffix(".new")
        with aside.open("w", encoding="utf-8", newline="") as file:
            file.writelines(f"# {line}\n" for line in opening)
            file.write(",".join(_HEADING) + "\n")
            for unit, values in self._finished.items():
                file.write(_lines(unit, values))
        aside.replace(self._path)


def _lines(unit: Unit, values: Iterable[Value]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for value in values:
        writer.writerow([*unit, value.series, value.x, value.metric, _text(value.value)])
    return text.getvalue()


def _text(number: float) -> str:
    return f"{number:.7g}"
