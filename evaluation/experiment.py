"""Experiments: an axis, and the function that measures at one point of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from blendstream.evaluation.measurements import Value
from blendstream.evaluation.populations import Setting

__all__ = ["Experiment"]


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment: `measure(setting, point, rng)` is one repetition, out of `runs` per point.

    - `large_runs`: repetitions for millions of people, who take longer and vary less.
    - `table_runs`: repetitions for tables and logs, on which no verdict on the paper depends.
    - `populations`: the generated populations that the experiment runs on.
    - `not_on_tables`, `not_on_logs`: the reason why it cannot run on such a file; empty if it can.
    """

    name: str
    sentence: str
    points: Callable[[Setting], Iterable[float]]
    measure: Callable[[Setting, float, np.random.Generator], Iterable[Value]]
    runs: int
    populations: tuple[str, ...] = ("aol", "yandex")
    large_runs: int | None = None
    not_on_tables: str = ""
    not_on_logs: str = ""
    table_runs: int | None = None

    def runs_on(self, setting: Setting) -> int:
        """Return how many repetitions this population gets."""
        if (setting.is_table or setting.is_log) and self.table_runs is not None:
            return self.table_runs
        return (self.large_runs if setting.is_large else None) or self.runs

    def suits(self, setting: Setting) -> bool:
        """Return True if the experiment runs on this population."""
        return not self.reason_against(setting)

    def reason_against(self, setting: Setting) -> str:
        """Return the reason why the experiment cannot run on this population; empty if it can."""
        if setting.is_log:
            return self.not_on_logs
        if setting.is_table:
            return self.not_on_tables
        if setting.name in self.populations:
            return ""
        return f"of the generated populations it uses {', '.join(self.populations)}"
