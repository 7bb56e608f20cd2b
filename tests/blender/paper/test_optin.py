"""EstimateOptinProbabilities (Figure 4): what T is counted over, trimming and merging."""

from __future__ import annotations

import math

import numpy as np
import pytest

from blendstream.blender import (
    Cells,
    HeadListMismatch,
    OptinCounts,
    ParameterError,
    PrivacyParameters,
    RandomizerSpec,
    Record,
    estimate_optin_probabilities,
)
from blendstream.blender.noise.exact_noise import GRID, laplace_tail
from blendstream.blender.paper.optin import NoisyCounts, add_noise, estimate_noisy_counts
from tests.doubles import NoNoise, ScriptedNoise
from tests.output_distributions import distribution, divergence

A, B, C, D = Record("a", "x"), Record("a", "y"), Record("b", "z"), Record("c", "w")
SPEC = RandomizerSpec("two-stage", epsilon=4.0, delta=1e-5)
#: Of one draw, in people²: the printed 2b².
NOISE_VARIANCE = 2 * 0.5**2


def counts(**estimation):
    by_record = {
        A: 40, B: 30, C: 10, D: 5,
        Record("a", "rare"): 6, Record("b", "rare"): 4, Record("new", "x"): 5,
    }  # fmt: skip
    by_record.update(estimation)
    n = np.array(list(by_record.values()))
    return OptinCounts(list(by_record), np.zeros_like(n), n, 0, int(n.sum()))


def in_people(found):
    """The noisy counts, which `NoNoise` leaves whole."""
    whole, rest = np.divmod(found.noisy.counts, GRID)
    assert not rest.any()
    return whole.tolist()


def estimate(head_list_cells, noise, data=None):
    parameters = PrivacyParameters(head_list_cells=head_list_cells)
    return estimate_optin_probabilities(
        (A, B, C, D), data or counts(), parameters, noise, randomizer=SPEC
    )


def test_users_of_t_fall_into_the_same_cells_as_clients():
    """⟨⋆,⋆⟩ must mean the same in both groups, or blending it does harm."""
    found = estimate(10, NoNoise())

    assert found.head_list.records == (A, B, C, D)
    assert found.head_list.listed == 4, "M larger than the list keeps all of it"
    assert in_people(found) == [40, 30, 10, 5, 6, 4, 0, 5]
    assert found.best_trimmed is None
    assert found.estimates.cells.probability.sum() == pytest.approx(1)
    assert found.estimates.query_totals.probability == pytest.approx([0.7, 0.1, 0.05])
    assert found.estimates.query_marginals.probability == pytest.approx([0.76, 0.14, 0.05])


def test_users_of_t_without_a_record_are_in_the_last_cell():
    """All of T is counted, so that its size says nothing of what its users hold."""
    held = counts()
    found = estimate(
        10, NoNoise(), OptinCounts(held.records, held.selection, held.estimation, 0, 100 + 7)
    )

    assert in_people(found) == [40, 30, 10, 5, 6, 4, 0, 5 + 7]
    assert found.noisy.users == 107


def test_every_cell_gets_noise_of_scale_2_over_epsilon():
    """One user who changes their record leaves one cell and enters another."""
    noise = ScriptedNoise([GRID * x for x in (1, -1, 0, 0, 2, 0, 0, -3)])
    found = estimate(10, noise)

    assert noise.scales == [0.5 * GRID]
    assert in_people(found) == [41, 29, 10, 5, 8, 4, 0, 2]


def worst_divergence(epsilon: float, *, factor: float = 1.0, grid: int = 1) -> float:
    """One user of T moves from one cell to another, as `add_noise` releases them."""

    def cell(count: int) -> dict:
        def show(copies, noise):
            parameters = PrivacyParameters(epsilon=epsilon)
            raw = np.full(copies, count)
            noisy = add_noise(raw, users=9, parameters=parameters, noise=noise, grid=grid)
            return noisy.counts.tolist()

        return distribution(show, reach=grid * (math.ceil(76 / epsilon) + 12), factor=factor)

    distributions = [cell(count) for count in range(4)]
    return max(
        divergence(
            [distributions[a + 1], distributions[b]],
            [distributions[a], distributions[b + 1]],
            epsilon,
        )
        for a in (0, 2)
        for b in (0, 1)
    )


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_what_t_releases_is_epsilon_private_with_no_delta(epsilon):
    """Enumerated, by the noise that the code asks for."""
    assert worst_divergence(epsilon) <= 2e-12


def test_a_grid_finer_than_people_is_as_private():
    """And noise whose scale was not multiplied by the grid is caught."""
    assert worst_divergence(4.0, grid=4) <= 2e-12
    assert worst_divergence(4.0, grid=4, factor=1 / 4) > 0.5


def test_counts_rounded_to_people_have_the_law_that_is_stated():
    """By the exact tail: round(N + X/G) is N + z where (z − ½)·G ≤ X < (z + ½)·G."""
    noisy = NoisyCounts(np.array([0]), np.array([1]), 0.5 * GRID, 9, grid=GRID)
    units = np.array([-GRID // 2 - 1, -GRID // 2, 0, GRID // 2 - 1, GRID // 2, 5 * GRID])
    assert noisy.to_people(units).tolist() == [-1, 0, 0, 0, 1, 5]

    stated, half = noisy.noise_distribution, len(noisy.noise_distribution) // 2
    for z in (-2, -1, 0, 1, 3):
        edges = [z * GRID - GRID // 2, z * GRID + GRID // 2]
        first, after = (laplace_tail(edge, scale=0.5 * GRID) for edge in edges)
        assert stated[half + z] == pytest.approx(first - after, rel=1e-9)


@pytest.mark.parametrize("factor", [0.5, 0.9])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_sensitivity_understated_by_a_tenth_is_caught(epsilon, factor):
    """Deliberately broken: noise for a user who moves 1.8 counts instead of 2, and for 1."""
    assert worst_divergence(epsilon, factor=factor) > 0.005


def test_the_trimmed_go_to_their_query_if_it_stays_and_else_to_the_wildcard():
    found = estimate(1, NoNoise())

    # ⟨a,x⟩ stays; ⟨a,y⟩ joins ⟨a,⋆⟩; b, c and everything of theirs join ⟨⋆,⋆⟩.
    assert found.head_list.records == (A, B, C, D), "the release holds the whole selected list"
    assert found.head_list.listed == 1
    assert in_people(found) == [40, 36, 24]
    assert found.best_trimmed == 30 * GRID
    assert found.noisy.noise_terms.tolist() == [1, 2, 5]
    assert found.estimates.query_totals.probability == pytest.approx([0.4])


def test_a_merged_cell_has_the_variance_of_all_its_noise():
    """Departure: the paper recomputes it as if there were one draw."""
    found = estimate(1, NoNoise())
    p, users = 0.24, 100
    honest = users / 99 * (p * (1 - p) / users + 5 * NOISE_VARIANCE / users**2)
    assert found.estimates.cells.variance[-1] == pytest.approx(honest, rel=1e-5)


def test_the_variance_of_t_is_that_of_its_sample_and_of_its_noise():
    """By hand, at p̂ and at any other p: without the first part T would weigh as if it were
    everyone, without the second as if nothing had been added."""
    found = estimate(10, NoNoise()).estimates
    p, users = 0.4, 100
    from_noise = NOISE_VARIANCE / users**2

    assert found.cells.variance[0] == pytest.approx(
        users / (users - 1) * (p * (1 - p) / users + from_noise)
    )
    assert found.variance_at(np.full(8, 0.3)) == pytest.approx(0.3 * 0.7 / users + from_noise)


def test_a_head_list_of_no_cells_counts_everyone_as_the_wildcard():
    """M = 0."""
    found = estimate(0, NoNoise())
    assert found.head_list.listed == 0
    assert in_people(found) == [100]
    assert found.noisy.noise_terms.tolist() == [8]
    assert found.best_trimmed == 40 * GRID


def test_records_rank_by_noisy_count_and_then_by_text():
    noise = ScriptedNoise([GRID * x for x in (-10, 0, 25, 25, 0, 0, 0, 0)])  # 30, 30, 35, 30
    found = estimate(2, noise)
    assert found.head_list.records == (C, A, B, D)
    assert found.head_list.cells.records == (C, A)


def test_an_estimate_below_zero_keeps_a_positive_variance():
    """p̂ < 0 makes the plug-in negative; the noise alone is a lower bound of the truth."""
    noise = ScriptedNoise([0, 0, 0, -35 * GRID, 0, 0, 0, 0])
    found = estimate(10, noise)
    cells = found.estimates.cells

    assert cells.probability[3] == pytest.approx(-0.3)
    assert cells.variance[3] == pytest.approx(NOISE_VARIANCE / 100**2)
    assert cells.low[3] == 0
    assert 0 <= cells.high[3] < 0.05


def test_nobody_in_t_means_nothing_is_known():
    empty = OptinCounts([], np.array([], dtype=int), np.array([], dtype=int), 0, 0)
    found = estimate(2, NoNoise(), empty).estimates

    assert found.participants == 0
    assert (found.cells.variance == np.inf).all()
    assert found.cells.low.tolist() == [0] * 4
    assert found.cells.high.tolist() == [1] * 4
    assert (found.variance_at(np.zeros(4)) == np.inf).all()


def test_one_user_has_no_sample_variance():
    one = OptinCounts([A], np.array([0]), np.array([1]), 0, 1)
    found = estimate(1, NoNoise(), one).estimates
    assert found.cells.probability[0] == 1
    assert (found.cells.variance == np.inf).all()


def test_an_empty_head_list_leaves_the_wildcard_alone():
    found = estimate_optin_probabilities(
        (), counts(), PrivacyParameters(), NoNoise(), randomizer=SPEC
    )
    assert in_people(found) == [100]
    assert found.estimates.cells.probability.tolist() == [1.0]


def test_more_records_a_user_than_the_theorem_covers_are_refused():
    with pytest.raises(ParameterError, match=r"Theorem 2 .* holds for m_O = 1"):
        estimate_optin_probabilities(
            (A,), counts(), PrivacyParameters(records_per_optin_user=2), NoNoise(), randomizer=SPEC
        )


def test_counts_of_another_head_list_are_refused():
    noisy = NoisyCounts(np.array([1, 2]), np.array([1, 1]), 0.5, 3)
    with pytest.raises(HeadListMismatch, match="has 3 cells, got counts for 2"):
        estimate_noisy_counts(noisy, Cells((A,), query_wildcards=True))
    with pytest.raises(HeadListMismatch, match="of one length"):
        NoisyCounts(np.array([1, 2]), np.array([1]), 0.5, 3)


@pytest.mark.parametrize(
    ("selection", "estimation", "users", "message"),
    [
        ([1], [1, 2], 3, "one length"),
        ([-1, 0], [1, 2], 3, "must not be negative"),
        ([1, 0], [1, 2], 2, "must add up to at most 2, got 3"),
    ],
)
def test_counts_that_cannot_be_are_refused(selection, estimation, users, message):
    with pytest.raises(ParameterError, match=message):
        OptinCounts([A, B], np.array(selection), np.array(estimation), 1, users)


def test_the_published_noisy_counts_are_all_that_estimates_need():
    """Another process repeats them from the release; nothing raw is asked for again."""
    found = estimate(2, ScriptedNoise([GRID * x for x in (1, -1, 0, 0, 2, 0, 0, -3)]))
    again = estimate_noisy_counts(found.noisy, found.head_list.cells)
    for one, other in zip(
        (found.estimates.cells, found.estimates.query_totals),
        (again.cells, again.query_totals),
        strict=True,
    ):
        assert np.array_equal(one.probability, other.probability)
        assert np.array_equal(one.low, other.low)
