"""Tests of the ledger: costs are composed, the limit holds, and nothing is charged twice."""

from __future__ import annotations

import json
import math
import tracemalloc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blendstream.blender.values.errors import ParameterError
from blendstream.streams.budget.composition import delta_at, spent_at
from blendstream.streams.budget.ledger import (
    GROUPS,
    Cost,
    Ledger,
    Limit,
    click_graph_cost,
    worst_of,
)

DAY = 86_400
LIMIT = Limit(7 * DAY, optin=Cost(12.0, 1e-4), clients=Cost(12.0, 1e-4))
ONE = Cost(4.0, 1e-5)


def spend(epochs: int, *, cohorts: int = 1, cost: Cost = ONE, limit: Limit = LIMIT) -> Ledger:
    """A ledger after so many daily epochs, limit or not."""
    ledger = Ledger()
    for epoch in range(epochs):
        charge = ledger.price(epoch, epoch * DAY, cohorts, limit, optin=cost, clients=cost)
        ledger = ledger.with_charge(charge)
    return ledger


def test_three_epochs_of_four_fill_a_limit_of_twelve_and_the_fourth_is_refused():
    """Worked by hand: 3 x 4 = 12, 3 x 1e-5 <= 1e-4; the period of epoch 3 ends on day 7."""
    ledger = spend(2)
    third = ledger.price(2, 2 * DAY, 1, LIMIT, optin=ONE, clients=ONE)
    assert ledger.check_charge(third, LIMIT) is None

    ledger = ledger.with_charge(third)
    fourth = ledger.price(3, 3 * DAY, 1, LIMIT, optin=ONE, clients=ONE)
    paused = ledger.check_charge(fourth, LIMIT)

    assert paused is not None
    assert paused.resumes_at_s == 7 * DAY
    assert "budget of this period is spent" in paused.reason
    next_period = ledger.price(3, 7 * DAY, 1, LIMIT, optin=ONE, clients=ONE)
    assert ledger.check_charge(next_period, LIMIT) is None


def test_a_limit_holds_for_delta_as_it_does_for_epsilon():
    """By hand: 2 x 4e-5 is below 1e-4 and 3 x 4e-5 above it, while ε is far from its limit."""
    cost, ledger = Cost(0.1, 4e-5), Ledger()
    for epoch in range(3):
        charge = ledger.price(epoch, epoch * DAY, 1, LIMIT, optin=cost, clients=cost)
        assert (ledger.check_charge(charge, LIMIT) is None) == (epoch < 2)
        ledger = ledger.with_charge(charge)


def test_the_groups_are_accounted_apart():
    """A limit reached by clients alone names clients."""
    ledger = Ledger()
    cheap = Cost(0.1, 0.0)
    for epoch in range(3):
        ledger = ledger.with_charge(
            ledger.price(epoch, epoch * DAY, 1, LIMIT, optin=cheap, clients=ONE)
        )
    paused = ledger.check_charge(
        ledger.price(3, 3 * DAY, 1, LIMIT, optin=cheap, clients=ONE), LIMIT
    )

    assert paused is not None
    assert paused.group == "clients"
    assert ledger.spent_in_life("optin", delta=1e-6).epsilon < 0.31
    assert ledger.spent_in_life("clients", delta=1e-4).epsilon > 11.9


@pytest.mark.parametrize("cohorts", [1, 2, 3, 7])
def test_cohorts_make_spending_grow_that_many_times_slower(cohorts: int):
    """A person of one cohort pays in one epoch out of R."""
    spent = spend(14, cohorts=cohorts).basic_in_life("optin")

    assert spent.epsilon == pytest.approx(4.0 * math.ceil(14 / cohorts))


def test_a_change_of_cohorts_adds_the_worst_of_both():
    """Whoever was in the busiest cohort before may be in the busiest one after."""
    ledger = spend(3, cohorts=2)
    for epoch in range(3, 6):
        ledger = ledger.with_charge(
            ledger.price(epoch, epoch * DAY, 3, LIMIT, optin=ONE, clients=ONE)
        )

    assert ledger.basic_in_life("optin").epsilon == pytest.approx(4.0 * (2 + 1))


def test_another_secret_for_the_cohorts_adds_the_worst_of_both():
    """It shuffles people: whoever paid in every epoch of one cohort may be in the busiest of the
    next. Devices draw their own cohort, and keep it while R stays."""
    ledger = spend(3, cohorts=3)
    for epoch, secret in ((3, "k1"), (4, "k2"), (5, "k2")):
        ledger = ledger.with_charge(
            ledger.price(epoch, epoch * DAY, 3, LIMIT, optin=ONE, clients=ONE, cohort_id=secret)
        )
    read_again = Ledger.from_json(json.loads(json.dumps(ledger.to_json())))

    for each in (ledger, read_again):
        assert each.basic_in_life("optin").epsilon == pytest.approx(4.0 * 3)
        assert each.basic_in_life("clients").epsilon == pytest.approx(4.0 * 2)
        assert each.spent("optin", 0, 7 * DAY, delta=1e-4).epsilon > 11.9
    assert read_again == ledger


def test_devices_that_drew_their_cohort_again_add_the_worst_of_each_draw():
    """From 2 cohorts to 3 and back: a device of the first cohort may be in the second then. An
    opt-in user is where they were."""
    ledger = Ledger()
    for epoch, cohorts in enumerate((2, 3, 3, 2)):
        ledger = Ledger.from_json(json.loads(json.dumps(ledger.to_json())))
        ledger = ledger.with_charge(
            ledger.price(epoch, epoch * DAY, cohorts, LIMIT, optin=ONE, clients=ONE, cohort_id="k1")
        )

    assert ledger.basic_in_life("clients").epsilon == pytest.approx(4.0 * 3)
    assert ledger.basic_in_life("optin").epsilon == pytest.approx(4.0 * 2)


def test_with_one_cohort_no_secret_decides_anything():
    """Everybody is in it."""
    ledger = spend(2)
    other = ledger.price(2, 2 * DAY, 1, LIMIT, optin=ONE, clients=ONE, cohort_id="k2")

    assert ledger.with_charge(other) == spend(3)


def test_small_budgets_compose_better_than_they_add():
    """dp-accounting's composition is what the limit is held against, not the plain sum."""
    ledger = spend(200, cost=Cost(0.1, 0.0))

    assert ledger.basic_in_life("optin").epsilon == pytest.approx(20.0)
    assert ledger.spent_in_life("optin", delta=1e-6).epsilon < 10.0


def test_a_composition_is_that_of_randomised_response_to_the_last_digit():
    """The worst 0.3-DP mechanism, 40 times: worked by hand from the binomial distribution."""
    epsilon, times, at = 0.3, 40, 4.0
    truth = 1 / (1 + math.exp(-epsilon))
    expected = math.fsum(
        math.comb(times, i) * truth**i * (1 - truth) ** (times - i)
        * max(0.0, 1 - math.exp(at - (2 * i - times) * epsilon))
        for i in range(times + 1)
    )  # fmt: skip
    ledger = spend(times, cost=Cost(epsilon, 0.0))

    assert ledger.delta_spent("optin", 0, times * DAY, epsilon=at) == pytest.approx(
        expected, rel=1e-9
    )


@pytest.mark.parametrize("at", [0.1, 0.4, 2.2, 5.8])
def test_losses_between_two_points_of_the_grid_are_rounded_up(at: float):
    """π and e share no grid. Each mechanism loses ε or -ε: four sums, worked by hand. What the
    ledger says may be above the truth, by the grid's width, and never below it."""
    costs = (math.pi, math.e)
    truth = [1 / (1 + math.exp(-e)) for e in costs]
    expected = math.fsum(
        abs(1 - up - truth[0]) * abs(1 - over - truth[1])
        * max(0.0, 1 - math.exp(at - (2 * up - 1) * costs[0] - (2 * over - 1) * costs[1]))
        for up in (0, 1)
        for over in (0, 1)
    )  # fmt: skip
    found = delta_at(tuple(sorted((e, 0.0, 1) for e in costs)), at)

    assert expected <= found <= expected + 4e-4


@pytest.mark.parametrize(
    "costs",
    [[Cost(4.0, 0.0)], [Cost(4.0, 1e-8), Cost(0.7, 0.0)], [Cost(math.pi, 0.0), Cost(math.e, 0.0)]],
)
def test_years_of_epochs_are_added_up_in_little_memory(costs: list[Cost]):
    """On a fixed fine grid a year of hourly epochs took gigabytes."""
    limit = Limit(366 * DAY, optin=Cost(1e5, 1e-4), clients=Cost(1e5, 1e-4))
    ledger = Ledger(0, {}, {("optin", 1, 0, cost.epsilon, cost.delta, ""): 8760 for cost in costs})
    tracemalloc.start()
    try:
        spent = ledger.spent_in_life("optin", delta=limit.optin.delta)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    plain = ledger.basic_in_life("optin").epsilon
    assert 0.5 * plain < spent.epsilon < plain
    assert peak < 500e6


def test_no_figure_is_below_what_its_delta_allows():
    """At a delta smaller than what was spent no finite epsilon is true; the sum of both is."""
    spent = spend(10).spent_in_life("optin", delta=1e-9)

    assert (spent.epsilon, spent.delta) == (40.0, pytest.approx(1e-4))


def test_at_a_delta_that_allows_everything_no_epsilon_is_spent():
    """dp-accounting answers with one below zero, and a cost refused it: the ledger ended."""
    assert spent_at(((1.0, 1e-5, 3),), 1.0) == Cost(0.0, 1.0)


def test_the_click_graph_is_charged_as_replace_one():
    """Add/remove (1, 1e-6) is replace-one (2, (1+e)·1e-6); a person is in one share only."""
    graph = click_graph_cost(1.0, 1e-6)

    assert graph.epsilon == 2.0
    assert graph.delta == pytest.approx(3.718281828e-6)
    assert worst_of(Cost(4.0, 1e-7), graph) == Cost(4.0, graph.delta)


def test_an_epoch_dearer_than_the_limit_is_a_mistake_not_a_pause():
    """It would pause permanently and report that it resumes."""
    ledger = Ledger()
    with pytest.raises(ParameterError, match="no more than the limit per period"):
        ledger.check_charge(
            ledger.price(0, 0, 1, LIMIT, optin=Cost(13.0, 1e-5), clients=ONE), LIMIT
        )


def test_a_longer_period_counts_what_shorter_ones_spent():
    """Changing the period must not forget what the old one knew."""
    ledger = spend(3)
    month = Limit(30 * DAY, optin=Cost(12.0, 1e-4), clients=Cost(12.0, 1e-4))

    assert ledger.check_charge(ledger.price(3, 8 * DAY, 1, month, optin=ONE, clients=ONE), month)


def test_an_epoch_is_charged_once_however_often_its_entry_is_read():
    """Readers that start at a checkpoint meet entries that the checkpoint holds."""
    ledger = spend(3)
    again = ledger.price(2, 2 * DAY, 1, LIMIT, optin=ONE, clients=ONE)

    assert ledger.with_charge(again) == ledger


@given(
    costs=st.lists(
        st.tuples(st.sampled_from([0.5, 1.0, 4.0]), st.sampled_from([0.0, 1e-6, 1e-5])),
        min_size=1,
        max_size=30,
    ),
    cut=st.integers(0, 30),
    cohorts=st.integers(1, 4),
)
def test_a_checkpoint_and_the_entries_after_it_are_the_whole_ledger(
    costs: list[tuple[float, float]], cut: int, cohorts: int
):
    """Otherwise the age of the log would change what may be spent."""
    charges = [
        Ledger().price(e, e * DAY, cohorts, LIMIT, optin=Cost(*c), clients=Cost(*c))
        for e, c in enumerate(costs)
    ]
    whole = Ledger()
    for charge in charges:
        whole = whole.with_charge(charge)
    before = Ledger()
    for charge in charges[:cut]:
        before = before.with_charge(charge)
    after = Ledger.from_json(json.loads(json.dumps(before.to_json())))
    for charge in charges:
        after = after.with_charge(charge)

    assert after == whole


@given(
    st.lists(st.sampled_from([0.25, 0.5, 1.0, 3.0]), min_size=1, max_size=20),
    st.integers(1, 3),
)
def test_what_was_admitted_never_passes_the_limit(epsilons: list[float], cohorts: int):
    """Whatever the sequence of costs, no period holds more than its limit for anyone."""
    limit = Limit(5 * DAY, optin=Cost(4.0, 1e-5), clients=Cost(4.0, 1e-5))
    ledger = Ledger()
    for epoch, epsilon in enumerate(epsilons):
        cost = Cost(epsilon, 1e-7)
        charge = ledger.price(epoch, epoch * DAY, cohorts, limit, optin=cost, clients=cost)
        if ledger.check_charge(charge, limit) is None:
            ledger = ledger.with_charge(charge)
    for start, end in ledger.periods:
        for group in GROUPS:
            assert ledger.spent(group, start, end, delta=1e-5).epsilon <= 4.0 + 1e-9


@given(
    epochs=st.lists(
        st.tuples(st.sampled_from([0.5, 4.0]), st.sampled_from([0.0, 1e-6]), st.booleans()),
        min_size=1,
        max_size=12,
    ),
    cohorts=st.integers(1, 3),
    places=st.tuples(st.integers(0, 2), st.integers(0, 2)),
)
def test_someone_who_moves_between_the_groups_pays_no_more_than_both_figures_together(
    epochs: list[tuple[float, float, bool]], cohorts: int, places: tuple[int, int]
):
    """Their place in each group is their own, so moving may admit them twice within R epochs. In
    one epoch they are in one group only: a device sees to that."""
    limit = Limit(100 * DAY, optin=Cost(1e3, 0.5), clients=Cost(1e3, 0.5))
    ledger, paid = Ledger(), Counter[tuple[float, float]]()
    for epoch, (epsilon, delta, opted_in) in enumerate(epochs):
        optin, clients = Cost(epsilon, delta), Cost(epsilon, 0.0)
        charge = ledger.price(epoch, epoch * DAY, cohorts, limit, optin=optin, clients=clients)
        ledger = ledger.with_charge(charge)
        if epoch % cohorts == places[not opted_in] % cohorts:
            cost = optin if opted_in else clients
            paid[cost.epsilon, cost.delta] += 1
    theirs = tuple(sorted((e, d, n) for (e, d), n in paid.items()))

    for at in (1e-4, 1e-9):
        bound = ledger.spent_in_both(0, 100 * DAY, delta=at)
        mine = spent_at(theirs, at)
        assert mine.epsilon <= bound.epsilon + 1e-9
        assert mine.delta <= bound.delta + 1e-12


def test_moving_between_the_groups_can_cost_more_than_staying_in_either():
    """Two cohorts: opted in when the first has its turn, a client when the second has. So the bound
    is the sum of both, and not the larger."""
    ledger = spend(2, cohorts=2)

    assert ledger.basic("optin", 0, 7 * DAY).epsilon == 4.0
    assert ledger.basic("clients", 0, 7 * DAY).epsilon == 4.0
    assert ledger.spent_in_both(0, 7 * DAY, delta=1e-4).epsilon == pytest.approx(8.0, rel=1e-3)
