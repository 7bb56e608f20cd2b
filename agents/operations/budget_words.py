"""Compute and describe how many epochs the privacy budget pays for: spent, left, and until when.

Promises: nothing is charged. The next epochs are checked against the ledger one after another, by
the rule that the jobs open them with.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from blendstream.agents.jobs.epoch_schedule import next_period
from blendstream.agents.jobs.job_context import limit_from
from blendstream.agents.plurals import counted
from blendstream.streams.budget.budget_period import BudgetPeriod
from blendstream.streams.budget.epoch_plan import EpochParameters, EpochPlan, plan_from
from blendstream.streams.budget.ledger import Ledger
from blendstream.streams.settings import Settings

__all__ = ["BudgetUse", "budget_use", "day_text", "duration_text"]

#: The count stops here: more epochs are "enough" in any case, and the computation stays fast.
_MOST_COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """One period's epochs: the number charged so far and the number that still fit the limit."""

    charged: int
    affordable: int
    #: True if the limit allows all remaining windows of the period.
    whole_period: bool
    lasts_until_s: int
    period_end_s: int
    now_s: int

    @property
    def sentence(self) -> str:
        """A sentence such as: 30 of 30 epochs of this period spent; collecting resumes …"""
        resumes = day_text(self.period_end_s, self.now_s)
        if self.whole_period:
            spent = f"{counted(self.charged, 'epoch')} of this period spent"
            return f"{spent}; the budget lasts to its end, {resumes}"
        whole = counted(self.charged + self.affordable, "epoch")
        spent = f"{self.charged} of {whole} of this period spent"
        if not self.affordable:
            return f"{spent}; collecting resumes {resumes}"
        return (
            f"{spent}; the rest lasts until {day_text(self.lasts_until_s, self.now_s)}, then "
            f"collecting pauses until {resumes}"
        )


def budget_use(
    settings: Settings, ledger: Ledger, now_s: int, last: EpochParameters | None = None
) -> BudgetUse:
    """Return the budget use of the period that contains `now_s`; `last` is the newest epoch."""
    limit, window_s = limit_from(settings), settings.epoch.window_s
    start, end = limit.period_of(now_s)
    first_s = now_s if last is None else max(now_s, last.window_end_ms // 1000)
    windows = max(0, -((first_s - end) // window_s))
    affordable = _affordable(settings, ledger, last, first_s, min(windows, _MOST_COUNTED))
    return BudgetUse(
        charged=ledger.epochs_within(start, end),
        affordable=affordable,
        whole_period=affordable == min(windows, _MOST_COUNTED) and windows > 0,
        lasts_until_s=first_s + affordable * window_s,
        period_end_s=end,
        now_s=now_s,
    )


def _affordable(
    settings: Settings, ledger: Ledger, last: EpochParameters | None, first_s: int, windows: int
) -> int:
    """Return how many consecutive epochs from `first_s`, at most `windows`, fit the limit."""
    plan, limit = plan_from(settings), limit_from(settings)
    number = 0 if ledger.last_epoch is None else ledger.last_epoch + 1

    # Cached, so that the search charges each epoch once: the ledgers after 0, 1, 2 … epochs, and
    # for each the last epoch's plan and budget period.
    charged = [ledger]
    begun: list[tuple[EpochPlan | None, BudgetPeriod | None]] = [
        (None, None) if last is None else (last.plan, last.period)
    ]

    def fits(epochs: int) -> bool:
        while True:
            done = len(charged) - 1
            of_epoch, period = next_period(*begun[done], plan, number + done)
            start_s = first_s + done * settings.epoch.window_s
            charge = of_epoch.charge(charged[done], limit, number + done, start_s, period)
            if done == epochs - 1:
                return charged[done].check_charge(charge, limit) is None
            charged.append(charged[done].with_charge(charge))
            begun.append((of_epoch, period))

    low, high = 0, windows + 1  # `low` epochs fit; `high` do not, or exceed `windows`.
    while high - low > 1:
        middle = (low + high) // 2
        del charged[middle:], begun[middle:]
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def day_text(time_s: int, now_s: int) -> str:
    """Format a day, with the time unless it is midnight, and the year unless it is this one.

    >>> noon = 1_797_508_800
    >>> day_text(1_797_552_000, noon), day_text(1_797_555_600, noon), day_text(0, noon)
    ('18 December', '18 December 01:00 UTC', '1 January 1970')
    """
    then, now = (datetime.fromtimestamp(time, UTC) for time in (time_s, now_s))
    text = f"{then.day} {then:%B}"
    if then.year != now.year:
        text += f" {then.year}"
    if (then.hour, then.minute, then.second) != (0, 0, 0):
        text += f" {then:%H:%M}" + (f":{then:%S}" if then.second else "") + " UTC"
    return text


def duration_text(seconds: int) -> str:
    """Format a duration as an integer of the largest unit that divides it.

    >>> [duration_text(s) for s in (86_400, 31_536_000, 7_200, 90)]
    ['1 day', '365 days', '2 hours', '90 seconds']
    """
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds % size == 0:
            return counted(seconds // size, unit)
    return counted(seconds, "second")
