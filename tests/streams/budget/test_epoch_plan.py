"""Tests that an epoch's parameters are read from the log completely, or refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.streams.budget.epoch_plan import (
    ClickGraphPlan,
    EpochParameters,
    plan_from,
    shares_ppm,
)
from blendstream.streams.budget.ledger import Cost
from blendstream.streams.settings import Settings
from blendstream.streams.wire.canonical_json import canonical_json
from tests.agents.jobs.model_log import plan
from tests.service.settings import service_values
from tests.streams.wire.published_epochs import epoch_state

#: The fold of the log turns these into a refusal that names the offset.
REFUSALS = (KeyError, TypeError, ValueError)
OLDER_RELEASES_LACK = {
    "topic_version", "cohort_id", "user_id_spaces", "devices_admitted", "known_records",
}  # fmt: skip


def parameters() -> EpochParameters:
    """Those of an epoch with a click graph, which has every field."""
    found = epoch_state().parameters
    graph = ClickGraphPlan(2.0, 1e-6, 5, 5)
    return replace(found, plan=replace(found.plan, click_graph=graph, graph_share_ppm=1000))


def opened() -> dict[str, Any]:
    """Its entry, as it comes out of the log."""
    body: dict[str, Any] = json.loads(
        canonical_json({"epoch": parameters().epoch, **parameters().to_json()})
    )
    return body


def test_parameters_are_read_as_they_were_written() -> None:
    assert EpochParameters.from_json(opened()) == parameters()
    assert EpochParameters.from_json({**opened(), "from a newer release": 1}) == parameters()


def test_the_entry_has_the_fields_that_older_and_other_readers_know() -> None:
    """Counters and older releases read them by name; the wire format lists them."""
    assert opened().keys() == {
        "charge", "click_graph", "cohort_id", "cohorts", "counting_deadline_ms",
        "devices_admitted", "epoch", "grace_ms", "key_id", "known_records",
        "min_optin_users", "min_reports",
        "optin_partitions", "privacy",
        "profile", "records_per_user", "report_partitions", "shares_ppm", "skew_ms",
        "topic_version", "user_id_spaces", "window_end_ms", "window_start_ms",
    }  # fmt: skip


def test_an_entry_of_an_older_release_is_read_as_what_was_in_force_then() -> None:
    """Contributor keys of such an epoch were made of the user id alone."""
    older = {k: v for k, v in opened().items() if k not in OLDER_RELEASES_LACK}

    plan = EpochParameters.from_json(older).plan

    assert (plan.topic_version, plan.cohort_id, plan.user_id_spaces) == (1, "", False)
    assert not plan.devices_admitted


@pytest.mark.parametrize("name", sorted(opened().keys() - OLDER_RELEASES_LACK))
def test_no_field_is_made_up(name: str) -> None:
    """Without its minimum of participants, for example, an epoch might describe one person."""
    if name == "records_per_user":  # repeats a number of `privacy`, for counters
        return
    with pytest.raises(REFUSALS):
        EpochParameters.from_json({k: v for k, v in opened().items() if k != name})


@pytest.mark.parametrize(
    "change",
    [
        {"grace_ms": "60000"},
        {"grace_ms": 0.5},
        {"cohorts": True},
        {"cohorts": 0},
        {"key_id": 5},
        {"user_id_spaces": "no"},
        {"devices_admitted": 1},
        {"epoch": -1},
        {"epoch": 1.0},
        {"window_end_ms": 0},
        {"shares_ppm": {}},
        {"shares_ppm": {"graph": "1000"}},
        {"click_graph": {"epsilon": 2.0}},
        {"click_graph": 7},
    ],
)
def test_what_no_release_of_ours_writes_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(REFUSALS):
        EpochParameters.from_json({**opened(), **change})


@pytest.mark.parametrize("part", ["privacy", "click_graph"])
def test_a_parameter_that_is_new_to_this_release_is_not_passed_over(part: str) -> None:
    """It may change how noise is drawn; an older process must not draw without it."""
    body = opened()
    with pytest.raises(TypeError):
        EpochParameters.from_json({**body, part: {**body[part], "novel": 1}})


@pytest.mark.parametrize(("profile", "delta"), [("paper", 1e-5), ("sharp", 0.0)])
def test_a_device_is_charged_the_delta_that_its_randomizer_spends(
    profile: str, delta: float
) -> None:
    """The paper's two stages spend δ, the others none; opt-in users pay it in both profiles."""
    of = plan(profile=profile, privacy=PrivacyParameters(epsilon=4.0, delta=1e-5))

    assert of.client_cost == Cost(4.0, delta)
    assert of.optin_cost == Cost(4.0, 1e-5)


@pytest.mark.parametrize(
    ("share", "graph", "expected"),
    [
        (0.95, 0, (950_000, 50_000, 0)),
        (1.0, 0, (1_000_000, 0, 0)),
        (0.7, 100_000, (630_000, 270_000, 100_000)),
        (1 / 3, 0, (333_333, 666_667, 0)),
    ],
)
def test_shares_are_the_settings_to_the_millionth(
    share: float, graph: int, expected: tuple[int, int, int]
) -> None:
    """The graph's share comes first; f_O divides the rest."""
    of = plan(
        privacy=PrivacyParameters(selection_share=share),
        graph_share_ppm=graph,
        click_graph=ClickGraphPlan(2.0, 1e-6, 5, 5) if graph else None,
    )

    assert tuple(shares_ppm(of).values()) == expected


@pytest.mark.parametrize("hook", ["", "attestation.hooks:admission"])
def test_the_next_epoch_says_whether_devices_are_admitted(hook: str) -> None:
    """Estimates come epochs later, with the parameters under which reports were accepted."""
    values = {**service_values(), "gateway.admission": hook}

    assert plan_from(Settings.from_values(values)).devices_admitted == bool(hook)
