"""Compute powers of e by integer arithmetic: rounded down for devices, with bounds for samplers.

Promises: `exp_rounded_down(x)` ≤ e^x for every x ≥ 0, by integer arithmetic only, so every device
and every server computes one number on any processor and mathematics library. A smaller e^ε means a
smaller ε: rounding down errs towards privacy. `exp_minus_bounds(x)` encloses e^(−x) to the given
number of bits.
Assumes: exponents are exact fractions. `Fraction(0.1)` is the exact value of the float.
"""

from __future__ import annotations

import math
from fractions import Fraction

from blendstream.blender.values.errors import ParameterError

__all__ = ["EXP_DENOMINATOR_BITS", "SMALLEST_EXPONENT", "exp_minus_bounds", "exp_rounded_down"]

#: The stated denominator is 2^32. Fewer bits would waste budget (at ε = 4 these lose 4e-12 of it);
#: more would only lengthen the numbers that a device draws.
EXP_DENOMINATOR_BITS = 32

#: From this x on, e^x ≥ 1 + x rounds down to more than 1. For smaller x it rounds to 1: all answers
#: would be equally likely, and a report would carry no information.
SMALLEST_EXPONENT = Fraction(1, 2**EXP_DENOMINATOR_BITS)


def exp_rounded_down(exponent: Fraction, *, bits: int = EXP_DENOMINATOR_BITS) -> Fraction:
    """Return the largest provable n/2^bits with n/2^bits ≤ e^exponent.

    >>> exp_rounded_down(Fraction(0))
    Fraction(1, 1)
    >>> exp_rounded_down(Fraction(1), bits=10)
    Fraction(2783, 1024)
    """
    if exponent < 0:
        raise ParameterError("the exponent of exp_rounded_down must not be negative")
    # Σ xⁱ/i! in fixed point. All terms are positive, each is rounded down and the sum stops
    # early, so the sum is below e^x at any precision. The guard bits make it tight: a
    # rounding error of one term grows at most e^x < 2^(2x) times before it fades.
    guard = 64 + 2 * math.ceil(exponent)
    term = 1 << (bits + guard)
    total = 0
    i = 0
    while term:
        total += term
        i += 1
        term = term * exponent.numerator // (exponent.denominator * i)
    return Fraction(total >> guard, 1 << bits)


def exp_minus_bounds(exponent: Fraction, *, bits: int) -> tuple[int, int]:
    """Return integers with low ≤ 2^bits · e^(−exponent) ≤ high, at most 2 apart.

    >>> exp_minus_bounds(Fraction(1), bits=10)  # 2^10/e = 376.7…
    (376, 377)
    """
    if exponent < 0:
        raise ParameterError("the exponent of exp_minus_bounds must not be negative")
    if exponent > bits:
        return 0, 1  # e^(−x) < 2^(−x) < 2^(−bits)
    # e^(−x) = (e^(−y))^(2^k) with y = x/2^k ≤ 1, in fixed point of `bits` + `guard` bits.
    k = math.ceil(exponent).bit_length()
    guard = 24 + k
    one = 1 << (bits + guard)
    y = one * exponent.numerator // (exponent.denominator << k)
    # Σ (−y)ⁱ/i!, its terms rounded down. y is less than a unit too small, which moves e^(−y) by
    # less than a unit. A term's error is at most its predecessor's divided by i, and 1 more: never
    # above 2 units. The sum stops at a term that is rounded to 0, so it was below 2, and the rest
    # of an alternating sum of falling terms is below its first term. Together: 2i + 3.
    term, total, i = one, 0, 0
    while term:
        total += -term if i % 2 else term
        i += 1
        term = term * y // (one * i)
    low, high = total - 2 * i - 4, min(one, total + 2 * i + 4)
    # Squaring numbers of at most 1 doubles their distance at most, and adds 2 units of rounding.
    for _ in range(k):
        low, high = low * low // one, -(-high * high // one)
    return low >> guard, -(-high >> guard)
