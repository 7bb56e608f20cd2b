"""Simulated epochs: who stays, what is released, and that a run can be repeated."""

from __future__ import annotations

from dataclasses import astuple, replace

import numpy as np
import pytest

from blendstream.evaluation.over_time import EpochScores, Plan, _People, simulate
from blendstream.evaluation.populations import AOL, ZipfPeople

SMALL = replace(
    AOL,
    people=ZipfPeople(queries=2_000, query_exponent=1.0, offset=5.0, urls=2, url_exponent=2.0),
    users=60_000,
    optin_share=0.2,
    list_size=12,
)


def run(plan: Plan, seed: int = 1) -> list[EpochScores]:
    return list(simulate(SMALL, replace(plan, epochs=4), np.random.default_rng(seed)))


def test_the_same_generator_gives_the_same_epochs():
    once, again, other = (run(Plan(drift=0.05), seed) for seed in (1, 1, 2))

    assert [astuple(s) for s in once] == [astuple(s) for s in again]
    assert [astuple(s) for s in once] != [astuple(s) for s in other]


@pytest.mark.parametrize(
    "plan",
    [
        Plan(),
        Plan(selection_share=1.0, staying=0.9),
        Plan(habit=0.7, clients_staying=0.5),
        Plan(one_budget=True, epsilon=8.0),
        Plan(shock_epoch=3, groups_differ=0.2),
        Plan(one_budget=True, epsilon=8.0, selection_share=1.0),
        Plan(rotated=True, epsilon=8.0),
    ],
)
def test_every_plan_lists_covers_and_comes_close(plan):
    last = run(plan)[-1]

    assert last.listed > 0
    assert last.known >= last.shown > 0
    assert 0.5 < last.covered <= 1
    assert last.filter_l1 <= 1.5 * last.own_l1


def test_one_budget_lists_fewer_and_later_epochs_know_more():
    each, once = run(Plan(selection_share=1.0)), run(Plan(one_budget=True))

    assert once[-1].shown < each[-1].shown
    assert each[0].known <= each[-1].known


def test_those_who_stay_keep_what_they_hold():
    """The correlation of a record's counts from one epoch to the next is the share who stay."""
    rng = np.random.default_rng(3)
    p = np.append(np.full(400, 0.002), 0.2)
    for staying, habit, expected in ((0.0, None, 0.0), (0.8, None, 0.8), (0.0, 0.7, 0.49)):
        people = _People(20_000, staying, habit)
        people.next(p, rng)
        first, second = (people.next(p, rng)[:-1] for _ in range(2))
        # 400 records: a standard error of .05 at most; four of them.
        assert np.corrcoef(first, second)[0, 1] == pytest.approx(expected, abs=0.2)
        assert people.next(p, rng).sum() == 20_000


def test_a_fixed_panel_never_changes():
    rng = np.random.default_rng(4)
    people = _People(1_000, 1.0, None)
    p = np.array([0.3, 0.2, 0.5])

    assert np.array_equal(people.next(p, rng), people.next(p[::-1], rng))
