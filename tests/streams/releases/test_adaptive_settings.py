"""Settings that were changed after looking at results: which of the ledger's figures still hold.

One mechanism is looked at, and what is run after it depends on what it showed. Every mechanism is
the worst that has its (ε, δ): it loses ∞ with probability δ, else ε or -ε, in the ratio e^ε.
"""

from __future__ import annotations

import itertools
import math

import pytest

from blendstream.streams.budget.composition import Costs, basic_composition, delta_at

FIRST = 0.5
LIMIT_EPSILON, LIMIT_DELTA = 3.0, 1e-3


def with_first(rest: Costs) -> Costs:
    return tuple(sorted([(FIRST, 0.0, 1), *rest]))


def true_delta(after_more: Costs, after_less: Costs) -> float:
    """δ at the limit's ε if the first mechanism decides which costs follow."""
    more = 1 / (1 + math.exp(-FIRST))
    return more * delta_at(after_more, LIMIT_EPSILON - FIRST) + (1 - more) * delta_at(
        after_less, LIMIT_EPSILON + FIRST
    )


def test_the_composed_figure_does_not_hold_for_settings_chosen_by_results():
    """Both plans keep the limit, each chosen beforehand. Where the first mechanism gave much away,
    77 small epochs follow, which need that to pass ε; where it gave little, one that spends δ
    alone. Together they pass the limit by a third."""
    small: Costs = ((0.1, 0.0, 77),)
    delta_alone: Costs = ((0.0, LIMIT_DELTA, 1),)
    for plan in (small, delta_alone):
        assert delta_at(with_first(plan), LIMIT_EPSILON) <= LIMIT_DELTA * (1 + 1e-9)
        assert true_delta(plan, plan) == pytest.approx(
            delta_at(with_first(plan), LIMIT_EPSILON), rel=1e-6
        )

    assert true_delta(small, delta_alone) > 1.3 * LIMIT_DELTA


def test_plain_sums_hold_for_settings_chosen_by_results():
    """Whatever is chosen after the first result: if each choice keeps the sums, so does the
    truth."""
    choices: list[Costs] = [
        ((0.1, 0.0, 25),),
        ((2.5, 0.0, 1),),
        ((0.0, LIMIT_DELTA, 1),),
        ((0.5, LIMIT_DELTA / 5, 5),),
        ((0.1, LIMIT_DELTA / 25, 25),),
        ((1.0, LIMIT_DELTA / 4, 2), (0.25, LIMIT_DELTA / 4, 2)),
    ]
    for plan in choices:
        epsilon, delta = basic_composition(with_first(plan))
        assert epsilon <= LIMIT_EPSILON + 1e-9
        assert delta <= LIMIT_DELTA + 1e-12
    for more, less in itertools.product(choices, repeat=2):
        assert true_delta(more, less) <= LIMIT_DELTA * (1 + 1e-9)
