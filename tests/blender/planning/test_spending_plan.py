"""What is expected before any data is there, against what thirty simulated epochs came to.

Measured: docs/evaluation/over_time.csv, first setting, shown records and L1 over the true top 50 at
epoch 30; the paper's L1 is over its list.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from blendstream.agents import cli
from blendstream.blender import ParameterError
from blendstream.blender.planning.spending_plan import PlannedService, expectations

#: The first setting of docs/evaluation.md; its most common record is held by 6.6 %.
FIRST = {
    "optin_users": 32_850, "clients": 624_150, "epsilon": 4.0, "delta": 1e-5, "epochs": 30,
    "cells": 50, "top_share": 0.066,
}  # fmt: skip


@pytest.mark.parametrize(
    ("way", "staying", "measured"),
    [
        ("paper, each epoch", 0.0, 0.0251),
        ("sharp, each epoch", 0.0, 0.00147),
        ("sharp, taking turns", 0.0, 0.067),
        ("one budget", 0.0, 0.0038),
        ("one budget", 0.9, 0.0076),
    ],
)
def test_the_error_is_within_a_third_of_what_was_measured(way, staying, measured):
    found = {e.way: e for e in expectations(PlannedService(**FIRST, staying=staying))}

    assert found[way].error == pytest.approx(measured, rel=0.34)


@pytest.mark.parametrize(
    ("way", "staying", "measured"),
    [
        ("paper, each epoch", 0.0, 361),
        ("sharp, each epoch", 0.0, 937),
        ("sharp, taking turns", 0.0, 20.4),
        ("one budget", 0.0, 97.9),
        ("one budget", 0.9, 94.3),
    ],
)
def test_the_list_is_within_a_third_of_what_was_measured(way, staying, measured):
    """It once dropped known records with low counts, as the service no longer does, and took the
    noise of one budget to be the same in every epoch: 709 and 64 instead of 937 and 94."""
    found = {e.way: e for e in expectations(PlannedService(**FIRST, staying=staying))}

    assert found[way].found == pytest.approx(measured, rel=0.34)


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


def settings_file(folder: Path, text: str) -> str:
    file = folder / "settings.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_the_verb_takes_epsilon_delta_m_and_t_from_a_settings_file(tmp_path, capsys):
    """It once took the file and said what the defaults would give."""
    file = settings_file(
        tmp_path,
        "[privacy]\nepsilon = 1.0\ndelta = 1e-6\nhead_list_cells = 20\n"
        "[budget]\nperiod_epochs = 7\n",
    )
    assert cli.main(["plan", "--settings", file]) == 0
    assert "7 epochs, epsilon=1, delta=1e-06, M=20" in capsys.readouterr().out

    assert cli.main(["plan", "--settings", file, "--epsilon", "2", "--epochs", "5"]) == 0
    assert "5 epochs, epsilon=2, delta=1e-06, M=20" in capsys.readouterr().out


def test_a_settings_file_without_a_period_leaves_the_number_of_epochs(tmp_path, capsys):
    file = settings_file(tmp_path, "[budget]\nperiod_epochs = 0\n")

    assert cli.main(["plan", "--settings", file]) == 0
    assert "30 epochs, epsilon=4" in capsys.readouterr().out


def test_a_settings_file_with_a_mistake_is_refused(tmp_path, capsys):
    assert cli.main(["plan", "--settings", settings_file(tmp_path, "[privacy]\nepsilom = 1\n")])
    assert "privacy.epsilom" in capsys.readouterr().err
