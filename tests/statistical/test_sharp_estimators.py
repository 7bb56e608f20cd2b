"""Whole-record estimators are unbiased, their variances right, and their intervals cover.

Passing proves no privacy. Seeds are fixed. Means and variances: 4 standard errors on each of at
most 31 cells (one seed in 500 would fail such a test); coverage: a one-sided bound at 1e-6.
"""

from __future__ import annotations

import numpy as np
import pytest

from agents.evaluation.clients import draw_report_counts
from blender import Cells, RandomizerSpec, Record
from blender.cells import HeadList
from blender.estimates import GroupEstimates
from blender.optin import NoisyCounts, estimate_noisy_counts
from blender.registry import randomizer_for
from blender.stable_blend import StableBlender
from tests.doubles import SeededNoise

pytestmark = pytest.mark.statistical

RUNS = 2500
#: 4.75 standard errors: a one-sided normal bound at 1e-6.
ONE_IN_A_MILLION = 4.75


def head_list(records: int, epsilon: float, name: str) -> HeadList:
    listed = tuple(Record(f"q{i // 3}", f"u{i}") for i in range(records))
    return HeadList(listed, records, RandomizerSpec(name, epsilon), query_wildcards=False)


def truth(records: int) -> np.ndarray:
    p = 0.12 / np.arange(1, records + 1)
    return np.append(p, 1 - p.sum())


def denoised(randomizer, shares):
    """p̂ of many epochs at once: what fills up an answer of "none" is taken off first."""
    if randomizer.name == "subset-or-none":
        width = randomizer.cells_per_answer
        shares = shares.copy()
        shares[:, : width - 1] -= shares[:, -1:]
        shares[:, -1] *= width
    return randomizer.denoise(shares)


@pytest.mark.parametrize(
    ("records", "epsilon", "name"),
    [
        (5, 1.0, "randomized-response"),
        (30, 4.0, "randomized-response"),
        (6, 0.5, "subset-selection"),
        (30, 1.0, "subset-selection"),
        (30, 1.0, "subset-or-none"),
        (60, 3.0, "subset-or-none"),
    ],
)
def test_client_estimates_and_query_totals_are_unbiased_with_the_stated_variance(
    records, epsilon, name
):
    randomizer = randomizer_for(head_list(records, epsilon, name))
    rng = np.random.default_rng(11)
    p, n = truth(records), 3000
    shown = np.array(
        [draw_report_counts(randomizer, rng.multinomial(n, p), rng) for _ in range(RUNS)]
    )
    estimates = denoised(randomizer, shown / n)
    stated = [randomizer.estimate(row, n) for row in shown[:200]]
    assert stated[0].cells.probability == pytest.approx(estimates[0])

    error = estimates.std(axis=0, ddof=1) / np.sqrt(RUNS)
    assert (np.abs(estimates.mean(axis=0) - p) < 4 * error).all()
    # The variance of a sample variance of near-normal values is 2σ⁴/runs.
    spread = 4 * np.sqrt(2 / RUNS)
    assert estimates.var(axis=0, ddof=1) == pytest.approx(stated[0].variance_at(p), rel=spread)

    of_query = randomizer.cells.query_of_cell[:-1]
    totals = np.stack([np.bincount(of_query, weights=row[:-1]) for row in estimates])
    sampled = np.array([found.query_totals.variance for found in stated])
    assert totals.var(axis=0, ddof=1) == pytest.approx(sampled.mean(axis=0), rel=spread + 0.05)


@pytest.mark.parametrize(
    ("records", "epsilon", "n", "name"),
    [
        (50, 4.0, 20_000, "subset-selection"),
        (50, 1.0, 20_000, "subset-selection"),
        (50, 1.0, 20_000, "subset-or-none"),
    ],
)
def test_client_intervals_cover_94_to_97_percent(records, epsilon, n, name):
    """800 epochs of 51 cells each: more than 40 000 intervals."""
    randomizer = randomizer_for(head_list(records, epsilon, name))
    rng = np.random.default_rng(12)
    p, covered, width = truth(records), [], []
    for _ in range(800):
        shown = draw_report_counts(randomizer, rng.multinomial(n, p), rng)
        cells = randomizer.estimate(shown, n).cells
        covered.append((cells.low <= p) & (p <= cells.high))
        width.append(cells.high - cells.low)
    coverage, intervals = np.mean(covered), np.size(covered)
    print(f"K=51 ε={epsilon} n={n}: coverage {coverage:.4f}, mean width {np.mean(width):.2e}")

    assert coverage > 0.94 - ONE_IN_A_MILLION * np.sqrt(0.94 * 0.06 / intervals)
    assert coverage < 0.97 + ONE_IN_A_MILLION * np.sqrt(0.97 * 0.03 / intervals)


def test_the_blend_on_a_fixed_list_is_unbiased_and_covers():
    """No selection here: T and clients on a list that neither of them chose."""
    head = head_list(20, 4.0, "randomized-response")
    randomizer, cells = randomizer_for(head), head.cells
    rng, noise = np.random.default_rng(13), SeededNoise(14)
    p, t_users, n = truth(20), 1642, 60_000
    found, covered, totals_covered = [], [], []
    of_query = cells.query_of_cell[:-1]
    true_totals = np.bincount(of_query, weights=p[:-1])
    for _ in range(400):
        optin = _t_estimates(rng.multinomial(t_users, p), noise, cells)
        client = randomizer.estimate(draw_report_counts(randomizer, rng.multinomial(n, p), rng), n)
        blended = StableBlender().blend(optin, client, cells)
        found.append(blended.cells.probability)
        covered.append((blended.cells.low <= p) & (p <= blended.cells.high))
        totals = blended.query_totals
        totals_covered.append((totals.low <= true_totals) & (true_totals <= totals.high))
    estimates = np.array(found)
    error = estimates.std(axis=0, ddof=1) / np.sqrt(len(estimates))
    # Weights at the pooled p still share a little of its noise: half a per cent of p is allowed.
    assert (np.abs(estimates.mean(axis=0) - p) < 4 * error + 0.005 * p).all()
    for kind in (covered, totals_covered):
        bound = 0.94 - ONE_IN_A_MILLION * np.sqrt(0.94 * 0.06 / np.size(kind))
        assert np.mean(kind) > bound


def _t_estimates(counts: np.ndarray, noise: SeededNoise, cells: Cells) -> GroupEstimates:
    noisy = noise.discrete_laplace(counts, scale=0.5)
    ones = np.ones(len(cells), dtype=np.int64)
    return estimate_noisy_counts(NoisyCounts(noisy, ones, 0.5, int(counts.sum())), cells)
