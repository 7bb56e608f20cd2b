"""Where finished measurements rest, so that an interrupted evaluation goes on where it stopped.

One CSV per evaluation, appended to. A *unit* is what is computed in one go: an experiment on a
population at one point, once. Its last line has the metric `seconds`; a unit without that line was
cut off, is forgotten when the file is read, and is computed again.

Promises: a unit is counted once or not at all, wherever the power went off; values depend on the
seed and the unit alone, not on order, resumption or the number of processes.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np

from blender.errors import ParameterError

__all__ = ["SECONDS", "Measurement", "Measurements", "Unit", "Value", "generator_for"]

#: The metric of a unit's last line: how long it took.
SECONDS = "seconds"

_HEADING = ("experiment", "population", "point", "run", "series", "x", "metric", "value")


class Unit(NamedTuple):
    """One computation: `point` is where on the experiment's axis, `run` the repetition."""

    experiment: str
    population: str
    point: float
    run: int


class Value(NamedTuple):
    """One number of a unit: a curve (`series`), a place on it, and what was measured there."""

    series: str
    x: float
    metric: str
    value: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """A value and the unit it came from."""

    unit: Unit
    value: Value


def generator_for(unit: Unit, seed: int) -> np.random.Generator:
    """A generator of the unit's own, the same on every machine and in every order."""
    text = f"{seed}/{unit.experiment}/{unit.population}/{unit.point!r}/{unit.run}"
    return np.random.default_rng(int.from_bytes(sha256(text.encode()).digest()[:16], "big"))


class Measurements:
    """The file of one evaluation; `conditions` (seed, scale) must be the same when resumed."""

    def __init__(self, path: Path, conditions: str) -> None:
        """Read what is there, drop what was cut off, and be ready to append."""
        self._path = path
        self._finished: dict[Unit, list[Value]] = {}
        first = f"# {conditions}\n"
        if path.exists():
            with path.open(encoding="utf-8", newline="") as lines:
                found = lines.readline()
                if found != first:
                    raise ParameterError(
                        f"{path} was made with other options ({found[2:].strip()}, now "
                        f"{conditions}); name another folder with --out, or remove the file"
                    )
                self._read(lines)
        self._rewrite(first)

    def __contains__(self, unit: Unit) -> bool:
        """Whether the unit is finished."""
        return unit in self._finished

    def __iter__(self) -> Iterator[Measurement]:
        """Every value of every finished unit but the times."""
        for unit, values in self._finished.items():
            yield from (Measurement(unit, v) for v in values if v.metric != SECONDS)

    def seconds(self, experiment: str, population: str, point: float | None = None) -> list[float]:
        """How long finished units of this kind took (all points, or one)."""
        return [
            values[-1].value
            for unit, values in self._finished.items()
            if (unit.experiment, unit.population) == (experiment, population)
            and point in (None, unit.point)
        ]

    def add(self, unit: Unit, values: Sequence[Value], seconds: float) -> None:
        """Append a finished unit; on disk before this returns."""
        # Rounded as the file will have it, so that a resumed evaluation is the same to the digit.
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
            if tuple(row) == _HEADING:
                continue
            try:
                experiment, population, point, run, series, x, metric, value = row
                unit = Unit(experiment, population, float(point), int(run))
                entry = Value(series, float(x), metric, float(value))
            except ValueError:  # the line that was being written when the power went off
                continue
            open_units.setdefault(unit, []).append(entry)
            if metric == SECONDS:
                self._finished[unit] = open_units.pop(unit)

    def _rewrite(self, first: str) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        aside = self._path.with_suffix(".new")
        with aside.open("w", encoding="utf-8", newline="") as file:
            file.write(first + ",".join(_HEADING) + "\n")
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
