"""The agreement test in the profile `sharp`: the list is selected, ranked and cut by S's counts.

Devices name sets of records or none. T has no part in the choice of the list, so nothing is
corrected for. p-values come from 999 simulated epochs, as in production. Odds and numbers are
those of test_agreement.py: `make test-statistical` bounds the rate of p < 0.01 among 1 000 epochs
at 0.02; `make test` takes a sample of 24, of which more than 3 come once in 11 000 seeds at 1 %
and once in 810 at 2 %. Seeds are fixed.
"""

from __future__ import annotations

import numpy as np
import pytest

from blendstream.blender import (
    OptinCounts,
    PrivacyParameters,
    Record,
    measure_agreement,
    randomizer_for,
)
from blendstream.blender.epoch_estimates import estimate_epoch
from blendstream.blender.profiles import build_head_list
from blendstream.evaluation.simulated_noise import SimulatedNoise
from blendstream.evaluation.simulated_reports import draw_report_counts

pytestmark = pytest.mark.statistical

RECORDS = sorted(Record(f"q{i // 3:03d}", f"u{i:04d}") for i in range(600))
ZIPF = 1 / np.arange(3, 603) ** 0.9
ZIPF /= ZIPF.sum()
PARAMETERS = PrivacyParameters(epsilon=3.0, head_list_cells=60, selection_share=0.9)
IN_S, IN_T, CLIENTS = 13_500, 1_500, 285_000


def p_value(client_p, seed):
    """One epoch with 5 % opt-in users, and its agreement."""
    rng = np.random.default_rng(seed)
    s, t = (rng.multinomial(users, ZIPF) for users in (IN_S, IN_T))
    counts = OptinCounts(RECORDS, s, t, IN_S, IN_T)
    release = build_head_list("sharp", counts, PARAMETERS, SimulatedNoise(rng))
    assert release.head_list.listed == 60 < len(release.head_list.records)
    randomizer = randomizer_for(release.head_list)
    assert randomizer.name == "subset-or-none"
    in_cells = np.zeros(len(randomizer.cells))
    np.add.at(in_cells, [randomizer.cells.number(r) for r in RECORDS], client_p)
    reports = draw_report_counts(randomizer, rng.multinomial(CLIENTS, in_cells), rng)
    found = measure_agreement(
        release.head_list, release.noisy, estimate_epoch(release, reports, CLIENTS).client,
        randomizer, shares=release.shares, rng=rng,
    )  # fmt: skip
    assert found is not None
    return found.p_value


@pytest.mark.timeout(7200)
def test_groups_that_agree_are_seldom_called_different(thorough, report):
    epochs, most = (1000, 20) if thorough else (24, 3)
    values = np.array([p_value(ZIPF, seed) for seed in range(epochs)])
    report(f"agreement, sharp: {(values < 0.01).sum()} of {epochs} below 0.01")
    assert (values < 0.01).sum() <= most
    margin = 4 * np.sqrt(1 / 12 / epochs)
    assert abs(values.mean() - 0.5) < margin, "uniform: 4 standard errors of its mean"


def test_groups_that_differ_are_told_apart():
    """Clients like every second record half as much again as opt-in users, the others half."""
    other = ZIPF * np.where(np.arange(600) % 2, 1.5, 0.5)
    other /= other.sum()
    assert max(p_value(other, seed) for seed in range(3)) <= 0.01


def test_records_that_are_not_compared_are_not_drawn():
    """999 epochs of 50 000 records were drawn for the sake of 500: four seconds."""

    class Watched(np.random.Generator):
        widest = 0

        def multinomial(self, n, pvals, size=None):
            Watched.widest = max(Watched.widest, np.shape(pvals)[-1])
            return super().multinomial(n, pvals, size)

    size = 2_000
    records = [Record(f"q{i:05d}", "u") for i in range(size)]
    held = np.full(size, 50)
    counts = OptinCounts(records, held, held // 10, int(held.sum()), int((held // 10).sum()))
    release = build_head_list(
        "sharp",
        counts,
        PrivacyParameters(head_list_cells=size),
        SimulatedNoise(np.random.default_rng(1)),
    )
    randomizer = randomizer_for(release.head_list)
    reports = draw_report_counts(
        randomizer, np.full(len(randomizer.cells), 100), np.random.default_rng(2)
    )
    measure_agreement(
        release.head_list, release.noisy, randomizer.estimate(reports, 100 * (size + 1)),
        randomizer, shares=release.shares, rng=Watched(np.random.PCG64(3)), rounds=99,
    )  # fmt: skip
    assert 500 < Watched.widest <= 502
