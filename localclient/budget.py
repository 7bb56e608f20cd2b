"""The device's privacy budget: the budget spent, and the checks of a new entry.

No server can change the budget.

Promises:
- A device answers a window at most once, in one mode, and windows only move forward.
- Within any `period_s` seconds the reports' (ε, δ) add up to no more than the limits (basic
  composition; neighbouring data differ in the values of this person's records).
- An answered window rules out no window that begins after it, whatever number a server gave it.
Assumes: the state is the one on disk, and the caller holds its lock.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from blendstream.localclient.errors import ClockWrong, HeadListRefused, LimitReached
from blendstream.localclient.limits import Limits
from blendstream.localclient.state import BudgetEntry, Mode, State

__all__ = ["add_entry", "check_entry", "check_follows", "next_fit_s", "total_left", "total_spent"]

#: Minimum storage time of entries: a year, which takes less than 2 MB with hourly windows. If the
#: device dropped entries after the present period, an application that shortens its period and
#: lengthens it again could spend the budget twice.
_REMEMBER_S = 366 * 86_400


def total_spent(state: State, limits: Limits, now_s: int) -> tuple[Fraction, Fraction]:
    """Return the (ε, δ) spent within the period that ends now."""
    recent = [entry for entry in state.budget_entries if entry.at_s > now_s - limits.period_s]
    return (
        sum((_exact(entry.epsilon) for entry in recent), Fraction(0)),
        sum((_exact(entry.delta) for entry in recent), Fraction(0)),
    )


def check_follows(state: State, entry: BudgetEntry) -> None:
    """Raise unless the entry's window and time follow those of the last entry."""
    if not state.budget_entries:
        return
    last = state.budget_entries[-1]
    if entry.at_s < last.at_s:
        raise ClockWrong(
            f"time must not run backwards: the last report was made at {last.at_s}, and the "
            f"device's clock is now {entry.at_s} (seconds since 1970). Set the clock."
        )
    # Compare windows by their times alone. Epoch numbers come from the server: if they had to rise,
    # a number that is much too high would rule out every honest epoch after it.
    if entry.window_start_s < last.window_end_s:
        raise HeadListRefused(
            "windows must not overlap or go back, as each is answered once and in one mode: one "
            f"was answered up to {last.window_end_s} ({last.mode}), and this one starts at "
            f"{entry.window_start_s} (seconds since 1970). Nothing was spent or sent."
        )


def check_entry(state: State, entry: BudgetEntry, limits: Limits) -> None:
    """Raise unless this entry may be added now."""
    check_follows(state, entry)
    if not _fits(state, entry, limits):
        epsilon, delta = total_spent(state, limits, entry.at_s)
        epsilon, delta = epsilon + _exact(entry.epsilon), delta + _exact(entry.delta)
        free_at_s = _free_at(state, entry, limits)
        raise LimitReached(
            f"reports within {limits.period_s} s (period_s) must stay within "
            f"epsilon_per_period={limits.epsilon_per_period} and delta_per_period="
            f"{limits.delta_per_period}; this one would make "
            f"it epsilon={float(epsilon)}, delta={float(delta)}. "
            f"The next that fits may be made at {free_at_s} (seconds since 1970).",
            free_at_s,
        )


def add_entry(state: State, entry: BudgetEntry, limits: Limits) -> State:
    """Return the state with this entry, without entries that can no longer matter."""
    check_entry(state, entry, limits)
    # The newest entry always stays: later windows must follow it, however old it is.
    remember_s = max(limits.period_s, _REMEMBER_S)
    recent = [old for old in state.budget_entries if old.at_s > entry.at_s - remember_s]
    return replace(state, budget_entries=(*recent, entry))


def total_left(state: State, limits: Limits, now_s: int) -> tuple[Fraction, Fraction]:
    """Return the (ε, δ) that reports may still spend now."""
    epsilon, delta = total_spent(state, limits, now_s)
    left = _exact(limits.epsilon_per_period) - epsilon, _exact(limits.delta_per_period) - delta
    return max(Fraction(0), left[0]), max(Fraction(0), left[1])


def next_fit_s(state: State, limits: Limits, now_s: int) -> int:
    """Return the first second, from now on, at which a report at the device's own limit fits."""
    largest = (limits.epsilon_per_report, limits.delta_per_report)
    entry = BudgetEntry(Mode.REPORT, 0, "", 0, 0, now_s, *largest)
    return now_s if _fits(state, entry, limits) else _free_at(state, entry, limits)


def _free_at(state: State, entry: BudgetEntry, limits: Limits) -> int:
    """Return the time at which enough old entries have left the period for this one to fit."""
    for old in state.budget_entries:
        later = replace(entry, at_s=max(entry.at_s, old.at_s + limits.period_s))
        if _fits(state, later, limits):
            return later.at_s
    raise AssertionError("a report within its own limits fits an empty period")


def _fits(state: State, entry: BudgetEntry, limits: Limits) -> bool:
    epsilon, delta = total_left(state, limits, entry.at_s)
    return _exact(entry.epsilon) <= epsilon and _exact(entry.delta) <= delta


def _exact(value: float) -> Fraction:
    # Use the decimal text, not the binary value, so that three reports at 0.1 fit a limit of 0.3.
    return Fraction(repr(value))
