"""What is expected before any data is there, against what thirty simulated epochs came to."""

from __future__ import annotations

import pytest

from agents import cli
from blender import ParameterError
from blender.spending_plan import PlannedService, expectations

#: The first setting of docs/over-time-benchmarks.md; its most common record is held by 6.6 %.
FIRST = {
    "optin_users": 32_850, "clients": 624_150, "epsilon": 4.0, "delta": 1e-5, "epochs": 30,
    "cells": 50, "top_share": 0.066,
}  # fmt: skip


@pytest.mark.parametrize(
    ("way", "staying", "measured"),
    [
        ("paper, each epoch", 0.0, 0.0251),
        ("sharp, taking turns", 0.0, 0.067),
        ("one budget", 0.0, 0.0038),
        ("one budget", 0.9, 0.0076),
    ],
)
def test_the_error_is_within_a_third_of_what_was_measured(way, staying, measured):
    found = {e.way: e for e in expectations(PlannedService(**FIRST, staying=staying))}

    assert found[way].error == pytest.approx(measured, rel=0.34)


def test_one_budget_lists_the_whole_top_where_taking_turns_cannot():
    found = {e.way: e for e in expectations(PlannedService(**FIRST, staying=0.0))}

    assert found["sharp, taking turns"].found == pytest.approx(20, abs=5)
    assert found["one budget"].found >= 50
    assert 250 < found["paper, each epoch"].found < 420
    assert found["sharp, each epoch"].found > found["paper, each epoch"].found


def test_what_a_person_spends_in_all_is_told():
    found = expectations(PlannedService(**FIRST))

    assert [(e.optin_epsilon, e.client_epsilon) for e in found] == [
        (120.0, 120.0), (120.0, 120.0), (4.0, 4.0), (4.0, 4.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"clients": 0}, "clients must be at least 1"),
        ({"top_share": 0.9}, "top_share must lie in"),
        ({"staying": 1.0}, "staying must lie in"),
    ],
)
def test_sizes_that_no_service_has_are_refused(changes, message):
    with pytest.raises(ParameterError, match=message):
        PlannedService(**FIRST | changes)


@pytest.mark.parametrize("sizes", [
    {"optin_users": 125_000, "clients": 4_875_000, "delta": 1e-7, "cells": 500},
    {"optin_users": 10, "clients": 10, "epochs": 1, "cells": 1, "epsilon": 0.5},
])  # fmt: skip
def test_large_and_tiny_services_have_an_answer(sizes):
    for one in expectations(PlannedService(**FIRST | sizes)):
        assert 0 <= one.error < 2
        assert one.found >= 0


def test_the_verb_names_each_way_with_what_to_set(capsys):
    assert cli.main(["plan", "--epochs", "7"]) == 0
    shown = capsys.readouterr().out

    assert "budget.period_epochs = 7" in shown
    assert "privacy.cohorts = 7" in shown
    assert "32,850 opt-in users" in shown
