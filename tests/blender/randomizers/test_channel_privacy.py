"""Every local randomizer keeps its promise, shown by enumerating its exact channel.

Nothing is sampled and nothing is rounded here: P(answer | record) is a rational for every record
and answer, and the worst pair of records decides.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from blendstream.blender import RANDOMIZERS
from blendstream.blender.paper.local import TwoStage, truth_probability
from tests.channels import ExactChannel, build, channel_fractions, shapes

pytestmark = pytest.mark.long

EPSILONS = (0.1, 0.7, 1.0, 2.0, 4.0, 6.5)
DELTAS = (0.0, 1e-7, 1e-5, 1e-2)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", RANDOMIZERS)
def test_one_answer_is_private_for_every_shape_of_up_to_12_cells(name, epsilon):
    """m_C = 1; all head lists, all pairs of records, all sets of answers."""
    tried = 0
    for shape in shapes(name, max_cells=12):
        for delta in DELTAS:
            channel = ExactChannel.of(build(name, shape, epsilon=epsilon, delta=delta))
            assert channel.smallest_delta(epsilon) <= Fraction(delta), (shape, delta)
            tried += 1
    assert tried >= 12 * len(DELTAS)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", RANDOMIZERS)
def test_two_answers_together_are_private_for_every_shape_of_up_to_6_cells(name, epsilon):
    """m_C = 2: both records of the device may change at once."""
    for shape in shapes(name, max_cells=6):
        for delta in (0.0, 1e-2):
            randomizer = build(name, shape, epsilon=epsilon, delta=delta, answers=2)
            channel = ExactChannel.of(randomizer).twice()
            assert channel.smallest_delta(epsilon) <= Fraction(delta), (shape, delta)


@pytest.mark.parametrize("name", RANDOMIZERS)
def test_the_probabilities_of_all_answers_add_up_to_one(name):
    """A channel that lost probability would hide an answer from the tests above."""
    for shape in shapes(name, max_cells=9):
        for row in channel_fractions(build(name, shape, epsilon=1.3, delta=1e-3)):
            assert sum(row) == 1


@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_a_randomizer_that_spends_its_budget_twice_is_caught(delta):
    """Deliberately broken: the query and the URL are each reported with all of ε and δ.

    The enumeration must see it; if it did not, the tests above would mean nothing.
    """

    class Spendthrift(TwoStage):
        def __init__(self, cells, spec):
            super().__init__(cells, spec)
            budget = {"epsilon": Fraction(spec.epsilon), "delta": Fraction(spec.delta)}
            self.truth = truth_probability(len(cells.queries) + 1, **budget)
            self.url_truth = {k: truth_probability(k, **budget) for k in self.url_truth}

    honest = build("two-stage", (3, 3), epsilon=1.0, delta=delta)
    broken = Spendthrift(honest.cells, honest.spec)

    assert ExactChannel.of(honest).smallest_delta(1.0) <= Fraction(delta)
    assert ExactChannel.of(broken).smallest_delta(1.0) > Fraction(delta) + Fraction(1, 100)


def test_the_two_stage_randomizer_wastes_budget_but_never_overspends():
    """With δ = 0 its true ε is max over q of max(ε_U, ε_Q + ln(k_q·t_q)), below ε_Q + ε_U."""
    randomizer = build("two-stage", (2, 1), epsilon=4.0)
    channel = ExactChannel.of(randomizer)

    assert channel.smallest_delta(4.0) == 0
    assert channel.smallest_delta(3.9) == 0, "the paper's composition is not tight"
    assert channel.smallest_delta(3.4) > 0
