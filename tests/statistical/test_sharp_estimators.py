"""Whole-record estimators are unbiased, their variances right, and their intervals cover.

Passing proves no privacy. Seeds are fixed. Means and variances: 4 standard errors at each of fewer
than 500 comparisons (one seed in 16 000 would fail each). Coverage: a one-sided bound at 1e-6 on
the true coverage of each single cell and total.
"""

from __future__ import annotations

import numpy as np
import pytest

from blendstream.blender import RandomizerSpec, Record
from blendstream.blender.paper.optin import NoisyCounts, estimate_noisy_counts
from blendstream.blender.registry import randomizer_for
from blendstream.blender.sharp.difference_blend import blend_groups
from blendstream.blender.sharp.optin_posterior import estimate_optin_shares
from blendstream.blender.values.cells import HeadList
from tests.channels import all_answers, channel_fractions
from tests.doubles import SeededNoise

pytestmark = pytest.mark.statistical

#: Φ^{-1}(1 − 1e-6).
ONE_IN_A_MILLION = 4.7534


def head_list(records: int, epsilon: float, name: str) -> HeadList:
    listed = tuple(Record(f"q{i // 3}", f"u{i}") for i in range(records))
    return HeadList(listed, records, RandomizerSpec(name, epsilon), query_wildcards=False)


def truth(records: int) -> np.ndarray:
    p = 0.12 / np.arange(1, records + 1)
    return np.append(p, 1 - p.sum())


def many_epochs(randomizer, p, n, runs, rng):
    """The counts of `runs` epochs of n devices, from the exact distribution of an answer.

    Devices draw their records from p, so how often each answer is seen is multinomial.
    """
    answers = all_answers(randomizer)
    channel = np.array([[float(x) for x in row] for row in channel_fractions(randomizer)])
    holds = np.zeros((len(answers), len(randomizer.cells)))
    for i, answer in enumerate(answers):
        holds[i, list(answer)] = 1
    distribution = p @ channel
    seen = rng.multinomial(n, distribution / distribution.sum(), size=runs)
    return np.rint(seen @ holds).astype(np.int64)


def assert_within_4_standard_errors(samples, true, what):
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    assert (np.abs(samples.mean(axis=0) - true) <= 4 * error).all(), what


def assert_variance_is_right(samples, stated, what):
    """Mean published σ̂² against the spread seen, whose own error follows from the 4th moment."""
    centred = samples - samples.mean(axis=0)
    seen = (centred**2).mean(axis=0)
    error_of_seen = np.sqrt(((centred**2 - seen) ** 2).mean(axis=0) / len(samples))
    error = np.hypot(error_of_seen, stated.std(axis=0) / np.sqrt(len(samples)))
    # σ̂² is never taken at a negative p̂, so where p̂ often is, it is a little too large.
    floor = np.where(samples.min(axis=0) < 0, 0.02 * seen, 0.0)
    assert (stated.mean(axis=0) - seen <= 4 * error + floor).all(), what
    assert (seen - stated.mean(axis=0) <= 4 * error).all(), what


CASES = [
    (5, 1.0, "randomized-response"),
    (50, 4.0, "randomized-response"),
    (10, 1.0, "subset-selection"),
    (20, 2.0, "subset-selection"),
    (12, 1.0, "subset-or-none"),
    (16, 2.5, "subset-or-none"),
]


def test_the_cases_name_more_than_one_record_where_they_can():
    sizes = [randomizer_for(head_list(*case)).cells_per_answer for case in CASES]
    assert sizes == [1, 1, 3, 2, 3, 2]


@pytest.mark.parametrize(("records", "epsilon", "name"), CASES)
def test_client_estimates_and_query_totals_are_unbiased_with_the_stated_variance(
    records, epsilon, name
):
    """6 000 epochs of 3 000 devices: cells and totals, published variances and `variance_at`."""
    randomizer = randomizer_for(head_list(records, epsilon, name))
    rng, p, n = np.random.default_rng(11), truth(records), 3000
    found = randomizer.estimate(many_epochs(randomizer, p, n, 6000, rng), n)
    of_query = randomizer.cells.query_of_cell[:-1]

    for what, true in (("cells", p), ("query_totals", np.bincount(of_query, weights=p[:-1]))):
        estimates = getattr(found, what)
        assert_within_4_standard_errors(estimates.probability, true, what)
        assert_variance_is_right(estimates.probability, estimates.variance, what)

    one = randomizer.estimate(many_epochs(randomizer, p, n, 1, rng)[0], n)
    ratio = one.variance_at(p) / found.cells.probability.var(axis=0)
    assert (np.abs(ratio - 1) < 4 * np.sqrt(2 / 6000) + 0.02).all(), "variance_at the truth"


@pytest.mark.parametrize(("records", "epsilon", "name"), CASES[1:])
def test_client_intervals_cover_94_to_97_percent(records, epsilon, name, report):
    """80 000 epochs, every cell and every query's total on its own (± 0.37 %)."""
    randomizer = randomizer_for(head_list(records, epsilon, name))
    rng, p, n, runs = np.random.default_rng(12), truth(records), 20_000, 80_000
    of_query = randomizer.cells.query_of_cell[:-1]
    truths = {"cells": p, "query_totals": np.bincount(of_query, weights=p[:-1])}
    covered = {what: np.zeros(len(true)) for what, true in truths.items()}
    width = 0.0
    for _ in range(20):
        found = randomizer.estimate(many_epochs(randomizer, p, n, runs // 20, rng), n)
        for what, true in truths.items():
            group = getattr(found, what)
            covered[what] += ((group.low <= true) & (true <= group.high)).sum(axis=0)
        width += (found.cells.high - found.cells.low).mean() / 20
    coverage = np.concatenate(list(covered.values())) / runs
    report(
        f"{name}, {records} records, ε = {epsilon}, {n} devices: coverage "
        f"{coverage.min():.4f} to {coverage.max():.4f}, mean width {width:.2e}"
    )
    margin = ONE_IN_A_MILLION * np.sqrt(coverage * (1 - coverage) / runs)
    assert (coverage - margin).min() >= 0.94
    assert (coverage + margin).max() <= 0.97


def test_the_blend_on_a_fixed_list_covers_and_is_closer_than_either_group(thorough, report):
    """No selection here: T and clients on a list that neither of them chose; 300 epochs.

    A coverage of 94 % of all cells together is not refuted at odds of 1e-6; with --slow twenty
    times as many epochs are above it.
    """
    runs = 6_000 if thorough else 300
    head = head_list(20, 4.0, "randomized-response")
    randomizer, cells = randomizer_for(head), head.cells
    rng, noise = np.random.default_rng(13), SeededNoise(14)
    p, t_users, n = truth(20), 1642, 60_000
    of_query = cells.query_of_cell[:-1]
    true_totals = np.bincount(of_query, weights=p[:-1])
    reports = many_epochs(randomizer, p, n, runs, rng)
    held = noise.discrete_laplace(rng.multinomial(t_users, p, size=runs).ravel(), scale=0.5)
    ones = np.ones(len(cells), dtype=np.int64)
    errors, covered, totals_covered = np.zeros(3), [], []
    for shown, counts in zip(reports, held.reshape(runs, -1), strict=True):
        t = NoisyCounts(counts, ones, 0.5, t_users)
        optin = estimate_noisy_counts(t, cells, intervals_from=20)
        client = randomizer.estimate(shown, n)
        shares = estimate_optin_shares(None, t, 20)
        blended = blend_groups(shares, optin, client, cells, devices_admitted=True).estimates
        groups = (optin, client, blended)
        errors += [((g.cells.probability[:-1] - p[:-1]) ** 2).sum() for g in groups]
        covered.append((blended.cells.low <= p) & (p <= blended.cells.high))
        totals = blended.query_totals
        totals_covered.append((totals.low <= true_totals) & (true_totals <= totals.high))
    report(f"blend on a fixed list: squared error {errors[2] / errors[:2].min():.3f} of the better "
           "group's")  # fmt: skip
    assert errors[2] < 0.95 * errors[:2].min()
    for what, kind in (("cells", covered), ("totals", totals_covered)):
        coverage = np.mean(kind)
        report(f"blend on a fixed list, {what}: coverage {coverage:.4f} of {np.size(kind)}")
        margin = ONE_IN_A_MILLION * np.sqrt(0.95 * 0.05 / np.size(kind))
        assert coverage > 0.94 - (0 if thorough else margin), what
