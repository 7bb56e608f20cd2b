"""Subset or none: numbers worked by hand, sums that no code wrote, and what liars can do."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from blendstream.blender import Cells, HeadListMismatch, ParameterError, RandomizerSpec, Record
from blendstream.blender.randomizers.subset_or_none import (
    SubsetOrNone,
    best_named_size,
    named_variance,
)
from blendstream.blender.randomizers.subset_or_none_estimates import SubsetOrNoneEstimator
from blendstream.blender.randomizers.subset_selection import best_subset_size, rare_variance
from tests.channels import ExactChannel, all_answers, build, holder
from tests.doubles import ScriptedDice


def test_the_channel_by_hand():
    """M = 4, ω = 2: S = 3 sets hold a record, "none" counts as 3, rows sum to 3E + 6."""
    randomizer = wide(4, 2, 0.5)
    e = randomizer.likelihood
    record = randomizer.cells.records[1]

    assert randomizer.report_probability(None, (0, 4)) == 3 * e / (3 * e + 6)
    assert randomizer.report_probability(None, (0, 1)) == 1 / (3 * e + 6)
    assert randomizer.report_probability(record, (0, 4)) == 3 / (3 * e + 6)
    assert randomizer.report_probability(record, (1, 2)) == e / (3 * e + 6)
    assert randomizer.report_probability(record, (0, 2)) == 1 / (3 * e + 6)


def wide(records: int, width: int, epsilon: float, shape: tuple[int, ...] | None = None):
    """A channel with this ω, whatever ω would have been best."""

    class Wide(SubsetOrNoneEstimator):
        def _size(self) -> int:
            return width

    made = build("subset-or-none", shape or (records,), epsilon=epsilon)
    return Wide(made.cells, made.spec)


@pytest.mark.parametrize("answer", [(), (0,), (1, 0), (1, 4), (3, 4), (0, 5), (-1, 2)], ids=str)
def test_what_is_no_answer_has_probability_zero(answer):
    """⋆ goes with the first record and with no other."""
    assert wide(4, 2, 0.5).report_probability(None, answer) == 0


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_every_width_is_private_and_spends_all_of_epsilon(width, epsilon):
    """All pairs of records, all sets of answers; the proof does not depend on the best ω."""
    channel = ExactChannel.of(wide(6, width, epsilon))

    assert channel.smallest_delta(epsilon) == 0
    assert channel.smallest_delta(epsilon * 0.99) > 0


def test_a_channel_whose_none_counts_a_tenth_more_is_caught():
    """Deliberately broken: ⋆ says "none" 10 % more often than E times what a record's holder does.

    The enumeration must see it, or it shows nothing.
    """
    honest = wide(6, 2, 1.0)
    rows = ExactChannel.of(honest)
    none = all_answers(honest).index(honest._none)
    broken = rows.rows.copy() * 10
    broken[-1, none] += rows.rows[-1, none]

    assert ExactChannel(broken, rows.denominator * 10).smallest_delta(1.0) > Fraction(1, 100)


def test_the_device_decides_by_whole_numbers():
    """ω·a of ω·a + M·d throws tell: ω·d of them "none" for a record's holder, all for ⋆."""
    randomizer = wide(4, 2, 0.5)
    a, d = randomizer.likelihood.numerator, randomizer.likelihood.denominator
    whole = 2 * a + 4 * d

    for cell, throws, answer in [
        (4, (2 * a - 1,), (0, 4)),
        (1, (2 * d - 1,), (0, 4)),
        (1, (2 * d, 1), (1, 2)),
        (1, (2 * a, 0, 0), (0, 3)),
        (4, (2 * a, 0, 0), (0, 3)),
    ]:
        dice = ScriptedDice(*throws)
        assert randomizer.answer(cell, dice) == answer
        assert dice.bounds[0] == whole


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_the_width_is_the_best_of_all(epsilon):
    """Few widths are looked at; here all are."""
    e = Fraction(math.exp(epsilon))
    for records in (2, 3, 5, 12, 51, 200):
        for cap in (1, 3, 32):
            every = range(1, max(1, min(cap, records - 1)) + 1)
            best = min(every, key=lambda w: named_variance(records, e, w))
            assert best_named_size(records, e, cap) == best, (records, cap)


def test_it_leaves_a_third_less_variance_than_subset_selection_on_500_records():
    """And the same where one record is named: there it is randomized response."""
    e = Fraction(math.exp(4))
    size = best_named_size(500, e, 32)
    subset = rare_variance(501, e, best_subset_size(501, e, 32))

    assert size == 16
    assert named_variance(500, e, size) < Fraction(62, 100) * subset
    assert named_variance(50, e, 1) == rare_variance(51, e, 1)


def exact_moments(randomizer, p):
    """E and Cov of the cells on the wire in one answer, over all records and answers."""
    size = len(randomizer.cells)
    mean, second = np.zeros(size), np.zeros((size, size))
    for cell, share in enumerate(p):
        record = holder(randomizer.cells, cell)
        for answer in all_answers(randomizer):
            mass = share * float(randomizer.report_probability(record, answer))
            held = np.zeros(size)
            held[list(answer)] = 1
            mean += mass * held
            second += mass * np.outer(held, held)
    return mean, second - np.outer(mean, mean)


@pytest.mark.parametrize(
    ("shape", "width", "epsilon"),
    [((2, 1), 1, 1.0), ((3, 2, 1), 2, 0.4), ((3, 2, 1), 3, 2.0), ((4, 3), 3, 4.0)],
)
def test_estimates_variances_and_totals_agree_with_enumerating_the_channel(shape, width, epsilon):
    """p̂ is a linear function of the counts, so its variance follows from theirs exactly."""
    randomizer = wide(sum(shape), width, epsilon, shape)
    size, n = len(randomizer.cells), 10**9
    p = np.arange(1, size + 1) / (size * (size + 1) / 2)
    mean, covariance = exact_moments(randomizer, p)

    def estimate(shares):
        counts = np.round(shares * n).astype(np.int64)
        counts[-2] += n * width - counts.sum()  # rounding, where it does not matter
        return randomizer.estimate(counts, n)

    found = estimate(mean)
    assert found.cells.probability == pytest.approx(p, abs=1e-7)
    slopes = linear(randomizer, width)
    assert found.variance_at(p) == pytest.approx(np.diag(slopes @ covariance @ slopes.T) / n)
    for query in range(len(shape)):
        row = slopes[randomizer.cells.query_of_cell == query].sum(axis=0)
        total = found.query_totals
        assert total.variance[query] == pytest.approx(row @ covariance @ row / n, rel=1e-5)
        own = p[randomizer.cells.query_of_cell == query].sum()
        assert total.probability[query] == pytest.approx(own, abs=1e-6)
    assert randomizer.denoise(randomizer.expected_shares(p)) == pytest.approx(p)


def linear(randomizer, width):
    """∂p̂/∂(share on the wire), from `denoise`, which is linear."""
    size = len(randomizer.cells)

    def read(wire):
        shares = wire.copy()
        shares[: width - 1] -= wire[-1]
        shares[-1] *= width
        return randomizer.denoise(shares)

    zero = read(np.zeros(size))
    return np.stack([read(row) - zero for row in np.eye(size)], axis=1)


def test_answers_that_no_honest_device_sends_are_never_an_error():
    """⋆ with records that do not fill "none" up is refused before it is counted; yet, were it."""
    randomizer = wide(6, 3, 2.0)
    rng = np.random.default_rng(4)
    held = np.repeat(np.arange(7), [300, 200, 100, 50, 50, 50, 9250])
    counts = np.bincount(randomizer.answer_batch(held, rng).ravel(), minlength=7)
    liars = counts + np.array([0, 0, 0, 0, 100, 100, 100])

    after = randomizer.estimate(liars, 10_100).cells

    assert np.isfinite(after.probability).all()
    assert (after.variance > 0).all()


@pytest.mark.parametrize(("counts", "reports"), [([1, 1], 2), ([2, 1, 0], 2), ([3, -1, 0], 2)])
def test_counts_that_no_reports_can_make_are_refused(counts, reports):
    randomizer = build("subset-or-none", (2,), epsilon=1.0)
    with pytest.raises(HeadListMismatch, match="2 reports of 1 answers of 1 cells make 2 counts"):
        randomizer.estimate(np.array(counts), reports)


def test_cells_with_query_wildcards_are_refused():
    cells = Cells((Record("q", "u"),), query_wildcards=True)
    with pytest.raises(ParameterError, match="without query wildcards"):
        SubsetOrNone(cells, RandomizerSpec("subset-or-none", 1.0))


def test_answers_are_strictly_increasing_whatever_is_held():
    randomizer = wide(11, 4, 0.5)
    answers = randomizer.answer_batch(np.repeat(np.arange(12), 50), np.random.default_rng(2))
    assert all(x < y for answer in answers.tolist() for x, y in itertools.pairwise(answer))
