"""Show what the privacy budget was spent on: by group, in this period and since the first epoch.

Every (ε, δ) is between replace-one neighbours: data sets that differ in the records of one opt-in
account or one device. The
cumulative figures are upper bounds for the person worst off, present in every epoch that admits
them, by dp-accounting.
"""

from __future__ import annotations

import argparse
import asyncio

from agents.commands.reading import connected, told
from agents.job_context import limit_from
from streams.ledger import GROUPS, Group
from streams.releases.book import ReleaseBook
from streams.settings import Settings, load_settings

__all__ = ["add_arguments", "run", "show"]

_SPOKEN: dict[Group, str] = {"optin": "opt-in users", "clients": "clients"}


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """Nothing of its own."""


def run(arguments: argparse.Namespace) -> int:
    """Print the ledger."""
    settings = load_settings(arguments.settings).settings
    return asyncio.run(_run(settings))


async def _run(settings: Settings) -> int:
    async with connected(settings) as context:
        for line in show(settings, await context.log.catch_up(), context.now_ms()):
            print(line)
    return 0


def show(settings: Settings, book: ReleaseBook, now_ms: int) -> list[str]:
    """The ledger as lines of text."""
    limit = limit_from(settings)
    start, end = limit.period_of(now_ms // 1000)
    lines = ["neighbouring relation: replace-one (one account's or device's records differ)", ""]
    lines.append(f"{'epoch':>6}  {'opt-in users':<24} {'clients':<24} cohort")
    for _, state in sorted(book.epochs.items()):
        charge = state.parameters.charge
        costs = [
            f"ε={charge.of(group).epsilon:g} δ={charge.of(group).delta:.3g}" for group in GROUPS
        ]
        lines.append(
            f"{state.epoch:>6}  {costs[0]:<24} {costs[1]:<24} "
            f"{state.epoch % charge.cohorts} of {charge.cohorts}"
        )
    lines += ["", f"this period: {told(start * 1000)} to {told(end * 1000)} UTC"]
    for group in GROUPS:
        most = limit.of(group)
        spent = book.ledger.spent(group, start, end, delta=most.delta)
        life = book.ledger.spent_in_life(group, delta=most.delta)
        plain = book.ledger.basic_in_life(group)
        lines.append(
            f"  {_SPOKEN[group]}: ε={spent.epsilon:.4g} at δ={spent.delta:.3g} of at most "
            f"ε={most.epsilon:g} at δ={most.delta:g}"
        )
        lines.append(
            f"    since the first epoch: ε={life.epsilon:.4g} at δ={life.delta:.3g} "
            f"(plain sums: ε={plain.epsilon:.4g}, δ={plain.delta:.3g})"
        )
    lines.append(f"epochs charged so far: {book.ledger.epochs()}")
    notice = book.paused_at(now_ms)
    if notice is None:
        lines.append("state: running")
    else:
        lines.append(f"state: PAUSED until {told(notice.resumes_at_ms)} UTC: {notice.reason}")
    return lines
