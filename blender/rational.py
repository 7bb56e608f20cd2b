"""e^ε as a fraction that never exceeds it, so that a device can choose by whole numbers alone.

Promises: `exp_rounded_down(x)` ≤ e^x for every x ≥ 0, by integer arithmetic only, so every device
and every server arrives at the same number whatever its processor or mathematics library. A
smaller e^ε means a smaller ε: rounding down errs towards privacy.
Assumes: exponents are exact fractions. `Fraction(0.1)` is the very number that the float holds.
"""

from __future__ import annotations

import math
from fractions import Fraction

from blender.errors import ParameterError

__all__ = ["EXP_DENOMINATOR_BITS", "SMALLEST_EXPONENT", "exp_rounded_down"]

#: The stated denominator is 2^32. Fewer bits would waste budget (at ε = 4 these lose 4e-12 of it);
#: more would only lengthen the numbers that a device draws.
EXP_DENOMINATOR_BITS = 32

#: From here on e^x ≥ 1 + x is above 1 when rounded down too. Below, it is 1: all answers would be
#: equally likely, a report would say nothing and nothing could be estimated from it.
SMALLEST_EXPONENT = Fraction(1, 2**EXP_DENOMINATOR_BITS)


def exp_rounded_down(exponent: Fraction, *, bits: int = EXP_DENOMINATOR_BITS) -> Fraction:
    """The largest provable n/2^bits with n/2^bits ≤ e^exponent.

    >>> exp_rounded_down(Fraction(0))
    Fraction(1, 1)
    >>> exp_rounded_down(Fraction(1), bits=10)
    Fraction(2783, 1024)
    """
    if exponent < 0:
        raise ParameterError("the exponent of exp_rounded_down must not be negative")
    # Σ xⁱ/i! in fixed point. All terms are positive, each is rounded down and the sum stops
    # early, so the sum is below e^x whatever the precision. The guard bits make it tight: a
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
