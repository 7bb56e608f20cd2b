"""Every draw is that of the exact distribution for its bits, however close the bits come.

The bits are scripted: uniform reals just below and just above each C(j) = P(|X| ≤ j), which agree
with it for the first 64 bits and more. So a table that is one unit off in its last place, or a
sampler that rounds what 64 bits leave open, gives a wrong answer here with certainty.
"""

from __future__ import annotations

import inspect
import os
import random
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

import blendstream.blender.noise.exact_rejection
import blendstream.blender.noise.exact_sampler
from blendstream.blender import ExactNoise
from blendstream.blender.noise.exact_distribution import NoiseDistribution
from blendstream.blender.noise.exact_noise import _TABLED_GAUSSIAN, _TABLED_LAPLACE, laplace_scale
from blendstream.blender.noise.exact_rejection import _below, _happens, draw_gaussian, draw_laplace
from blendstream.blender.noise.exact_sampler import InversionTable, draw, inversion_table
from blendstream.blender.over_time.period_budget import calibrate_period
from blendstream.streams.settings.value_checks import LEAST_EPSILON
from tests.exact_laws import DIGITS, cumulative, floor_of, size_at

LAWS = [("laplace", 0.25), ("laplace", 0.5), ("laplace", 5.3), ("gaussian", 0.8), ("gaussian", 9.1)]


class ScriptedBytes:
    """Hands out the given bytes in order, and counts how often it was asked."""

    def __init__(self, script: bytes) -> None:
        self._left = script
        self.asked: list[int] = []

    def __call__(self, size: int) -> bytes:
        assert size <= len(self._left), "more bits asked for than the script has"
        self.asked.append(size)
        given, self._left = self._left[:size], self._left[size:]
        return given


def script(uniform: Decimal, *, length: int, negative: bool) -> bytes:
    """The bytes with which the sampler reads this sign and the first `length` bits of this real."""
    prefix = floor_of(uniform, length)
    first = prefix >> (length - 15) | negative << 15
    parts = [first.to_bytes(2, "little")]
    rest = (prefix >> (length - 64)) & (2**49 - 1)
    parts.append((rest << 15).to_bytes(8, "little"))
    for shift in range(length - 128, -1, -64):
        parts.append((prefix >> shift & (2**64 - 1)).to_bytes(8, "little"))
    return b"".join(parts)


def table_of(kind: str, scale: float) -> InversionTable:
    return inversion_table(getattr(NoiseDistribution, kind)(Fraction(scale)))


def beside(kind: str, scale: float, j: int, distance: int) -> Decimal:
    """C(j) + 2^-|distance|, or − for a negative distance."""
    with localcontext() as context:
        context.prec = DIGITS
        step = Decimal(2) ** -abs(distance)
        return cumulative(kind, scale)[j] + (step if distance > 0 else -step)


def wrong_draws(
    table: InversionTable, kind: str, scale: float, entries: Iterable[int]
) -> list[tuple[int, int]]:
    """(j, distance) of those draws beside C(j) that come out other than the distribution has it."""
    wrong = []
    for j in entries:
        for distance in (-100, 100, -120, 120):
            expected = j if distance < 0 else j + 1
            for negative in (False, True):
                bits = script(beside(kind, scale, j, distance), length=128, negative=negative)
                found = draw(table, 1, ScriptedBytes(bits))
                if found.tolist() != [-expected if negative else expected]:
                    wrong.append((j, distance))
    return wrong


@pytest.mark.parametrize(("kind", "scale"), LAWS)
def test_a_uniform_just_below_or_above_a_probability_falls_on_the_right_side(kind, scale):
    table = table_of(kind, scale)
    assert wrong_draws(table, kind, scale, range(len(table.floors) - 1)) == []


@pytest.mark.parametrize(("kind", "scale"), LAWS)
@pytest.mark.parametrize("off_by", [-1, 1])
def test_a_table_one_unit_off_in_its_last_place_is_caught(kind, scale, off_by):
    """Deliberately broken, one entry after the other. Not where two entries are equal: there the 64
    bits still equal one of them, so the exact comparison decides and the draw comes out right.
    """
    right = table_of(kind, scale)
    gaps = np.diff(right.floors)
    apart = (gaps > 0) & np.r_[True, gaps[:-1] > 0]
    for j in np.flatnonzero(apart).tolist():
        floors = right.floors.copy()
        floors[j] = int(floors[j]) + off_by
        broken = InversionTable(right.distribution, floors, right.guide)
        assert wrong_draws(broken, kind, scale, [j])


@pytest.mark.parametrize(("kind", "scale"), LAWS)
@pytest.mark.parametrize("rounding", [0, 1])
def test_a_sampler_that_rounds_what_64_bits_leave_open_is_caught(
    monkeypatch, kind, scale, rounding
):
    """Deliberately broken: equal bits are taken for below, or for above."""
    table = table_of(kind, scale)
    floors = table.floors.tolist()
    monkeypatch.setattr(
        blendstream.blender.noise.exact_sampler,
        "_decide",
        lambda distribution, uniform: floors.index(uniform._prefix) + rounding,
    )
    for j in range(len(floors) - 1):
        assert wrong_draws(table, kind, scale, [j])


@pytest.mark.parametrize(("kind", "scale"), LAWS)
@pytest.mark.parametrize("distance", [-400, 400])
def test_more_bits_are_drawn_for_as_long_as_they_agree(kind, scale, distance):
    """After 400 equal bits the 448th decides: 16 and 49 bits first, then six times 64."""
    for j in range(3 if scale > 0.5 else 1):
        bits = ScriptedBytes(script(beside(kind, scale, j, distance), length=448, negative=False))
        found = draw(table_of(kind, scale), 1, bits)
        assert found.tolist() == [j + (distance > 0)]
        assert bits.asked == [2, 8, 8, 8, 8, 8, 8, 8]


@pytest.mark.parametrize(("kind", "scale"), LAWS)
@pytest.mark.parametrize("ones", [64, 70, 127, 200])
def test_what_lies_beyond_the_table_is_drawn_by_its_distribution(kind, scale, ones):
    """V = 1 − 2^-ones: all of the first 64 bits are ones, as the table's last entry."""
    table = table_of(kind, scale)
    with localcontext() as context:
        context.prec = DIGITS
        uniform = 1 - Decimal(2) ** -ones
    bits = ScriptedBytes(script(uniform, length=448, negative=True))

    (found,) = draw(table, 1, bits).tolist()

    assert found == -size_at(kind, scale, uniform)
    assert len(bits.asked) > 2
    if ones > 100:
        assert -found >= len(table.floors), "beyond the last entry"


@pytest.mark.parametrize(("kind", "scale"), [*LAWS, ("laplace", 300.0)])
def test_sixteen_bits_settle_a_draw_only_where_no_further_bit_can_matter(kind, scale):
    """All 65 536 of them: the whole cell of V lies between C(|x|−1) and C(|x|), or it is open."""
    exact = cumulative(kind, scale)
    guide, cells = table_of(kind, scale).guide, 2**15
    edges = [Decimal(0), *exact]
    is_open = guide == blendstream.blender.noise.exact_sampler._OPEN
    for cell in range(cells):
        low, high = Decimal(cell) / cells, Decimal(cell + 1) / cells
        if not is_open[cell]:
            size = int(guide[cell])
            assert edges[size] <= low
            assert high <= edges[size + 1]
            assert guide[cell + cells] == -size
        else:
            assert is_open[cell + cells]
    # Open cells are those with some C(j) in them: no more, or bits are wasted.
    with_edges = {floor_of(value, 15) for value in exact}
    assert set(np.flatnonzero(is_open[:cells]).tolist()) == with_edges


def test_prefixes_above_2_to_the_63_stay_whole_numbers():
    """uint64 beside int64 would become floats, which do not tell 2^64 − 1 from 2^64 − 1000."""
    table = table_of("laplace", 5.3)
    assert table.floors.dtype == np.uint64
    # The last V of 64 bits that is below the last entry: decided without more bits.
    for j in range(len(table.floors) - 8, len(table.floors) - 1):
        prefix = int(table.floors[j]) + 1
        if prefix in table.floors.tolist():
            continue
        with localcontext() as context:
            context.prec = DIGITS
            uniform = Decimal(prefix) / 2**64
        bits = ScriptedBytes(script(uniform, length=64, negative=False))
        assert draw(table, 1, bits).tolist() == [j + 1]


def test_many_draws_keep_their_places_whichever_way_each_is_settled(monkeypatch):
    """One draw of each kind, in chunks of three: short, 64 bits, more bits, and both signs."""
    monkeypatch.setattr(blendstream.blender.noise.exact_sampler, "_CHUNK", 3)
    kind, scale = "laplace", 0.5
    places = [(1, 30, True), (0, 90, True), (2, -90, False), (1, -30, False)]
    uniforms = [(beside(kind, scale, j, distance), n) for j, distance, n in places]
    uniforms = [(Decimal("0.1"), False), *uniforms, (Decimal("0.99"), True)]
    parts: list[bytes] = []
    for start in (0, 3):
        scripts = [script(v, length=128, negative=n) for v, n in uniforms[start : start + 3]]
        guide = table_of(kind, scale).guide
        firsts = [int.from_bytes(s[:2], "little") for s in scripts]
        still = [s for s, f in zip(scripts, firsts, strict=True) if guide[f] == np.int32(-(2**31))]
        floors = set(table_of(kind, scale).floors.tolist())
        parts += [s[:2] for s in scripts] + [s[2:10] for s in still]
        parts += [
            s[10:18]
            for s in still
            if (int.from_bytes(s[:2], "little") & 0x7FFF) << 49
            | int.from_bytes(s[2:10], "little") >> 15
            in floors
        ]
    found = draw(table_of(kind, scale), 6, ScriptedBytes(b"".join(parts)))

    sizes = [size_at(kind, scale, v) for v, _ in uniforms]
    signs = [-1 if n else 1 for _, n in uniforms]
    assert found.tolist() == [sign * size for sign, size in zip(signs, sizes, strict=True)]


def test_the_bits_are_the_operating_systems_unless_a_test_hands_in_others():
    assert inspect.signature(ExactNoise).parameters["random_bytes"].default is os.urandom


def test_a_batch_is_one_read_of_the_generator_and_one_for_what_is_open():
    asked: list[int] = []

    def counted(size: int) -> bytes:
        asked.append(size)
        return random.Random(size).randbytes(size)

    ExactNoise(counted).discrete_laplace(np.zeros(200_000, dtype=np.int64), scale=0.5)
    assert asked[0] == 400_000
    assert len(asked) == 2
    assert asked[1] < 1000, "about one draw in 5 500 is open after 16 bits"


def test_the_same_bits_give_the_same_noise_and_counts_are_left_alone():
    counts = np.arange(1000, dtype=np.int64)
    for kind in ("discrete_laplace", "discrete_gaussian"):
        first, second = (
            getattr(ExactNoise(random.Random(5).randbytes), kind)(counts, scale=3.0)
            for _ in range(2)
        )
        assert np.array_equal(first, second)
        assert first.dtype == np.int64
    assert np.array_equal(counts, np.arange(1000))


def test_tables_are_made_once_and_only_some_are_kept():
    inversion_table.cache_clear()
    noise, counts = ExactNoise(), np.zeros(3, dtype=np.int64)
    for scale in [0.5, 0.5, *(1 + i / 8 for i in range(40))]:
        noise.discrete_laplace(counts, scale=scale)
    info = inversion_table.cache_info()
    assert (info.hits, info.currsize) == (1, info.maxsize)


def test_every_scale_that_s_and_t_can_ask_for_has_a_table():
    """Beyond, a draw takes thousands of times as long."""
    assert laplace_scale(sensitivity=2, epsilon=LEAST_EPSILON) <= _TABLED_LAPLACE


@pytest.mark.parametrize(("epsilon", "records"), [(4.0, 1), (4.0, 10), (0.1, 1), (0.1, 10)])
def test_the_noise_of_a_period_has_a_table(epsilon, records):
    """The default first; then ten records in each of thirty epochs, at a fortieth of its ε. Only
    budgets far below that ask for more (docs/exact-noise.md)."""
    rule = calibrate_period(epsilon, 1e-5, records_per_user=records, epochs=30)
    assert rule.scale <= _TABLED_GAUSSIAN


@pytest.mark.parametrize("scale", [5e-324, 1e-9, 0.01])
def test_the_least_scales_give_no_noise_but_still_look_at_their_bits(scale):
    """P(X ≠ 0) is below 2^-64, not 0: all ones must go on, until a zero settles it."""
    bits = ScriptedBytes(b"\xff\x7f" + b"\xff" * 16 + bytes(8))
    assert ExactNoise(bits).discrete_laplace(np.array([7]), scale=scale).tolist() == [7]
    assert bits.asked == [2, 8, 8, 8]


def test_scales_beyond_the_tables_are_drawn_one_by_one(monkeypatch):
    """No table is made for them: its size would grow with the scale."""
    monkeypatch.setattr(blendstream.blender.noise.exact_noise, "inversion_table", None)
    counts, bits = np.zeros(20, dtype=np.int64), random.Random(8).randbytes
    for kind, scale in (("laplace", _TABLED_LAPLACE), ("gaussian", _TABLED_GAUSSIAN)):
        for times in (1.01, 1e4, 1e12, 1e300):
            found = getattr(ExactNoise(bits), f"discrete_{kind}")(counts, scale=scale * times)
            # All of 20 within a hundredth of the scale, or one beyond 60: below 1e-20.
            reach = min(scale * times, 2.0**62)
            assert reach / 100 < np.abs(found).max() < 60 * reach


def test_one_comparison_of_the_rejection_sampler_goes_on_where_bits_agree():
    """e^-1 to 128 bits, then just below and just above."""
    with localcontext() as context:
        context.prec = DIGITS
        exact = Decimal(-1).exp()
        for step, expected in ((-1, True), (1, False)):
            prefix = floor_of(exact + step * Decimal(2) ** -120, 128)
            bits = ScriptedBytes(
                (prefix >> 64).to_bytes(8, "little") + (prefix % 2**64).to_bytes(8, "little")
            )
            assert _happens(Fraction(1), bits) is expected
            assert bits.asked == [8, 8]


def test_what_a_laplace_draw_keeps_has_geometric_weights_exactly(monkeypatch):
    """b = 5/3: u + 5v has weight e^(−u/5)·e^(−v), and three neighbours of it make one size."""
    u, rounds = 4, 2
    gammas: list[Fraction] = []
    answers = iter([True] * (1 + rounds) + [False])
    monkeypatch.setattr(
        blendstream.blender.noise.exact_rejection,
        "_happens",
        lambda gamma, _: gammas.append(gamma) or next(answers),
    )
    found = draw_laplace(Fraction(5, 3), ScriptedBytes(bytes([u, 1])))
    assert gammas == [Fraction(u, 5), *[Fraction(1)] * (rounds + 1)]
    assert found == -((u + 5 * rounds) // 3)


@pytest.mark.parametrize("scale", [0.5, 2.9, 31.4159, 1e6])
def test_what_a_gaussian_draw_keeps_has_gaussian_weights_exactly(monkeypatch, scale):
    """e^(−|y|/t) of the Laplace draw times the probability e^(−γ) to keep it is c·e^(−y²/(2σ²))."""
    gammas: list[Fraction] = []
    monkeypatch.setattr(
        blendstream.blender.noise.exact_rejection,
        "_happens",
        lambda gamma, _: gammas.append(gamma) or True,
    )
    constants = set()
    for y in (0, 1, -1, 2, -7, 40, 10**6):
        scales: list[Fraction] = []
        monkeypatch.setattr(
            blendstream.blender.noise.exact_rejection,
            "draw_laplace",
            lambda t, _, y=y, scales=scales: scales.append(t) or y,
        )
        assert draw_gaussian(Fraction(scale), bytes) == y
        constants.add(gammas.pop() + abs(y) / scales.pop() - y * y / (2 * Fraction(scale) ** 2))
    assert len(constants) == 1


def test_whole_numbers_below_a_bound_are_equally_likely_and_too_large_ones_drawn_again():
    assert Counter(_below(5, ScriptedBytes(bytes([b]))) for b in range(5)) == Counter(range(5))
    assert _below(5, ScriptedBytes(bytes([7, 6, 0xF8 + 5, 4]))) == 4
    assert _below(1, ScriptedBytes(b"")) == 0


def test_minus_zero_is_drawn_again():
    """Kept (all bits of V zero is below any e^-γ), no tail, sign minus: then the same with plus."""
    keep, stop = bytes(8), b"\xff" * 8
    once = b"\x00" + keep + stop
    bits = ScriptedBytes(once + b"\x01" + once + b"\x00")
    assert draw_laplace(Fraction(2), bits) == 0
    assert len(bits.asked) == 8
