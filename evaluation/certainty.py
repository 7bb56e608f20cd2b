"""Decide whether means differ significantly: by more than two standard errors.

Promises: a claim such as "declines steadily" is checked at every point of a line, not only at its
ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from blendstream.evaluation.summary import Mean

__all__ = [
    "falls",
    "falls_steadily",
    "rises_between",
    "surely_less",
    "surely_over",
    "surely_under",
]

#: Number of standard errors from which a difference is significant. Without a true difference it is
#: exceeded with probability 1/44.
SURE = 2.0


def surely_less(a: Mean, b: Mean) -> bool:
    """Return True if a is below b by more than two standard errors.

    >>> surely_less(Mean(1.0, 0.1, 9), Mean(1.3, 0.1, 9)), surely_less(Mean(1, 0, 9), Mean(1, 0, 9))
    (True, False)
    """
    return bool(b.mean - a.mean > SURE * float((a.error**2 + b.error**2) ** 0.5))


def surely_over(mean: Mean, bound: float) -> bool:
    """Return True if the mean is above a number by more than two standard errors."""
    return surely_less(Mean(bound, 0.0, mean.runs), mean)


def surely_under(mean: Mean, bound: float) -> bool:
    """Return True if the mean is below a number by more than two standard errors."""
    return surely_less(mean, Mean(bound, 0.0, mean.runs))


def falls(line: Sequence[Mean]) -> bool:
    """Return True if a line ends significantly below its first point."""
    return len(line) > 1 and surely_less(line[-1], line[0])


def rises_between(line: Sequence[Mean]) -> list[int]:
    """List the points whose successor is significantly higher."""
    return [i for i, (here, following) in enumerate(pairwise(line)) if surely_less(here, following)]


def falls_steadily(line: Sequence[Mean]) -> bool:
    """Return True if a line falls significantly in both halves, and rises significantly nowhere.

    A line of two points has no halves: it only has to fall.

    >>> steps = [Mean(4, 0.1, 9), Mean(3, 0.1, 9), Mean(3.1, 0.1, 9), Mean(1, 0.1, 9)]
    >>> falls_steadily(steps), falls_steadily([steps[0], steps[1], Mean(3.5, 0.1, 9), steps[3]])
    (True, False)
    """
    if rises_between(line):
        return False
    if len(line) < 3:
        return falls(line)
    middle = len(line) // 2
    return falls(line[: middle + 1]) and falls(line[middle:])
