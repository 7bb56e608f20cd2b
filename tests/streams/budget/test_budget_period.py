"""One budget for a period of epochs: charged once, and nothing that would break its proof."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from blendstream.blender.over_time.period_budget import calibrate_period
from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.streams.budget.budget_period import BudgetPeriod
from blendstream.streams.budget.epoch_plan import EpochParameters, begin_period
from blendstream.streams.budget.ledger import Cost, Ledger, Limit
from blendstream.streams.errors import StoreMismatch
from blendstream.streams.releases import entries
from blendstream.streams.releases.epoch_state import ReleaseLogState
from tests.agents.jobs.model_log import ModelLog, plan

DAY = 86_400
T = 3
#: Two budgets of (4, 1e-5) in 60 days.
LIMIT = Limit(60 * DAY, optin=Cost(8.0, 2.1e-5), clients=Cost(400.0, 0.1))
PLAN = plan(window_ms=DAY * 1000, period_epochs=T, known_records=1000, optin_cohorts=1, cohorts=T)
PERIOD = begin_period(PLAN, 0)
NOTHING, CLIENTS = Cost(0.0, 0.0), Cost(4.0, 0.0)


def opened(ledger: Ledger, epoch: int, period: BudgetPeriod | None, day: int | None = None):
    """The ledger after one more daily epoch."""
    at_s = (epoch if day is None else day) * DAY
    cost = NOTHING if period is not None else Cost(4.0, 1e-5)
    charge = ledger.price(
        epoch, at_s, T, LIMIT, optin=cost, clients=CLIENTS, optin_cohorts=1, period=period
    )
    return ledger.with_charge(charge)


def whole_period(period: BudgetPeriod = PERIOD) -> Ledger:
    ledger = Ledger()
    for epoch in range(T):
        ledger = opened(ledger, epoch, period)
    return ledger


def parameters(epoch: int, period: BudgetPeriod | None, **changes: object) -> EpochParameters:
    of_plan = replace(
        PLAN, **({} if period else {"period_epochs": 0, "known_records": 0}) | changes
    )
    charge = of_plan.charge(Ledger(), LIMIT, epoch, epoch * DAY, period)
    return EpochParameters(epoch, epoch * DAY * 1000, (epoch + 1) * DAY * 1000, of_plan, charge)


def test_a_period_is_charged_once_for_all_of_its_epochs():
    ledger = whole_period()

    assert ledger.basic_in_life("optin") == Cost(4.0, 1e-5)
    assert ledger.spent("optin", 0, 60 * DAY, delta=1e-5).epsilon == pytest.approx(4.0)
    assert ledger.epochs() == T
    assert ledger.basic_in_life("clients").epsilon == 4.0, "a client reports in one epoch of T"


def test_the_next_period_is_charged_again_and_the_third_is_not_affordable():
    ledger = whole_period()
    second = replace(PERIOD, first_epoch=T)
    for epoch in range(T, 2 * T):
        ledger = opened(ledger, epoch, second)
    assert ledger.basic_in_life("optin") == Cost(8.0, 2e-5)

    third = replace(PERIOD, first_epoch=2 * T)
    charge = ledger.price(
        6, 6 * DAY, T, LIMIT, optin=NOTHING, clients=CLIENTS, optin_cohorts=1, period=third
    )
    paused = ledger.check_charge(charge, LIMIT)
    assert paused is not None
    assert (paused.group, paused.resumes_at_s) == ("optin", 60 * DAY)


def test_a_period_that_runs_into_the_limits_next_period_counts_in_both():
    """Somebody who looks at one of them alone must find what was released in it."""
    ledger = Ledger()
    for epoch, day in ((0, 59), (1, 60), (2, 61)):
        ledger = opened(ledger, epoch, PERIOD, day)

    assert ledger.spent("optin", 0, 60 * DAY, delta=1e-5).epsilon == pytest.approx(4.0)
    assert ledger.spent("optin", 60 * DAY, 120 * DAY, delta=1e-5).epsilon == pytest.approx(4.0)
    assert ledger.basic_in_life("optin") == Cost(4.0, 1e-5), "in a life it was spent once"


def test_one_epoch_more_than_the_noise_was_made_for_is_refused():
    with pytest.raises(ParameterError, match="has opened all of them; epoch 3 belongs to the next"):
        opened(whole_period(), T, PERIOD)


RULE = PERIOD.rule


@pytest.mark.parametrize(
    "changed",
    [
        replace(PERIOD, rule=replace(RULE, scale=RULE.scale * 0.9)),
        replace(PERIOD, rule=replace(RULE, threshold=RULE.threshold - 1)),
        replace(PERIOD, rule=replace(RULE, records_per_user=2)),
        replace(PERIOD, rule=replace(RULE, epochs=T + 1)),
        replace(PERIOD, rule=replace(RULE, epsilon=5.0)),
        replace(PERIOD, rule=replace(RULE, delta=2e-5)),
        replace(PERIOD, shares=(800_000, 200_000, 0)),
        replace(PERIOD, share_key_id="k2"),
    ],
)
def test_nothing_may_change_within_a_period(changed: BudgetPeriod):
    ledger = opened(Ledger(), 0, PERIOD)

    with pytest.raises(ParameterError, match="within a period"):
        opened(ledger, 1, changed)


def test_a_period_that_another_one_followed_is_not_gone_on_with():
    """Its shares would meet those of the other, and its noise was for epochs in a row."""
    ledger = opened(opened(Ledger(), 0, PERIOD), 1, replace(PERIOD, first_epoch=1))
    with pytest.raises(ParameterError, match="began with epoch 0"):
        opened(ledger, 2, PERIOD)

    ledger = opened(opened(Ledger(), 0, PERIOD), 1, None)
    with pytest.raises(ParameterError, match="began with epoch 0"):
        opened(ledger, 2, PERIOD)


def test_a_period_that_was_cut_short_stays_charged_in_full():
    ledger = opened(opened(Ledger(), 0, PERIOD), 1, replace(PERIOD, first_epoch=1))

    assert ledger.basic_in_life("optin") == Cost(8.0, 2e-5)


def test_a_checkpoint_within_a_period_charges_and_refuses_as_the_whole_log_does():
    ledger = opened(opened(Ledger(), 0, PERIOD), 1, PERIOD)
    again = Ledger.from_json(json.loads(json.dumps(ledger.to_json())))

    assert again == ledger
    assert opened(again, 2, PERIOD) == whole_period()
    with pytest.raises(ParameterError):
        opened(opened(again, 2, PERIOD), 3, PERIOD)
    with pytest.raises(ParameterError):
        opened(again, 2, replace(PERIOD, rule=replace(RULE, scale=8.0)))


def test_an_epoch_that_is_opened_twice_is_charged_once_as_it_was_first():
    log = ModelLog()
    log.commit(1, entries.epoch_opened(parameters(0, PERIOD)))
    log.commit(2, entries.epoch_opened(parameters(1, PERIOD)))
    before = log.log_state.ledger
    log.commit(3, entries.epoch_opened(parameters(1, PERIOD)))

    assert log.log_state.ledger == log.reread().ledger == before


def test_a_log_with_an_epoch_that_breaks_its_period_is_not_gone_on_from():
    """Every process folds the log: none may draw, count or accept for such an epoch."""
    log = ModelLog()
    for epoch in range(T):
        log.commit(epoch, entries.epoch_opened(parameters(epoch, PERIOD)))
    assert log.log_state.ledger.basic_in_life("optin") == Cost(4.0, 1e-5)
    too_many = entries.epoch_opened(parameters(2, PERIOD)) | {"epoch": T}

    with pytest.raises(StoreMismatch):
        log.commit(9, too_many)


@pytest.mark.parametrize(
    "damage",
    [
        {"index": 0},
        {"scale": 1.0},
        {"shares_ppm": [1_000_000, 0, 0]},
        {"epsilon": 1.0},
        {"epochs": 1},
    ],
)
def test_an_entry_that_contradicts_itself_is_refused(damage: dict[str, object]):
    log = ModelLog()
    log.commit(1, entries.epoch_opened(parameters(0, PERIOD)))
    entry = entries.epoch_opened(parameters(1, PERIOD))
    entry["privacy"]["period"] |= damage

    with pytest.raises(StoreMismatch):
        log.commit(2, entry)


def test_the_shares_of_an_epoch_are_those_of_its_period():
    log = ModelLog()
    entry = entries.epoch_opened(parameters(0, PERIOD))
    entry["shares_ppm"] = {"S": 800_000, "T": 200_000, "graph": 0}

    with pytest.raises(StoreMismatch):
        log.commit(1, entry)


def test_epsilon_delta_m_and_shares_of_an_epoch_are_those_of_its_period():
    for change in (
        PrivacyParameters(epsilon=3.9),
        PrivacyParameters(delta=2e-5),
        PrivacyParameters(records_per_optin_user=2),
        PrivacyParameters(selection_share=0.5),
    ):
        with pytest.raises(ParameterError, match="must be those of its budget period"):
            parameters(1, PERIOD, privacy=change)


def test_an_entry_tells_which_epoch_of_which_period_it_is_and_is_read_as_written():
    opened_entry = json.loads(json.dumps(entries.epoch_opened(parameters(2, PERIOD))))
    told = opened_entry["privacy"]["period"]

    assert (told["id"], told["index"], told["epochs"]) == (0, 2, T)
    assert told["scale"] == RULE.scale == calibrate_period(4.0, 1e-5, 1, T).scale
    assert EpochParameters.from_json(opened_entry) == parameters(2, PERIOD)


def test_a_release_that_does_not_know_of_periods_stops_at_such_an_epoch():
    """It would draw noise for one epoch, T times, after one charge. It builds the parameters of
    privacy from all that the entry says of them."""
    entry = entries.epoch_opened(parameters(0, PERIOD))
    with pytest.raises(TypeError, match="unexpected keyword"):
        PrivacyParameters(**entry["privacy"])

    plain = entries.epoch_opened(parameters(0, None, optin_cohorts=0))
    assert PrivacyParameters(**plain["privacy"]) == PLAN.privacy, "as it was, without a period"


def test_a_reader_that_begins_within_a_period_reads_on():
    """A gateway reads the last days of the log and no checkpoint."""
    log_state = ReleaseLogState()
    for epoch in (1, 2):
        body = entries.encode([entries.epoch_opened(parameters(epoch, PERIOD))])
        log_state.apply(epoch, epoch, entries.ENTRY_KEY, body)

    assert sorted(log_state.epochs) == [1, 2]
    with pytest.raises(ParameterError):
        opened(log_state.ledger, 3, PERIOD)


def test_a_click_graph_is_charged_beside_the_period():
    """Its people are its own for the whole period, and pay for it in every epoch."""
    ledger = Ledger()
    for epoch in range(T):
        charge = ledger.price(
            epoch, epoch * DAY, T, LIMIT, optin=Cost(1.0, 1e-6), clients=CLIENTS, optin_cohorts=1,
            period=PERIOD,
        )  # fmt: skip
        ledger = ledger.with_charge(charge)

    assert ledger.basic_in_life("optin").epsilon == pytest.approx(4.0 + T * 1.0)
