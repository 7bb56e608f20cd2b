"""Describe how the demo spends privacy budget, and the results with the default way of spending.

The demo spends ε in each epoch, because the default, one budget for a whole period, has too much
noise for so few people. The output states the figures of both, so that the demo's own do not
promise too much.
"""

from __future__ import annotations

from blendstream.blender.planning.spending_plan import PlannedService, expectations
from blendstream.blender.values.parameters import PERIOD_EPOCHS
from blendstream.streams.settings.sections import PrivacySettings

__all__ = ["by_default", "shown_here"]

_PERIOD = PERIOD_EPOCHS["sharp"]


def shown_here() -> str:
    """Return how the demo's settings spend privacy budget."""
    privacy = PrivacySettings()
    return (
        f"Each epoch here spends ε = {privacy.epsilon:g}, δ = {privacy.delta:g} of each person "
        "(budget.period_epochs = 0).\n"
        f"By default {_PERIOD} epochs share that one budget, and so many people show less.\n"
    )


def by_default(optin_users: int, clients: int, profile: str) -> str:
    """Return the figures of `blendstream plan` for these numbers of people, in a second or more."""
    if min(optin_users, clients) < 1:
        return "One group is empty: `blendstream plan` cannot tell what the default would give."
    privacy = PrivacySettings()
    service = PlannedService(
        optin_users=optin_users,
        clients=clients,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        epochs=_PERIOD,
        cells=privacy.head_list_cells,
    )
    ways = {one.way: one for one in expectations(service)}
    lines = [
        "",
        f"By `blendstream plan` for {optin_users:,} opt-in users and {clients:,} devices:",
        f"{f'after {_PERIOD} epochs':<46}{'records found':>14}{'L1 error':>10}",
    ]
    for text, way in (
        (f"ε = {privacy.epsilon:g} for all of them together, the default", "one budget"),
        (f"ε = {privacy.epsilon:g} in each of them, as here", f"{profile}, each epoch"),
    ):
        lines.append(f"{text:<46}{ways[way].found:>14,}{ways[way].error:>10.4f}")
    return "\n".join(lines)
