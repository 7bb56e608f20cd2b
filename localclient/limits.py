"""The device's own limits on what a server may ask for, set by the embedding application.

ε and δ are for data sets that **differ in the values of one user's records** (replace-one): they
bound what anyone can learn about *which* records this person has, not that they take part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from blendstream.blender.values.errors import ParameterError

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one device: five are required, the others have defaults for most applications.

    Budgets add up over a sliding period: within any `period_s` seconds, all reports together stay
    within `epsilon_per_period` and `delta_per_period` (basic composition).

    >>> Limits(epsilon_per_report=4.0, delta_per_report=0.0, epsilon_per_period=4.0,
    ...        delta_per_period=0.0, period_s=86_400).max_answers
    4
    """

    epsilon_per_report: float
    delta_per_report: float
    epsilon_per_period: float
    delta_per_period: float
    period_s: int
    #: Maximum m_C that a server may ask for. The answers share one budget: the more answers, the
    #: less each reveals.
    max_answers: int = 4
    #: Maximum m_O that a server may ask for in opt-in mode.
    max_optin_records: int = 10
    #: Maximum decoded bytes of a head list, enough for some 10 000 records. A list of this size,
    #: whoever wrote it, takes less than 200 MiB and a second (docs/benchmarks.md); both grow with
    #: the limit.
    max_head_list_bytes: int = 1024 * 1024
    #: Maximum number of cells in one answer, ω.
    max_cells_per_answer: int = 1_024
    #: Maximum number of cohorts of devices, R: with windows of a day, one report per year. Someone
    #: who observes a device learns its cohort, so more cohorts make it easier to recognise.
    max_cohorts: int = 366
    #: Minimum window. With shorter ones a server could ask about every minute of a person's day.
    min_window_s: int = 3_600
    #: Maximum window. With longer ones a device would store records for longer than anyone expects.
    max_window_s: int = 31 * 86_400
    #: Maximum wait for the scheduled time of an epoch, and then for delivery. With a longer one, a
    #: single false response delays the device for longer. If it is shorter than the reporting
    #: window of a day's epoch, many devices report at about the same time.
    max_wait_s: int = 2 * 86_400
    #: Maximum difference between the clocks of device and server.
    max_clock_skew_s: int = 900
    #: The device deletes raw records older than this even if no head list asks for them.
    keep_records_s: int = 45 * 86_400
    #: Raw records take at most this much disk; beyond it the device deletes the older half.
    max_record_bytes: int = 4 * 1024 * 1024

    def __post_init__(self) -> None:
        """Refuse values that limit nothing or contradict each other."""
        for name in ("epsilon_per_report", "epsilon_per_period"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
                raise ParameterError(f"{name} must be finite and above 0, got {name}={value!r}")
        for name in ("delta_per_report", "delta_per_period"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and 0 <= value < 1):
                raise ParameterError(f"{name} must be in [0, 1), got {name}={value!r}")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int" and not (type(value) is int and value >= 1):
                raise ParameterError(
                    f"{field.name} must be an integer of at least 1, got {value!r}"
                )
        if self.epsilon_per_report > self.epsilon_per_period:
            raise ParameterError(
                "epsilon_per_period must allow at least one report of epsilon_per_report="
                f"{self.epsilon_per_report}, got epsilon_per_period={self.epsilon_per_period}"
            )
        if self.delta_per_report > self.delta_per_period:
            raise ParameterError(
                "delta_per_period must allow at least one report of delta_per_report="
                f"{self.delta_per_report}, got delta_per_period={self.delta_per_period}"
            )
        if not self.min_window_s <= self.max_window_s <= self.keep_records_s:
            raise ParameterError(
                "windows and memory must fit: min_window_s <= max_window_s <= keep_records_s, got "
                f"{self.min_window_s}, {self.max_window_s}, {self.keep_records_s}"
            )
