"""Groups that agree are seldom told apart, and groups that differ are.

Under agreement P(p < 0.01) must not exceed 0.02. p-values come from 999 simulated epochs, as in
production, so that p can be any thousandth. `make test-statistical` takes 1 000 epochs and bounds
their rate at 0.02 itself: at odds of 1 % more than 20 come once in 660 seeds, at 3 % nearly
always. `make test` takes a sample of 80, which only catches a test that is far off: of 80 more
than 5 come once in 6 000 seeds at 1 % and once in 180 at 2 %, and at 10 % four times in five.
Seeds are fixed.
"""

from __future__ import annotations

import numpy as np
import pytest

from blendstream.blender import (
    HeadList,
    OptinCounts,
    PrivacyParameters,
    RandomizerSpec,
    Record,
    create_head_list,
    estimate_optin_probabilities,
    measure_agreement,
    randomizer_for,
)
from blendstream.blender.paper.optin import NoisyCounts
from blendstream.blender.sharp.optin_posterior import estimate_optin_shares
from blendstream.blender.values.cell_estimates import unknown_group
from blendstream.blender.values.errors import ParameterError
from tests.doubles import SeededNoise

pytestmark = [pytest.mark.statistical, pytest.mark.usefixtures("without_exact_intervals")]

RECORDS = sorted(Record(f"q{i // 3:03d}", f"u{i:04d}") for i in range(600))
ZIPF = 1 / np.arange(1, 601) ** 0.9
ZIPF /= ZIPF.sum()
PARAMETERS = PrivacyParameters(head_list_cells=20)
SPEC = RandomizerSpec("two-stage", PARAMETERS.epsilon, PARAMETERS.delta)


def p_value(optin_p, client_p, seed, *, users=150_000, rounds=999):
    """One epoch of the paper's profile, 5 % opt-in users, and its agreement."""
    rng, noise = np.random.default_rng(seed), SeededNoise(seed + 10**6)
    in_s, in_t, clients = users * 19 // 400, users // 400, users * 19 // 20
    s, t = rng.multinomial(in_s, optin_p), rng.multinomial(in_t, optin_p)
    counts = OptinCounts(RECORDS, s, t, in_s, in_t)
    selected = create_head_list(counts, PARAMETERS, noise)
    optin = estimate_optin_probabilities(selected, counts, PARAMETERS, noise, randomizer=SPEC)
    randomizer = randomizer_for(optin.head_list)
    in_cells = np.zeros(len(randomizer.cells))
    np.add.at(in_cells, [randomizer.cells.number(r) for r in RECORDS], client_p)
    reported = rng.multinomial(clients, randomizer.expected_shares(in_cells))
    found = measure_agreement(
        optin.head_list,
        optin.noisy,
        randomizer.estimate(reported, clients),
        randomizer,
        shares=None,
        best_trimmed=optin.best_trimmed,
        rng=rng,
        rounds=rounds,
    )
    assert found is not None
    assert found.compared == 20
    return found.p_value


@pytest.mark.timeout(7200)
def test_groups_that_agree_are_seldom_called_different(thorough, report):
    epochs, most = (1000, 20) if thorough else (80, 5)
    values = np.array([p_value(ZIPF, ZIPF, seed) for seed in range(epochs)])
    report(f"agreement, paper: {(values < 0.01).sum()} of {epochs} below 0.01")
    assert (values < 0.01).sum() <= most
    margin = 4 * np.sqrt(1 / 12 / epochs)
    assert abs(values.mean() - 0.5) < margin, "uniform: 4 standard errors of its mean"


def test_groups_that_differ_are_told_apart():
    rng = np.random.default_rng(9)
    shifted = ZIPF * np.exp(rng.normal(0, 1.0, len(ZIPF)))
    values = [p_value(shifted / shifted.sum(), ZIPF, seed) for seed in range(10)]
    assert max(values) <= 0.01


def test_a_list_ranked_without_t_needs_no_cut():
    """Ranked by S: T's counts are as they fell, and no correction is made."""
    rng = np.random.default_rng(4)
    values = []
    for _ in range(80):
        head_list = HeadList(tuple(RECORDS[:12]), 12, SPEC, query_wildcards=True)
        randomizer = randomizer_for(head_list)
        p = rng.dirichlet(np.full(len(randomizer.cells), 2.0))
        t = SeededNoise(int(rng.integers(2**31))).discrete_laplace(
            rng.multinomial(300, p), scale=0.5
        )
        noisy = NoisyCounts(t, np.ones_like(t), 0.5, 300)
        client = randomizer.estimate(rng.multinomial(20_000, randomizer.expected_shares(p)), 20_000)
        found = measure_agreement(
            head_list,
            noisy,
            client,
            randomizer,
            shares=estimate_optin_shares(None, noisy, 12),
            rng=rng,
            rounds=999,
        )
        values.append(found.p_value)
    assert (np.array(values) < 0.01).sum() <= 5, "as above"
    assert 0.37 < np.mean(values) < 0.63, "0.5 ± 4 standard errors of 0.032"


def test_with_nothing_to_compare_there_is_no_answer():
    head_list = HeadList(tuple(RECORDS[:2]), 2, SPEC, query_wildcards=True)
    randomizer = randomizer_for(head_list)
    zeros = np.zeros(len(randomizer.cells), dtype=np.int64)
    rng = np.random.default_rng(0)
    nobody_in_t = NoisyCounts(zeros, zeros + 1, 0.5, 0)
    some_in_t = NoisyCounts(zeros + 3, zeros + 1, 0.5, 12)
    silent = unknown_group(len(zeros), 1)
    client = randomizer.estimate(zeros + 10, 10 * len(zeros))

    def ask(noisy, client, rounds=99):
        return measure_agreement(
            head_list,
            noisy,
            client,
            randomizer,
            shares=estimate_optin_shares(None, noisy, 2) if noisy.users else None,
            rng=rng,
            rounds=rounds,
        )

    assert ask(nobody_in_t, client) is None
    assert ask(some_in_t, silent) is None
    assert ask(some_in_t, client) is not None
    with pytest.raises(ParameterError, match="rounds must be at least 99"):
        ask(some_in_t, client, rounds=10)


def test_a_list_that_t_trimmed_is_not_judged_without_its_cut():
    head_list = HeadList(tuple(RECORDS[:3]), 2, SPEC, query_wildcards=True)
    randomizer = randomizer_for(head_list)
    some = np.full(len(randomizer.cells), 10)
    with pytest.raises(ParameterError, match="needs best_trimmed"):
        measure_agreement(
            head_list,
            NoisyCounts(some, np.ones_like(some), 0.5, 12),
            randomizer.estimate(some, int(some.sum())),
            randomizer,
            shares=None,
            best_trimmed=None,
            rng=np.random.default_rng(0),
        )
