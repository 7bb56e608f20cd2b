"""What holds for the mechanisms of `sharp` whatever they are given."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from blendstream.blender import Cells, PrivacyParameters, Record
from blendstream.blender.noise.noise_distribution import laplace_distribution
from blendstream.blender.paper.optin import NoisyCounts, estimate_noisy_counts
from blendstream.blender.registry import RANDOMIZERS
from blendstream.blender.sharp.difference_blend import blend_groups, optin_group
from blendstream.blender.sharp.optin_posterior import SelectionCounts, estimate_optin_shares
from blendstream.blender.sharp.stable_histogram import StableHistogram
from blendstream.blender.values.cell_estimates import Estimates, GroupEstimates
from tests.channels import UNLISTED_URL, all_answers, build
from tests.doubles import SeededNoise

SIZES = st.integers(1, 9)
EPSILONS = st.sampled_from([0.2, 1.0, 4.0])


def reports(randomizer, seed, n=40):
    rng = np.random.default_rng(seed)
    held = rng.integers(0, len(randomizer.cells), size=n)
    answers = randomizer.answer_batch(held, rng)
    return np.bincount(answers.ravel(), minlength=len(randomizer.cells))


WHOLE_RECORDS = sorted(set(RANDOMIZERS) - {"two-stage"})  # see test_blender_properties.py


def filler(randomizer):
    """The cells that only fill up an answer of "none" on the wire, where there is such a thing."""
    return randomizer.cells_per_answer - 1 if randomizer.name == "subset-or-none" else 0


@settings(deadline=None)
@given(
    name=st.sampled_from(WHOLE_RECORDS), size=SIZES, epsilon=EPSILONS, seed=st.integers(0, 2**32)
)
def test_client_estimates_sum_to_one_whatever_was_reported(name, size, epsilon, seed):
    """Denoising moves probability and makes or loses none."""
    randomizer = build(name, (size,), epsilon=epsilon)
    estimates = randomizer.estimate(reports(randomizer, seed), 40)
    assert np.isclose(estimates.cells.probability.sum(), 1)


@settings(deadline=None)
@given(
    name=st.sampled_from(WHOLE_RECORDS), size=SIZES, epsilon=EPSILONS, seed=st.integers(0, 2**32)
)
def test_permuted_counts_give_permuted_client_estimates(name, size, epsilon, seed):
    """No listed record is treated differently for where it stands.

    On the wire "none" is ⋆ with the first records, so their counts carry its number: it is taken
    off, the records are permuted, and it is put on the first again. ⋆ stays the last cell.
    """
    randomizer = build(name, (size,), epsilon=epsilon)
    shown = reports(randomizer, seed)
    order = np.append(np.random.default_rng(seed).permutation(size), size)
    filled = np.zeros_like(shown)
    filled[: filler(randomizer)] = shown[-1]

    straight = randomizer.estimate(shown, 40).cells
    permuted = randomizer.estimate((shown - filled)[order] + filled, 40).cells

    for field in ("probability", "variance", "low", "high"):
        assert np.allclose(getattr(permuted, field), getattr(straight, field)[order])


@settings(deadline=None)
@given(name=st.sampled_from(WHOLE_RECORDS), size=SIZES, epsilon=EPSILONS)
def test_a_record_outside_the_list_behaves_as_the_wildcard(name, size, epsilon):
    randomizer = build(name, (size,), epsilon=epsilon)
    for unlisted in (Record("query 0", UNLISTED_URL), Record("another", "u")):
        for answer in all_answers(randomizer)[:20]:
            assert randomizer.report_probability(unlisted, answer) == (
                randomizer.report_probability(None, answer)
            )


@settings(deadline=None)
@given(
    name=st.sampled_from(sorted(RANDOMIZERS)), size=SIZES, epsilon=EPSILONS, seed=st.integers(0, 99)
)
def test_epochs_estimated_at_once_are_as_one_after_the_other(name, size, epsilon, seed):
    """Simulations stack epochs; the service estimates one."""
    randomizer = build(name, (size,), epsilon=epsilon)
    rows = np.stack([reports(randomizer, seed + i) for i in range(3)])
    together = randomizer.estimate(rows, 40)
    for i, row in enumerate(rows):
        alone = randomizer.estimate(row, 40)
        for what in ("cells", "query_totals"):
            for field in ("probability", "variance", "low", "high"):
                both = (getattr(getattr(g, what), field) for g in (together, alone))
                stacked, single = both
                assert np.allclose(stacked[i], single)


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 4_000), st.integers(-5, 500), st.floats(-0.1, 1.0)),
        min_size=1,
        max_size=6,
    ),
    clients=st.sampled_from([2, 1_000, 10**7]),
    admitted=st.booleans(),
)
@example(
    # Clients are certain of 0 where opt-in users say 0.83: below what was once looked at.
    rows=[(0, 0, 1.0), (347, 420, 0.0), (520, 498, 0.0), (700, 163, 1.0), (3584, -1, 0.5)],
    clients=10**7,
    admitted=False,
)
def test_a_blend_of_whatever_counts_is_a_share_with_an_interval(rows, clients, admitted):
    """However the groups contradict each other: finite, in order, in [0, 1], disputed or not."""
    s, t, told = (np.array(column) for column in zip(*rows, strict=True))
    cells = Cells([Record(f"q{i // 2}", f"u{i}") for i in range(len(s))], query_wildcards=False)
    noisy = NoisyCounts(np.append(t, 0), np.ones(len(s) + 1, dtype=np.int64), 0.5, 500)
    shares = estimate_optin_shares(
        SelectionCounts(s, 4_000, laplace_distribution(0.5), 7), noisy, len(s)
    )
    optin = optin_group(shares, estimate_noisy_counts(noisy, cells, intervals_from=len(s)), cells)

    def variance_at(p):
        return p * (1 - p) / clients + 0.04 / clients

    p = np.append(told, 1 - told.sum())
    estimates = Estimates(p, variance_at(np.clip(p, 0, 1)), p * 0, p * 0 + 1)
    query = cells.query_of_cell[: len(s)]
    totals = np.bincount(query, weights=told)
    of_query = np.bincount(query, weights=estimates.variance[:-1])
    client = GroupEstimates(
        clients, estimates, Estimates(totals, of_query, totals * 0, totals * 0 + 1), None,
        variance_at,
    )  # fmt: skip

    blend = blend_groups(shares, optin, client, cells, devices_admitted=admitted)

    shown, sure = blend.estimates.cells, ~blend.disputed[:-1]
    records = slice(0, len(s))
    assert ((shown.probability[records] >= 0) & (shown.probability[records] <= 1))[sure].all()
    inside = (shown.low <= shown.probability + 1e-9) & (shown.probability <= shown.high + 1e-9)
    assert inside[records][sure].all()
    assert np.isfinite(blend.estimates.query_totals.variance).all()


@settings(deadline=None)
@given(
    counts=st.lists(st.integers(0, 30), min_size=1, max_size=30),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
def test_only_held_or_known_records_are_ever_shown(counts, seed, data):
    known = np.array(data.draw(st.lists(st.booleans(), min_size=len(counts), max_size=len(counts))))
    selection = StableHistogram().select(
        np.array(counts), known, PrivacyParameters(), SeededNoise(seed)
    )
    assert (known | (np.array(counts) > 0))[selection.kept].all()
    new = ~known[selection.kept]
    assert (selection.noisy_counts[new] >= selection.threshold - 1).all()
