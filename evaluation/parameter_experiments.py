"""Experiments on the paper's parameters m_C, f_O and M (Section 4.2.1).

Its remark on f_C is Figure 11 (`budget_split` of `evaluation.paper_experiments`); m_O > 1, which
the paper's theorems exclude, is `records_each` of `evaluation.own_experiments`, for `sharp` alone.

Every point draws the opt-in users once for both profiles. The series names the number of records
that each client holds; the device draws the one that each answer is about.
Symbols: m_C = answers of a client, f_O = share of the opt-in users who build the head list,
M = records that are estimated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from blendstream.blender.values.arrays import FloatArray
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.evaluation.experiment import Experiment
from blendstream.evaluation.measurements import Value
from blendstream.evaluation.numbered_epochs import divide_users, run_numbered_epoch
from blendstream.evaluation.paper_experiments import values_of
from blendstream.evaluation.populations import Setting
from blendstream.evaluation.scores import scores
from blendstream.evaluation.simulated_epochs import SimulatedEpoch, parameters_of

__all__ = ["HELD", "LIST_LENGTHS", "PARAMETER_EXPERIMENTS"]

ANSWERS = (1.0, 2.0, 3.0, 5.0, 10.0)
#: Records that each client holds where it could report several.
HELD = (1, 10)

SELECTION_SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99, 1.0)

#: Up to the length that each population reaches; longer lists are not drawn.
LIST_LENGTHS = (5.0, 10.0, 20.0, 35.0, 50.0, 65.0)
LONG_LISTS = (10.0, 25.0, 50.0, 100.0, 200.0, 350.0, 500.0, 600.0)


def _answers(setting: Setting, point: float, rng: np.random.Generator) -> Iterator[Value]:
    """Score m_C: one budget for one answer or for several, about one record or ten."""
    optin, clients = divide_users(setting, setting.optin_share, rng)
    parameters = replace(_parameters(setting), records_per_client=int(point))
    for profile in setting.profiles:
        for held in HELD if clients is None else HELD[:1]:  # a log has one record per user
            epoch = run_numbered_epoch(
                profile, setting, optin, parameters, rng, clients=clients, client_records=held
            )
            yield from _score(f"{profile}, {held} held", point, setting, epoch)


def _selection_share(setting: Setting, point: float, rng: np.random.Generator) -> Iterator[Value]:
    """Measure against f_O, the proportion of opt-in users who build the head list."""
    optin, clients = divide_users(setting, setting.optin_share, rng)
    for profile in setting.profiles:
        for size in dict.fromkeys((setting.list_sizes[0], setting.list_size)):
            parameters = _parameters(setting, list_size=size)
            epoch = run_numbered_epoch(
                profile, setting, optin, parameters, rng, clients=clients, selection_share=point
            )
            yield from _score(f"{profile}, M = {size}", point, setting, epoch, size)


def _list_length(setting: Setting, point: float, rng: np.random.Generator) -> Iterator[Value]:
    """Measure against M, the number of records that are estimated."""
    optin, clients = divide_users(setting, setting.optin_share, rng)
    for profile in setting.profiles:
        parameters = _parameters(setting, list_size=int(point))
        epoch = run_numbered_epoch(profile, setting, optin, parameters, rng, clients=clients)
        yield from _score(profile, point, setting, epoch, int(point))


def _parameters(setting: Setting, list_size: int | None = None) -> PrivacyParameters:
    """Return the setting's parameters with m_O = 1: opt-in users send one record each."""
    return parameters_of(setting, list_size=list_size, records_per_optin_user=1)


def _score(
    series: str, x: float, setting: Setting, epoch: SimulatedEpoch, size: int | None = None
) -> Iterator[Value]:
    """Score the blend and the clients' estimates; of a list that is too short, only its size."""
    listed = len(epoch.truth.listed)
    reached = listed == (setting.list_size if size is None else size)
    yield Value(series, x, "reached", float(reached))
    yield Value(series, x, "found", float(len(epoch.release.head_list.records)))
    if not reached:
        return
    yield from values_of(series, x, scores(epoch, setting.people))
    clients = scores(epoch, setting.people, epoch.estimates.client)
    for metric in ("l1", "ndcg", "l1_plain"):
        if metric in clients:
            yield Value(f"{series}, clients", x, metric, clients[metric])
    truth = epoch.truth.cells[:listed]
    yield Value(series, x, "mass", float(truth.sum()))
    yield Value(series, x, "relative", _relative_error(epoch, truth))


def _relative_error(epoch: SimulatedEpoch, truth: FloatArray) -> float:
    """Return the relative error over the listed records, Σ|p̂ − p| / Σp."""
    estimate = epoch.estimates.blended.cells.probability[: len(truth)]
    return float(np.abs(estimate - truth).sum() / truth.sum())


def _lengths(setting: Setting) -> Sequence[float]:
    if setting.is_log:  # the number of its shared records is unknown
        return [float(size) for size in setting.list_sizes]
    return LONG_LISTS if setting.is_large or setting.is_table else LIST_LENGTHS


PARAMETER_EXPERIMENTS = (
    Experiment(
        "answers_per_client",
        "m_C: one answer of a client with all of its budget, or several with a part of it each",
        lambda setting: ANSWERS,
        _answers,
        runs=10,
        large_runs=3,
        table_runs=6,
    ),
    Experiment(
        "selection_share",
        "f_O: the share of the opt-in users who build the head list",
        lambda setting: SELECTION_SHARES,
        _selection_share,
        runs=16,
        large_runs=3,
        table_runs=8,
    ),
    Experiment(
        "list_length",
        "M: how many records are estimated",
        _lengths,
        _list_length,
        runs=10,
        large_runs=3,
        table_runs=6,
    ),
)
