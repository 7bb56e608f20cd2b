"""EstimateClientProbabilities (Figure 5): edges, and m_C > 1."""

from __future__ import annotations

import numpy as np
import pytest

from blendstream.blender import RANDOMIZERS, HeadListMismatch
from tests.channels import build, channel_fractions, shapes


@pytest.mark.parametrize("name", RANDOMIZERS)
def test_denoising_undoes_the_channel(name):
    """Shares that are exactly as expected give the truth back, whatever the shape."""
    rng = np.random.default_rng(7)
    for shape in shapes(name, max_cells=12):
        randomizer = build(name, shape, epsilon=2.0, delta=1e-4)
        p = rng.dirichlet(np.ones(len(randomizer.cells)), size=3)
        shares = randomizer.expected_shares(p)
        assert randomizer.denoise(shares) == pytest.approx(p, abs=1e-9)
        if randomizer.cells_per_answer == 1:
            channel = np.array(channel_fractions(randomizer), dtype=float)
            assert shares == pytest.approx(p @ channel, abs=1e-12)


@pytest.mark.parametrize("name", RANDOMIZERS)
def test_no_reports_mean_nothing_is_known(name):
    found = build(name, (2, 1), epsilon=4.0).estimate(_none(name), 0)
    assert found.participants == 0
    assert (found.cells.variance == np.inf).all()
    assert (found.cells.low == 0).all()
    assert (found.cells.high == 1).all()


@pytest.mark.parametrize("name", RANDOMIZERS)
def test_one_report_has_no_sample_variance(name):
    randomizer = build(name, (2, 1), epsilon=4.0)
    counts = _none(name)
    counts[: randomizer.cells_per_answer] = 1
    found = randomizer.estimate(counts, 1)
    assert (found.cells.variance == np.inf).all()
    assert np.isfinite(found.cells.probability).all()


@pytest.mark.parametrize("name", RANDOMIZERS)
def test_an_empty_head_list_is_known_for_certain(name):
    """k = 1: p̂ = 1."""
    found = build(name, (), epsilon=4.0).estimate(np.array([12]), 12)
    assert found.cells.probability.tolist() == [1]
    assert found.cells.variance.tolist() == [0]
    assert len(found.query_totals) == 0


def _none(name):
    return np.zeros(len(build(name, (2, 1), epsilon=4.0).cells), dtype=np.int64)


def test_the_wildcards_cell_is_its_query():
    """k_q = 1 would make g_q 0/0: p̂ and σ̂² are the query's."""
    randomizer = build("two-stage", (2, 1), epsilon=2.0)
    counts = np.array([300, 200, 150, 80, 70, 200])
    found = randomizer.estimate(counts, 1000).cells
    t = float(randomizer.truth)
    lie, d = (1 - t) / 2, t - (1 - t) / 2

    assert found.probability[-1] == pytest.approx((0.2 - lie) / d)
    assert found.variance[-1] == pytest.approx(0.2 * 0.8 / 999 / d**2)


def test_cells_add_up_to_one_and_to_their_queries():
    """Denoising moves probability between cells; it makes and loses none."""
    randomizer = build("two-stage", (3, 1, 2), epsilon=1.0)
    counts = np.random.default_rng(3).integers(0, 100, len(randomizer.cells))
    found = randomizer.estimate(counts, int(counts.sum()))
    by_query = np.bincount(randomizer.cells.query_of_cell[:-1], found.cells.probability[:-1])

    assert found.cells.probability.sum() == pytest.approx(1)
    assert found.query_marginals.probability == pytest.approx(by_query)
    listed = found.cells.probability[:6]
    totals = np.bincount(randomizer.cells.query_of_cell[:6], listed)
    assert found.query_totals.probability == pytest.approx(totals)


def test_a_count_of_zero_still_has_a_variance():
    """Its plug-in would be 0, and a blend would believe it alone."""
    randomizer = build("two-stage", (2, 2), epsilon=4.0)
    counts = np.array([0, 5, 5, 0, 0, 0, 40])
    found = randomizer.estimate(counts, 50).cells
    assert found.probability[0] < 0
    assert found.variance[0] > 0
    assert found.low[0] == 0


@pytest.mark.parametrize("name", RANDOMIZERS)
def test_reports_that_all_agree_still_have_a_variance(name):
    """p̂ > 1: its plug-in would be 0 too. Taken at p = 1, where devices still lie."""
    randomizer = build(name, (2, 2), epsilon=4.0)
    counts = np.zeros(len(randomizer.cells), dtype=np.int64)
    counts[: randomizer.cells_per_answer] = 50
    found = randomizer.estimate(counts, 50)
    assert found.cells.probability[0] > 1
    everyone_holds_it = np.eye(len(counts))[0]
    assert found.cells.variance[0] == pytest.approx(
        found.variance_at(everyone_holds_it)[0] * 50 / 49
    )
    assert (found.cells.variance > 0).all()
    assert (found.query_totals.variance > 0).all()


@pytest.mark.parametrize("name", RANDOMIZERS)
def test_one_device_with_many_answers_is_one_device(name):
    """Its answers may all be about one record: there is no sample of devices to tell a variance."""
    randomizer = build(name, (2, 1), epsilon=4.0, answers=3)
    counts = np.zeros(len(randomizer.cells), dtype=np.int64)
    counts[: randomizer.cells_per_answer] = 3
    found = randomizer.estimate(counts, 1)
    assert (found.cells.variance == np.inf).all()
    assert (found.query_totals.variance == np.inf).all()


@pytest.mark.parametrize("name", ["two-stage", "randomized-response"])
def test_bessels_correction_counts_devices(name):
    randomizer = build(name, (2, 1), epsilon=4.0, answers=3)
    p = np.full(len(randomizer.cells), 1 / len(randomizer.cells))
    found = randomizer.estimate(randomizer.expected_shares(p) * 12, 4)
    assert found.cells.variance == pytest.approx(found.variance_at(p) * 4 / 3)


@pytest.mark.parametrize("name", RANDOMIZERS)
def test_two_answers_a_device_double_the_variance_bound(name):
    """Their covariance is gone once counted; at worst both say the same."""
    one = build(name, (2, 1), epsilon=2.0)
    two = build(name, (2, 1), epsilon=4.0, answers=2)
    if one.cells_per_answer != two.cells_per_answer:
        pytest.fail("ε per answer is the same, so the answers should be too")
    p = np.full(len(one.cells), 1 / len(one.cells))
    n = 100_000
    counts = np.floor(one.expected_shares(p) * 2 * n).astype(np.int64)
    counts[-1] += 2 * n * one.cells_per_answer - counts.sum()

    single, double = one.estimate(counts, 2 * n), two.estimate(counts, n)
    assert double.cells.probability == pytest.approx(single.cells.probability, abs=1e-6)
    assert double.cells.variance == pytest.approx(2 * single.cells.variance, rel=1e-4)
    assert double.participants == n


@pytest.mark.parametrize("counts", [[1, 2, 3], [1, 1, 1, 1, 1, 1], [-1, 2, 0, 0, 0, 4]])
def test_counts_that_do_not_fit_the_reports_are_refused(counts):
    with pytest.raises(HeadListMismatch, match="5 reports of 1 answers make 5 counts over 6 cells"):
        build("two-stage", (2, 1), epsilon=4.0).estimate(np.array(counts), 5)
