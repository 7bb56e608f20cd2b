"""Whole-record randomizers: numbers worked by hand, and sums that no code wrote."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from blendstream.blender import (
    Cells,
    HeadListMismatch,
    ParameterError,
    RandomizerSpec,
    Record,
    SystemRandomSource,
)
from blendstream.blender.randomizers.subset_selection import (
    RandomizedResponse,
    SubsetSelection,
    best_subset_size,
    rare_variance,
)
from tests.channels import build
from tests.doubles import ScriptedDice


def test_k_ary_randomized_response_by_hand():
    """K = 3, E = e^ε: the truth with E/(E+2), each lie with 1/(E+2)."""
    randomizer = build("randomized-response", (2,), epsilon=1.0)
    e = randomizer.likelihood

    assert randomizer.report_probability(None, (2,)) == e / (e + 2)
    assert randomizer.report_probability(None, (0,)) == 1 / (e + 2)


def test_subset_selection_by_hand():
    """K = 4, ω = 2: three sets hold the true cell, three do not; E/(3E+3) and 1/(3E+3)."""
    randomizer = build("subset-selection", (3,), epsilon=0.1)
    e = randomizer.likelihood
    assert randomizer.cells_per_answer == 2

    assert randomizer.report_probability(None, (0, 3)) == e / (3 * e + 3)
    assert randomizer.report_probability(None, (0, 1)) == 1 / (3 * e + 3)


@pytest.mark.parametrize("answer", [(), (0,), (0, 0), (1, 0), (0, 4), (-1, 2), (0, 1, 2)], ids=str)
def test_what_is_no_answer_has_probability_zero(answer):
    randomizer = build("subset-selection", (3,), epsilon=0.1)
    assert randomizer.report_probability(None, answer) == 0


def test_the_device_decides_by_whole_numbers():
    """p = aω/(aω + d(K−ω)) with E = a/d: a throw below aω holds the truth, aω itself does not."""
    randomizer = build("subset-selection", (3,), epsilon=0.1)
    a, d = randomizer.likelihood.numerator, randomizer.likelihood.denominator
    truth = ScriptedDice(2 * a - 1, 0)
    lie = ScriptedDice(2 * a, 0, 0)

    # One other of 3 (throw 0 → cell 0); two others of 3 by Floyd: 0, then 0 again stands for 2.
    assert randomizer.answer(1, truth) == (0, 1)
    assert randomizer.answer(1, lie) == (0, 3)
    assert truth.bounds == [2 * a + 2 * d, 3]
    assert lie.bounds == [2 * a + 2 * d, 2, 3]


def test_answers_are_strictly_increasing_whatever_is_held():
    randomizer = build("subset-selection", (11,), epsilon=0.5)
    assert randomizer.cells_per_answer > 2
    for cell in range(12):
        answer = randomizer.answer(cell, SystemRandomSource())
        assert all(x < y for x, y in itertools.pairwise(answer))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_the_subset_size_is_the_best_of_all(epsilon):
    """Only three sizes are looked at; here all are."""
    e = Fraction(math.exp(epsilon))
    for cells in (2, 3, 5, 12, 51, 200):
        for cap in (1, 3, 32):
            every = range(1, max(1, min(cap, cells - 1)) + 1)
            best = min(every, key=lambda w: rare_variance(cells, e, w))
            assert best_subset_size(cells, e, cap) == best, (cells, cap)


def test_the_sizes_of_the_papers_settings():
    e = Fraction(math.exp(4))
    assert [best_subset_size(k, e, 10_000) for k in (51, 501, 50_001)] == [1, 9, 899]
    assert best_subset_size(50_001, e, 32) == 32


def exact_moments(randomizer, p):
    """E and Cov of the cells in one answer, by going through all records and answers."""
    size, w = len(randomizer.cells), randomizer.cells_per_answer
    mean, second = np.zeros(size), np.zeros((size, size))
    for cell, share in enumerate(p):
        record = randomizer.cells.records[cell] if cell < size - 1 else None
        for answer in itertools.combinations(range(size), w):
            mass = share * float(randomizer.report_probability(record, answer))
            held = np.zeros(size)
            held[list(answer)] = 1
            mean += mass * held
            second += mass * np.outer(held, held)
    return mean, second - np.outer(mean, mean)


@pytest.mark.parametrize(("shape", "epsilon"), [((2, 1), 1.0), ((3, 2, 1), 0.4), ((3, 2), 4.0)])
def test_shares_variances_and_totals_agree_with_enumerating_the_channel(shape, epsilon):
    """The variance of a query's total holds the covariance of its records."""
    randomizer = build("subset-selection", shape, epsilon=epsilon)
    size = len(randomizer.cells)
    p = np.arange(1, size + 1) / (size * (size + 1) / 2)
    mean, covariance = exact_moments(randomizer, p)
    n = 1000
    # The gain from p to share is the same for all cells.
    gain = randomizer.expected_shares(np.ones(size))[0] - randomizer.expected_shares(np.zeros(1))[0]

    assert randomizer.expected_shares(p) == pytest.approx(mean)
    assert randomizer.denoise(mean) == pytest.approx(p)

    counts = np.round(mean * n).astype(np.int64)
    counts[-1] += n * randomizer.cells_per_answer - counts.sum()
    estimates = randomizer.estimate(counts, n)
    assert estimates.variance_at(p) == pytest.approx(np.diag(covariance) / (n * gain**2))
    for query in range(len(shape)):
        own = randomizer.cells.query_of_cell == query
        total = covariance[np.ix_(own, own)].sum() / (n * gain**2)
        assert estimates.query_totals.variance[query] == pytest.approx(total, rel=0.05)


def test_more_answers_a_device_multiply_the_variance_by_their_number():
    """Two answers at ε/2 each; what they share cannot be seen in counts."""
    one = build("randomized-response", (2,), epsilon=1.0)
    two = build("randomized-response", (2,), epsilon=2.0, answers=2)
    p = np.array([0.2, 0.3, 0.5])

    assert two.likelihood == one.likelihood
    alone = one.estimate(np.array([200, 300, 500]), 1000).variance_at(p)
    both = two.estimate(np.array([400, 600, 1000]), 1000).variance_at(p)
    assert both == pytest.approx(alone)


@pytest.mark.parametrize(
    ("counts", "reports"), [([1, 1], 2), ([2, 1, 0], 2), ([3, -1, 0], 2), ([3, 0, 0], 2)]
)
def test_counts_that_no_reports_can_make_are_refused(counts, reports):
    randomizer = build("randomized-response", (2,), epsilon=1.0)
    with pytest.raises(HeadListMismatch, match="2 reports of 1 answers of 1 cells make 2 counts"):
        randomizer.estimate(np.array(counts), reports)


def test_cells_with_query_wildcards_are_refused():
    cells = Cells((Record("q", "u"),), query_wildcards=True)
    with pytest.raises(ParameterError, match="without query wildcards"):
        SubsetSelection(cells, RandomizerSpec("subset-selection", 1.0))


def test_randomized_response_is_subset_selection_of_one():
    few = build("subset-selection", (3,), epsilon=4.0)
    assert isinstance(build("randomized-response", (3,), epsilon=4.0), RandomizedResponse)
    assert few.cells_per_answer == 1
