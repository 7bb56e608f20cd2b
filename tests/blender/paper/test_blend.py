"""BlendProbabilities (Figure 7): edges. What holds for every input is in tests/properties."""

from __future__ import annotations

import numpy as np
import pytest

from blendstream.blender import Estimates, HeadListMismatch, ParameterError, project_onto_simplex
from blendstream.blender.paper.blend import VarianceBlender, blend_probabilities, optin_weight
from blendstream.blender.values.cell_estimates import unknown_group
from tests.channels import build


def estimates(p, variance):
    p, variance = np.array(p, dtype=float), np.array(variance, dtype=float)
    return Estimates(p, variance, np.zeros(len(p)), np.ones(len(p)))


def test_a_group_that_knows_nothing_has_no_say():
    found = blend_probabilities(estimates([0.0], [np.inf]), estimates([0.3], [1e-4]))
    assert found.probability.tolist() == [0.3]
    assert found.variance.tolist() == [1e-4]
    found = blend_probabilities(estimates([0.3], [1e-4]), estimates([0.0], [np.inf]))
    assert found.probability.tolist() == [0.3]
    assert found.variance.tolist() == [1e-4]


def test_two_groups_that_know_nothing_say_nothing():
    found = blend_probabilities(estimates([0.0], [np.inf]), estimates([0.0], [np.inf]))
    assert found.variance.tolist() == [np.inf]
    assert (found.low[0], found.high[0]) == (0, 1)


def test_zero_variance_is_certainty():
    found = blend_probabilities(estimates([0.9], [1e-3]), estimates([1.0], [0.0]))
    assert (found.probability[0], found.variance[0]) == (1.0, 0.0)
    both = blend_probabilities(estimates([0.9], [0.0]), estimates([1.0], [0.0]))
    assert both.probability[0] == pytest.approx(0.95)
    assert both.variance[0] == 0


def test_weights_may_be_handed_in():
    """A blender with steadier variances only brings its own weights."""
    found = blend_probabilities(
        estimates([0.2], [4.0]), estimates([0.4], [1.0]), weight=np.array([0.5])
    )
    assert found.probability == pytest.approx([0.3])
    assert found.variance == pytest.approx([1.25])


def test_estimates_below_zero_are_blended_as_they_are():
    """Cutting them off first would bias the blend upwards."""
    found = blend_probabilities(estimates([-0.2], [1.0]), estimates([0.1], [1.0]))
    assert found.probability == pytest.approx([-0.05])
    assert found.low[0] == 0


def test_groups_over_different_cells_are_refused():
    randomizer = build("two-stage", (2, 1), epsilon=4.0)
    client = randomizer.estimate(np.array([5, 5, 5, 5, 5, 5]), 30)
    with pytest.raises(HeadListMismatch, match="same cells, got 4 opt-in and 6 client"):
        VarianceBlender().blend(unknown_group(4, 1), client, randomizer.cells)


def test_without_opt_in_estimates_the_clients_decide():
    randomizer = build("two-stage", (2, 1), epsilon=4.0)
    client = randomizer.estimate(np.array([5, 5, 5, 5, 5, 5]), 30)
    found = VarianceBlender().blend(unknown_group(6, 2), client, randomizer.cells)
    assert found.cells.probability == pytest.approx(client.cells.probability)
    assert found.participants == 30


def test_the_weight_of_a_blend_also_rules_its_variance_at_any_truth():
    randomizer = build("two-stage", (2, 1), epsilon=4.0)
    counts = np.array([5, 5, 5, 5, 5, 5])
    one, other = randomizer.estimate(counts, 30), randomizer.estimate(counts * 9, 270)
    found = VarianceBlender().blend(one, other, randomizer.cells)
    p = np.full(6, 1 / 6)
    w = optin_weight(one.cells.variance, other.cells.variance)
    expected = w**2 * one.variance_at(p) + (1 - w) ** 2 * other.variance_at(p)
    assert found.variance_at(p) == pytest.approx(expected)


def test_what_cannot_be_projected_is_refused():
    with pytest.raises(ParameterError, match="at least one cell"):
        project_onto_simplex(np.array([]))
    with pytest.raises(ParameterError, match="finite"):
        project_onto_simplex(np.array([0.5, np.nan]))
