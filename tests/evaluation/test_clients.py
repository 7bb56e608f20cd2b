"""Drawing all devices at once must have the law of drawing each of them.

Statistical: seeds are fixed; bounds are at five standard errors, which one seed in a million would
miss for each number compared, and a few hundred numbers are compared.
"""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest

from blendstream.blender.paper.two_stage_estimates import TwoStageEstimator
from blendstream.blender.randomizers.subset_estimates import (
    RandomizedResponseEstimator,
    SubsetSelectionEstimator,
)
from blendstream.blender.randomizers.subset_or_none_estimates import SubsetOrNoneEstimator
from blendstream.blender.values.cells import Cells, RandomizerSpec
from blendstream.blender.values.interfaces import LocalRandomizer
from blendstream.blender.values.record import Record
from blendstream.evaluation.simulated_reports import draw_report_counts, draw_subjects

pytestmark = pytest.mark.long

RECORDS = (
    Record("a", "x"),
    Record("b", "y"),
    Record("a", "z"),
    Record("c", "x"),
    Record("a", "w"),
)


def two_stage(epsilon: float = 2.0) -> TwoStageEstimator:
    return TwoStageEstimator(
        Cells(RECORDS, query_wildcards=True), RandomizerSpec("two-stage", epsilon, 1e-5)
    )


def subset_selection(epsilon: float, records: int) -> SubsetSelectionEstimator:
    listed = tuple(Record(f"q{i}", "u") for i in range(records))
    spec = RandomizerSpec("subset-selection", epsilon)
    return SubsetSelectionEstimator(Cells(listed, query_wildcards=False), spec)


def subset_or_none(epsilon: float, records: int) -> SubsetOrNoneEstimator:
    listed = tuple(Record(f"q{i}", "u") for i in range(records))
    spec = RandomizerSpec("subset-or-none", epsilon)
    return SubsetOrNoneEstimator(Cells(listed, query_wildcards=False), spec)


def randomized_response() -> RandomizedResponseEstimator:
    spec = RandomizerSpec("randomized-response", 1.0)
    return RandomizedResponseEstimator(Cells(RECORDS, query_wildcards=False), spec)


RANDOMIZERS = {
    "two-stage": two_stage(),
    "two-stage, little budget": two_stage(0.9),
    "randomized response": randomized_response(),
    "subset selection, 2 of 6": subset_selection(0.7, 5),
    "subset selection, 3 of 21": subset_selection(2.0, 20),
    "subset or none, 2 of 4": subset_or_none(0.7, 4),
    "subset or none, 5 of 20": subset_or_none(2.0, 20),
}


@pytest.mark.parametrize("name", RANDOMIZERS)
def test_means_and_covariances_are_those_of_single_devices(name: str) -> None:
    """The estimator's variances would be tested against the wrong noise otherwise."""
    randomizer = RANDOMIZERS[name]
    cells = len(randomizer.cells)
    rng = np.random.default_rng(11)
    holders = rng.integers(0, 12, size=cells)
    runs = 1_500
    at_once = np.stack([draw_report_counts(randomizer, holders, rng) for _ in range(runs)])
    devices = np.repeat(np.arange(cells), holders)
    one_by_one = np.stack(
        [
            np.bincount(randomizer.answer_batch(devices, rng).ravel(), minlength=cells)
            for _ in range(runs)
        ]
    )

    assert (at_once.sum(axis=1) == holders.sum() * randomizer.cells_per_answer).all()
    spread = np.maximum(one_by_one.std(axis=0), 0.05)
    apart = np.abs(at_once.mean(axis=0) - one_by_one.mean(axis=0))
    assert (apart <= 5 * spread * np.sqrt(2 / runs)).all()
    # A covariance of nearly normal variables has standard error √((σ²σ′² + c²)/runs).
    ours, theirs = (np.cov(counts, rowvar=False) for counts in (at_once, one_by_one))
    variances = np.maximum(np.outer(spread**2, spread**2), 0.01)
    error = np.sqrt(2 * (variances + theirs**2) / runs)
    assert (np.abs(ours - theirs) <= 5.5 * error).all()


@pytest.mark.parametrize(
    ("randomizer", "holders"),
    [
        (subset_selection(0.3, 3), (2, 0, 1, 0)),
        (subset_selection(0.3, 4), (1, 1, 0, 0, 1)),
        (subset_or_none(0.7, 4), (1, 1, 0, 0, 1)),
        (two_stage(1.5), (1, 0, 1, 0, 0, 0, 0, 0, 1)),
    ],
    ids=["2 of 4 cells", "2 of 5 cells", "2 of 4 records, or none", "two-stage"],
)
def test_every_outcome_is_as_likely_as_enumeration_says(
    randomizer: LocalRandomizer, holders: tuple[int, ...]
) -> None:
    """All devices' answers are enumerated; no moment of the law is left to chance."""
    cells = len(randomizer.cells)
    exact = exact_law(randomizer, holders)
    runs = 4_000
    rng = np.random.default_rng(5)
    drawn = Counter(
        tuple(draw_report_counts(randomizer, np.array(holders), rng).tolist()) for _ in range(runs)
    )

    assert set(drawn) <= set(exact)
    assert sum(exact.values()) == pytest.approx(1)
    for counts, p in exact.items():
        margin = 5 * np.sqrt(runs * p * (1 - p)) + 5
        assert abs(drawn[counts] - runs * p) <= margin, (counts, cells)


def exact_law(
    randomizer: LocalRandomizer, holders: tuple[int, ...]
) -> dict[tuple[int, ...], float]:
    """P(counts) by going through every combination of all devices' answers."""
    cells, width = len(randomizer.cells), randomizer.cells_per_answer
    answers = [a for a in product(range(cells), repeat=width) if list(a) == sorted(set(a))]
    law: dict[tuple[int, ...], float] = {(0,) * cells: 1.0}
    for cell, devices in enumerate(holders):
        held = randomizer.cells.cell(cell)
        record = Record(held.query or "", held.url or "unlisted") if held.query else None
        chances = {a: float(randomizer.report_probability(record, a)) for a in answers}
        for _ in range(devices):
            after: dict[tuple[int, ...], float] = {}
            for counts, p in law.items():
                for answer, chance in chances.items():
                    seen = tuple(n + (c in answer) for c, n in enumerate(counts))
                    after[seen] = after.get(seen, 0.0) + p * chance
            law = after
    return law


def test_an_empty_head_list_has_one_cell_and_every_answer_is_it() -> None:
    """Nothing to tell apart: the count is the number of devices."""
    randomizer = TwoStageEstimator(
        Cells((), query_wildcards=True), RandomizerSpec("two-stage", 4.0, 1e-5)
    )

    assert draw_report_counts(randomizer, np.array([17]), np.random.default_rng(1)).tolist() == [17]


def test_every_outcome_of_two_answers_is_as_likely_as_enumeration_says() -> None:
    """Two answers of a device about its one record, each with half of ε (m_C = 2)."""
    listed = tuple(Record(f"q{i}", "u") for i in range(3))
    spec = RandomizerSpec("subset-selection", 1.2, answers=2)
    randomizer = SubsetSelectionEstimator(Cells(listed, query_wildcards=False), spec)
    # Answers are independent, so two of one device are as good as one of each of two devices.
    exact = exact_law(randomizer, (4, 0, 2, 0))
    runs = 4_000
    rng = np.random.default_rng(6)
    drawn = Counter(
        tuple(draw_report_counts(randomizer, np.array([2, 0, 1, 0]), rng).tolist())
        for _ in range(runs)
    )

    assert float(randomizer.likelihood) == pytest.approx(np.exp(0.6))
    for counts, p in exact.items():
        assert abs(drawn[counts] - runs * p) <= 5 * np.sqrt(runs * p * (1 - p)) + 5, counts


@pytest.mark.parametrize(("answers", "records_each"), [(2, 1), (2, 3), (3, 2)])
def test_subjects_are_drawn_from_each_devices_own_records(answers: int, records_each: int) -> None:
    """Answers of one device may be about one record: their counts vary more than one by one.

    Means and variances of 4 000 draws against 4 000 of devices one by one; five standard errors.
    """
    p, devices, runs = np.array([0.5, 0.2, 0.3]), 20, 4_000
    rng = np.random.default_rng(9)
    at_once = np.stack([draw_subjects(devices, answers, records_each, p, rng) for _ in range(runs)])
    held = rng.choice(3, size=(runs, devices, records_each), p=p)
    chosen = rng.integers(0, records_each, size=(runs, devices, answers))
    subjects = np.take_along_axis(held, chosen, axis=2).reshape(runs, -1)
    one_by_one = np.stack([(subjects == cell).sum(axis=1) for cell in range(3)], axis=1)

    assert (at_once.sum(axis=1) == devices * answers).all()
    ours, theirs = at_once.var(axis=0), one_by_one.var(axis=0)
    apart = np.abs(at_once.mean(axis=0) - one_by_one.mean(axis=0))
    assert (apart <= 5 * np.sqrt((ours + theirs) / runs)).all()
    assert (np.abs(ours - theirs) <= 5 * (ours + theirs) * np.sqrt(1 / runs)).all()
    # Two answers are about one record with probability 1/records_each: the covariance is p(1−p)
    # then. Independent answers, a common mistake, would vary less, and this sees it.
    pairs = answers * (answers - 1) / records_each
    expected = devices * p * (1 - p) * (answers + pairs)
    assert (np.abs(ours - expected) <= 5 * expected * np.sqrt(2 / runs)).all()
    assert (expected - devices * answers * p * (1 - p) > 6 * expected * np.sqrt(2 / runs)).all()
