"""The noise laws by decimal arithmetic: another way, and other code, than the one under test."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from functools import lru_cache

#: Decimal digits carried; sums are cut where weights are below 10^-250.
DIGITS = 260


@lru_cache(maxsize=32)
def cumulative(kind: str, scale: float) -> list[Decimal]:
    """P(|X| ≤ j) for j = 0, 1 … up to about 1 − 10^-250, to some 255 decimal digits."""
    with localcontext() as context:
        context.prec = DIGITS
        if kind == "laplace":
            # 1 − P(|X| > j) = 1 − 2·e^(−(j+1)/b)/(1 + e^(−1/b)), in closed form.
            ratio = (-1 / Decimal(scale)).exp()
            reach = math.ceil(580 * scale) + 1
            tail, found = 2 * ratio / (1 + ratio), []
            for _ in range(reach):
                found.append(1 - tail)
                tail *= ratio
            return found
        reach = math.ceil(34 * scale) + 1
        twice = 2 * Decimal(scale) ** 2
        weights = [(-(j * j) / twice).exp() for j in range(reach + 1)]
        whole = weights[0] + 2 * sum(weights[1:])
        head, found = -weights[0], []
        for weight in weights:
            head += 2 * weight
            found.append(head / whole)
        # What is so close to 1 that these digits cannot say how close.
        return [value for value in found if value < 1]


def floor_of(value: Decimal, bits: int) -> int:
    """⌊2^bits · value⌋."""
    with localcontext() as context:
        context.prec = DIGITS
        return int((value * 2**bits).to_integral_value("ROUND_FLOOR"))


def size_at(kind: str, scale: float, uniform: Decimal) -> int:
    """min{ j : uniform < P(|X| ≤ j) }."""
    return next(j for j, value in enumerate(cumulative(kind, scale)) if uniform < value)
