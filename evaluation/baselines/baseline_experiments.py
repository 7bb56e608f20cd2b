"""Compare the accuracy of both profiles with that of the baselines, on the same people.

`baselines`: error and NDCG against the share of people who opt in, from none to all. With none,
devices trust nobody; with all, everyone trusts the curator.
`baselines_list_of_ten`: the comparison of the paper's Figure 12 with a purely local method.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.evaluation.baseline_series import (
    ALONE,
    GIVEN,
    LDP_MINER,
    LDP_MINER_PADDED,
    LDP_MINER_QUERIES,
    NOTHING,
    PEM,
)
from blendstream.evaluation.baselines.given_candidates import estimate_candidates
from blendstream.evaluation.baselines.held_items import held_queries, held_records
from blendstream.evaluation.baselines.ldp_miner import publish_by_ldp_miner
from blendstream.evaluation.baselines.prefix_extension import publish_by_prefixes
from blendstream.evaluation.baselines.published_list import (
    PublishedList,
    list_of_epoch,
    score_list,
)
from blendstream.evaluation.baselines.trusted_curator import publish_by_curator
from blendstream.evaluation.experiment import Experiment
from blendstream.evaluation.measurements import Value
from blendstream.evaluation.numbered_epochs import run_numbered_epoch
from blendstream.evaluation.paper_experiments import values_of
from blendstream.evaluation.populations import Setting
from blendstream.evaluation.simulated_epochs import parameters_of

__all__ = ["BASELINE_EXPERIMENTS", "FEWER_SHARES"]

SHARES = (0.0, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
FEWER_SHARES = (0.0, 0.001, 0.0025, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
EPSILONS = (1.0, 2.0, 3.0, 4.0, 5.0)


def _score_by_share(setting: Setting, point: float, rng: np.random.Generator) -> Iterator[Value]:
    """Compare on people who hold one record each; `point` is the proportion of them who opt in."""
    items, parameters = held_records(setting, rng), _parameters(setting)
    size = setting.list_size

    def scored(series: str, published: PublishedList) -> Iterator[Value]:
        yield from values_of(series, point, score_list(published, items, size))

    nobody = PublishedList(np.zeros(0, dtype=np.int64), np.zeros(0))
    optin, others = np.split(items.held, [round(point * items.users)])
    clients = others if setting.is_log else None
    if len(optin) == 0:
        # Without opt-in users there is no head list, so devices have nothing to report on.
        for series in (NOTHING, ALONE, *setting.profiles):
            yield from scored(series, nobody)
        given = estimate_candidates(items.held, items.top(size), parameters, rng)
        yield from scored(GIVEN, given)
        yield from scored(PEM, publish_by_prefixes(items, parameters, rng))
        miner = publish_by_ldp_miner(items, size, parameters.epsilon, rng)
        yield from scored(LDP_MINER, miner)
        return
    yield from scored(ALONE, publish_by_curator(optin, parameters, rng))
    for profile in setting.profiles:
        epoch = run_numbered_epoch(profile, setting, optin, parameters, rng, clients=clients)
        yield from scored(profile, list_of_epoch(epoch))
        yield Value(profile, point, "listed", float(len(epoch.truth.listed)))


def _list_of_ten(setting: Setting, point: float, rng: np.random.Generator) -> Iterator[Value]:
    """Score Figure 12: NDCG of ten records, or of ten queries, against ε."""
    records, queries = held_records(setting, rng), held_queries(setting, rng)
    parameters = replace(_parameters(setting), epsilon=point, head_list_cells=10)
    optin, others = np.split(records.held, [round(setting.optin_share * setting.users)])
    clients = others if setting.is_log else None
    for profile in setting.profiles:
        epoch = run_numbered_epoch(profile, setting, optin, parameters, rng, clients=clients)
        yield from values_of(profile, point, score_list(list_of_epoch(epoch), records, 10))
    for series, published in (
        (ALONE, publish_by_curator(optin, parameters, rng)),
        (GIVEN, estimate_candidates(records.held, records.top(10), parameters, rng)),
        (PEM, publish_by_prefixes(records, parameters, rng)),
        (LDP_MINER, publish_by_ldp_miner(records, 10, point, rng)),
        (LDP_MINER_PADDED, publish_by_ldp_miner(records, 10, point, rng, padding=20)),
    ):
        yield from values_of(series, point, score_list(published, records, 10))
    miner = publish_by_ldp_miner(queries, 10, point, rng)
    yield from values_of(LDP_MINER_QUERIES, point, score_list(miner, queries, 10))


def _parameters(setting: Setting) -> PrivacyParameters:
    """Return parameters with m_O = 1, since here everyone holds one record."""
    return parameters_of(setting, records_per_optin_user=1)


BASELINE_EXPERIMENTS = (
    Experiment(
        "baselines",
        "error and NDCG against the share who opt in, from none to all, beside the baselines",
        lambda setting: FEWER_SHARES if setting.coarse else SHARES,
        _score_by_share,
        runs=10,
        populations=("aol", "yandex", "setting-a", "setting-b"),
        large_runs=3,
        table_runs=6,
    ),
    Experiment(
        "baselines_list_of_ten",
        "Figure 12 with the local methods simulated: NDCG of a list of ten against ε",
        lambda setting: EPSILONS,
        _list_of_ten,
        runs=20,
        populations=("aol", "yandex"),
        large_runs=3,
        table_runs=6,
    ),
)
