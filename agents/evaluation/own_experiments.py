"""What the paper does not show: longer lists, honest intervals, groups that disagree, the limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from agents.evaluation.epochs import (
    Epoch,
    Optin,
    Truth,
    draw_optin,
    parameters_of,
    run_epoch,
)
from agents.evaluation.experiment import Experiment
from agents.evaluation.measurements import Value
from agents.evaluation.paper_experiments import EPSILONS, FEWER_EPSILONS, one_point
from agents.evaluation.scores import l1_plain, scores
from agents.evaluation.shapes import People, Setting
from agents.evaluation.simulated_noise import SimulatedNoise
from blender.agreement import measure_agreement
from blender.estimates import Estimates, FloatArray
from blender.profiles import PROFILES, OptinRelease, build_head_list
from blender.record import Record
from blender.registry import randomizer_for

__all__ = ["OWN_EXPERIMENTS"]

#: Epochs after which a list with known keys has stopped growing.
EPOCHS = 12

#: Places of a head list, by their last: intervals behave alike within.
PLACES = (10, 25, 50, 100, 250, 500)

RECORDS_EACH = (1, 2, 3, 5, 10, 20, 30)

#: How often a further record of a person comes back to a query of theirs.
SAME_QUERY = (0.0, 0.5, 0.9)

DRIFTS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.8)


def _head_list(setting: Setting, point: float, rng: np.random.Generator) -> Iterator[Value]:
    """How many records each selector finds at this ε, and how many of them belong there."""
    optin = draw_optin(setting, rng)
    for series, profile in (("threshold (paper)", "paper"), ("keeps its counts (sharp)", "sharp")):
        release = _release(setting, profile, point, optin, rng)
        yield from _size(series, point, setting.people, optin, release)
    *_, (optin, release) = _epochs(setting, point, rng, remember=True)
    yield from _size("and known keys, epoch 12", point, setting.people, optin, release)
    for records_each in (10, 30):
        optin = draw_optin(setting, rng, records_each=records_each)
        release = _release(setting, "sharp", point, optin, rng, records_each=records_each)
        series = f"{records_each} records a user"
        yield from _size(series, point, setting.people, optin, release)


def _known_keys(setting: Setting, _point: float, rng: np.random.Generator) -> Iterator[Value]:
    """The list's size over epochs: the paper forgets, known keys stay."""
    for epoch, (optin, release) in enumerate(_epochs(setting, 4.0, rng, remember=True), start=1):
        yield from _size("known keys", epoch, setting.people, optin, release)
        plain = _release(setting, "sharp", 4.0, optin, rng)
        yield from _size("same, without memory", epoch, setting.people, optin, plain)
        paper = _release(setting, "paper", 4.0, optin, rng)
        yield from _size("paper", epoch, setting.people, optin, paper)


def _epochs(
    setting: Setting, epsilon: float, rng: np.random.Generator, *, remember: bool
) -> Iterator[tuple[Optin, OptinRelease]]:
    """Twelve epochs of different people from one population, the last list known in the next."""
    known: Sequence[Record] = ()
    numbers: dict[Record, int] = {}
    for _ in range(EPOCHS):
        drawn = draw_optin(setting, rng)
        optin = Optin(drawn.counts, numbers | drawn.number)
        release = _release(setting, "sharp", epsilon, optin, rng, known=known)
        yield optin, release
        if remember:
            known = release.head_list.records
            numbers = {record: optin.number[record] for record in known}


def _release(
    setting: Setting,
    profile: str,
    epsilon: float,
    optin: Optin,
    rng: np.random.Generator,
    *,
    known: Sequence[Record] = (),
    records_each: int = 1,
) -> OptinRelease:
    # M = 1: the whole list is released whatever M is, and only its length is asked for here.
    parameters = parameters_of(
        setting, epsilon=epsilon, list_size=1, records_per_optin_user=records_each
    )
    return build_head_list(profile, optin.counts, parameters, SimulatedNoise(rng), known)


def _size(
    series: str, x: float, people: People, optin: Optin, release: OptinRelease
) -> Iterator[Value]:
    found = np.array([optin.number[r] for r in release.head_list.records], dtype=np.int64)
    yield Value(series, x, "found", float(len(found)))
    if len(found):
        in_top = np.isin(found, people.top(len(found))).mean()
        yield Value(series, x, "in_true_top", float(in_top))


def _coverage(setting: Setting, point: float, rng: np.random.Generator) -> Iterator[Value]:
    """How often 95 % intervals hold the truth, and how wide they are, down the list."""
    optin = draw_optin(setting, rng)
    for profile in PROFILES:
        epoch = run_epoch(profile, setting, optin, parameters_of(setting, epsilon=point), rng)
        estimates = epoch.estimates
        yield from _covered(profile, epoch, estimates.blended.cells)
        yield from _covered(f"{profile}, opt-in", epoch, estimates.optin.cells)
        yield from _covered(f"{profile}, clients", epoch, estimates.client.cells)


def _covered(series: str, epoch: Epoch, estimates: Estimates) -> Iterator[Value]:
    listed = len(epoch.truth.listed)
    truth = epoch.truth.cells[:listed]
    low, high = estimates.low[:listed], estimates.high[:listed]
    holds = (low <= truth) & (truth <= high)
    first = 0
    for last in (place for place in PLACES if place <= listed):
        here = slice(first, last)
        yield Value(series, last, "covered", float(holds[here].mean()))
        yield Value(series, last, "width", float((high - low)[here].mean()))
        yield Value(series, last, "relative_width", float(((high - low) / truth)[here].mean()))
        first = last
    if listed:
        yield Value(series, 0, "covered", float(holds.mean()))
        yield Value(series, 0, "width", float((high - low).mean()))


def _agreement(setting: Setting, point: float, rng: np.random.Generator) -> Iterator[Value]:
    """How often the test says that groups differ, when clients' tastes differ by `point`."""
    optin = draw_optin(setting, rng)

    def differing(truth: Truth) -> FloatArray:
        listed = len(truth.listed)
        sign = rng.choice([-1.0, 1.0], size=listed)
        cells = truth.cells.copy()
        cells[:listed] *= 1 + point * sign
        cells[-1] = max(0.0, 1 - cells[:-1].sum())
        return np.asarray(cells / cells.sum())

    for profile in PROFILES:
        epoch = run_epoch(profile, setting, optin, parameters_of(setting), rng, differing=differing)
        verdict = measure_agreement(
            epoch.release.head_list,
            epoch.release.noisy,
            epoch.estimates.client,
            randomizer_for(epoch.release.head_list),
            best_trimmed=epoch.release.best_trimmed,
            rng=rng,
            rounds=199,
        )
        if verdict is not None:
            yield Value(profile, point, "rejected", float(verdict.p_value < 0.05))


def _limit(setting: Setting, point: float, rng: np.random.Generator) -> Iterator[Value]:
    """L1 against the number of people, beside what sampling alone would leave."""
    setting = replace(setting, users=round(point))
    optin = draw_optin(setting, rng)
    for profile in PROFILES:
        epoch = run_epoch(profile, setting, optin, parameters_of(setting), rng)
        listed = len(epoch.truth.listed)
        if listed < setting.list_size:
            continue
        truth = epoch.truth.cells
        yield Value(profile, point, "l1_plain", scores(epoch, setting.people)["l1_plain"])
        if profile == "sharp":
            told = rng.multinomial(setting.users, truth) / setting.users
            yield Value("no privacy", point, "l1_plain", l1_plain(told[:listed], truth[:listed]))


def _people(setting: Setting) -> tuple[float, ...]:
    # 1, 2, 5, 10, 20 and 50 times what the paper's first data set has, or what a test asks for.
    return tuple(float(setting.users * times) for times in (1, 2, 5, 10, 20))


def _records_each(setting: Setting, point: float, rng: np.random.Generator) -> Iterator[Value]:
    """List and L1 against m_O, when a person's records resemble each other."""
    records_each = int(point)
    for same_query in SAME_QUERY:
        optin = draw_optin(setting, rng, records_each=records_each, same_query=same_query)
        parameters = parameters_of(setting, records_per_optin_user=records_each)
        epoch = run_epoch("sharp", setting, optin, parameters, rng)
        series = f"{same_query:.0%} return to a query"
        yield Value(series, point, "found", float(len(epoch.release.head_list.records)))
        if len(epoch.truth.listed) == setting.list_size:
            for metric, value in scores(epoch, setting.people).items():
                yield Value(series, point, metric, value)
    if records_each == 1:
        epoch = run_epoch("paper", setting, draw_optin(setting, rng), parameters_of(setting), rng)
        yield Value("paper", point, "found", float(len(epoch.release.head_list.records)))
        if len(epoch.truth.listed) == setting.list_size:
            for metric, value in scores(epoch, setting.people).items():
                yield Value("paper", point, metric, value)


OWN_EXPERIMENTS = (
    Experiment(
        "head_list",
        "how many records each selector finds, against ε",
        lambda setting: FEWER_EPSILONS if setting.coarse else EPSILONS,
        _head_list,
        runs=4,
        large_runs=2,
        tables=True,
    ),
    Experiment(
        "known_keys",
        "the head list's size over epochs",
        one_point,
        _known_keys,
        runs=6,
        large_runs=3,
        tables=True,
    ),
    Experiment(
        "coverage",
        "how often 95 % intervals hold the truth, and how wide they are",
        lambda setting: (4.0,),
        _coverage,
        runs=40,
        large_runs=20,
        tables=True,
    ),
    Experiment(
        "agreement",
        "how often the agreement test speaks up, right or wrong",
        lambda setting: DRIFTS,
        _agreement,
        runs=100,
        large_runs=100,
        populations=("aol",),
    ),
    Experiment(
        "limit",
        "L1 against the number of people, beside the limit without privacy",
        _people,
        _limit,
        runs=10,
        large_runs=10,
        populations=("aol",),
    ),
    Experiment(
        "records_each",
        "head list and L1 against records per opt-in user, with likeness within a user",
        lambda setting: RECORDS_EACH,
        _records_each,
        runs=8,
        large_runs=8,
        populations=("aol",),
    ),
)
