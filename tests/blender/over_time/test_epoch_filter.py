"""The filter over epochs, record by record: what each part of its model does."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from blendstream.blender import ParameterError
from blendstream.blender.over_time.filter import reference_records
from blendstream.blender.over_time.filter.epoch_filter import (
    FilterState,
    Observation,
    advance,
    empty_state,
)
from blendstream.blender.over_time.filter.filter_modes import FilterModes, default_modes
from blendstream.blender.over_time.filter.reference_records import LOG_CAP

N_O, N_C = 30_000.0, 600_000.0
NOISE_O, NOISE_C = 0.36 / N_O**2, 0.036 / N_C
STILL = FilterModes(((0.0, 0.0, 0.0),), (0.0,), (1e-12,))


def optin(*shares: float) -> Observation:
    return Observation(np.array(shares), np.full(len(shares), N_O), np.full(len(shares), NOISE_O))


def clients(*shares: float) -> Observation:
    return Observation(np.array(shares), np.full(len(shares), N_C), np.full(len(shares), NOISE_C))


NOBODY = float("nan")


def after(state: FilterState, epochs: int, y_o: float, y_c: float, **tau: float) -> FilterState:
    for _ in range(epochs):
        state = advance(state, optin(y_o), clients(y_c), **tau)
    return state


def test_with_nothing_that_moves_it_is_the_average_weighed_by_precision():
    """People drawn anew in every epoch, no drift: what every statistician would do by hand."""
    p = 0.003
    state = advance(empty_state(STILL), optin(p), clients(p))
    first, before = state.variance[0], state.mean[0, 0]
    state = advance(state, optin(0.0032), clients(0.0029))

    v_o, v_c = p / N_O + NOISE_O, p / N_C + NOISE_C
    precision = 1 / first + 1 / v_o + 1 / v_c
    mean = (before / first + 0.0032 / v_o + 0.0029 / v_c) / precision
    assert state.mean[0, 0] == pytest.approx(mean, rel=1e-3)
    assert state.variance[0] == pytest.approx(1 / precision, rel=0.02)


def test_an_error_falls_with_the_number_of_epochs_if_people_change():
    once, often = (after(empty_state(STILL), t, 0.003, 0.003).variance[0] for t in (1, 25))

    assert often == pytest.approx(once / 25, rel=0.1)


def test_a_panel_that_stays_never_tells_more_than_once():
    """What its people hold differs from the group by chance, and always by the same."""
    panel = FilterModes(((1.0, 1.0, 0.0),), (0.0,), (1e-12,), clients_rotate=True)
    state = after(empty_state(panel), 40, 0.003, NOBODY)

    assert state.variance[0] >= 0.9 * 0.003 / N_O


def test_those_who_stay_inflate_the_variance_as_the_formula_says():
    """(1+h)/(1−h) for a long stationary series."""
    h, epochs, p = 0.8, 400, 0.003
    keep = FilterModes(((h, h, 0.0),), (0.0,), (1e-12,), clients_rotate=True)
    state = after(empty_state(keep), epochs, p, NOBODY)

    expected = p / N_O / epochs * (1 + h) / (1 - h) + NOISE_O / epochs
    assert state.variance[0] == pytest.approx(expected, rel=0.06)


def test_the_difference_of_the_groups_does_not_average_out():
    """An unlisted record is known from opt-in users alone: its share among clients stays open."""
    tau, p = 0.2, 0.003
    alone = after(empty_state(STILL), 50, p, NOBODY, between_groups=tau)
    listed = after(empty_state(STILL), 50, p, p, between_groups=tau)

    assert 0.8 * tau * p < math.sqrt(alone.variance[0]) < 1.2 * tau * p
    assert math.sqrt(listed.variance[0]) < 0.15 * tau * p
    agreeing = after(empty_state(STILL), 50, p, NOBODY)
    assert math.sqrt(agreeing.variance[0]) < 0.2 * tau * p


def test_what_is_wanted_is_the_clients_share():
    """Opt-in users hold it a fifth more often: with τ given, the estimate goes to the clients'."""
    state = after(empty_state(STILL), 40, 0.0036, 0.003, between_groups=0.2)

    assert state.mean[0, 0] == pytest.approx(0.003, rel=0.01)


def test_a_record_that_is_new_is_likelier_a_rarer_one_in_luck():
    """P(p | y) ∝ p⁻²·P(y | p), here integrated apart from the code."""
    y = 8 / N_O
    state = advance(empty_state(STILL), optin(y), clients(NOBODY))

    p = np.linspace(0.05, 60, 200_000) / N_O
    variance = p / N_O + NOISE_O
    weight = p**-2 / np.sqrt(variance) * np.exp(-((y - p) ** 2) / (2 * variance))
    mean = (weight * p).sum() / weight.sum()
    assert state.mean[0, 0] == pytest.approx(mean, rel=0.03)
    assert state.mean[0, 0] < 0.9 * y


def test_a_jump_is_followed_at_once():
    state = after(empty_state(), 15, 0.003, 0.003)
    state = advance(state, optin(0.009), clients(0.009))

    assert state.mean[0, 0] == pytest.approx(0.009, rel=0.05)


def many(rng, p, size, *, forged=None):
    y_o = rng.poisson(N_O * p, size) / N_O
    y_c = p + rng.normal(0, math.sqrt(p / N_C + NOISE_C), size)
    if forged is not None:
        y_o[0] = y_c[0] = forged
    return optin(*y_o), clients(*y_c)


def swinging(*, forged: bool) -> FilterState:
    """Forty records that are still, or one of them swings by a factor of twenty in each epoch."""
    rng, state = np.random.default_rng(3), empty_state()
    for epoch in range(10):
        swing = 0.002 * (1 + 19 * (epoch % 2)) if forged else None
        state = advance(state, *many(rng, 0.003, 40, forged=swing))
    return state


def test_one_forged_record_does_not_move_all_others():
    """It jumps; that others drift does not follow."""
    honest, forged = (swinging(forged=f) for f in (False, True))

    assert forged.drift < 0.01
    assert np.median(forged.variance[1:]) < 2.5 * np.median(honest.variance[1:])


def log_odds_moved(value: float) -> float:
    """By how much one record that shows `value` moves the odds of any two modes, as a logarithm."""
    rng, state = np.random.default_rng(8), empty_state()
    for _ in range(3):
        state = advance(state, *many(rng, 0.003, 40))
    y_o, y_c = many(rng, 0.003, 40)
    first, then = (advance(state, y_o, c).reference.weights for c in (y_c, replaced(y_c, value)))
    sure = (first > 1e-200) & (then > 1e-200)
    moved = np.log(then[sure] / first[sure])
    return float(moved.max() - moved.min())


def replaced(group: Observation, value: float) -> Observation:
    return Observation(np.append(value, group.share[1:]), group.users, group.noise)


def test_what_one_record_says_of_the_modes_is_capped(monkeypatch):
    """Twice, for what it said before and what it says now; a little for the common change."""
    assert max(log_odds_moved(value) for value in (0.0, 0.004, 0.3)) <= 2 * LOG_CAP + 1.5

    monkeypatch.setattr(reference_records, "LOG_CAP", 1e9)
    assert log_odds_moved(0.0) > 2 * LOG_CAP + 1.5


def test_drift_and_persistence_are_found_without_being_given():
    rng = np.random.default_rng(4)
    state, held, size = empty_state(), rng.poisson(N_O * 0.003, 60), 60
    for _ in range(12):
        held = rng.binomial(held, 0.8) + rng.poisson(0.2 * N_O * 0.003, size)
        y_c = 0.003 + rng.normal(0, math.sqrt(NOISE_C), size)
        state = advance(state, optin(*(held / N_O)), clients(*y_c))

    assert state.staying == pytest.approx(0.8, abs=0.05)
    assert state.drift < 0.005


def test_forgotten_records_leave_the_others_as_they_are():
    rng = np.random.default_rng(5)
    state = empty_state()
    for _ in range(3):
        state = advance(state, *many(rng, 0.003, 12))
    keep = np.arange(12) % 3 > 0
    smaller = state.keep(keep)

    assert smaller.size == 8
    assert np.array_equal(smaller.mean, state.mean[:, keep])
    seen = many(rng, 0.003, 12)
    whole = advance(state, *seen)
    part = advance(smaller, *(group.select(np.flatnonzero(keep)) for group in seen))
    assert part.mean[0] == pytest.approx(whole.mean[0, keep], rel=0.01)


def test_states_stay_covariances_over_many_epochs():
    """Symmetric and not below 0, jumps, zero counts and negative noise included."""
    rng = np.random.default_rng(6)
    state, size = empty_state(), 30
    p = 0.01 / (1 + np.arange(size)) ** 1.5
    for epoch in range(40):
        if epoch == 20:
            p = p[::-1].copy()
        y_o = (rng.poisson(N_O * p) + rng.laplace(0, 0.4, size)) / N_O
        y_c = np.where(np.arange(size) < 10, p + rng.normal(0, 3e-4, size), np.nan)
        state = advance(state, optin(*y_o), clients(*y_c), between_groups=0.1)
        assert np.isfinite(state.mean).all()
        c = np.moveaxis(state.covariance, 2, 0)
        assert np.allclose(c, np.swapaxes(c, 1, 2), atol=1e-18)
        scale = np.sqrt(np.maximum(np.einsum("rii->ri", c), 1e-30))
        assert np.linalg.eigvalsh(c / scale[:, :, None] / scale[:, None, :]).min() > -1e-6


def test_modes_of_clients_who_take_turns_do_not_let_them_stay():
    assert default_modes(clients_rotate=True).client_stay(0.9, 0.0) == 0.0
    assert default_modes().client_stay(0.9, 0.0) == 0.9


@pytest.mark.parametrize(
    ("y_o", "y_c", "tau", "message"),
    [
        ((0.1,), (0.1, 0.2), 0.0, "must speak of the same records"),
        ((), (), 0.0, "at least the 1 known"),
        ((0.1,), (0.1,), -0.1, "between_groups must be finite and at least 0"),
        ((0.1,), (0.1,), math.nan, "between_groups must be finite and at least 0"),
        ((0.1, NOBODY), (0.1, 0.1), 0.0, "a new record must have a count"),
    ],
)
def test_what_does_not_fit_is_refused(y_o, y_c, tau, message):
    state = advance(empty_state(STILL), optin(0.003), clients(0.003))
    with pytest.raises(ParameterError, match=message):
        advance(state, optin(*y_o), clients(*y_c), between_groups=tau)


def test_one_epoch_in_a_hundred_the_world_may_change_its_mode():
    """Two modes that predict alike, so that no count tells them apart: certainty fades by 1 % per
    epoch. At 5 % the filter would forget after twenty epochs what it learned."""
    twins = FilterModes(((0.0, 0.0, 0.0),), (0.0, 0.0), (1e-12,))
    state = after(empty_state(twins), 1, 0.003, 0.003)
    certain = replace(state, reference=replace(state.reference, weights=np.array([1.0, 0.0])))

    weights = after(certain, 1, 0.003, 0.003).reference.weights

    assert weights == pytest.approx([0.99 + 0.01 / 2, 0.01 / 2])
