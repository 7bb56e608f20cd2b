"""What holds for the mechanisms of `sharp` whatever they are given."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from blender import Cells, PrivacyParameters, Record
from blender.cell_estimates import Estimates, GroupEstimates
from blender.registry import RANDOMIZERS
from blender.stable_blend import StableBlender
from blender.stable_histogram import StableHistogram
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


@settings(deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(1e-8, 1e-2), st.floats(1e-8, 1e-2)),
        min_size=1,
        max_size=8,
    )
)
def test_a_blend_lies_between_the_groups_and_is_surer_than_either(rows):
    a, b, variance_a, variance_b = (np.array(column) for column in zip(*rows, strict=True))

    def group(p, variance):
        estimates = Estimates(p, variance, p, p)
        totals = Estimates(p[:-1], variance[:-1], p[:-1], p[:-1])
        return GroupEstimates(10, estimates, totals, None, lambda q: variance)

    cells = Cells([Record(f"q{i}", "u") for i in range(len(a) - 1)], query_wildcards=False)

    blended = StableBlender().blend(group(a, variance_a), group(b, variance_b), cells).cells

    assert (blended.probability >= np.minimum(a, b) - 1e-9).all()
    assert (blended.probability <= np.maximum(a, b) + 1e-9).all()
    assert (blended.variance <= np.minimum(variance_a, variance_b) * (1 + 1e-9)).all()
    assert (blended.low <= blended.high).all()


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
    assert (selection.noisy_counts[new] >= selection.threshold).all()
