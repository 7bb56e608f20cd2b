"""Estimates are right on average, their variances are right, and their intervals cover.

On a fixed head list: choosing the list by the same noise biases what is chosen, which is the
paper's and documented. Seeds are fixed. "4 standard errors" would fail for one seed in 16 000 at
each of the comparisons made (fewer than 500). Coverage is judged at one-sided odds of 1e-6.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from blendstream.blender import Estimates, blend_probabilities
from blendstream.blender.noise.exact_noise import laplace_scale, laplace_variance
from blendstream.blender.paper.optin import NoisyCounts, probability_and_variance
from blendstream.blender.values.intervals import noisy_count_interval, sum_of_laplace
from tests.channels import build
from tests.doubles import SeededNoise

pytestmark = pytest.mark.statistical

#: Φ^{-1}(1 − 1e-6).
ONE_IN_A_MILLION = 4.7534


def assert_within_4_standard_errors(samples, truth, what):
    error = samples.std(axis=0, ddof=1) / math.sqrt(len(samples))
    assert (np.abs(samples.mean(axis=0) - truth) <= 4 * error + 1e-15).all(), what


def assert_variance_is_right(samples, variances, what):
    """Mean σ̂² against the variance seen, whose own standard error follows from the 4th moment."""
    centred = samples - samples.mean(axis=0)
    seen = (centred**2).mean(axis=0)
    spread_of_seen = np.sqrt(((centred**2 - seen) ** 2).mean(axis=0) / len(samples))
    spread_of_mean = variances.std(axis=0) / math.sqrt(len(samples))
    error = np.hypot(spread_of_seen, spread_of_mean)
    assert (np.abs(variances.mean(axis=0) - seen) <= 4 * error).all(), what


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_opt_in_estimates_are_unbiased_and_their_variances_right(epsilon):
    """6 000 runs of 400 users over seven cells, one of them merged from five."""
    runs, users = 6000, 400
    p = np.array([0.3, 0.2, 0.1, 0.08, 0.06, 0.06, 0.2])
    terms = np.array([1, 1, 1, 1, 1, 2, 5])
    scale = laplace_scale(sensitivity=2, epsilon=epsilon)
    counts = np.random.default_rng(1).multinomial(users, p, size=runs)
    noise = SeededNoise(2)
    for cell, draws in enumerate(terms):
        for _ in range(draws):
            counts[:, cell] = noise.discrete_laplace(counts[:, cell], scale=scale)

    flat = NoisyCounts(counts.ravel(), np.tile(terms, runs), scale, users)
    found, variance = (a.reshape(runs, -1) for a in probability_and_variance(flat))

    assert_within_4_standard_errors(found, p, "p̂")
    assert_variance_is_right(found, variance, "σ̂²")

    # A query's total: the sum of its cells with the noise of both.
    total = NoisyCounts(counts[:, 1] + counts[:, 5], np.full(runs, 3), scale, users)
    found, variance = probability_and_variance(total)
    assert_within_4_standard_errors(found, 0.26, "total")
    assert_variance_is_right(found, variance, "σ̂² of the total")


def test_the_variance_floor_only_ever_makes_us_less_sure():
    """At p = 0 half of the plug-in variances would lie under the noise that is certainly there."""
    scale, users = 0.5, 400
    counts = SeededNoise(3).discrete_laplace(np.zeros(20_000, dtype=np.int64), scale=scale)
    flat = NoisyCounts(counts, np.ones_like(counts), scale, users)
    _, variance = probability_and_variance(flat)
    true = laplace_variance(scale) / users**2
    assert variance.min() >= true


@pytest.mark.parametrize("answers", [1, 2])
@pytest.mark.parametrize(("shape", "epsilon"), [((2, 1, 1), 4.0), ((3, 2), 1.5)])
def test_client_estimates_are_unbiased_and_their_variances_right(shape, epsilon, answers):
    """4 000 runs of 600 simulated devices through the batch form, cells, totals and marginals.

    With two answers a device that hold the same record the variance is a bound, so only that it
    is not exceeded is asked.
    """
    runs, devices = 4000, 600
    randomizer = build("two-stage", shape, epsilon=epsilon, delta=1e-4, answers=answers)
    size = len(randomizer.cells)
    rng = np.random.default_rng(11)
    p = np.linspace(3, 1, size) / np.linspace(3, 1, size).sum()
    held = rng.choice(size, size=runs * devices, p=p)
    told = [randomizer.answer_batch(held, rng)[:, 0].reshape(runs, -1) for _ in range(answers)]
    rows = np.arange(runs)[:, np.newaxis] * size
    counts = sum(
        np.bincount((rows + t).ravel(), minlength=runs * size).reshape(runs, size) for t in told
    )
    found = randomizer.estimate(counts, devices)

    query = randomizer.cells.query_of_cell
    listed = len(randomizer.cells.records)
    truths = {
        "cells": p,
        "query_totals": np.bincount(query[:listed], p[:listed]),
        "query_marginals": np.bincount(query[:-1], p[:-1]),
    }
    for what, truth in truths.items():
        estimates = getattr(found, what)
        assert_within_4_standard_errors(estimates.probability, truth, what)
        if answers == 1:
            assert_variance_is_right(estimates.probability, estimates.variance, what)
        else:
            seen = estimates.probability.var(axis=0)
            assert (estimates.variance.mean(axis=0) >= 0.95 * seen).all()

    at_truth = found.variance_at(p)
    if answers == 1:
        ratio = at_truth / found.cells.probability.var(axis=0)
        assert (np.abs(ratio - 1) < 0.15).all(), "variance_at: 4 standard errors are 9 %"


def exact_distribution(users, p, noise):
    """P(Binomial + X = y) for y from −half: by summation, no simulation."""
    x = np.arange(users + 1)
    log_choose = np.concatenate([[0.0], np.cumsum(np.log((users - x[1:] + 1) / x[1:]))])
    return np.convolve(np.exp(log_choose + x * np.log(p) + (users - x) * np.log1p(-p)), noise)


@pytest.mark.parametrize("terms", [1, 4])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
@pytest.mark.parametrize(("users", "largest"), [(50, 1.0), (200, 1.0), (1642, 0.05)])
def test_opt_in_intervals_cover_at_every_point_of_a_grid(users, largest, epsilon, terms):
    """Exact: no runs, no odds. Both tails are at most 2.5 %, so 95 % is reached everywhere."""
    scale = laplace_scale(sensitivity=2, epsilon=epsilon)
    noise = sum_of_laplace(terms, scale=scale)
    half = len(noise) // 2
    # Every count that has a chance worth summing at the largest p of the grid.
    top = min(users, math.ceil(users * largest + 12 * math.sqrt(users * largest)))
    y = np.arange(-half, top + half + 1)
    low, high = noisy_count_interval(y, users, noise_terms=np.full(len(y), terms), scale=scale)
    coverage = {}
    for p in (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.02, 0.05, 0.1, 0.3, 0.5, 0.9, 0.999):
        if p <= largest:
            distribution = exact_distribution(users, p, noise)[: len(y)]
            coverage[p] = float(distribution[(low <= p) & (p <= high)].sum())
    assert min(coverage.values()) >= 0.95 - 1e-6, coverage
    assert min(coverage.values()) <= 0.985, "an interval that always covers says nothing"


CLIENT_GRID = [
    ((3,) * 19, 4.0, 20_000),
    ((3,) * 19, 4.0, 3_000),
    ((5, 3, 2, 1), 1.0, 5_000),
    ((5, 3, 2, 1), 4.0, 2_000),
    ((1,) * 30, 4.0, 30_000),
]


@pytest.mark.parametrize(("shape", "epsilon", "reports"), CLIENT_GRID)
def test_client_intervals_cover_between_94_and_97_percent(shape, epsilon, reports):
    """80 000 runs: cells of all sizes from next to nothing, query totals and query marginals.

    The bound is on the true coverage: with odds of 1e-6 to be wrong it is above 94 % and below
    97 % at each point (80 000 runs leave ± 0.37 %).
    """
    runs, step = 80_000, 4_000
    randomizer = build("two-stage", shape, epsilon=epsilon, delta=1e-5)
    rng = np.random.default_rng(len(shape))
    p = rng.dirichlet(np.full(len(randomizer.cells), 0.5))
    query = randomizer.cells.query_of_cell
    listed = len(randomizer.cells.records)
    truths = [p, np.bincount(query[:listed], p[:listed]), np.bincount(query[:-1], p[:-1])]
    covered = [np.zeros(len(t)) for t in truths]
    for _ in range(runs // step):
        counts = rng.multinomial(reports, randomizer.expected_shares(p), size=step)
        found = randomizer.estimate(counts, reports)
        groups = (found.cells, found.query_totals, found.query_marginals)
        for i, (truth, group) in enumerate(zip(truths, groups, strict=True)):
            covered[i] += ((group.low <= truth) & (truth <= group.high)).sum(axis=0)
    coverage = np.concatenate(covered) / runs
    margin = ONE_IN_A_MILLION * np.sqrt(coverage * (1 - coverage) / runs)
    assert (coverage - margin).min() >= 0.94
    assert (coverage + margin).max() <= 0.97


def test_the_papers_blend_is_measured_as_it_is():
    """|T| = 1642, p = 0.001, σ_C = 6e-4: small records are pulled down and the interval misses.

    20 000 runs; the bounds hold the values that docs/decisions/0005-the-papers-blend.md reports,
    each with more than 4 standard errors of room.
    """
    runs, users, p, sigma = 20_000, 1642, 1e-3, 6e-4
    rng = np.random.default_rng(21)
    counts = SeededNoise(22).discrete_laplace(rng.binomial(users, p, size=runs), scale=0.5)
    noisy = NoisyCounts(counts, np.ones_like(counts), 0.5, users)
    edges = np.zeros(runs), np.ones(runs)
    optin = Estimates(*probability_and_variance(noisy), *edges)
    client = Estimates(rng.normal(p, sigma, size=runs), np.full(runs, sigma**2), *edges)

    found = blend_probabilities(optin, client)

    bias = found.probability.mean() / p - 1
    covered = ((found.low <= p) & (p <= found.high)).mean()
    print(f"bias {bias:+.1%}, coverage {covered:.1%}")
    assert -0.20 < bias < -0.12
    assert 0.78 < covered < 0.86
