"""The agreement test with devices that name sets of records or none: no false alarms by design.

T and clients draw from the same truth on a fixed list of 120 records, ranked without T. Of 60
epochs 0.6 p-values are expected below 0.01; more than 4 come once in 2 500 seeds. Seeds are fixed.
"""

from __future__ import annotations

import numpy as np
import pytest

from agents.evaluation.clients import draw_report_counts
from agents.evaluation.simulated_noise import SimulatedNoise
from blender import HeadList, RandomizerSpec, Record, measure_agreement, randomizer_for
from blender.optin import NoisyCounts

pytestmark = pytest.mark.statistical

HEAD_LIST = HeadList(
    tuple(Record(f"q{i // 3}", f"u{i}") for i in range(120)),
    120,
    RandomizerSpec("subset-or-none", 4.0),
    query_wildcards=False,
)
LISTED = 0.1 / np.arange(3, 123)
TRUTH = np.append(LISTED, 1 - LISTED.sum())


def p_value(client_truth, seed):
    rng = np.random.default_rng(seed)
    randomizer = randomizer_for(HEAD_LIST)
    held = rng.multinomial(3_000, TRUTH)
    noisy = NoisyCounts(
        SimulatedNoise(rng).discrete_laplace(held, scale=0.5), np.ones_like(held), 0.5, 3_000
    )
    reports = draw_report_counts(randomizer, rng.multinomial(300_000, client_truth), rng)
    found = measure_agreement(
        HEAD_LIST, noisy, randomizer.estimate(reports, 300_000), randomizer,
        best_trimmed=None, rng=rng, rounds=199,
    )  # fmt: skip
    assert found is not None
    return found.p_value


def test_groups_that_agree_are_seldom_called_different():
    values = np.array([p_value(TRUTH, seed) for seed in range(60)])
    assert (values < 0.01).sum() <= 4
    assert 0.35 < values.mean() < 0.65, "uniform: 0.5 ± 4 standard errors of 0.037"


def test_groups_that_differ_are_told_apart():
    """Clients like every second record half as much again as opt-in users, the others half."""
    other = TRUTH.copy()
    other[:-1] *= np.where(np.arange(120) % 2, 1.5, 0.5)
    other[-1] = 1 - other[:-1].sum()
    assert max(p_value(other, seed) for seed in range(5)) <= 0.01
