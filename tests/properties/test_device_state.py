"""What a device remembers is read back as it was written, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blendstream.localclient import StateUnreadable
from blendstream.localclient.state import BudgetEntry, Mode, PendingSubmission, ScheduledSend, State

whole = st.integers(0, 2**62)
modes = st.sampled_from(Mode)
budgets = st.floats(0, 100, allow_nan=False)
states = st.builds(
    State,
    cohorts=whole,
    cohort=whole,
    budget_entries=st.lists(
        st.builds(BudgetEntry, modes, whole, st.text(), whole, whole, whole, budgets, budgets),
        max_size=4,
    ).map(tuple),
    scheduled_send=st.none()
    | st.builds(ScheduledSend, modes, whole, st.text(), whole, whole, whole, whole, whole),
    pending=st.none() | st.builds(PendingSubmission, modes, whole, st.text(), whole),
    forget_before_s=whole,
)


@given(state=states)
def test_a_state_is_read_back_as_it_was_written(state: State) -> None:
    assert State.from_bytes(state.to_bytes()) == state


@given(state=states, at=st.integers(0), flip=st.integers(1, 255))
def test_a_state_with_any_byte_changed_is_not_read(state: State, at: int, flip: int) -> None:
    """A disk that loses one bit must not give a device a new budget."""
    data = bytearray(state.to_bytes())
    data[at % len(data)] ^= flip
    with pytest.raises(StateUnreadable):
        State.from_bytes(bytes(data))


@given(state=states, kept=st.integers(0))
def test_a_state_cut_short_is_not_read(state: State, kept: int) -> None:
    data = state.to_bytes()
    with pytest.raises(StateUnreadable):
        State.from_bytes(data[: kept % len(data)])
