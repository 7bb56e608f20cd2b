"""The best m_O, asked for before any data is seen."""

from __future__ import annotations

import pytest

from blendstream.blender import ParameterError
from blendstream.blender.planning.records_per_user import best_records_per_user, detection_limit

SIZES = {"epsilon": 4.0, "delta": 1e-5, "users": 31_000}


def test_who_holds_one_record_sends_one():
    assert best_records_per_user(**SIZES, records_held={1: 1.0}).records_per_user == 1


def test_who_holds_ten_sends_ten_and_reaches_records_almost_three_times_rarer():
    """θ is 7 for one record and 25 for ten: 7/1 against 25/10."""
    best = best_records_per_user(**SIZES, records_held={10: 1.0})
    alone = detection_limit(1, **SIZES, records_held={10: 1.0})

    assert (best.records_per_user, best.threshold) == (10, 25)
    assert alone.smallest_share / best.smallest_share == pytest.approx(7 / (25 / 10))


def test_a_few_busy_users_do_not_raise_everybodys_threshold():
    """Nearly all hold two records: room for twelve would raise θ for counts that never come."""
    best = best_records_per_user(**SIZES, records_held={2: 0.97, 12: 0.03})
    everything = detection_limit(12, **SIZES, records_held={2: 0.97, 12: 0.03})

    assert best.records_per_user == 2
    assert best.smallest_share < everything.smallest_share / 2


def test_more_users_reach_further_with_the_same_m():
    small = best_records_per_user(**SIZES, records_held={5: 1.0})
    large = best_records_per_user(**{**SIZES, "users": 310_000}, records_held={5: 1.0})

    assert large.records_per_user == small.records_per_user
    assert large.smallest_share == pytest.approx(small.smallest_share / 10)


@pytest.mark.parametrize("held", [{}, {1: 0.5}, {0: 1.0}, {-1: 1.0}])
def test_shares_that_describe_nobody_are_refused(held):
    with pytest.raises(ParameterError, match="records_held"):
        detection_limit(1, **SIZES, records_held=held)
    with pytest.raises(ParameterError, match="records_held"):
        best_records_per_user(**SIZES, records_held=held)
