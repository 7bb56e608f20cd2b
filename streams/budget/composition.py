"""Composition of (ε, δ) costs: by dp-accounting, or basic composition where that is smaller.

Promises: upper bounds, for replace-one neighbours. Only the (ε, δ) of each cost is known, so this
module composes the worst mechanism with that cost, as a privacy loss distribution on a grid; losses
between two grid points are rounded up. The bounds hold for costs that were chosen before any
results were published. For adaptively chosen costs basic composition holds
(docs/privacy-over-time.md).

Symbols: ε = epsilon, δ = delta.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from blendstream.blender.values.errors import ParameterError

__all__ = [
    "Cost",
    "Costs",
    "basic_composition",
    "click_graph_cost",
    "delta_at",
    "spent_at",
    "together",
    "worst_of",
]


@dataclass(frozen=True, slots=True, order=True)
class Cost:
    """(ε, δ) of one epoch for all records of one person together; replace-one."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        """Check that ε is finite and δ is a probability."""
        if not (math.isfinite(self.epsilon) and self.epsilon >= 0 and 0 <= self.delta <= 1):
            raise ParameterError(
                "a cost must have a finite epsilon of at least 0 and a delta in [0, 1], "
                f"got epsilon={self.epsilon!r}, delta={self.delta!r}"
            )


def click_graph_cost(epsilon: float, delta: float) -> Cost:
    """Convert Release-Data's (ε, δ), proved for adding or removing a person, to replace-one.

    Replacing is removing and then adding. With D′ the data without the person,

        P[M(D) ∈ A] ≤ e^ε·P[M(D′) ∈ A] + δ ≤ e^ε·(e^ε·P[M(D″) ∈ A] + δ) + δ

    which is (2ε, (1 + e^ε)δ).

    >>> click_graph_cost(1.0, 0.0)
    Cost(epsilon=2.0, delta=0.0)
    """
    return Cost(2 * epsilon, min(1.0, (1 + math.exp(epsilon)) * delta))


def worst_of(*costs: Cost) -> Cost:
    """Return the worst-case cost to a person who pays exactly one of these costs."""
    return Cost(max(c.epsilon for c in costs), max(c.delta for c in costs))


#: (ε, δ, times), sorted: the costs of one person, and the cache key of their composition.
Costs = tuple[tuple[float, float, int], ...]


def together(one: Costs, other: Costs) -> Costs:
    """Merge two lists of costs.

    >>> together(((1.0, 0.0, 2), (4.0, 0.0, 1)), ((4.0, 0.0, 3),))
    ((1.0, 0.0, 2), (4.0, 0.0, 4))
    """
    times: Counter[tuple[float, float]] = Counter()
    for epsilon, delta, n in (*one, *other):
        times[epsilon, delta] += n
    return tuple(sorted((epsilon, delta, n) for (epsilon, delta), n in times.items()))


@lru_cache(maxsize=32)
def _composed(costs: Costs) -> Any:
    """Compose these costs into one privacy loss distribution (dp-accounting)."""
    # Imported here: only the jobs and the ledger subcommand need this slow import.
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution  # noqa: PLC0415

    step = _step(costs)
    total: Any = None
    for epsilon, delta, times in costs:
        # The worst (ε, δ)-DP mechanism loses ∞ with probability δ, else ε or -ε, in the ratio e^ε.
        steps, less = Fraction(repr(epsilon)) / step, math.exp(-epsilon)
        loss = defaultdict(float, {math.ceil(steps): (1 - delta) / (1 + less)})
        loss[math.ceil(-steps)] += (1 - delta) * less / (1 + less)
        one = PrivacyLossDistribution.create_from_rounded_probability(loss, delta, float(step))
        many = one.self_compose(times) if times > 1 else one
        total = many if total is None else total.compose(many)
    return total


def _step(costs: Costs) -> Fraction:
    """Choose the step of the grid of privacy losses; losses between two points are rounded up.

    The step is the largest number that divides every ε, so that no loss is rounded. A year of
    hourly epochs then takes thousands of points; with a fixed step of 1e-4 it took a hundred
    million. If that number is very small, the step is larger, so that the grid has at most a
    million points.
    """
    shared = Fraction(0)
    for epsilon, _, _ in costs:
        other = Fraction(repr(epsilon))
        shared = Fraction(
            math.gcd(shared.numerator * other.denominator, other.numerator * shared.denominator),
            shared.denominator * other.denominator,
        )
    least = max(Fraction(1, 10_000), Fraction(basic_composition(costs)[0]) / 1_000_000)
    return max(shared, least)


def basic_composition(costs: Costs) -> tuple[float, float]:
    """Add up ε and δ: basic composition."""
    return math.fsum(e * n for e, _, n in costs), math.fsum(d * n for _, d, n in costs)


@lru_cache(maxsize=32)
def delta_at(costs: Costs, epsilon: float) -> float:
    """Return δ of these costs composed, at this ε."""
    if not costs:
        return 0.0
    total_epsilon, total_delta = basic_composition(costs)
    # Basic composition is a valid bound too; the tolerance allows for rounding in sums of ε.
    basic = total_delta if total_epsilon <= epsilon * (1 + 1e-12) else 1.0
    return min(basic, float(_composed(costs).get_delta_for_epsilon(epsilon)))


@lru_cache(maxsize=32)
def spent_at(costs: Costs, delta: float) -> Cost:
    """Return (ε, δ) of these costs composed: at this δ or, if that needs an infinite ε, at Σδ."""
    if not costs:
        return Cost(0.0, delta)
    total_epsilon, total_delta = basic_composition(costs)
    # The probability of an infinite loss bounds δ from below at every ε.
    least_delta = 1 - math.prod((1 - d) ** n for _, d, n in costs)
    if least_delta > delta + 1e-12:
        tight = math.inf
    else:
        # At a large δ the library returns an ε below zero, which means no more than zero.
        tight = max(0.0, float(_composed(costs).get_epsilon_for_delta(delta)))
    if total_delta <= delta * (1 + 1e-12):
        return Cost(min(tight, total_epsilon), delta)
    if math.isfinite(tight):
        return Cost(tight, delta)
    return Cost(total_epsilon, min(1.0, total_delta))
