"""What holds for every input of the algorithms."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from blendstream.blender import (
    Cells,
    Estimates,
    Record,
    blend_probabilities,
    ndcg,
    project_onto_simplex,
)
from blendstream.blender.paper.optin import NoisyCounts, estimate_noisy_counts
from blendstream.blender.paper.user_groups import PARTS, partition_users
from blendstream.blender.values.intervals import noisy_count_interval
from tests.channels import build

# No deadline: a slow machine is no counterexample.
unhurried = settings(deadline=None)
unhurried_few = settings(deadline=None, max_examples=40)

finite = st.floats(-10, 10, allow_nan=False)
variances = st.floats(1e-12, 1e3)
shapes = st.lists(st.integers(1, 4), min_size=0, max_size=5).map(
    lambda urls: tuple(sorted(urls, reverse=True))
)


@unhurried
@given(st.lists(finite, min_size=1, max_size=40))
def test_a_projection_lies_on_the_simplex(p):
    found = project_onto_simplex(np.array(p))
    assert (found >= 0).all()
    assert abs(found.sum() - 1) < 1e-9


@unhurried
@given(st.lists(finite, min_size=2, max_size=12), st.integers(0, 2**32 - 1))
def test_no_other_distribution_is_nearer_than_the_projection(p, seed):
    """Nearest in squared distance: for every point x of the simplex (p − Πp)·(x − Πp) ≤ 0.

    It is enough to look at the corners; random points are tried as well.
    """
    p = np.array(p)
    nearest = project_onto_simplex(p)
    others = np.random.default_rng(seed).dirichlet(np.ones(len(p)), size=20)
    points = np.vstack([np.eye(len(p)), others])
    assert ((points - nearest) @ (p - nearest) <= 1e-9).all()
    distance = ((p - nearest) ** 2).sum()
    assert (((others - p) ** 2).sum(axis=1) >= distance - 1e-9).all()


@unhurried
@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=20))
def test_a_distribution_is_its_own_projection(weights):
    p = np.array(weights) / sum(weights)
    assert np.allclose(project_onto_simplex(p), p, atol=1e-12)


@unhurried
@given(st.lists(st.tuples(finite, variances, finite, variances), min_size=1, max_size=20))
def test_a_blend_is_surer_than_either_group_and_lies_between_them(rows):
    p_o, v_o, p_c, v_c = (np.array(column) for column in zip(*rows, strict=True))
    edge = np.zeros(len(rows))
    found = blend_probabilities(Estimates(p_o, v_o, edge, edge), Estimates(p_c, v_c, edge, edge))
    slack = 1 + 1e-12
    assert (found.variance <= v_o * slack).all()
    assert (found.variance <= v_c * slack).all()
    assert (found.variance > 0).all()
    low, high = np.minimum(p_o, p_c), np.maximum(p_o, p_c)
    assert ((found.probability >= low - 1e-9) & (found.probability <= high + 1e-9)).all()


@unhurried
@given(shapes, st.integers(0, 2**32 - 1))
def test_permuted_urls_give_permuted_client_estimates(shape, seed):
    """No record is treated differently for where it stands in the list."""
    rng = np.random.default_rng(seed)
    randomizer = build("two-stage", shape, epsilon=2.0, delta=1e-3)
    cells = randomizer.cells
    order = rng.permutation(len(cells.records))
    shuffled = Cells(tuple(cells.records[i] for i in order), query_wildcards=True)
    again = type(randomizer)(shuffled, randomizer.spec)
    counts = rng.integers(0, 50, len(cells))

    def by_name(cells, values):
        return {cells.cell(c): float(v) for c, v in enumerate(values)}

    named = by_name(cells, counts)
    moved = np.array([int(named[shuffled.cell(c)]) for c in range(len(shuffled))])
    one = randomizer.estimate(counts, int(counts.sum())).cells
    other = again.estimate(moved, int(counts.sum())).cells
    for field in ("probability", "variance", "low", "high"):
        first = by_name(cells, getattr(one, field))
        second = by_name(shuffled, getattr(other, field))
        assert all(first[c] == second[c] or abs(first[c] - second[c]) < 1e-9 for c in first), field


@unhurried_few
@given(st.lists(st.integers(-5, 60), min_size=3, max_size=6), st.integers(0, 2**32 - 1))
def test_permuted_counts_give_permuted_opt_in_estimates(counts, seed):
    rng = np.random.default_rng(seed)
    counts = np.array(counts)
    records = [Record(f"q{i}", "u") for i in range(len(counts) - 1)]
    cells = Cells(tuple(records), query_wildcards=False)
    order = np.append(rng.permutation(len(records)), len(records))
    ones = np.ones(len(counts), dtype=np.int64)
    one = estimate_noisy_counts(NoisyCounts(counts, ones, 0.5, 80), cells).cells
    other = estimate_noisy_counts(NoisyCounts(counts[order], ones, 0.5, 80), cells).cells
    for field in ("probability", "variance", "low", "high"):
        assert np.array_equal(getattr(one, field)[order], getattr(other, field))


@unhurried_few
@given(st.integers(-30, 500), st.integers(1, 400), st.integers(1, 40), st.floats(0.1, 8.0))
def test_opt_in_intervals_are_ordered_and_hold_the_estimate(noisy, users, terms, scale):
    low, high = noisy_count_interval(
        np.array([noisy]), users, noise_terms=np.array([terms]), scale=scale
    )
    p = min(max(noisy / users, 0.0), 1.0)
    assert 0 <= low[0] <= high[0] <= 1
    assert low[0] - 1e-9 <= p <= high[0] + 1e-9


@unhurried
@given(shapes, st.text(min_size=1, max_size=8), st.text(min_size=1, max_size=8))
def test_a_record_outside_the_head_list_behaves_as_the_wildcard(shape, query, url):
    randomizer = build("two-stage", shape, epsilon=3.0)
    record = Record(query, url)
    if query in randomizer.cells.queries:
        return
    assert randomizer.cells.number(record) == randomizer.cells.number(None)
    for answer in range(len(randomizer.cells)):
        held = randomizer.report_probability(record, (answer,))
        assert held == randomizer.report_probability(None, (answer,))


@unhurried
@given(
    st.dictionaries(
        st.builds(Record, st.sampled_from("abc"), st.sampled_from("xyz")),
        st.floats(0.01, 100),
        min_size=1,
    ),
    st.randoms(use_true_random=False),
)
def test_ndcg_is_1_for_the_true_order_and_never_more(truth, random):
    assert abs(ndcg(truth, truth) - 1) < 1e-9
    shuffled = list(truth.values())
    random.shuffle(shuffled)
    other = dict(zip(truth, shuffled, strict=True))
    assert 0 <= ndcg(other, truth) <= 1 + 1e-9


@unhurried
@given(st.integers(0, 2**64 - 1), st.integers(0, PARTS), st.integers(0, PARTS))
def test_a_user_in_s_stays_there_when_its_share_grows(point, one, other):
    small, large = sorted((one, other))
    points = np.array([point], dtype=np.uint64)
    if partition_users(points, [small, PARTS - small])[0] == 0:
        assert partition_users(points, [large, PARTS - large])[0] == 0
