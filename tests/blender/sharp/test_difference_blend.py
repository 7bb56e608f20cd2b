"""The blend of two groups that may differ: what moves it, what must not, and its edges."""

from __future__ import annotations

import numpy as np
import pytest

from blendstream.blender import Cells, HeadListMismatch, Record
from blendstream.blender.noise.noise_distribution import laplace_distribution
from blendstream.blender.paper.optin import NoisyCounts, estimate_noisy_counts
from blendstream.blender.sharp.difference_blend import blend_groups, optin_group
from blendstream.blender.sharp.group_difference import estimate_client_shares
from blendstream.blender.sharp.optin_posterior import SelectionCounts, estimate_optin_shares
from blendstream.blender.values.cell_estimates import Estimates, GroupEstimates, unknown_group

M, S, T, N = 40, 90_000, 10_000, 1_900_000
TRUTH = 0.4 / np.arange(5, 5 + M) ** 1.1
TRUTH *= 0.3 / TRUTH.sum()
CELLS = Cells([Record(f"q{i // 2:02d}", f"u{i:02d}") for i in range(M)], query_wildcards=False)
NOISE_C = 0.036 / N


def optin_of(p, seed):
    """Shares and group estimates of S and T, drawn from p."""
    rng = np.random.default_rng(seed)
    y = rng.binomial(S, p)
    rest = np.round(S * 0.2 / np.arange(60, 600)).astype(np.int64)
    t = np.append(rng.binomial(T, p), 0)
    t[-1] = T - t.sum()
    noisy = NoisyCounts(t, np.ones(M + 1, dtype=np.int64), 0.5, T)
    counts = np.concatenate([y, rest[rest >= 7]])
    shares = estimate_optin_shares(
        SelectionCounts(counts, S, laplace_distribution(0.5), 7), noisy, M
    )
    return shares, optin_group(shares, estimate_noisy_counts(noisy, CELLS, intervals_from=M), CELLS)


def client_of(p, seed, n=N):
    rng = np.random.default_rng(seed)
    truth = np.append(p, 1 - p.sum())

    def variance_at(q):
        return q * (1 - q) / n + 0.036 / n

    found = truth + rng.normal(0, np.sqrt(variance_at(truth)))
    variance = variance_at(np.clip(found, 0, 1))
    margin = 1.96 * np.sqrt(variance)
    cells = Estimates(found, variance, np.clip(found - margin, 0, 1), np.clip(found + margin, 0, 1))
    of_query = CELLS.query_of_cell[:M]
    totals = np.bincount(of_query, weights=found[:M])
    total_variance = np.bincount(of_query, weights=variance[:M])
    return GroupEstimates(
        n, cells, Estimates(totals, total_variance, totals * 0, totals * 0 + 1), None, variance_at
    )


def blend_of(optin_p, client_p, seed=1, admitted=True, n=N):
    shares, optin = optin_of(optin_p, seed)
    client = client_of(client_p, seed + 1000, n)
    blend = blend_groups(shares, optin, client, CELLS, devices_admitted=admitted)
    return blend, optin, client


def error(estimates, truth):
    return float(((estimates.cells.probability[:M] - truth) ** 2).sum())


def summed_errors(factors, seeds=range(8)):
    blended = clients = 0.0
    for seed in seeds:
        truth = TRUTH * factors(np.random.default_rng(seed))
        blend, _, client = blend_of(TRUTH, truth, seed)
        blended += error(blend.estimates, truth)
        clients += error(client, truth)
    return blended / clients


def test_groups_that_agree_are_blended_as_if_one_knew_it():
    """Opt-in counts then take a fifth of the clients' error off, and τ is small."""
    assert summed_errors(lambda rng: 1.0) < 0.85
    blend, _, _ = blend_of(TRUTH, TRUTH)
    assert blend.difference.typical < 0.06
    assert not blend.disputed.any()


def test_groups_that_differ_record_by_record_leave_the_clients_their_say(monkeypatch):
    """A factor e^(N(0, .5²)) each. The clients are sure here, so that nothing can be gained; a
    blend that takes the groups as alike (τ = 0, nothing stands out) is over three times worse.
    """

    def factors(rng):
        return np.exp(rng.normal(0, 0.5, M))

    assert summed_errors(factors) < 1.05
    monkeypatch.setattr("blendstream.blender.sharp.group_difference.TAUS", np.array([0.005, 0.006]))
    monkeypatch.setattr("blendstream.blender.sharp.group_difference.ETAS", np.array([1e-12, 2e-12]))
    assert summed_errors(factors) > 3


def test_an_estimate_is_the_mean_of_what_is_likely_not_the_likeliest(monkeypatch):
    """Clients without information leave the opt-in posterior as it is. A count of four has a mean m
    and its mode a quarter lower: published, modes would be too low for every rare record."""
    monkeypatch.setattr("blendstream.blender.sharp.group_difference.TAUS", np.array([0.005, 0.006]))
    monkeypatch.setattr("blendstream.blender.sharp.group_difference.ETAS", np.array([1e-12, 2e-12]))

    class FourOf:
        mean = np.array([4e-3, 4e-4, 4e-5])
        variance = mean**2 / 4

    judged = estimate_client_shares(FourOf, FourOf.mean, lambda _p: (10 * FourOf.mean) ** 2)

    assert judged.mean == pytest.approx(FourOf.mean, rel=0.03)
    assert judged.variance == pytest.approx(FourOf.variance, rel=0.1)


def test_how_far_the_groups_differ_is_stated():
    for spread in (0.2, 0.4):
        found = []
        for seed in range(6):
            factor = np.exp(np.random.default_rng(seed).normal(0, spread, M))
            difference = blend_of(TRUTH, TRUTH * factor, seed)[0].difference
            assert difference.low <= difference.typical <= difference.high
            found.append(difference.typical)
        assert np.mean(found) == pytest.approx(spread, rel=0.2)


def test_a_difference_in_general_is_taken_off_and_stated():
    """Opt-in users search a quarter more, in everything: their counts still help."""
    assert summed_errors(lambda rng: 0.8) < 0.85
    difference = blend_of(TRUTH, TRUTH * 0.8)[0].difference
    assert difference.common == pytest.approx(0.8, abs=0.03)
    assert difference.spread < 0.06
    assert difference.typical == pytest.approx(0.2, abs=0.04)


def forged(record, to):
    client_p = TRUTH.copy()
    client_p[record] = to
    return client_p


@pytest.mark.parametrize("record", [3, 20, 39])
def test_one_record_that_stands_out_is_disputed_and_moves_no_other(record):
    """Three per cent of all reports name it: neither τ nor any other record pays for that."""
    plain, _, _ = blend_of(TRUTH, TRUTH)
    blend, optin, client = blend_of(TRUTH, forged(record, TRUTH[record] + 0.03))

    assert np.flatnonzero(blend.disputed).tolist() == [record]
    others = np.arange(M) != record
    before = plain.estimates.cells.probability[:M][others]
    after = blend.estimates.cells.probability[:M][others]
    assert np.abs(after / before - 1).max() < 0.05
    assert blend.difference.spread < 0.06
    cells = blend.estimates.cells
    assert cells.low[record] <= TRUTH[record] < TRUTH[record] + 0.03 <= cells.high[record]
    assert cells.low[record] == pytest.approx(optin.cells.low[record], rel=0.05)
    assert cells.high[record] >= client.cells.high[record]


@pytest.mark.parametrize("admitted", [True, False])
def test_whose_number_of_a_disputed_record_is_shown_depends_on_admission(admitted):
    """Without admission reports may be invented, opt-in users are authenticated."""
    blend, optin, client = blend_of(TRUTH, forged(7, 0.05), admitted=admitted)

    first = client if admitted else optin
    assert blend.estimates.cells.probability[7] == first.cells.probability[7]
    assert blend.estimates.cells.variance[7] == first.cells.variance[7]


def test_a_disputed_record_makes_its_querys_total_span_both_groups():
    blend, _, _ = blend_of(TRUTH, forged(7, 0.05))
    total = blend.estimates.query_totals
    query = CELLS.query_of_cell[7]
    other = TRUTH[6]
    assert total.low[query] < TRUTH[7] + other < 0.05 + other < total.high[query]
    sums = np.bincount(CELLS.query_of_cell[:M], weights=blend.estimates.cells.probability[:M])
    assert total.probability == pytest.approx(sums)


def test_ten_forged_records_of_forty_neither_hide_nor_spoil_the_rest():
    client_p = TRUTH.copy()
    targets = np.arange(0, 40, 4)
    client_p[targets] += 0.01
    blend, _, _ = blend_of(TRUTH, client_p)
    assert blend.disputed[targets].sum() >= 8
    assert blend.disputed[: M + 1].sum() - blend.disputed[targets].sum() <= 1


def test_an_absurd_estimate_is_disputed_and_gives_numbers():
    """Nine tenths of all reports name the rarest record."""
    blend, _, _ = blend_of(TRUTH, forged(39, 0.69))
    assert blend.disputed[39]
    assert np.isfinite(blend.estimates.cells.probability).all()


def test_few_reports_leave_the_blend_with_the_opt_in_users():
    """With 2 000 devices clients say next to nothing, so opt-in counts decide, τ included."""
    blend, optin, client = blend_of(TRUTH, TRUTH, n=2_000)
    off = blend.estimates.cells.probability[:M] / optin.cells.probability[:M] - 1
    assert np.abs(off).max() < 0.25
    width = (blend.estimates.cells.high - blend.estimates.cells.low)[:M]
    assert (width < (client.cells.high - client.cells.low)[:M] + 1e-9).mean() > 0.9


def test_a_group_that_knows_nothing_changes_nothing():
    shares, optin = optin_of(TRUTH, 3)
    client = client_of(TRUTH, 4)
    nobody = unknown_group(M + 1, len(CELLS.queries))

    alone = blend_groups(shares, optin, nobody, CELLS, devices_admitted=True)
    assert alone.estimates is optin
    assert alone.difference is None
    clients = blend_groups(None, nobody, client, CELLS, devices_admitted=True)
    assert clients.estimates is client
    assert not clients.disputed.any()


def test_groups_over_different_cells_are_refused():
    shares, optin = optin_of(TRUTH, 3)
    with pytest.raises(HeadListMismatch, match=f"got {M + 1} opt-in and 2 client cells"):
        blend_groups(shares, optin, unknown_group(2, 1), CELLS, devices_admitted=True)


def test_the_wildcard_is_blended_too_and_trusts_t_less_where_the_groups_differ():
    agree, optin, client = blend_of(TRUTH, TRUTH)
    differ, _, other = blend_of(TRUTH, TRUTH * 0.5)
    star = agree.estimates.cells.probability[-1]
    low, high = sorted((optin.cells.probability[-1], client.cells.probability[-1]))
    assert low <= star <= high
    moved = abs(differ.estimates.cells.probability[-1] - other.cells.probability[-1])
    assert moved < 0.1 * abs(optin.cells.probability[-1] - other.cells.probability[-1])


def test_records_in_another_order_are_judged_alike():
    """No record is treated differently for where it stands."""
    shares, _ = optin_of(TRUTH, 5)
    estimate = client_of(TRUTH, 6).cells.probability[:M]

    def variance_at(p):
        return p * (1 - p) / N + NOISE_C

    class Permuted:
        mean, variance = shares.mean[::-1], shares.variance[::-1]

    straight = estimate_client_shares(shares, estimate, variance_at)
    turned = estimate_client_shares(Permuted, estimate[::-1], variance_at)
    for field in ("mean", "variance", "low", "high", "outlier_probability"):
        assert getattr(turned, field)[::-1] == pytest.approx(getattr(straight, field), rel=1e-6)


def test_a_long_list_is_worked_on_in_parts_with_the_same_result(monkeypatch):
    whole, _, _ = blend_of(TRUTH, TRUTH)
    monkeypatch.setattr("blendstream.blender.sharp.group_difference._BLOCK", 7)
    monkeypatch.setattr("blendstream.blender.sharp.optin_posterior._BLOCK", 9)
    parts, _, _ = blend_of(TRUTH, TRUTH)
    assert parts.estimates.cells.high == pytest.approx(whole.estimates.cells.high)
