"""Compare the expected accuracy of the ways to spend privacy budget, before there is any data.

For the given sizes, ε, δ and number of epochs, prints per way:
- the total ε of a person who takes part in every epoch that admits them (basic composition);
- how many records a head list finds;
- the L1 error of the estimates of the M most common records (an unlisted record counts in full).

The formulas assume records that follow Zipf's law and do not change. A run of a large service may
differ from them by a third, a run of a small one by two thirds.
ε, δ, M and the number of epochs are read from the options, otherwise from the settings.

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

#: The settings of each way, in the order of `expectations`.
SETTINGS = (
    'privacy.profile = "paper"',
    "budget.period_epochs = 0",
    "budget.period_epochs = 0, privacy.cohorts = {epochs}, and keys.cohort_id",
    "budget.period_epochs = {epochs}",
)
#: The number of epochs, if neither options nor settings state it.
EPOCHS = 30
#: The default of `budget.period_epochs`: for this number no setting is needed.
DEFAULT = PERIOD_EPOCHS["sharp"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sizes, with the paper's first data set as defaults, and the budget."""
    privacy = PrivacySettings()
    for name, kind, value, text in (
        ("--optin-users", int, 32_850, "opt-in users"),
        ("--clients", int, 624_150, "all other people, whose devices report"),
        ("--top-share", float, 0.05, "proportion of people who hold the most common record"),
        ("--staying", float, 0.5, "proportion of opt-in users who return with the same record"),
    ):
        parser.add_argument(name, type=kind, default=value, help=f"{text}; default: %(default)s")
    # No default here: an omitted option is taken from the settings.
    for name, kind, value, text in (
        ("--epochs", int, EPOCHS, "epochs to sum over"),
        ("--epsilon", float, privacy.epsilon, "ε"),
        ("--delta", float, privacy.delta, "δ"),
        ("--cells", int, privacy.head_list_cells, "M: records that clients report on"),
    ):
        default = f"default: that of the settings, or {value}"
        parser.add_argument(name, type=kind, help=f"{text}; {default}")


def run(arguments: argparse.Namespace) -> int:
    """Compute and print the table."""
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
    """Return the privacy settings and the period's epochs, if set; others may be missing."""
    raw = raw_settings(file)
    sections, wrong = read_values(raw.values)
    if problems := [*raw.problems, *wrong]:
        raise SettingsError(problems)
    return PrivacySettings(**sections["privacy"]), sections["budget"].get("period_epochs")


def _either(option: Any, setting: Any) -> Any:
    return setting if option is None else option


def show(service: PlannedService, found: list[Expectation]) -> list[str]:
    """Return the table as lines of text."""
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
        "total ε of someone present in every epoch that admits them, by basic composition; an "
        "upper bound of the ledger's figure"
    )
    return lines
