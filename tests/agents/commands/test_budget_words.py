"""How many epochs the budget lasts, said by `ledger`, `epochs` and `doctor`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from blendstream.agents.commands.ledger import budget_now, document, show
from blendstream.agents.jobs.epoch_schedule import next_period
from blendstream.agents.jobs.job_context import limit_from
from blendstream.agents.operations.budget_words import budget_use, day_text, duration_text
from blendstream.agents.operations.installation_checks import Grade, budget
from blendstream.streams.budget.budget_period import BudgetPeriod
from blendstream.streams.budget.epoch_plan import EpochPlan, plan_from
from blendstream.streams.budget.ledger import Ledger
from blendstream.streams.settings import Settings
from tests.agents.commands.kept_ledger import PERIOD_MS, START, kept
from tests.agents.jobs.model_log import ModelLog

DAY_S = 86_400
DEPLOY = Path(__file__).parents[3] / "deploy"
#: 18 December 2026.
MIDNIGHT_S = 1_797_552_000


@pytest.fixture
def month(make_settings: Callable[..., Settings]) -> Settings:
    """Daily epochs; thirty of them may be paid for in a year."""
    limits = {f"budget.{group}_epsilon_limit": 120.0 for group in ("optin", "client")}
    limits |= {"budget.optin_delta_limit": 3e-4, "budget.client_delta_limit": 0.0}
    limits |= {"budget.period_epochs": 0}
    return make_settings({"budget.period_s": 365 * DAY_S, "epoch.window_s": DAY_S, **limits})


def test_doctor_says_how_many_epochs_the_budget_lasts(month, make_settings):
    """A year's limits that are spent in a month were found out when collecting stopped."""
    short = budget(month, MIDNIGHT_S)
    enough = budget(make_settings({"budget.period_s": DAY_S, "epoch.window_s": DAY_S}), MIDNIGHT_S)

    assert short.grade is Grade.NOTE
    assert short.found.startswith(
        "pays for 30 epochs of 1 day in a period of 365 days: collecting then pauses for 335 days."
    )
    assert enough == (type(enough))(
        Grade.OK, "budget", "pays for every epoch of 1 day in a period of 1 day"
    )


def test_a_spent_budget_is_said_in_epochs_and_with_the_day_it_resumes(make_settings):
    """It was said in ε and δ, from which no one could tell how many epochs were left."""
    most = {f"budget.{group}_epsilon_limit": 8.0 for group in ("optin", "client")}
    most |= {"budget.period_epochs": 0}
    settings = make_settings({"budget.period_s": DAY_S, "epoch.window_s": 21_600, **most})
    log = ModelLog()

    fresh = budget_now(settings, log.log_state, START).sentence
    assert fresh == (
        "0 of 2 epochs of this period spent; the rest lasts until 4 October 12:00 UTC, then "
        "collecting pauses until 5 October"
    )
    kept(settings, START, log)
    lines = show(settings, log.log_state, START + 1000)
    assert "budget: 2 of 2 epochs of this period spent; collecting resumes 5 October" in lines
    found = json.loads(json.dumps(document(settings, log.log_state, START + 1000)))
    assert found["budget"]["epochs_charged"] == 2
    assert found["budget"]["epochs_affordable"] == 0
    assert found["period"] == {"start_s": START // 1000, "end_s": (START + PERIOD_MS) // 1000}
    assert [epoch["optin"]["epsilon"] for epoch in found["epochs"]] == [4.0, 4.0]
    assert found["groups"]["clients"]["limit_of_period"]["epsilon"] == 8.0


def test_a_budget_for_all_windows_lasts_to_the_periods_end(make_settings):
    settings = make_settings(
        {
            "budget.period_s": DAY_S,
            "epoch.window_s": 600,
            **{f"budget.{group}_epsilon_limit": 1e6 for group in ("optin", "client")},
            **{f"budget.{group}_delta_limit": 1.0 for group in ("optin", "client")},
        }
    )

    use = budget_use(settings, Ledger(), MIDNIGHT_S)

    assert use.sentence == (
        "0 epochs of this period spent; the budget lasts to its end, 19 December"
    )


@pytest.mark.parametrize(
    ("time_s", "said"),
    [
        (MIDNIGHT_S, "18 December"),
        (MIDNIGHT_S + 3600, "18 December 01:00 UTC"),
        (MIDNIGHT_S + 90, "18 December 00:01:30 UTC"),
        (MIDNIGHT_S + 31 * DAY_S, "18 January 2027"),
    ],
)
def test_days_are_said_with_time_and_year_only_where_they_matter(time_s, said):
    assert day_text(time_s, MIDNIGHT_S - 3600) == said


def test_durations_are_said_in_the_largest_whole_unit():
    assert [duration_text(s) for s in (60, 90, 7200, DAY_S, 365 * DAY_S)] == [
        "1 minute", "90 seconds", "2 hours", "1 day", "365 days",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["basic", "replicated"])
def test_the_limits_of_the_samples_pay_for_every_day_of_any_year(name, setting_values):
    """Budgets of thirty days do not begin with the year, so one more than fit must be paid for."""
    sample = tomllib.loads((DEPLOY / "settings" / f"{name}.toml").read_text())["budget"]
    settings = Settings.from_values(
        setting_values | {f"budget.{name}": value for name, value in sample.items()}
    )
    assert settings.period_epochs == 30
    year_s = settings.budget.period_s
    plan, limit, ledger = plan_from(settings), limit_from(settings), Ledger()
    begun: tuple[EpochPlan | None, BudgetPeriod | None] = (None, None)
    for number in range(2 * 365 + 40):
        # From the middle of one of the limit's years to the end of the third.
        start_s = 50 * year_s + 200 * DAY_S + number * DAY_S
        of_epoch, period = next_period(*begun, plan, number)
        charge = of_epoch.charge(ledger, limit, number, start_s, period)
        assert ledger.check_charge(charge, limit) is None, number
        ledger, begun = ledger.with_charge(charge), (of_epoch, period)


def test_with_one_budget_for_a_period_all_of_its_epochs_are_paid_for_at_once(setting_values):
    """A limit of one budget pays for T epochs, and for none after them."""
    settings = Settings.from_values(
        setting_values
        | {
            "budget.period_epochs": 7, "budget.period_s": 30 * DAY_S,
            "budget.optin_epsilon_limit": 4.0, "budget.optin_delta_limit": 1e-5,
            "budget.client_epsilon_limit": 400.0, "budget.client_delta_limit": 0.1,
        }
    )  # fmt: skip
    start_s = 30 * DAY_S * 700

    use = budget_use(settings, Ledger(), start_s)
    assert (use.charged, use.affordable, use.whole_period) == (0, 7, False)
