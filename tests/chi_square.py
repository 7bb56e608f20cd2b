"""One χ² test for the whole suite, with the odds of a false alarm shared out in advance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping

from scipy.stats import chi2

#: All χ² tests of the suite together raise a false alarm once in a million runs at most, were
#: their seeds drawn anew. There are fewer than 1 000 of them (each asserts through `agrees`).
SUITE_FALSE_ALARM = 1e-6
FALSE_ALARM = SUITE_FALSE_ALARM / 1000


def p_value(observed: Mapping[Hashable, int], expected: Mapping[Hashable, float]) -> float:
    """P(a χ² at least as large) when outcomes come with these expected numbers.

    Outcomes expected fewer than ten times are taken together: χ² needs full cells.
    """
    assert set(observed) <= {o for o, e in expected.items() if e > 0}, "an impossible outcome"
    seen, awaited = Counter[Hashable](), Counter[Hashable]()
    rare = object()
    for outcome, number in expected.items():
        place = outcome if number >= 10 else rare
        seen[place] += observed.get(outcome, 0)
        awaited[place] += number
    statistic = sum((seen[o] - e) ** 2 / e for o, e in awaited.items() if e > 0)
    return float(chi2.sf(statistic, df=max(len(awaited) - 1, 1)))


def agrees(observed: Mapping[Hashable, int], expected: Mapping[Hashable, float]) -> bool:
    """True unless the outcomes are too unlikely to be chance."""
    return p_value(observed, expected) >= FALSE_ALARM


def alike(first: Mapping[Hashable, int], second: Mapping[Hashable, int]) -> bool:
    """True unless two samples are too unlike each other to come from one law.

    Outcomes seen fewer than twenty times in both together are taken as one.
    """
    sizes = sum(first.values()), sum(second.values())
    seen: dict[Hashable, list[int]] = {}
    rare = object()
    for outcome in set(first) | set(second):
        numbers = first.get(outcome, 0), second.get(outcome, 0)
        place = seen.setdefault(outcome if sum(numbers) >= 20 else rare, [0, 0])
        place[0] += numbers[0]
        place[1] += numbers[1]
    statistic = 0.0
    for numbers in seen.values():
        for number, size in zip(numbers, sizes, strict=True):
            expected = sum(numbers) * size / sum(sizes)
            statistic += (number - expected) ** 2 / expected
    return float(chi2.sf(statistic, df=max(len(seen) - 1, 1))) >= FALSE_ALARM
