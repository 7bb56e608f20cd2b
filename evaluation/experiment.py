"""What an experiment is: an axis, and what to measure at each point of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from blendstream.evaluation.measurements import Value
from blendstream.evaluation.populations import Setting

__all__ = ["Experiment"]


@dataclass(frozen=True, slots=True)
class Experiment:
    """`measure(setting, point, rng)` is one repetition; `runs` of them make an error band.

    Millions of people take longer and vary less: `large_runs` are enough there. No sentence of
    the paper is judged by a table, so `table_runs` may be fewer too.
    `populations` names the populations it is made for; a table suits an experiment that says so.
    """

    name: str
    sentence: str
    points: Callable[[Setting], Iterable[float]]
    measure: Callable[[Setting, float, np.random.Generator], Iterable[Value]]
    runs: int
    populations: tuple[str, ...] = ("aol", "yandex")
    large_runs: int | None = None
    tables: bool = False
    table_runs: int | None = None

    def runs_on(self, setting: Setting) -> int:
        """How many repetitions this population gets."""
        if setting.is_table and self.table_runs is not None:
            return self.table_runs
        return (self.large_runs if setting.is_large else None) or self.runs

    def suits(self, setting: Setting) -> bool:
        """Whether the experiment is made on this population."""
        return setting.name in self.populations or (self.tables and setting.is_table)
