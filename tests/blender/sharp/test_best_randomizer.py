"""Which randomizer a head list gets."""

from __future__ import annotations

import numpy as np
import pytest

from blendstream.blender import RANDOMIZERS, Cells, PrivacyParameters, RandomizerSpec, Record
from blendstream.blender.paper.two_stage_estimates import TwoStageEstimator
from blendstream.blender.randomizers.subset_estimates import SubsetSelectionEstimator
from blendstream.blender.randomizers.subset_or_none import SubsetOrNone
from blendstream.blender.sharp.best_randomizer import (
    best_randomizer,
    share_in_64ths,
    worst_variance,
)


def records(queries: int, urls: int = 1) -> list[Record]:
    return [Record(f"q{q}", f"u{u}") for q in range(queries) for u in range(urls)]


def test_short_lists_get_randomized_response_and_long_ones_subsets():
    parameters = PrivacyParameters()
    assert best_randomizer(records(50), parameters).name == "randomized-response"
    assert best_randomizer(records(500), parameters).name == "subset-or-none"


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("listed", [records(5), records(40), records(10, 8), records(1, 30)])
def test_no_randomizer_has_less_variance_on_its_worst_record(epsilon, listed):
    """Not the paper's either, which is no candidate for that reason."""
    best = worst_variance(listed, best_randomizer(listed, PrivacyParameters(epsilon=epsilon)))
    for name in set(RANDOMIZERS) - {"two-stage"}:
        assert best <= worst_variance(listed, RandomizerSpec(name, epsilon))
    assert best < two_stage_variance(listed, RandomizerSpec("two-stage", epsilon))


def two_stage_variance(listed: list[Record], spec: RandomizerSpec) -> float:
    """n·Var(p̂) of the worst listed record where everyone holds ⟨⋆,⋆⟩."""
    cells = Cells(tuple(listed), query_wildcards=True)
    nobody = np.zeros(len(cells), dtype=np.int64)
    nobody[-1] = 2  # reports: enough to compute the variance of many
    variance = TwoStageEstimator(cells, spec).estimate(nobody, 2).variance_at(nobody / 2)
    return float(2 * variance[: len(listed)].max())


@pytest.mark.parametrize("epsilon", [0.0001, 0.001, 0.1, 4.0])
@pytest.mark.parametrize("listed", [records(1), records(10, 8), records(1, 30)])
def test_no_device_is_asked_to_spend_a_delta_that_it_was_not_charged(epsilon, listed):
    """Once the two stages were offered with the epoch's δ. At ε = 0.001, δ = 0.01 they won by it,
    and the list, its noise drawn and paid for, was refused because devices are charged δ = 0.
    """
    parameters = PrivacyParameters(epsilon=epsilon, delta=0.01)

    assert best_randomizer(listed, parameters).delta == 0


def test_the_two_stages_are_many_times_noisier_in_the_papers_settings():
    """ε = 4: the variance of the worst record, whole records beside two stages."""
    listed = records(12, 4)
    two_stage = two_stage_variance(listed, RandomizerSpec("two-stage", 4.0, 1e-5))
    whole = worst_variance(listed, RandomizerSpec("randomized-response", 4.0))
    assert two_stage > 8 * whole


def test_the_cap_on_an_answers_length_is_kept_and_counted_in():
    listed = records(5000)
    parameters = PrivacyParameters(epsilon=1.0)
    for cap in (1, 4, 32):
        spec = best_randomizer(listed, parameters, max_cells=cap)
        cells = Cells(tuple(listed), query_wildcards=False)
        assert RANDOMIZERS[spec.name](cells, spec).cells_per_answer <= cap
    capped, free = (
        worst_variance(listed, RandomizerSpec("subset-selection", 1.0, max_cells_per_answer=cap))
        for cap in (4, 32)
    )
    assert capped > free


def test_an_empty_list_is_served_by_the_simplest():
    assert best_randomizer([], PrivacyParameters()).name == "randomized-response"


def test_the_stated_variance_is_what_the_estimator_states():
    listed = records(20)
    spec = RandomizerSpec("subset-selection", 1.0)
    randomizer = SubsetSelectionEstimator(Cells(tuple(listed), query_wildcards=False), spec)
    n, w = 1000, randomizer.cells_per_answer
    counts = np.full(21, n * w // 21, dtype=np.int64)
    counts[-1] += n * w - counts.sum()

    stated = randomizer.estimate(counts, n).variance_at(np.zeros(21))

    assert n * stated[0] == pytest.approx(worst_variance(listed, spec))


def test_the_share_that_holds_something_listed_decides_how_many_records_an_answer_names():
    """ω is best near M/(E·√λ): the fewer hold anything, the more an answer names."""
    listed = records(500)
    few, usual, many = (
        SubsetOrNone(
            Cells(tuple(listed), query_wildcards=False),
            best_randomizer(listed, PrivacyParameters(), 64, listed_64ths=share),
        ).cells_per_answer
        for share in (4, 16, 48)
    )
    assert few > usual > many


def test_the_published_share_is_in_64ths_and_never_nothing_or_all():
    assert share_in_64ths([5000, 3000, 2000], 40_000) == 16
    assert share_in_64ths([], 40_000) == share_in_64ths([-3], 40_000) == 1
    assert share_in_64ths([40_000, 1], 40_000) == 63
