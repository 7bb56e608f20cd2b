"""Experiments beyond the paper's: list lengths, intervals, differing groups, limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from blendstream.blender.paper.blend import optin_weight
from blendstream.blender.profiles import SELECTION_SHARES, choose_selector
from blendstream.blender.registry import randomizer_for
from blendstream.blender.sharp.agreement import measure_agreement
from blendstream.blender.values.arrays import FloatArray, IntArray
from blendstream.blender.values.cell_estimates import Estimates
from blendstream.evaluation.experiment import Experiment
from blendstream.evaluation.measurements import Value
from blendstream.evaluation.paper_experiments import (
    BUDGET_SPLITS,
    one_point,
    sampling_l1,
    values_of,
)
from blendstream.evaluation.populations import Setting, ZipfPeople
from blendstream.evaluation.scores import missing, ndcg_listed, scores
from blendstream.evaluation.simulated_epochs import (
    SimulatedEpoch,
    Truth,
    distinct,
    draw_optin,
    draw_records,
    parameters_of,
    run_epoch,
)
from blendstream.evaluation.simulated_noise import SimulatedNoise

__all__ = ["OWN_EXPERIMENTS", "listed_in_one_epoch"]

#: Epochs after which a list with known keys has stopped growing.
EPOCHS = 12

#: The last place of each range of places on a head list. Intervals behave alike within a range.
PLACES = (10, 25, 50, 100, 250, 500)

RECORDS_EACH = (1, 2, 3, 5, 10, 20, 30)

#: The probability that a further record of a person repeats a query of an earlier one.
SAME_QUERY = (0.0, 0.5, 0.9)

#: Opt-in proportions at which the groups' weights are measured.
SHARES = (0.01, 0.05, 0.1)

#: Opt-in proportions from which on a list of ten is reached, its NDCG falls, and rises again.
CHOOSING_SHARES = (0.01, 0.02, 0.03, 0.05, 0.1)

#: Exponents of the clicks on a query's URLs. The first URL has 34, 65, 84 and 96 % of the clicks.
CLICK_EXPONENTS = (1.0, 2.0, 3.0, 5.0)

DRIFTS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.8)


def _head_list(setting: Setting, point: float, rng: np.random.Generator) -> Iterator[Value]:
    """Yield the number of records that each selector finds, and of those in the true top."""
    for series, profile in (("threshold (paper)", "paper"), ("keeps its counts (sharp)", "sharp")):
        yield from _measure_list(
            series, point, setting, listed_in_one_epoch(setting, profile, point, rng)
        )
    if setting.is_log:  # each user has one record, in one epoch
        return
    *_, known = _epochs(setting, point, rng)
    yield from _measure_list("and known keys, epoch 12", point, setting, known)
    for records_each in (10, 30):
        listed = listed_in_one_epoch(setting, "sharp", point, rng, records_each=records_each)
        yield from _measure_list(f"{records_each} records a user", point, setting, listed)


def _known_keys(setting: Setting, _point: float, rng: np.random.Generator) -> Iterator[Value]:
    """Yield the list's size over epochs, with and without keeping known records."""
    for epoch, known in enumerate(_epochs(setting, 4.0, rng), start=1):
        yield from _measure_list("known keys", epoch, setting, known)
        for series, profile in (("same, without memory", "sharp"), ("paper", "paper")):
            yield from _measure_list(
                series, epoch, setting, listed_in_one_epoch(setting, profile, 4.0, rng)
            )


def _epochs(setting: Setting, epsilon: float, rng: np.random.Generator) -> Iterator[IntArray]:
    """Yield the lists of twelve epochs of different people; each epoch knows the list before it."""
    known = np.zeros(0, dtype=np.int64)
    for _ in range(EPOCHS):
        known = listed_in_one_epoch(setting, "sharp", epsilon, rng, known=known)
        yield known


def listed_in_one_epoch(
    setting: Setting,
    profile: str,
    epsilon: float,
    rng: np.random.Generator,
    *,
    known: IntArray | None = None,
    records_each: int = 1,
    selection_share: float | None = None,
) -> IntArray:
    """Return the whole selected list of one epoch, as the records' numbers in the population.

    A list may have millions of records, so this function makes no texts for them.
    """
    parameters = parameters_of(setting, epsilon=epsilon, records_per_optin_user=records_each)
    share = SELECTION_SHARES[profile] if selection_share is None else selection_share
    users = round(setting.users * setting.optin_share * share)
    records = distinct(draw_records(setting.people, users, records_each, 0.0, rng))
    present, tally = np.unique(records, return_counts=True)
    known = present[:0] if known is None else known
    numbers = np.union1d(present, known)
    counts = np.zeros(len(numbers), dtype=np.int64)
    counts[np.searchsorted(numbers, present)] = tally
    selection = choose_selector(profile, parameters).select(
        counts, np.isin(numbers, known), parameters, SimulatedNoise(rng)
    )
    return np.asarray(numbers[selection.kept], dtype=np.int64)


def _measure_list(series: str, x: float, setting: Setting, listed: IntArray) -> Iterator[Value]:
    yield Value(series, x, "found", float(len(listed)))
    if len(listed):
        in_top = np.isin(listed, setting.people.top(len(listed))).mean()
        yield Value(series, x, "in_true_top", float(in_top))


def _coverage(setting: Setting, point: float, rng: np.random.Generator) -> Iterator[Value]:
    """Yield coverage and width of 95 % intervals, by rank on the list."""
    optin = draw_optin(setting, rng)
    for profile in setting.profiles:
        parameters = parameters_of(setting, epsilon=point)
        epoch = run_epoch(profile, setting, optin, parameters, rng, intervals=True)
        estimates = epoch.estimates
        yield from _measure_intervals(profile, epoch, estimates.blended.cells)
        yield from _measure_intervals(f"{profile}, opt-in", epoch, estimates.optin.cells)
        yield from _measure_intervals(f"{profile}, clients", epoch, estimates.client.cells)


def _measure_intervals(series: str, epoch: SimulatedEpoch, estimates: Estimates) -> Iterator[Value]:
    listed = len(epoch.truth.listed)
    truth = epoch.truth.cells[:listed]
    low, high = estimates.low[:listed], estimates.high[:listed]
    holds = (low <= truth) & (truth <= high)
    first = 0
    for last in (place for place in PLACES if place <= listed):
        here = slice(first, last)
        yield Value(series, last, "covered", float(holds[here].mean()))
        yield Value(series, last, "width", float((high - low)[here].mean()))
        # A ratio of means: in a mean of ratios a single record that hardly anyone holds, listed
        # because of its noise, would outweigh all others.
        relative = (high - low)[here].mean() / truth[here].mean()
        yield Value(series, last, "relative_width", float(relative))
        first = last
    if listed:
        yield Value(series, 0, "covered", float(holds.mean()))
        yield Value(series, 0, "width", float((high - low).mean()))


def _agreement(setting: Setting, point: float, rng: np.random.Generator) -> Iterator[Value]:
    """Yield how often the agreement test rejects, when clients' probabilities differ by `point`."""
    optin = draw_optin(setting, rng)

    def differing(truth: Truth) -> FloatArray:
        listed = len(truth.listed)
        sign = rng.choice([-1.0, 1.0], size=listed)
        cells = truth.cells.copy()
        cells[:listed] *= 1 + point * sign
        cells[-1] = max(0.0, 1 - cells[:-1].sum())
        return np.asarray(cells / cells.sum())

    for profile in setting.profiles:
        epoch = run_epoch(profile, setting, optin, parameters_of(setting), rng, differing=differing)
        verdict = measure_agreement(
            epoch.release.head_list,
            epoch.release.noisy,
            epoch.estimates.client,
            randomizer_for(epoch.release.head_list),
            shares=epoch.release.shares,
            best_trimmed=epoch.release.best_trimmed,
            rng=rng,
            rounds=199,
        )
        if verdict is not None:
            yield Value(profile, point, "rejected", float(verdict.p_value < 0.05))


def _limit(setting: Setting, point: float, rng: np.random.Generator) -> Iterator[Value]:
    """Measure L1 for `point` people, and the L1 of sampling alone."""
    setting = replace(setting, users=round(point))
    optin = draw_optin(setting, rng)
    for profile in setting.profiles:
        epoch = run_epoch(profile, setting, optin, parameters_of(setting), rng)
        if len(epoch.truth.listed) < setting.list_size:
            continue
        yield Value(profile, point, "l1_plain", scores(epoch, setting.people)["l1_plain"])
        if profile == setting.profiles[-1]:
            yield Value("no privacy", point, "l1_plain", sampling_l1(setting, epoch, rng))


def _records_each(setting: Setting, point: float, rng: np.random.Generator) -> Iterator[Value]:
    """Measure the list's length and L1 at one m_O, when a person's records are dependent."""
    records_each = int(point)
    parameters = parameters_of(setting, records_per_optin_user=records_each)
    lines = [(f"{same:.0%} return to a query", "sharp", same) for same in SAME_QUERY]
    if records_each == 1:
        lines.append(("paper", "paper", 0.0))
    for series, profile, same_query in lines:
        optin = draw_optin(setting, rng, records_each=records_each, same_query=same_query)
        epoch = run_epoch(profile, setting, optin, parameters, rng)
        yield Value(series, point, "found", float(len(epoch.release.head_list.records)))
        if len(epoch.truth.listed) == setting.list_size:
            yield from values_of(series, point, scores(epoch, setting.people))


def _weights(setting: Setting, point: float, rng: np.random.Generator) -> Iterator[Value]:
    """Yield T's weight in the paper's blend on a list of ten, and each group's own L1."""
    for share in SHARES:
        optin = draw_optin(setting, rng, share=share)
        parameters = parameters_of(setting, epsilon=point, list_size=10)
        epoch = run_epoch("paper", setting, optin, parameters, rng)
        listed = len(epoch.truth.listed)
        if listed < 10:
            continue
        estimates, series = epoch.estimates, f"{share:.0%} opt in"
        weight = optin_weight(estimates.optin.cells.variance, estimates.client.cells.variance)
        yield Value(series, point, "weight", float(weight[:listed].mean()))
        for metric, group in (
            ("l1", estimates.blended),
            ("l1_optin", estimates.optin),
            ("l1_clients", estimates.client),
        ):
            measured = scores(epoch, setting.people, group)
            if measured:
                yield Value(series, point, metric, measured["l1"])


def _chosen_ten(setting: Setting, point: float, rng: np.random.Generator) -> Iterator[Value]:
    """Yield NDCG of the ten records that T's counts select from those of S, by opt-in share."""
    optin = draw_optin(setting, rng, share=point)
    epoch = run_epoch("paper", setting, optin, parameters_of(setting, list_size=10), rng)
    records = epoch.release.head_list.records
    yield Value("paper", point, "found", float(len(records)))
    if len(epoch.truth.listed) == 10:
        yield Value("paper", point, "ndcg", scores(epoch, setting.people)["ndcg"])
        yield Value("paper", point, "ndcg_listed", ndcg_listed(epoch))
        yield Value("paper", point, "missing", missing(epoch, setting.people))
        favourites = set(setting.people.records(setting.people.top(10)))
        yield Value("paper", point, "not_found", float(len(favourites - set(records))))


def _click_shapes(setting: Setting, point: float, rng: np.random.Generator) -> Iterator[Value]:
    """Measure clients' NDCG at one f_C, for several concentrations of clicks on the first URL."""
    for exponent in CLICK_EXPONENTS:
        if not isinstance(setting.people, ZipfPeople):
            continue
        other = replace(setting, people=replace(setting.people, url_exponent=exponent))
        parameters = parameters_of(other, query_budget_share=point)
        epoch = run_epoch("paper", other, draw_optin(other, rng), parameters, rng)
        series = f"URL of rank j ∝ j^−{exponent:g}"
        yield Value(series, point, "queries", float(len(epoch.release.head_list.cells.queries)))
        measured = scores(epoch, other.people, epoch.estimates.client)
        if measured:
            yield Value(series, point, "ndcg", measured["ndcg"])


#: The reason why some experiments do not run on tables and logs.
_ONE = "its question does not depend on the data, so it is measured on one generated population"

OWN_EXPERIMENTS = (
    Experiment(
        "head_list",
        "how many records each selector finds, against ε",
        lambda setting: (1.0, 2.0, 3.0, 4.0, 5.0),
        _head_list,
        runs=6,
        large_runs=5,
    ),
    Experiment(
        "known_keys",
        "the head list's size over epochs",
        one_point,
        _known_keys,
        runs=10,
        large_runs=5,
        not_on_logs="it needs other people in each of twelve epochs; a log has its users once",
    ),
    Experiment(
        "coverage",
        "how often 95 % intervals hold the truth, and how wide they are",
        lambda setting: (4.0,),
        _coverage,
        runs=60,
        large_runs=30,
    ),
    Experiment(
        "agreement",
        "how often the agreement test speaks up, right or wrong",
        lambda setting: DRIFTS,
        _agreement,
        runs=100,
        populations=("aol",),
        not_on_tables=_ONE,
        not_on_logs=_ONE,
    ),
    Experiment(
        "limit",
        "L1 against the number of people, beside the limit without privacy",
        # The size of the paper's first data set (or of a test), and larger ones.
        lambda setting: [float(setting.users * times) for times in (1, 2, 5, 10, 20)],
        _limit,
        runs=10,
        populations=("aol",),
        not_on_tables=_ONE,
        not_on_logs=_ONE,
    ),
    Experiment(
        "records_each",
        "head list and L1 against records per opt-in user, with likeness within a user",
        lambda setting: RECORDS_EACH,
        _records_each,
        runs=10,
        populations=("aol",),
        not_on_tables=_ONE,
        not_on_logs=_ONE,
    ),
    Experiment(
        "weights",
        "whom the paper's blend listens to: T's weight and each group's L1 on a list of ten",
        lambda setting: (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0),
        _weights,
        runs=20,
        populations=("aol",),
        not_on_tables=_ONE,
        not_on_logs=_ONE,
    ),
    Experiment(
        "chosen_ten",
        "a list of ten by opt-in share: what is found, what T leaves out, how it is ordered",
        lambda setting: CHOOSING_SHARES,
        _chosen_ten,
        runs=60,
        populations=("aol",),
        not_on_tables=_ONE,
        not_on_logs=_ONE,
    ),
    Experiment(
        "click_shapes",
        "clients' NDCG against f_C, for clicks that gather on the first URL less or more",
        lambda setting: BUDGET_SPLITS,
        _click_shapes,
        runs=20,
        populations=("aol",),
        not_on_tables=_ONE,
        not_on_logs=_ONE,
    ),
)
