"""What a forged report weighs, recomputed: the table in docs/privacy-forged-reports.md is true."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from blendstream.blender.randomizers.subset_or_none_estimates import SubsetOrNoneEstimator
from blendstream.blender.values.cells import Cells, RandomizerSpec
from blendstream.blender.values.record import Record

PAGE = Path(__file__).parents[4] / "docs" / "privacy-forged-reports.md"
ROW = re.compile(
    r"\|[^|]*?(?:ω = (\d+))\)? ?\| (\d+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) people \|"
)
ROWS = ROW.findall(PAGE.read_text(encoding="utf-8"))


def channel(epsilon: float, cells: int, omega: int) -> tuple[float, float]:
    """p and q of subset selection, ω cells a report."""
    grown = omega * math.exp(epsilon)
    p = grown / (grown + cells - omega)
    q = p * (omega - 1) / (cells - 1) + (1 - p) * omega / (cells - 1)
    return p, q


def test_the_page_has_its_table():
    assert len(ROWS) == 3


@pytest.mark.parametrize("row", ROWS)
def test_the_table_is_what_the_formulas_give(row):
    omega, epsilon, cells = int(row[0]), float(row[1]), int(row[2])
    p, q = channel(epsilon, cells, omega)
    assert float(row[3]) == pytest.approx(p, abs=0.0006)
    assert float(row[4]) == pytest.approx(q, abs=0.00006)
    assert float(row[5]) == pytest.approx((1 - q) / (p - q), rel=0.03)


@pytest.mark.parametrize("row", ROWS)
def test_forged_reports_move_the_estimate_by_as_much_as_stated(row):
    """Δ = f/(n+f)·[(1 − q)/(p − q) − π], by expected counts: no dice, no noise."""
    omega, epsilon, cells = int(row[0]), float(row[1]), int(row[2])
    p, q = channel(epsilon, cells, omega)
    n, f, share = 100_000, 1_000, 0.01
    honest = n * (share * p + (1 - share) * q)

    def estimate(count: float, reports: int) -> float:
        return (count / reports - q) / (p - q)

    moved = estimate(honest + f, n + f) - estimate(honest, n)
    assert moved == pytest.approx(f / (n + f) * ((1 - q) / (p - q) - share), rel=1e-9)
    # A crowd of f people who hold the record moves it by f/(n+f)·(1 − π).
    crowd = estimate(honest + f * p, n + f) - estimate(honest, n)
    assert crowd == pytest.approx(f / (n + f) * (1 - share), rel=1e-9)
    assert moved / crowd == pytest.approx(float(row[5]), rel=0.04)


def test_what_lies_weigh_with_subset_or_none():
    """The estimate is linear in the counts, so what one kind of lie does alone is its weight."""
    cells = Cells([Record(f"q{i}", "u") for i in range(500)], query_wildcards=False)
    randomizer = SubsetOrNoneEstimator(cells, RandomizerSpec("subset-or-none", 4.0))
    assert randomizer.cells_per_answer == 16

    def weighs(answer: list[int]) -> np.ndarray:
        counts = np.zeros(501, dtype=np.int64)
        counts[answer] = 1_000
        return randomizer.estimate(counts, 1_000).cells.probability

    assert weighs(list(range(100, 116)))[100] == pytest.approx(1.60, abs=0.005)
    none = weighs([*range(15), 500])
    assert none[500] == pytest.approx(1.58, abs=0.005)
    assert np.abs(none[:500]).max() < 0.06
    # What is refused, and why: it would weigh against records that it does not name.
    refused = weighs([*range(100, 115), 500])
    assert randomizer.report_probability(None, (*range(100, 115), 500)) == 0
    assert refused[0] == pytest.approx(-1.65, abs=0.005)
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert "| 14 to 16 records of 500 | 1.6 to 1.7 people for each of them |" in page
    assert '| "none" | 1.6 people without a listed record |' in page
    assert "1.65 people against each of the first" in page
