"""Intervals enclose, tables are certified: against decimal arithmetic of 260 digits."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from blendstream.blender import ParameterError
from blendstream.blender.noise.exact_distribution import NoiseDistribution, certified_floors
from blendstream.blender.values.rational import exp_minus_bounds
from tests.exact_laws import DIGITS, cumulative, floor_of

#: The least and largest ε of the settings, usual ones, floats that are no short fractions.
LAWS = [
    *(("laplace", scale) for scale in (0.2, 0.25, 0.5, 2 / 0.7, 3.3, 20.0, 200.0)),
    *(("gaussian", scale) for scale in (0.05, 0.8, 2.71828, 7.3, 40.0)),
]


def law_of(kind: str, scale: float) -> NoiseDistribution:
    return getattr(NoiseDistribution, kind)(Fraction(scale))


@given(st.fractions(0, 300), st.integers(8, 400))
@example(Fraction(0), 64)
@example(Fraction(10**40), 64)
@example(Fraction(1, 10**40), 200)
def test_a_power_of_e_lies_between_its_bounds_which_are_close(x, bits):
    low, high = exp_minus_bounds(x, bits=bits)
    with localcontext() as context:
        context.prec = DIGITS
        scaled = (-Decimal(x.numerator) / Decimal(x.denominator)).exp() * 2**bits
    assert 0 <= low <= scaled <= high <= 2**bits
    assert high - low <= 2


def test_a_negative_exponent_is_refused():
    with pytest.raises(ParameterError, match="must not be negative"):
        exp_minus_bounds(Fraction(-1), bits=64)


@pytest.mark.parametrize(("kind", "scale"), LAWS)
@pytest.mark.parametrize("bits", [24, 64, 150, 400])
def test_every_probability_lies_within_its_interval(kind, scale, bits):
    """With few bits roundings and the cut tail are large: they must be paid for there too."""
    exact = cumulative(kind, scale)
    for value, (low, high) in zip(exact, law_of(kind, scale).cumulative(bits), strict=False):
        assert low <= floor_of(value, bits) < high <= 2**bits


@pytest.mark.parametrize(("kind", "scale"), LAWS)
def test_every_entry_of_a_table_is_the_exact_floor(kind, scale):
    """One unit in the last place more or less, anywhere, and this fails."""
    floors = certified_floors(law_of(kind, scale))

    assert floors == [floor_of(value, 64) for value in cumulative(kind, scale)[: len(floors)]]
    assert floors[-1] == 2**64 - 1
    assert floors[-2:-1] != [2**64 - 1], "nothing is tabled beyond the first of these"


def test_the_largest_noise_of_the_settings_has_an_exact_table():
    """ε = 0.001: 88 724 entries."""
    floors = certified_floors(law_of("laplace", 2000.0))

    exact = cumulative("laplace", 2000.0)
    assert all(floors[j] == floor_of(exact[j], 64) for j in range(0, len(floors), 97))
    assert floors[-1] == 2**64 - 1


class StubbornLaw:
    """C(0) so close to 1/2 that `needed` bits are necessary to tell which side; then 1."""

    def __init__(self, needed: float) -> None:
        self.needed = needed
        self.asked: list[int] = []

    def cumulative(self, bits: int):
        self.asked.append(bits)
        half, close = 1 << (bits - 1), int(bits < self.needed)
        yield half - close, half + 1 + close
        yield (1 << bits) - 1, 1 << bits


def test_an_entry_that_the_digits_do_not_settle_gets_more_of_them():
    distribution = StubbornLaw(needed=700)

    assert certified_floors(distribution) == [2**63, 2**64 - 1]
    assert distribution.asked == [192, 384, 768]


def test_an_entry_that_no_digits_settle_is_refused_before_anything_is_drawn():
    with pytest.raises(ParameterError, match="nothing was drawn; change the scale a little"):
        certified_floors(StubbornLaw(needed=float("inf")))
