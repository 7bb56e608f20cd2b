"""Compute the missing units on every core, with progress and an estimate of the time left.

A unit is one repetition of an experiment at one point. The first units are one of every kind
(experiment and population); the estimate is computed from their times. The user may interrupt at
any time: finished units are stored, unfinished ones are dropped, and the same command resumes.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from multiprocessing import active_children, get_context
from statistics import mean
from typing import NamedTuple, TextIO

import numpy as np

from blendstream.evaluation.experiment import Experiment
from blendstream.evaluation.measurements import Measurements, Unit, Value, generator_for
from blendstream.evaluation.populations import Setting
from blendstream.evaluation.progress import ProgressBar, describe_seconds

__all__ = ["compute", "plan"]

Kind = tuple[str, str]


def plan(
    experiments: Iterable[Experiment],
    settings: Iterable[Setting],
    runs: int | None,
    *,
    points: int | None = None,
) -> list[Unit]:
    """Return all units in an order that advances every experiment evenly.

    An interrupted evaluation then has results of each experiment. `runs` replaces each experiment's
    own number of repetitions. `points` limits the number of points per axis; both ends remain.
    """
    settings = list(settings)
    ordered: list[tuple[float, Unit]] = []
    for experiment in experiments:
        for setting in settings:
            if experiment.suits(setting):
                repeated = runs or experiment.runs_on(setting)
                axis = _thin(list(experiment.points(setting)), points)
                ordered += [
                    (run / repeated, Unit(experiment.name, setting.name, point, run))
                    for run in range(repeated)
                    for point in axis
                ]
    return [unit for _, unit in sorted(ordered, key=lambda pair: pair[0])]


def _thin(axis: list[float], points: int | None) -> list[float]:
    if points is None or len(axis) <= points:
        return axis
    return [axis[round(i * (len(axis) - 1) / (points - 1))] for i in range(points)]


def compute(
    units: Sequence[Unit],
    experiments: Mapping[str, Experiment],
    settings: Mapping[str, Setting],
    measurements: Measurements,
    *,
    seed: int,
    processes: int,
) -> None:
    """Compute every unit that `measurements` lacks."""
    out = sys.stderr
    todo = [unit for unit in units if unit not in measurements]
    if len(todo) < len(units):
        print(f"{len(units) - len(todo)} of {len(units)} units are there already", file=out)
    if not todo:
        return
    first = _one_of_each(todo)
    measure_first = set(first.values())
    rest = [unit for unit in todo if unit not in measure_first]
    progress = _Progress(len(todo), out)
    print(
        f"{len(todo)} units to compute on {processes} processes; "
        f"{len(first)} of them first, to see how long the others will take",
        file=out,
    )
    measures = {name: experiment.measure for name, experiment in experiments.items()}
    work = _Work(measures, settings, seed)
    # Not forked: a forked process has none of this one's threads, but their locks.
    spawn = get_context("spawn")
    with ProcessPoolExecutor(processes, spawn, initializer=_install, initargs=(work,)) as pool:
        try:
            _run(pool, list(first.values()), measurements, progress, queue=2 * processes)
            left = _seconds_left(rest, measurements) / processes
            print(f"about {describe_seconds(left)} to go", file=out)
            progress.guess = lambda done: _seconds_left(rest[done - len(first) :], measurements)
            progress.processes = processes
            _run(pool, rest, measurements, progress, queue=2 * processes)
        except KeyboardInterrupt:
            _drop(pool)
            progress.finish("; the same command continues from here")
            raise
    progress.finish()


def _drop(pool: ProcessPoolExecutor) -> None:
    """Kill the processes, without waiting for units that may take half a minute each."""
    for child in active_children():
        child.kill()
    # This waits only for the pool's thread, which ends with the processes. Without it the thread
    # could still run at Python's exit, when its pipes are already closed.
    pool.shutdown(cancel_futures=True)


class _Progress:
    """Progress bar of an evaluation: units computed, and an estimate of the remaining time."""

    def __init__(self, total: int, out: TextIO) -> None:
        self._done, self._total, self._out = 0, total, out
        self._bar = ProgressBar(total, out)
        self.guess: Callable[[int], float] | None = None
        self.processes = 1

    def step(self, unit: Unit) -> None:
        """Count a computed unit and show the progress."""
        self._done += 1
        left = ""
        if self.guess is not None:
            left = f", about {describe_seconds(self.guess(self._done) / self.processes)} to go"
        self._bar.show(
            self._done,
            f"{self._done}/{self._total} {unit.experiment} on {unit.population}{left}",
        )

    def finish(self, then: str = "") -> None:
        """Remove the bar and print the number of computed units."""
        self._bar.clear()
        print(f"{self._done} units computed{then}", file=self._out)


def _one_of_each(units: Iterable[Unit]) -> dict[Kind, Unit]:
    """Return for each kind a unit in the middle of its axis, whose time is most typical."""
    kinds: dict[Kind, list[Unit]] = {}
    for unit in units:
        kinds.setdefault(_kind(unit), []).append(unit)
    middle: dict[Kind, Unit] = {}
    for kind, members in kinds.items():
        run = min(unit.run for unit in members)
        earliest = sorted(unit for unit in members if unit.run == run)
        middle[kind] = earliest[len(earliest) // 2]
    return middle


def _kind(unit: Unit) -> Kind:
    return unit.experiment, unit.population


def _seconds_left(units: Iterable[Unit], measurements: Measurements) -> float:
    known: dict[Kind, float] = {}
    total = 0.0
    for unit in units:
        kind = _kind(unit)
        if kind not in known:
            known[kind] = mean(measurements.seconds(*kind) or [1.0])
        total += known[kind]
    return total


def _run(
    pool: ProcessPoolExecutor,
    units: Sequence[Unit],
    measurements: Measurements,
    show: _Progress,
    *,
    queue: int,
) -> None:
    waiting: dict[Future[tuple[list[Value], float]], Unit] = {}
    coming = iter(units)

    def keep(future: Future[tuple[list[Value], float]]) -> None:
        unit = waiting.pop(future)
        values, seconds = future.result()
        measurements.add(unit, values, seconds)
        show.step(unit)

    try:
        while True:
            # A short queue: enough that no process waits for its next unit.
            for unit in islice(coming, queue - len(waiting)):
                waiting[pool.submit(_measure, unit)] = unit
            if not waiting:
                return
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                keep(future)
    except KeyboardInterrupt:
        for future in [f for f in waiting if f.done() and not f.exception()]:
            keep(future)
        raise


#: As `Experiment.measure`.
Measure = Callable[[Setting, float, np.random.Generator], Iterable[Value]]


class _Work(NamedTuple):
    """The experiments' functions and the settings by name, which every process needs."""

    measures: Mapping[str, Measure]
    settings: Mapping[str, Setting]
    seed: int


_WORK: list[_Work] = []


def _install(work: _Work) -> None:
    _WORK[:] = [work]
    # Ctrl-C in a terminal reaches every process; the parent handles it and ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent: int) -> None:
    """Exit when the parent process ends for any reason, since nothing would store the results."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _measure(unit: Unit) -> tuple[list[Value], float]:
    work = _WORK[0]
    started = time.monotonic()
    measure, setting = work.measures[unit.experiment], work.settings[unit.population]
    values = list(measure(setting, unit.point, generator_for(unit, work.seed)))
    return values, time.monotonic() - started
