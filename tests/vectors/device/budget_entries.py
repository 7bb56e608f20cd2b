"""Budget budget_entries: may this window be answered now, after these?"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from blendstream.localclient import ClockWrong, HeadListRefused, LimitReached, Limits
from blendstream.localclient.budget import check_entry, total_spent
from blendstream.localclient.state import BudgetEntry, Mode, State

DAY = 86_400
LIMITS = {
    "epsilon_per_report": 4.0,
    "delta_per_report": 1e-5,
    "epsilon_per_period": 8.0,
    "delta_per_period": 2e-5,
    "period_s": 7 * DAY,
}


def entry(day: int, *, epsilon: float = 4.0, delta: float = 1e-5, **changes: Any) -> BudgetEntry:
    """An entry for the window of one day, made an hour after its end."""
    usual = {
        "mode": Mode.REPORT,
        "epoch": day,
        "subject": "ab" * 32,
        "window_start_s": day * DAY,
        "window_end_s": (day + 1) * DAY,
        "at_s": (day + 1) * DAY + 3_600,
    }
    return BudgetEntry(**{**usual, "epsilon": epsilon, "delta": delta, **changes})


def cases() -> list[tuple[str, dict[str, Any], list[BudgetEntry], BudgetEntry]]:
    tenth = {
        **LIMITS,
        "epsilon_per_report": 0.1,
        "epsilon_per_period": 0.3,
        "delta_per_period": 0.5,
    }
    tenths = [entry(day, epsilon=0.1, delta=0.0) for day in range(100, 104)]
    opted = entry(100, mode=Mode.OPT_IN, subject="", epsilon=0.0, delta=0.0)
    tiny = {**LIMITS, "delta_per_report": 5e-324, "delta_per_period": 1e-323}
    tinies = [entry(day, epsilon=1.0, delta=5e-324) for day in range(100, 103)]
    times = {"window_start_s": 101 * DAY, "window_end_s": 102 * DAY, "at_s": 102 * DAY}
    wide = {**LIMITS, "epsilon_per_report": 1e300, "epsilon_per_period": 1e300}
    return [
        ("the first", LIMITS, [], entry(100)),
        ("the second within the period", LIMITS, [entry(100)], entry(101)),
        ("the third is too much", LIMITS, [entry(100), entry(101)], entry(102)),
        ("the third once the first has left", LIMITS, [entry(100), entry(101)], entry(107)),
        (
            "the first leaves after period_s to the second",
            LIMITS,
            [entry(100), entry(101)],
            entry(106, at_s=101 * DAY + 3_600 + 7 * DAY),
        ),
        (
            "a second earlier",
            LIMITS,
            [entry(100), entry(101)],
            entry(106, at_s=101 * DAY + 3_600 + 7 * DAY - 1),
        ),
        ("delta alone is too much", LIMITS, [entry(100, epsilon=0.1, delta=1.5e-5)], entry(101)),
        ("three tenths fit three tenths", tenth, tenths[:2], tenths[2]),
        ("four do not", tenth, tenths[:3], tenths[3]),
        ("two of the smallest delta", tiny, tinies[:1], tinies[1]),
        ("three of them", tiny, tinies[:2], tinies[2]),
        ("huge and tiny", wide, [entry(100, epsilon=1e-300)], entry(101, epsilon=1e300)),
        ("the same window again", LIMITS, [entry(100)], entry(100)),
        ("a window that overlaps", LIMITS, [entry(100)], entry(100, window_start_s=101 * DAY - 1)),
        ("an earlier window", LIMITS, [entry(100)], entry(99, at_s=103 * DAY)),
        ("a window that begins where the last ended", LIMITS, [entry(100)], entry(101)),
        ("an epoch's number may fall", LIMITS, [entry(100)], entry(101, epoch=3)),
        ("an epoch's number may repeat", LIMITS, [entry(100)], entry(101, epoch=100)),
        ("a clock that ran backwards", LIMITS, [entry(100)], entry(101, at_s=101 * DAY)),
        ("the same second", LIMITS, [entry(100)], entry(101, at_s=101 * DAY + 3_600)),
        ("the clock comes before the window", LIMITS, [entry(100)], entry(99)),
        ("after opting in", LIMITS, [opted], entry(101)),
        ("the window that was opted in for", LIMITS, [opted], entry(100)),
        ("opting in costs nothing", LIMITS, [entry(99), entry(100)], replace(opted, **times)),
        (
            "which of many must leave",
            LIMITS,
            [entry(100 + i, epsilon=e, delta=0.0) for i, e in enumerate((1.0, 4.0, 3.0))],
            entry(103, delta=0.0),
        ),
    ]  # fmt: skip


def checked(limits: dict[str, Any], earlier: list[BudgetEntry], new: BudgetEntry) -> dict[str, Any]:
    """What a device says to a entry."""
    own, state = Limits(**limits), State(budget_entries=tuple(earlier))
    epsilon, delta = (float(part) for part in total_spent(state, own, new.at_s))
    already: dict[str, Any] = {"spent": [epsilon, delta]}
    try:
        check_entry(state, new, own)
    except LimitReached as refusal:
        return {"result": "limit reached", "free_at_s": refusal.free_at_s, **already}
    except ClockWrong:
        return {"result": "clock wrong", **already}
    except HeadListRefused:
        return {"result": "head list refused", **already}
    return {"result": "allowed", **already}


def fields(entry: BudgetEntry) -> dict[str, Any]:
    """All that a check reads; what was sent is none of it."""
    return {key: value for key, value in asdict(entry).items() if key != "submission"}


def vectors() -> dict[str, object]:
    """The contents of budget.json."""
    return {
        "about": "May `entry` be added to `budget_entries` now, at its at_s? `spent` is epsilon "
        "and delta of the period that ends then, without it.",
        "budget_entries": [
            {
                "name": name,
                "limits": limits,
                "budget_entries": [fields(old) for old in earlier],
                "entry": fields(new),
                **checked(limits, earlier, new),
            }
            for name, limits, earlier, new in cases()
        ],
    }
