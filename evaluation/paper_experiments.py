"""The paper's experiments (Section 4), with all chosen profiles on the same people.

Each repetition draws the opt-in users once, for every profile and head-list size, so that curves
differ by mechanism and not by sampling error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import numpy as np

from blendstream.blender.values.arrays import FloatArray, IntArray
from blendstream.blender.values.cell_estimates import Estimates
from blendstream.evaluation.experiment import Experiment
from blendstream.evaluation.measurements import Value
from blendstream.evaluation.populations import Setting
from blendstream.evaluation.scores import missing, ndcg_listed, scores
from blendstream.evaluation.simulated_epochs import (
    Optin,
    SimulatedEpoch,
    draw_optin,
    parameters_of,
    run_epoch,
)

__all__ = ["PAPER_EXPERIMENTS", "TOP_TEN_COLUMNS"]

EPSILONS = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0)
SHARES = (0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.045, 0.05, 0.06, 0.08, 0.1)
#: Repetitions for millions of people, where a point takes ten times as long, and for tables.
FEWER_EPSILONS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0)
FEWER_SHARES = (0.01, 0.015, 0.025, 0.04, 0.06, 0.1)
BUDGET_SPLITS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)

#: Figure 9's columns: the series that stores each, and its heading. The paper's third column, p̂_q,
#: is the query with any URL. The column with the sum over listed URLs is our addition; for `sharp`
#: it is the only one.
TOP_TEN_COLUMNS = {
    "truth": "p, everyone",
    "blended": "blended, query itself",
    "blended_urls": "blended, URLs added up",
    "optin": "opt-in, URLs added up",
    "client_query": "clients, query itself",
    "client_urls": "clients, URLs added up",
}


def _top_ten(setting: Setting, _point: float, rng: np.random.Generator) -> Iterator[Value]:
    """Score Figure 9: the ten most frequent queries and each ingredient's estimate of them."""
    optin = draw_optin(setting, rng)
    for profile in setting.profiles:
        epoch = run_epoch(profile, setting, optin, parameters_of(setting), rng)
        columns = ingredients(setting, epoch)
        for name, column in columns.items():
            series = f"{profile}/{name}"
            if np.isfinite(column).any():
                yield Value(series, 0, "regressions", float(regressions(column)))
                yield Value(series, 0, "deviation", deviation(column, columns["truth"]))
            for rank, p in enumerate(column.tolist(), start=1):
                yield Value(series, rank, "p", p)


def ingredients(setting: Setting, epoch: SimulatedEpoch) -> dict[str, FloatArray]:
    """Return Figure 9's columns for the ten most frequent queries; nan where one is not listed."""
    cells, estimates = epoch.release.head_list.cells, epoch.estimates
    top = setting.people.top_queries(10)
    wanted = [record.query for record in setting.people.records(top)]
    number_of = {query: i for i, query in enumerate(cells.queries)}

    def column(values: Estimates | None) -> FloatArray:
        if values is None:
            return np.full(len(wanted), np.nan)
        p = values.probability
        return np.array([p[number_of[q]] if q in number_of else np.nan for q in wanted])

    return {
        "truth": setting.people.query_probability(top),
        "blended": column(estimates.blended.query_marginals),
        "blended_urls": column(estimates.blended.query_totals),
        "optin": column(estimates.optin.query_totals),
        "client_query": column(estimates.client.query_marginals),
        "client_urls": column(estimates.client.query_totals),
    }


def regressions(column: FloatArray) -> int:
    """Count the estimates that are larger than the one above them, as Figure 9 marks them.

    >>> regressions(np.array([5.0, 3.0, 4.0, 2.0, np.nan, 2.5]))
    2
    """
    shown = column[np.isfinite(column)]
    return int((shown[1:] > shown[:-1]).sum())


def deviation(column: FloatArray, truth: FloatArray) -> float:
    """Return the relative error of a column where it has values: Σ|p̂ − p| / Σp.

    >>> deviation(np.array([4.0, 3.0, np.nan]), np.array([5.0, 3.0, 2.0]))
    0.125
    """
    shown = np.isfinite(column)
    return float(np.abs(column - truth)[shown].sum() / truth[shown].sum())


def _budget_split(setting: Setting, point: float, rng: np.random.Generator) -> Iterator[Value]:
    """Score Figure 11 at one share of the device's budget for the query (f_C)."""
    optin = draw_optin(setting, rng)
    parameters = parameters_of(setting, query_budget_share=point)
    for profile in setting.profiles:
        epoch = run_epoch(profile, setting, optin, parameters, rng)
        groups = {profile: epoch.estimates.blended}
        if profile == "paper":
            groups |= {
                "paper, opt-in": epoch.estimates.optin,
                "paper, clients": epoch.estimates.client,
            }
        for series, group in groups.items():
            yield from values_of(series, point, scores(epoch, setting.people, group))


def _list_of_ten(setting: Setting, point: float, rng: np.random.Generator) -> Iterator[Value]:
    """Score Figure 12: a head list of ten at one ε."""
    optin = draw_optin(setting, rng)
    yield from _compare(
        setting, optin, point, [10], rng, epsilon=point,
        also={"ndcg_listed": ndcg_listed, "missing": partial(missing, people=setting.people)},
    )  # fmt: skip


def _optin_share(setting: Setting, point: float, rng: np.random.Generator) -> Iterator[Value]:
    """Measure L1 and NDCG against the share of users who opt in (Figures 13 and 14)."""
    optin = draw_optin(setting, rng, share=point)
    yield from _compare(setting, optin, point, setting.list_sizes, rng)


def _epsilon(setting: Setting, point: float, rng: np.random.Generator) -> Iterator[Value]:
    """Measure L1 and NDCG against ε (Figures 15 and 16)."""
    optin = draw_optin(setting, rng)
    yield from _compare(setting, optin, point, setting.list_sizes, rng, epsilon=point)


def _compare(
    setting: Setting,
    optin: Optin,
    x: float,
    list_sizes: Iterable[int],
    rng: np.random.Generator,
    *,
    epsilon: float | None = None,
    also: Mapping[str, Callable[[SimulatedEpoch], float]] | None = None,
) -> Iterator[Value]:
    """Score each profile at every list size; of a list that is too short, yield only its size.

    The paper draws no line where "the desired head list size was not reached".
    """
    for profile in setting.profiles:
        for size in list_sizes:
            parameters = parameters_of(setting, epsilon=epsilon, list_size=size)
            epoch = run_epoch(profile, setting, optin, parameters, rng)
            series = f"{profile}, M = {size}"
            reached = len(epoch.truth.listed) == size
            yield Value(series, x, "reached", float(reached))
            yield Value(series, x, "found", float(len(epoch.release.head_list.records)))
            if reached:
                yield from values_of(series, x, scores(epoch, setting.people))
                if optin.clients is None:  # a log's users are the truth: no sample, no error
                    yield Value(series, x, "limit_l1_plain", sampling_l1(setting, epoch, rng))
                for metric, measure in (also or {}).items():
                    yield Value(series, x, metric, measure(epoch))


def sampling_l1(setting: Setting, epoch: SimulatedEpoch, rng: np.random.Generator) -> float:
    """Draw the L1 error of sampling alone: everyone reports the truth."""
    listed = len(epoch.truth.listed)
    counts: IntArray = rng.multinomial(setting.users, epoch.truth.cells)
    return float(np.abs(counts / setting.users - epoch.truth.cells)[:listed].sum())


def values_of(series: str, x: float, measured: dict[str, float]) -> Iterator[Value]:
    """Yield a `Value` for each measured metric."""
    for metric, value in measured.items():
        yield Value(series, x, metric, value)


def one_point(_setting: Setting) -> tuple[float, ...]:
    """Return the axis of an experiment that has no parameter to vary."""
    return (0.0,)


PAPER_EXPERIMENTS = (
    Experiment(
        "top_ten",
        "Figure 9: the ten most frequent queries and the ingredients of their estimates",
        one_point,
        _top_ten,
        runs=60,
        populations=("aol",),
        table_runs=10,
    ),
    Experiment(
        "budget_split",
        "Figure 11: the share of a device's budget that goes to the query (f_C)",
        lambda setting: BUDGET_SPLITS,
        _budget_split,
        runs=20,
        populations=("aol",),
        table_runs=10,
    ),
    Experiment(
        "list_of_ten",
        "Figure 12: NDCG of a head list of 10 against ε",
        lambda setting: FEWER_EPSILONS if setting.coarse else EPSILONS,
        _list_of_ten,
        runs=20,
        populations=("aol",),
    ),
    Experiment(
        "optin_share",
        "Figures 13 and 14: L1 and NDCG against the share of opt-in users",
        lambda setting: FEWER_SHARES if setting.coarse else SHARES,
        _optin_share,
        runs=10,
        large_runs=6,
    ),
    Experiment(
        "epsilon",
        "Figures 15 and 16: L1 and NDCG against ε",
        lambda setting: FEWER_EPSILONS if setting.coarse else EPSILONS,
        _epsilon,
        # At small ε a run varies by a third; with fewer runs, neighbours' order would be random.
        runs=30,
        large_runs=6,
        table_runs=10,
    ),
)
