"""What `blendstream ledger` tells of a budget that is spent, or charged for nobody."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from blendstream.agents.commands.ledger import show
from blendstream.streams.releases.entries import IncompleteReason
from blendstream.streams.settings import Settings
from tests.agents.commands.kept_ledger import PERIOD_MS, START, kept
from tests.agents.jobs.model_log import ModelLog

EPOCHS_A_PERIOD = 2


@pytest.fixture
def settings(make_settings: Callable[..., Settings]) -> Settings:
    """Two epochs of six hours are affordable each day."""
    most = {f"budget.{group}_epsilon_limit": 4.0 * EPOCHS_A_PERIOD for group in ("optin", "client")}
    most |= {"budget.period_epochs": 0}
    return make_settings({"budget.period_s": 86_400, "epoch.window_s": 21_600, **most})


def state(settings: Settings, log: ModelLog, now_ms: int) -> str:
    """The ledger's last line."""
    return show(settings, log.log_state, now_ms)[-1]


def test_a_ledger_at_its_limit_says_so_before_the_service_pauses(settings: Settings) -> None:
    """It said "running" until the last window had ended, and then nothing opened."""
    window_ms = settings.epoch.window_s * 1000
    log = ModelLog()
    assert state(settings, log, START) == "state: running", "nothing was opened yet"
    kept(settings, START, log)
    assert sorted(log.log_state.epochs) == [0, 1], "the second one is open ahead"

    said = state(settings, log, START + 1000)
    assert said.startswith("state: running, and AT ITS LIMIT: no further epoch opens")
    assert "until 2024-10-05 00:00:00 UTC: the privacy budget of this period is spent" in said
    kept(settings, START + 2 * window_ms, log)
    said = state(settings, log, START + 2 * window_ms)
    assert said.startswith("state: PAUSED until 2024-10-05 00:00:00 UTC: the privacy budget of")

    # The first epoch of the next day is opened, and another one can be paid for.
    kept(settings, START + PERIOD_MS - window_ms, log)
    assert 2 in log.log_state.epochs
    assert state(settings, log, START + PERIOD_MS) == "state: running"


def test_an_epoch_in_which_nobody_took_part_stays_charged_and_the_ledger_says_why(
    settings: Settings,
) -> None:
    """The charge is made before anyone takes part, so that nothing is ever released unpaid."""
    log = kept(settings, START, ModelLog())
    before = log.log_state.ledger
    parameters = log.log_state.epochs[0].parameters
    now_ms = parameters.records_sealable_at_ms
    kept(settings, now_ms, log)
    log.head_list(0, now_ms, reports_until_ms=now_ms)
    kept(settings, now_ms + 100_000, log)
    log.estimates(0, now_ms, reasons=[IncompleteReason.TOO_FEW_OPTIN_USERS], empty=True)

    assert log.log_state.epochs[0].stage.over
    assert log.log_state.ledger == before == log.reread().ledger
    (said,) = [line for line in show(settings, log.log_state, now_ms) if "charged so far" in line]
    assert said.startswith("epochs charged so far: 2, each when it opened")
    assert "an epoch without participants stays charged (docs/epochs.md" in said


def test_the_ledger_shows_what_holds_for_those_who_move_and_for_changed_settings(
    settings: Settings,
) -> None:
    """Two epochs of ε = 4: whoever moved between the groups is bounded by both figures together."""
    lines = show(settings, kept(settings, START, ModelLog()).log_state, START)

    (both,) = [line for line in lines if "in one group after the other" in line]
    assert "at most ε=16 at δ=" in both
    (optin,) = [line for line in lines if line.startswith("  opt-in users")]
    assert "(basic composition: ε=8, δ=2e-05)" in optin
    assert any("independently of results; basic composition always does" in line for line in lines)
