"""Show the privacy budget spent: per epoch and group, in this period and since the first epoch.

Every (ε, δ) is for replace-one neighbours: data sets that differ in the records of one opt-in
account or one device. The cumulative figures are upper bounds, computed by dp-accounting, for a
person who takes part in every epoch that admits them. An epoch is charged when it opens, even if
nobody takes part in it later.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from blendstream.agents.commands.operator_context import connected, read_log, utc_text
from blendstream.agents.jobs.epoch_schedule import next_period
from blendstream.agents.jobs.job_context import limit_from
from blendstream.agents.operations.budget_words import BudgetUse, budget_use
from blendstream.agents.output import add_json, print_json
from blendstream.streams.budget.epoch_plan import plan_from
from blendstream.streams.budget.ledger import GROUPS, SPOKEN, BudgetExhausted, Cost, Group, Limit
from blendstream.streams.releases.epoch_state import ReleaseLogState
from blendstream.streams.settings import Settings, load_settings

__all__ = ["add_arguments", "budget_now", "document", "run", "show"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --json."""
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the ledger."""
    settings = load_settings(arguments.settings).settings
    return asyncio.run(_run(settings, as_json=arguments.json))


async def _run(settings: Settings, *, as_json: bool = False) -> int:
    async with connected(settings) as context:
        log_state, now_ms = await read_log(context), context.now_ms()
    if as_json:
        print_json(document(settings, log_state, now_ms))
        return 0
    for line in show(settings, log_state, now_ms):
        print(line)
    return 0


def show(settings: Settings, log_state: ReleaseLogState, now_ms: int) -> list[str]:
    """Return the ledger as lines of text."""
    limit = limit_from(settings)
    start, end = limit.period_of(now_ms // 1000)
    lines = ["neighbouring relation: replace-one (one account's or device's records differ)", ""]
    lines.append(f"{'epoch':>6}  {'opt-in users':<24} {'clients':<24} cohort")
    for _, state in sorted(log_state.epochs.items()):
        charge = state.parameters.charge
        costs = [_in_words(charge.of(group)) for group in GROUPS]
        if charge.period is not None:
            # Charged with the first epoch of the period only.
            place = charge.period.index(state.epoch) + 1
            costs[0] = f"{_in_words(charge.period.cost)}, {place}/{charge.period.rule.epochs}"
        lines.append(
            f"{state.epoch:>6}  {costs[0]:<24} {costs[1]:<24} "
            f"{state.epoch % charge.cohorts} of {charge.cohorts}"
        )
    if log_state.last is not None and (period := log_state.last.parameters.period) is not None:
        left = period.first_epoch + period.rule.epochs - 1 - log_state.last.epoch
        lines.append(
            f"epochs marked i/{period.rule.epochs} share one budget of the opt-in users, charged "
            f"once (ε={period.rule.epsilon:g}, σ={period.rule.scale:.4g}); {left} more may open in "
            f"the period that began with epoch {period.first_epoch}"
        )
    lines += ["", f"this period: {utc_text(start * 1000)} to {utc_text(end * 1000)} UTC"]
    for group in GROUPS:
        most = limit.of(group)
        spent = log_state.ledger.spent(group, start, end, delta=most.delta)
        life = log_state.ledger.spent_in_life(group, delta=most.delta)
        plain = log_state.ledger.basic_in_life(group)
        here = log_state.ledger.basic(group, start, end)
        lines.append(
            f"  {SPOKEN[group]}: ε={spent.epsilon:.4g} at δ={spent.delta:.3g} of at most "
            f"ε={most.epsilon:g} at δ={most.delta:g} "
            f"(basic composition: ε={here.epsilon:.4g}, δ={here.delta:.3g})"
        )
        lines.append(
            f"    since the first epoch: ε={life.epsilon:.4g} at δ={life.delta:.3g} "
            f"(basic composition: ε={plain.epsilon:.4g}, δ={plain.delta:.3g})"
        )
    both = log_state.ledger.spent_in_both(
        start, end, delta=min(1.0, limit.optin.delta + limit.clients.delta)
    )
    lines += [
        f"  someone who was in one group after the other: at most ε={both.epsilon:.4g} at "
        f"δ={both.delta:.3g}",
        "the other figures hold if ε, δ and cohorts were chosen independently of results; basic "
        "composition always does (docs/privacy-over-time.md)",
    ]
    lines.append(
        f"epochs charged so far: {log_state.ledger.epochs()}, each when it opened; an epoch "
        "without participants stays charged (docs/epochs.md, The ledger)"
    )
    lines.append(f"budget: {budget_now(settings, log_state, now_ms).sentence}")
    lines.append(f"state: {_state(settings, limit, log_state, now_ms)}")
    return lines


def document(settings: Settings, log_state: ReleaseLogState, now_ms: int) -> dict[str, Any]:
    """Return the ledger as a document for programs. Times are seconds since 1970."""
    limit = limit_from(settings)
    start, end = limit.period_of(now_ms // 1000)
    use = budget_now(settings, log_state, now_ms)
    notice = log_state.paused_at(now_ms)

    def group_total(group: Group) -> dict[str, Any]:
        most = limit.of(group)
        spent = log_state.ledger.spent(group, start, end, delta=most.delta)
        life = log_state.ledger.spent_in_life(group, delta=most.delta)
        return {
            "spent_in_period": _cost(spent),
            "limit_of_period": _cost(most),
            "since_first_epoch": _cost(life),
        }

    return {
        "neighbouring": "replace-one",
        "epochs": [
            {
                "epoch": state.epoch,
                **{group: _cost(state.parameters.charge.of(group)) for group in GROUPS},
                "cohort": state.epoch % state.parameters.charge.cohorts,
                "cohorts": state.parameters.charge.cohorts,
                "budget_period": None
                if (period := state.parameters.period) is None
                else period.published(state.epoch),
            }
            for _, state in sorted(log_state.epochs.items())
        ],
        "period": {"start_s": start, "end_s": end},
        "groups": {group: group_total(group) for group in GROUPS},
        "budget": {
            "epochs_charged": use.charged,
            "epochs_affordable": use.affordable,
            "sentence": use.sentence,
        },
        "epochs_charged_ever": log_state.ledger.epochs(),
        "paused_until_s": None if notice is None else notice.resumes_at_ms // 1000,
        "state": _state(settings, limit, log_state, now_ms),
    }


def budget_now(settings: Settings, log_state: ReleaseLogState, now_ms: int) -> BudgetUse:
    """Return how many epochs of this period were charged, and how many more fit the limit."""
    last = None if log_state.last is None else log_state.last.parameters
    return budget_use(settings, log_state.ledger, now_ms // 1000, last)


def _cost(cost: Cost) -> dict[str, float]:
    return {"epsilon": cost.epsilon, "delta": cost.delta}


def _in_words(cost: Cost) -> str:
    return f"ε={cost.epsilon:g} δ={cost.delta:.3g}"


def _state(settings: Settings, limit: Limit, log_state: ReleaseLogState, now_ms: int) -> str:
    notice = log_state.paused_at(now_ms)
    if notice is not None:
        return f"PAUSED until {utc_text(notice.resumes_at_ms)} UTC: {notice.reason}"
    refused = _refused(settings, limit, log_state, now_ms)
    if refused is not None:
        return (
            "running, and AT ITS LIMIT: no further epoch opens until "
            f"{utc_text(refused.resumes_at_s * 1000)} UTC: {refused.reason}"
        )
    return "running"


def _refused(
    settings: Settings, limit: Limit, log_state: ReleaseLogState, now_ms: int
) -> BudgetExhausted | None:
    """Return why the next epoch exceeds the limit, or None if it does not."""
    if log_state.last is None:
        return None
    plan, start_ms = plan_from(settings), max(now_ms, log_state.last.parameters.window_end_ms)
    epoch = log_state.last.epoch + 1
    last = log_state.last.parameters
    plan, period = next_period(last.plan, last.period, plan, epoch)
    charge = plan.charge(log_state.ledger, limit, epoch, start_ms // 1000, period)
    return log_state.ledger.check_charge(charge, limit)
