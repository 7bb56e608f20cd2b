"""Say what to expect of each way of spending people's privacy, before any data is there.

For these sizes, ε, δ and number of epochs: what a person who takes part in every epoch that admits
them spends in all (plain sums), how many records a head list finds, and how far the estimates of
the M most common records are off in all (L1; a record that is not listed counts in full). By
formulas, for records that follow Zipf's law and do not change: a guide, right within about a third.

  blendstream plan                                         sizes of the paper's first data set
  blendstream plan --optin-users 32850 --clients 624150 --epochs 30
"""

from __future__ import annotations

import argparse

from blender.parameters import PERIOD_EPOCHS
from blender.spending_plan import Expectation, PlannedService, expectations
from streams.settings.sections import PrivacySettings

__all__ = ["add_arguments", "run", "show"]

#: What to set for each way, in the order of `expectations`.
SETTINGS = (
    'privacy.profile = "paper"',
    "budget.period_epochs = 0",
    "budget.period_epochs = 0, privacy.cohorts = {epochs}, and keys.cohort_id",
    "budget.period_epochs = {epochs}",
)
#: For so many epochs nothing is to be set: it is the default.
DEFAULT = PERIOD_EPOCHS["sharp"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Sizes, with defaults of the paper's first data set."""
    default = {field: getattr(PrivacySettings(), field) for field in ("epsilon", "delta")}
    cells = PrivacySettings().head_list_cells
    for name, kind, value, text in (
        ("--optin-users", int, 32_850, "opt-in users"),
        ("--clients", int, 624_150, "all other people, whose devices report"),
        ("--epochs", int, 30, "epochs that the total is for"),
        ("--epsilon", float, default["epsilon"], "ε"),
        ("--delta", float, default["delta"], "δ"),
        ("--cells", int, cells, "M: records that clients report on"),
        ("--top-share", float, 0.05, "share of people who hold the most common record"),
        ("--staying", float, 0.5, "share of opt-in users who are there again with their record"),
    ):
        parser.add_argument(name, type=kind, default=value, help=f"{text}; default: %(default)s")


def run(arguments: argparse.Namespace) -> int:
    """Compute and print."""
    service = PlannedService(
        optin_users=arguments.optin_users,
        clients=arguments.clients,
        epsilon=arguments.epsilon,
        delta=arguments.delta,
        epochs=arguments.epochs,
        cells=arguments.cells,
        top_share=arguments.top_share,
        staying=arguments.staying,
    )
    for line in show(service, expectations(service)):
        print(line)
    return 0


def show(service: PlannedService, found: list[Expectation]) -> list[str]:
    """The table as lines of text."""
    lines = [
        f"{service.optin_users:,} opt-in users, {service.clients:,} clients, {service.epochs} "
        f"epochs, epsilon={service.epsilon:g}, delta={service.delta:g}, M={service.cells}",
        f"{'way of spending':<21} {'ε opt-in':>9} {'ε client':>9} {'list':>7} {'L1 error':>9}  set",
    ]
    for one, setting in zip(found, SETTINGS, strict=True):
        lines.append(
            f"{one.way:<21} {one.optin_epsilon:>9g} {one.client_epsilon:>9g} {one.found:>7,} "
            f"{one.error:>9.4f}  {setting.format(epochs=service.epochs)}"
        )
    if service.epochs == DEFAULT:
        lines[-1] += " (the default)"
    lines.append(
        "ε in all for someone present in every epoch that admits them, by plain sums; the ledger's "
        "composition is at most that"
    )
    return lines
