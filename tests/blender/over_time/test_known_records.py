"""What stays known, what is shown, and what must pass the threshold again."""

from __future__ import annotations

import numpy as np
import pytest

from blendstream.blender import ParameterError
from blendstream.blender.over_time.filter.epoch_filter import FilterState, empty_state
from blendstream.blender.over_time.known_records import select_forgotten, select_shown

USERS = 1_000


def state_of(*likely: tuple[float, float]) -> FilterState:
    """States of which mean and deviation are given in holders among 1 000 users."""
    size = len(likely)
    mean, covariance = np.zeros((5, size)), np.zeros((5, 5, size))
    for i, (holders, deviation) in enumerate(likely):
        mean[0, i] = holders / USERS
        covariance[0, 0, i] = (deviation / USERS) ** 2
    return FilterState(mean, covariance, empty_state().reference)


def test_shown_from_two_holders_on_and_forgotten_when_it_could_hardly_be_two():
    state = state_of((2.0, 0.5), (1.9, 0.5), (1.4, 0.5), (-0.5, 3.0), (-0.5, 1.0))

    assert select_shown(state, USERS).tolist() == [True, False, False, False, False]
    assert select_forgotten(state, USERS).tolist() == [False, False, True, False, True]


def test_what_is_known_is_bounded_and_the_lowest_go_first():
    state = state_of((9.0, 1.0), (3.0, 1.0), (5.0, 4.0), (0.1, 0.1), (3.0, 1.0))

    gone = select_forgotten(state, USERS, most=2)

    assert gone.tolist() == [False, True, False, True, True]
    assert select_forgotten(state, USERS, most=3).tolist() == [False, False, False, True, True]


def test_nothing_but_published_values_enters():
    """Twice the same state, twice the same answer; there is nothing else to hand in."""
    state = state_of((2.0, 0.5), (1.0, 0.2))

    assert np.array_equal(select_forgotten(state, USERS), select_forgotten(state, USERS))
    assert select_forgotten(empty_state(), USERS).tolist() == []


@pytest.mark.parametrize(("users", "most"), [(0, None), (10, 0)])
def test_no_users_and_no_room_are_refused(users, most):
    with pytest.raises(ParameterError, match="must be at least 1"):
        select_forgotten(state_of((2.0, 0.5)), users, most=most)
