"""The agreement test's p-value at its two ends, where it is known exactly."""

from __future__ import annotations

import numpy as np
import pytest

from blendstream.blender import HeadList, RandomizerSpec, Record, measure_agreement, randomizer_for
from blendstream.blender.paper.optin import NoisyCounts
from blendstream.blender.sharp.agreement import Agreement
from blendstream.blender.sharp.optin_posterior import estimate_optin_shares
from blendstream.blender.values.cell_estimates import Estimates, GroupEstimates

M, T, N = 12, 3_000, 90_000
HEAD_LIST = HeadList(
    tuple(Record("q", f"u{i:02d}") for i in range(M)), M,
    RandomizerSpec("randomized-response", 4.0, 0.0), query_wildcards=False,
)  # fmt: skip
COUNTS = np.append(np.arange(150, 30, -10), 1860)
NOISY = NoisyCounts(COUNTS, np.ones(M + 1, dtype=np.int64), 0.5, T)
SHARES = estimate_optin_shares(None, NOISY, M)


def compared_with(estimate: np.ndarray, rounds: int) -> Agreement:
    """The p-value of clients who say this of the listed records."""
    randomizer = randomizer_for(HEAD_LIST)
    client = randomizer.estimate(COUNTS * (N // T), N)
    p = np.append(estimate, 1 - estimate.sum())
    cells = Estimates(p, client.cells.variance, client.cells.low, client.cells.high)
    said = GroupEstimates(N, cells, client.query_totals, None, client.variance_at)
    found = measure_agreement(
        HEAD_LIST, NOISY, said, randomizer,
        shares=SHARES, rng=np.random.default_rng(3), rounds=rounds,
    )  # fmt: skip
    assert found is not None
    return found


@pytest.mark.parametrize("rounds", [99, 199])
def test_clients_who_report_just_the_prediction_agree_with_certainty(rounds):
    """Q = 0: every simulated epoch differs at least as much."""
    found = compared_with(SHARES.mean, rounds)

    assert (found.statistic, found.p_value) == (pytest.approx(0), 1.0)


@pytest.mark.parametrize("rounds", [99, 199])
def test_no_epoch_is_called_rarer_than_the_simulated_ones_can_tell(rounds):
    """No simulated epoch differs so much: of 100 with this one, it is the first."""
    found = compared_with(SHARES.mean[::-1] * 3, rounds)

    assert found.p_value == 1 / (1 + rounds)


def test_the_p_value_is_the_part_of_epochs_that_differ_as_much():
    """Deviations as they are expected: Q near M, and a p-value in the middle. Two of them: rare.

    Of 199 rounds a p-value of 0.5 has a standard error of 0.035, and Q/M of 1 is a little above
    the median of a χ² with 12 degrees of freedom.
    """
    at = np.append(SHARES.mean, 1 - SHARES.mean.sum())
    randomizer = randomizer_for(HEAD_LIST)
    client = randomizer.estimate(COUNTS * (N // T), N)
    deviation = np.sqrt(SHARES.variance + client.variance_at(at)[:M])
    signs = np.where(np.arange(M) % 2, 1, -1)

    usual = compared_with(SHARES.mean + signs * deviation, 199)
    rare = compared_with(SHARES.mean + 2 * signs * deviation, 199)

    assert usual.statistic == pytest.approx(M, rel=0.05)
    assert 0.3 < usual.p_value < 0.6
    assert rare.p_value <= 0.01
