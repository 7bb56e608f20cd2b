"""Say what to expect of each way of spending people's privacy, before any data is there.

For these sizes, ε, δ and number of epochs: what a person who takes part in every epoch that admits
them spends in all (plain sums), how many records a head list finds, and how far the estimates of
the M most common records are off in all (L1; a record that is not listed counts in full). By
formulas, for records that follow Zipf's law and do not change: a guide. A run of a
large service may differ by a third from it, of a small one by two thirds.
ε, δ, M and the number of epochs are those of the settings, where they say; options win.

  blendstream plan                                         sizes of the paper's first data set
  blendstream plan --optin-users 32850 --clients 624150 --epochs 30
  blendstream plan --settings service.toml --epsilon 2
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from blendstream.blender.planning.spending_plan import Expectation, PlannedService, expectations
from blendstream.blender.values.parameters import PERIOD_EPOCHS
from blendstream.streams.errors import SettingsError
from blendstream.streams.settings import raw_settings
from blendstream.streams.settings.sections import PrivacySettings
from blendstream.streams.settings.settings import read_values

__all__ = ["add_arguments", "run", "show"]

#: What to set for each way, in the order of `expectations`.
SETTINGS = (
    'privacy.profile = "paper"',
    "budget.period_epochs = 0",
    "budget.period_epochs = 0, privacy.cohorts = {epochs}, and keys.cohort_id",
    "budget.period_epochs = {epochs}",
)
#: How many epochs are looked at where neither options nor settings say.
EPOCHS = 30
#: For so many epochs nothing is to be set: it is the default.
DEFAULT = PERIOD_EPOCHS["sharp"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Sizes, with defaults of the paper's first data set."""
    privacy = PrivacySettings()
    for name, kind, value, text in (
        ("--optin-users", int, 32_850, "opt-in users"),
        ("--clients", int, 624_150, "all other people, whose devices report"),
        ("--top-share", float, 0.05, "share of people who hold the most common record"),
        ("--staying", float, 0.5, "share of opt-in users who are there again with their record"),
    ):
        parser.add_argument(name, type=kind, default=value, help=f"{text}; default: %(default)s")
    # No default here: an option that was not given is taken from the settings.
    for name, kind, value, text in (
        ("--epochs", int, EPOCHS, "epochs that the total is for"),
        ("--epsilon", float, privacy.epsilon, "ε"),
        ("--delta", float, privacy.delta, "δ"),
        ("--cells", int, privacy.head_list_cells, "M: records that clients report on"),
    ):
        said = f"{text}; default: that of the settings, or {value}"
        parser.add_argument(name, type=kind, help=said)


def run(arguments: argparse.Namespace) -> int:
    """Compute and print."""
    privacy, period = _settings(arguments.settings)
    service = PlannedService(
        optin_users=arguments.optin_users,
        clients=arguments.clients,
        epsilon=_either(arguments.epsilon, privacy.epsilon),
        delta=_either(arguments.delta, privacy.delta),
        epochs=_either(arguments.epochs, period or EPOCHS),
        cells=_either(arguments.cells, privacy.head_list_cells),
        top_share=arguments.top_share,
        staying=arguments.staying,
    )
    for line in show(service, expectations(service)):
        print(line)
    return 0


def _settings(file: Path | None) -> tuple[PrivacySettings, int | None]:
    """The privacy settings, and the period's epochs if any; the others need not be given yet."""
    given = raw_settings(file)
    sections, wrong = read_values(given.values)
    if problems := [*given.problems, *wrong]:
        raise SettingsError(problems)
    return PrivacySettings(**sections["privacy"]), sections["budget"].get("period_epochs")


def _either(option: Any, setting: Any) -> Any:
    return setting if option is None else option


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
