"""Experiments over thirty epochs: every way of spending, with people and records that change.

One repetition is one history of thirty epochs (`evaluation.over_time`). x is the epoch; x = 0
stands for the mean over the last epochs, when the filter has converged. A total is the ε of a
person who takes part in all thirty epochs.

The ways of spending give lists of different lengths, so only one measure compares all of them: L1
over the true top M, in which a record that is not published counts as 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from blendstream.evaluation.experiment import Experiment
from blendstream.evaluation.measurements import Value
from blendstream.evaluation.over_time import EpochScores, Plan, simulate
from blendstream.evaluation.own_experiments import listed_in_one_epoch
from blendstream.evaluation.populations import Setting
from blendstream.evaluation.simulated_epochs import draw_optin, parameters_of, run_epoch

__all__ = [
    "EPOCHS",
    "OVER_TIME_EXPERIMENTS",
    "PAPER",
    "SHOCK",
    "TOTALS",
    "series_of",
]

EPOCHS, SHOCK = 30, 20

#: The epoch from which a way of spending has converged: x = 0 is the mean from there.
_FROM = {"each epoch": 16, "one budget": 19, "rotated": 19, "each epoch, all in S": 30}

#: The plan of each way of spending. The total determines its ε.
_WAYS = {
    "each epoch": Plan(own_every=6),
    "each epoch, all in S": Plan(selection_share=1.0, own_every=60),
    "rotated": Plan(rotated=True, own_every=6),
    "one budget": Plan(one_budget=True, own_every=60),
}

#: Totals on the axis. With ε in each epoch, an epoch spends a thirtieth of the total; a person who
#: reports only once spends all of it in that epoch.
TOTALS = (2.0, 4.0, 8.0, 16.0, 30.0, 60.0, 120.0)

PAPER = "paper, each epoch"

#: Metrics that are measured in every epoch; the others only at x = 0.
_OVER_EPOCHS = ("own_top_l1", "top_l1", "shown", "on_top")
_LATE = (
    "own_l1", "own_top_l1", "filter_l1", "top_l1", "top_asked_l1", "top_asked", "covered",
    "covered_shown", "covered_queries", "listed", "shown", "on_top", "staying",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Case:
    """One way of spending under one kind of change; `number` is x on the experiment's axis."""

    number: int
    way: str
    total: float
    world: str = "stationary"
    where: tuple[str, ...] = ("setting-a", "setting-b", "table")


_WORLDS: Mapping[str, Mapping[str, Any]] = {
    "stationary": {},
    "drifting": {"drift": 0.05},
    "shocked": {"shock_epoch": SHOCK},
    "nine in ten stay": {"staying": 0.9},
    "groups differ": {"groups_differ": 0.2},
}

_FEW = ("setting-a",)
_CASES = (
    _Case(0, "each epoch", 120),
    _Case(1, "each epoch", 120, "drifting"),
    _Case(2, "each epoch", 120, "shocked"),
    _Case(3, "each epoch, all in S", 120),
    _Case(4, "rotated", 4),
    _Case(5, PAPER, 120),
    _Case(10, "one budget", 4, "nine in ten stay"),
    _Case(11, "one budget", 4, "drifting"),
    _Case(12, "one budget", 4, "shocked"),
    _Case(13, "one budget", 4, "groups differ", where=_FEW),
    _Case(14, "each epoch", 120, "groups differ", where=_FEW),
    *(_Case(20 + i, "each epoch", total, where=_FEW) for i, total in enumerate((16, 60))),
    *(_Case(30 + i, "rotated", total, where=_FEW) for i, total in enumerate((2, 8, 16))),
    *(_Case(40 + i, "one budget", total, where=_FEW) for i, total in enumerate((2, 8, 16))),
    # Theorem 1 of the paper, on its head list, needs more than ε = ln 2 in each epoch.
    *(_Case(51 + i, PAPER, total, where=_FEW) for i, total in enumerate((30, 60))),
    _Case(60, "one budget", 4),
)
_BY_NUMBER = {float(case.number): case for case in _CASES}


def series_of(way: str, total: float, world: str = "stationary") -> str:
    """Return the name of a curve."""
    return f"{way}, total {total:g}, {world}"


def _points(setting: Setting) -> Iterable[float]:
    kind = "table" if setting.is_table else setting.name
    return [number for number, case in _BY_NUMBER.items() if kind in case.where]


def _measure(setting: Setting, point: float, rng: np.random.Generator) -> Iterator[Value]:
    case = _BY_NUMBER[point]
    value_at = partial(Value, series_of(case.way, case.total, case.world))
    if case.way == PAPER:
        scores_of_paper = _paper(setting, case.total / EPOCHS, rng)
        yield from (value_at(x, m, v) for x, m, v in scores_of_paper)
        return
    once = case.way in ("rotated", "one budget")
    plan = replace(
        _WAYS[case.way],
        epochs=EPOCHS,
        epsilon=case.total if once else case.total / EPOCHS,
        **_WORLDS[case.world],
    )
    history = list(simulate(setting, plan, rng))
    for metric in _OVER_EPOCHS:
        for epoch, scores in enumerate(history, start=1):
            if np.isfinite(value := getattr(scores, metric)):
                yield value_at(epoch, metric, value)
    yield from (value_at(0, m, v) for m, v in _average_late(history[_FROM[case.way] - 1 :]))
    if case.world == "shocked":
        hit = history[SHOCK - 1]
        yield from (value_at(-1, m, getattr(hit, m)) for m in ("own_l1", "filter_l1", "covered"))


def _average_late(history: list[EpochScores]) -> Iterator[tuple[str, float]]:
    for metric in _LATE:
        values = [getattr(scores, metric) for scores in history]
        finite = [value for value in values if np.isfinite(value)]
        if finite:
            yield metric, float(np.mean(finite))


def _paper(
    setting: Setting, epsilon: float, rng: np.random.Generator
) -> Iterator[tuple[float, str, float]]:
    """Yield the errors of `paper` in one epoch: without memory, all epochs have the same errors."""
    epoch = run_epoch(
        "paper", setting, draw_optin(setting, rng), parameters_of(setting, epsilon=epsilon), rng
    )
    listed = epoch.truth.listed
    top = setting.people.top(setting.list_size)
    estimate = dict(zip(listed.tolist(), epoch.estimates.blended.cells.probability, strict=False))
    truth = setting.people.probability(top)
    off = np.abs(np.array([estimate.get(number, 0.0) for number in top.tolist()]) - truth)
    yield 0, "own_top_l1", float(off.sum())
    yield 0, "listed", float(len(listed))
    found = listed_in_one_epoch(setting, "paper", epsilon, rng)
    all_in_s = listed_in_one_epoch(setting, "paper", epsilon, rng, selection_share=1.0)
    yield 0, "shown", float(len(found))
    yield 0, "shown_all_in_s", float(len(all_in_s))
    if len(found):
        on_top = float(np.isin(found, setting.people.top(len(found))).mean())
        yield 0, "on_top", on_top
        for x in (1, EPOCHS):  # a level line: equal in every epoch
            yield x, "shown", float(len(found))
            yield x, "on_top", on_top


OVER_TIME_EXPERIMENTS = (
    Experiment(
        "over_time",
        "thirty epochs: error over time and by the total that a person spends, and the list",
        _points,
        _measure,
        runs=20,
        populations=("setting-a", "setting-b"),
        not_on_logs="it needs every person's records of thirty epochs; a log has one per user",
    ),
)
