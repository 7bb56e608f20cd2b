"""e^ε is never rounded up, and is the same number everywhere."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blendstream.blender import ParameterError
from blendstream.blender.values.rational import EXP_DENOMINATOR_BITS, exp_rounded_down


@given(st.floats(0, 30), st.sampled_from([8, 32, 64, 128]))
def test_the_fraction_is_the_largest_below_the_exponential(x, bits):
    """One step more would pass e^x; one less would waste budget."""
    found = exp_rounded_down(Fraction(x), bits=bits)
    with localcontext() as context:
        context.prec = 120
        exact = Decimal(x).exp()
        scaled = exact * 2**bits
        assert Decimal(found.numerator) / Decimal(found.denominator) <= exact
        assert found * 2**bits == int(scaled)


def test_the_devices_numbers_are_these_and_no_others():
    """Golden: a device in another language must compute these integers."""
    step = 2**EXP_DENOMINATOR_BITS
    assert exp_rounded_down(Fraction(4)) * step == 234497268814
    assert exp_rounded_down(Fraction(1)) * step == 11674931554
    assert exp_rounded_down(Fraction(3.4)) * step == 128694829757
    assert math.isclose(234497268814 / 2**32, math.e**4, rel_tol=1e-11)


def test_a_negative_exponent_is_refused():
    with pytest.raises(ParameterError, match="must not be negative"):
        exp_rounded_down(Fraction(-1))
