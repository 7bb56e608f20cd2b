"""The filter over epochs: closer than one epoch alone, with intervals that cover.

A small world: 80 records with the shares of the evaluation's first setting, 32 850 opt-in users and
clients whose estimates have the noise of 624 150 reports. Each cell follows 3 × 22 epochs and looks
at epochs 9 to 22. Errors of one record last for several epochs, so that a cell's 3 360 intervals
count for about 700 independent ones: a standard error of .008. A cell of true coverage .955 is
below .93 in one seed in 1 000, one of .945 (drift, and people who change) in one in 30; seeds are
fixed, and `python -m bench.over_time` has larger samples. Passing says nothing about privacy: the
filter sees published numbers alone.

Worlds with `as_published` run in the closed loop of the service (`FilterMemory`): the filter finds
out how far the groups differ, and follows all publications again when that changes. With
`one_budget` they are the default of `sharp`: noise of one budget for 30 epochs, records that are
known once they passed its threshold, and a thirtieth of the clients in each epoch. Of the 80
records of such a world 40 to 46 are known at first and 70 to 74 in the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from blendstream.blender.noise.exact_noise import laplace_scale, laplace_variance
from blendstream.blender.over_time.filter.epoch_filter import (
    FilterState,
    Observation,
    advance,
    empty_state,
)
from blendstream.blender.over_time.filter.filter_modes import FilterModes, default_modes
from blendstream.blender.over_time.period_budget import calibrate_period, select_in_period
from blendstream.blender.over_time.publication_filter import ClientFigures, Publication
from blendstream.blender.values.record import Record
from blendstream.evaluation.simulated_noise import SimulatedNoise
from blendstream.streams.releases.filtered_estimates import FilterMemory

pytestmark = pytest.mark.statistical

RECORDS, LISTED, OPTIN, CLIENTS = 80, 50, 32_850, 624_150
EPOCHS, FROM, RUNS = 22, 8, 3
#: The default of `sharp`: (ε, δ) once for so many epochs.
EPSILON, DELTA, PERIOD = 4.0, 1e-5, 30

#: n·variance of a rare record's denoised estimate at ε = 4 and 51 cells.
CLIENT_NOISE, COUNT_NOISE = 0.036, 0.362


@dataclass(frozen=True)
class World:
    """How records change and people stay."""

    staying: float = 0.0
    habit: float | None = None
    drift: float = 0.0
    shock: int | None = None
    differ: float = 0.0
    clients_staying: float = 0.0
    #: What the filter is given for `differ`, if not the truth.
    tau: float | None = None
    #: τ comes from the publications, as in the service.
    as_published: bool = False
    #: One budget for 30 epochs, and clients who take turns. Always as published.
    one_budget: bool = False


@dataclass(frozen=True)
class SeenContributors:
    """One epoch: L1 of the filter and of the epoch alone, which intervals hold the truth, ĥ."""

    error: float
    own_error: float
    covered: np.ndarray
    staying: float

    @classmethod
    def of(cls, truth: np.ndarray, own: np.ndarray, state: FilterState) -> SeenContributors:
        off = np.abs(state.mean[0] - truth)
        return cls(
            error=float(np.abs(state.probability - truth)[:LISTED].sum()),
            own_error=float(np.abs(own - truth)[:LISTED].sum()),
            covered=np.asarray(off <= 1.96 * np.sqrt(state.variance)),
            staying=state.staying,
        )


def follow(
    world: World, seed: int, modes: FilterModes | None = None, epochs: int = EPOCHS
) -> Iterator[SeenContributors]:
    rng = np.random.default_rng([20170816, seed])
    p = 0.065 / (np.arange(RECORDS) + 5.7)
    group = np.exp(world.differ * rng.standard_normal(RECORDS))
    held = clients_held = None
    state = empty_state(modes)
    for epoch in range(1, epochs + 1):
        p = changed(world, p, epoch, rng)
        held, shown = stayed(held, OPTIN, p * group, world.staying, world.habit, rng)
        clients_held, holders = stayed(clients_held, CLIENTS, p, world.clients_staying, None, rng)
        counts = shown + rng.laplace(0, np.sqrt(COUNT_NOISE / 2), RECORDS)
        reported = holders[:LISTED] / CLIENTS
        reported = reported + rng.normal(0, np.sqrt(CLIENT_NOISE / CLIENTS), LISTED)
        optin = Observation(
            counts / OPTIN, np.full(RECORDS, 1.0 * OPTIN), np.full(RECORDS, COUNT_NOISE / OPTIN**2)
        )
        share = np.full(RECORDS, np.nan)
        share[:LISTED] = reported
        clients = Observation(
            share, np.full(RECORDS, 1.0 * CLIENTS), np.full(RECORDS, CLIENT_NOISE / CLIENTS)
        )
        tau = world.differ if world.tau is None else world.tau
        state = advance(state, optin, clients, between_groups=tau)
        of_o, of_c = p / OPTIN, (CLIENT_NOISE + p) / CLIENTS
        both = (optin.share / of_o + np.where(np.isnan(share), 0.0, share) / of_c) / (
            1 / of_o + 1 / of_c
        )
        yield SeenContributors.of(p, np.where(np.isnan(share), optin.share, both), state)


def changed(world: World, p: np.ndarray, epoch: int, rng: np.random.Generator) -> np.ndarray:
    """The records' shares in this epoch, by those of the one before."""
    if epoch > 1:
        p = p * np.exp(world.drift * rng.standard_normal(RECORDS))
    if epoch == world.shock:
        struck = rng.random(RECORDS) < 0.1
        p = p * np.where(struck, rng.choice([3.0, 1 / 3], RECORDS), 1.0)
        p = p * 0.945  # all shares add up to one: the others make room
    return p


def stayed(held, people, p, staying, habit, rng):
    """Who holds what: those who stay keep it, the places of the others are drawn anew."""
    p = np.append(p, max(0.0, 1 - p.sum()))
    if held is None:
        held = rng.multinomial(people, p)
        if habit is None:
            return held, held[:-1]
    keep = rng.binomial(held, staying if habit is None else habit)
    now = keep + rng.multinomial(people - keep.sum(), p)
    return (now if habit is None else held), now[:-1]


def follow_published(world: World, seed: int, epochs: int = EPOCHS) -> Iterator[SeenContributors]:
    """The same world in the closed loop: τ, and what is known and listed, from publications."""
    rng = np.random.default_rng([20170817, seed])
    noise = SimulatedNoise(rng)
    rule = calibrate_period(EPSILON, DELTA, records_per_user=1, epochs=PERIOD)
    laplace = laplace_scale(sensitivity=2, epsilon=EPSILON)
    reports = CLIENTS // PERIOD if world.one_budget else CLIENTS
    p = 0.065 / (np.arange(RECORDS) + 5.7)
    group = np.exp(world.differ * rng.standard_normal(RECORDS))
    known, held, memory = np.zeros(RECORDS, dtype=np.bool_), None, FilterMemory()
    ranked = np.zeros(RECORDS)
    for epoch in range(1, epochs + 1):
        p = changed(world, p, epoch, rng)
        held, shown = stayed(held, OPTIN, p * group, world.staying, None, rng)
        if world.one_budget:
            selection = select_in_period(rule, shown, known, noise)
            places, counts = selection.kept, selection.noisy_counts
        else:
            # All are far above the threshold of one epoch.
            places, counts = np.arange(RECORDS), noise.discrete_laplace(shown, scale=laplace)
        order = np.argsort(-ranked[places], kind="stable")
        places, counts = places[order], counts[order]
        asked = p[places[:LISTED]]
        holders = rng.multinomial(reports, np.append(asked, 1 - asked.sum()))[:-1] / reports
        reported = holders + rng.normal(0, np.sqrt(CLIENT_NOISE / reports), len(asked))
        sampling = np.clip(reported, 0, 1) * (1 - np.clip(reported, 0, 1))
        publication = Publication(
            epoch=epoch,
            records=tuple(Record("query", f"u{place}") for place in places.tolist()),
            counts=counts,
            users=OPTIN,
            noise=rule.scale**2 if world.one_budget else laplace_variance(laplace),
            listed=len(asked),
            clients=ClientFigures(reported, (CLIENT_NOISE + sampling) / reports, reports),
        )
        memory = memory.follow(publication, clients_rotate=world.one_budget)
        order = np.array([int(record.url[1:]) for record in memory.state.records])
        known[order], ranked[order] = True, memory.state.state.probability
        own = np.full(RECORDS, np.nan)
        own[places] = counts / OPTIN
        yield SeenContributors.of(p[order], own[order], memory.state.state)


@cache
def runs_of(world: World, modes: FilterModes | None) -> list[list[SeenContributors]]:
    """Several tests look at the same world."""
    return [list(epochs_of(world, seed, modes)) for seed in range(RUNS)]


def epochs_of(
    world: World, seed: int, modes: FilterModes | None = None, epochs: int = EPOCHS
) -> Iterator[SeenContributors]:
    if world.as_published or world.one_budget:
        return follow_published(world, seed, epochs)
    return follow(world, seed, modes, epochs)


def summary(world: World, modes: FilterModes | None = None, epochs=slice(FROM, EPOCHS)):
    """Coverage and the two L1 over all runs; ĥ at the end."""
    runs = runs_of(world, modes)
    seen = [epoch for run in runs for epoch in run[epochs]]
    covered = float(np.mean(np.concatenate([s.covered for s in seen])))
    ratio = sum(s.error for s in seen) / sum(s.own_error for s in seen)
    return covered, ratio, float(np.mean([run[-1].staying for run in runs]))


#: The corners of the grids below; `make test-more` has the points between.
CORNERS = [(0.0, 0.0), (1.0, 0.0), (0.9, 0.02), (0.0, 0.05), (1.0, 0.05), (0.0, 0.1), (1.0, 0.1)]


def grid(*drifts: float) -> pytest.MarkDecorator:
    """Every share of people who stay with each of these drifts."""
    points = [(staying, drift) for staying in (0.0, 0.5, 0.9, 1.0) for drift in drifts]
    return pytest.mark.parametrize(
        ("staying", "drift"),
        [
            pytest.param(*point, marks=() if point in CORNERS else pytest.mark.more)
            for point in points
        ],
    )


@grid(0.0, 0.02, 0.05)
def test_intervals_cover_whoever_stays_and_however_records_drift(staying, drift, report):
    """h is estimated on the way; staying = 1 is a fixed panel that keeps what it holds."""
    covered, ratio, found = summary(World(staying=staying, drift=drift))

    report(
        f"filter, h {staying} drift {drift}: covers {covered:.3f}, L1 {ratio:.2f} of the epoch's"
    )
    assert covered >= 0.93
    assert found == pytest.approx(staying, abs=0.06)
    assert ratio < 0.85


def over_twenty_runs(world: World, epochs: slice) -> tuple[float, float]:
    """Coverage and its standard error over runs."""
    by_run = [
        float(np.mean(np.concatenate([s.covered for s in list(run)[epochs]])))
        for run in (epochs_of(world, seed, None, epochs.stop) for seed in range(20))
    ]
    return float(np.mean(by_run)), float(np.std(by_run, ddof=1) / np.sqrt(len(by_run)))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("drift", [0.0, 0.02, 0.05])
@pytest.mark.parametrize("staying", [0.0, 0.5, 0.9, 1.0])
def test_intervals_cover_over_twenty_runs(staying, drift, report):
    """As above, with a standard error of .002 to .003 that the runs themselves show."""
    covered, error = over_twenty_runs(World(staying=staying, drift=drift), slice(FROM, EPOCHS))

    report(f"filter, 20 runs, h {staying} drift {drift}: covers {covered:.3f} ± {error:.3f}")
    assert covered >= 0.93


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("staying", [0.0, 0.5, 0.9, 1.0])
def test_intervals_cover_in_a_shock_over_twenty_runs(staying, report):
    """The shock's own epoch, 1 600 intervals."""
    covered, error = over_twenty_runs(World(staying=staying, shock=15), slice(14, 15))

    report(f"filter, 20 runs, shock, h {staying}: covers {covered:.3f} ± {error:.3f}")
    assert covered >= 0.90


@pytest.mark.parametrize("drift", [0.0, 0.02])
def test_intervals_cover_with_a_panel_of_habits(drift, report):
    """Everybody stays and holds a favourite in 7 of 10 epochs: a correlation that never fades."""
    covered, ratio, _ = summary(World(habit=0.7, drift=drift))

    report(f"filter, habits, drift {drift}: covers {covered:.3f}, L1 {ratio:.2f} of the epoch's")
    assert covered >= 0.93


@pytest.mark.parametrize("staying", [0.0, 0.5, 0.9, 1.0])
def test_intervals_cover_in_the_epoch_of_a_shock(staying, report):
    """A tenth of the records triple or fall to a third; 240 intervals, a standard error of .014."""
    covered, ratio, _ = summary(World(staying=staying, shock=15), epochs=slice(14, 15))

    report(f"filter, shock, h {staying}: covers {covered:.3f}, L1 {ratio:.2f} of the epoch's")
    assert covered >= 0.90
    assert ratio < 1.03


def test_without_the_correction_for_those_who_stay_the_same_test_fails():
    """Deliberately broken: a bank of modes in which everybody is drawn anew in every epoch."""
    whole = default_modes()
    naive = FilterModes(((0.0, 0.0, 0.0),), whole.drifts, whole.jumps)

    assert summary(World(staying=0.9), naive)[0] < 0.8
    assert summary(World(staying=0.0), naive)[0] >= 0.93


def differing(staying: float, one_budget: bool) -> World:
    return World(staying=staying, differ=0.2, as_published=True, one_budget=one_budget)


@pytest.mark.parametrize(("staying", "one_budget"), [(0.0, False), (0.9, True)])
def test_intervals_cover_the_clients_share_when_the_groups_differ(staying, one_budget, report):
    """By a deviation of .2 in ln p, which does not average out; unlisted records too. How far they
    differ is found from the publications."""
    covered, _, _ = summary(differing(staying, one_budget))

    report(
        f"filter, groups differ by .2, h {staying}, one budget {one_budget}: covers {covered:.3f}"
    )
    assert covered >= 0.93


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("one_budget", [False, True])
@pytest.mark.parametrize("staying", [0.0, 0.9])
def test_intervals_cover_over_twenty_runs_when_the_groups_differ(staying, one_budget, report):
    covered, error = over_twenty_runs(differing(staying, one_budget), slice(FROM, EPOCHS))

    report(
        f"filter, 20 runs, groups differ by .2, h {staying}, one budget {one_budget}: "
        f"covers {covered:.3f} ± {error:.3f}"
    )
    assert covered >= 0.93


@pytest.mark.parametrize("drift", [0.0, 0.05])
@pytest.mark.parametrize("staying", [0.0, 0.9])
def test_intervals_cover_under_one_budget(staying, drift, report):
    """The default of `sharp`. Runs differ more here: by .024 in the worst cell, whose coverage is
    .948 over twenty runs (below), so that three of them are below .92 in one seed in 50."""
    covered, _, _ = summary(World(staying=staying, drift=drift, one_budget=True))

    report(f"filter, one budget, h {staying} drift {drift}: covers {covered:.3f}")
    assert covered >= 0.92


def test_intervals_cover_under_one_budget_in_the_epoch_of_a_shock(report):
    """200 intervals of three runs that differ by .034: at a coverage of .960 they are below .90 in
    one seed in 800. Where people stay this takes more runs, below."""
    covered, _, _ = summary(World(shock=15, one_budget=True), epochs=slice(14, 15))

    report(f"filter, one budget, shock, h 0: covers {covered:.3f}")
    assert covered >= 0.90


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("drift", [0.0, 0.05])
@pytest.mark.parametrize("staying", [0.0, 0.9])
def test_intervals_cover_under_one_budget_over_twenty_runs(staying, drift, report):
    """With a standard error of .002 to .005: the worst cell fails in one seed in 3 000."""
    world = World(staying=staying, drift=drift, one_budget=True)
    covered, error = over_twenty_runs(world, slice(FROM, EPOCHS))

    report(
        f"filter, 20 runs, one budget, h {staying} drift {drift}: "
        f"covers {covered:.3f} ± {error:.3f}"
    )
    assert covered >= 0.93


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("staying", [0.0, 0.9])
def test_intervals_cover_under_one_budget_in_a_shock_over_twenty_runs(staying, report):
    """Where nine in ten keep what they held, S sees a tenth of a shock in its own epoch, and few
    clients report: .917 ± .011 are covered, and another seed would fail in one case in 16."""
    covered, error = over_twenty_runs(
        World(staying=staying, shock=15, one_budget=True), slice(14, 15)
    )

    report(f"filter, 20 runs, one budget, shock, h {staying}: covers {covered:.3f} ± {error:.3f}")
    assert covered >= 0.90


def test_with_tau_0_for_groups_that_differ_the_same_test_fails():
    """Deliberately broken: τ = 0 handed in where the groups differ by .2."""
    assert summary(World(differ=0.2, tau=0.0))[0] < 0.91


def test_devices_that_stay_are_accounted_for_too(report):
    covered, _, _ = summary(World(staying=0.9, clients_staying=0.9))

    report(f"filter, clients stay too: covers {covered:.3f}")
    assert covered >= 0.93


@grid(0.0, 0.02, 0.05, 0.1)
def test_the_filter_is_never_worse_than_the_epoch_alone(staying, drift, report):
    """Up to a drift of 10 % an epoch, from the second epoch on, whoever stays."""
    _, ratio, _ = summary(World(staying=staying, drift=drift), epochs=slice(1, EPOCHS))

    report(
        f"filter, h {staying} drift {drift}: L1 {ratio:.2f} of the epoch's, epochs 2 to {EPOCHS}"
    )
    assert ratio <= 1.03
