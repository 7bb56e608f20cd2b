"""What this device has spent, and whether it may spend more: the rules no server can change.

Promises: a window is answered at most once, in one mode; windows only move forward; within any
`period_s` seconds the reports' (ε, δ) add up to no more than the limits (basic composition,
neighbouring data differ in the values of this person's records). What was answered rules out no
window that begins after it, independent of the number that a server gave it.
Assumes: the state it is given is the one on disk, and the caller holds its lock.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from blendstream.localclient.errors import ClockWrong, HeadListRefused, LimitReached
from blendstream.localclient.limits import Limits
from blendstream.localclient.state import Claim, State

__all__ = ["add_claim", "check_follows", "spent", "within_limits"]

#: Claims are kept for a year at least. If they were forgotten after the present period, an
#: application that shortens its period and lengthens it again could spend twice; a year of hourly
#: windows is still less than 2 MB.
_REMEMBER_S = 366 * 86_400


def spent(state: State, limits: Limits, now_s: int) -> tuple[Fraction, Fraction]:
    """(ε, δ) spent within the period that ends now."""
    recent = [claim for claim in state.claims if claim.at_s > now_s - limits.period_s]
    return (
        sum((_exact(claim.epsilon) for claim in recent), Fraction(0)),
        sum((_exact(claim.delta) for claim in recent), Fraction(0)),
    )


def check_follows(state: State, claim: Claim) -> None:
    """Raise unless the claim's window, and its time, come after what was answered last."""
    if not state.claims:
        return
    last = state.claims[-1]
    if claim.at_s < last.at_s:
        raise ClockWrong(
            f"time must not run backwards: the last report was made at {last.at_s}, and the "
            f"device's clock now says {claim.at_s} (seconds since 1970). Set the clock right."
        )
    # Compared by their times alone. Epoch numbers come from the server: if they had to rise, one
    # that is much too high would rule out every honest epoch after it.
    if claim.window_start_s < last.window_end_s:
        raise HeadListRefused(
            "windows must not overlap or go back, as each is answered once and in one mode: one "
            f"was answered up to {last.window_end_s} ({last.mode}), and this one starts at "
            f"{claim.window_start_s} (seconds since 1970). Nothing was spent or sent."
        )


def within_limits(state: State, claim: Claim, limits: Limits) -> None:
    """Raise unless this claim may be added now."""
    check_follows(state, claim)
    epsilon, delta = spent(state, limits, claim.at_s)
    epsilon, delta = epsilon + _exact(claim.epsilon), delta + _exact(claim.delta)
    if epsilon > _exact(limits.epsilon_per_period) or delta > _exact(limits.delta_per_period):
        free_at_s = _free_at(state, claim, limits)
        raise LimitReached(
            f"reports within {limits.period_s} s must stay within epsilon="
            f"{limits.epsilon_per_period} and delta={limits.delta_per_period}; this one would make "
            f"it epsilon={float(epsilon)}, delta={float(delta)}. "
            f"The next that fits may be made at {free_at_s} (seconds since 1970).",
            free_at_s,
        )


def add_claim(state: State, claim: Claim, limits: Limits) -> State:
    """The state with this claim added and claims that can no longer matter left out."""
    within_limits(state, claim, limits)
    # The newest claim is never left out: later windows must follow it however long ago it was.
    remember_s = max(limits.period_s, _REMEMBER_S)
    recent = [old for old in state.claims if old.at_s > claim.at_s - remember_s]
    return replace(state, claims=(*recent, claim))


def _free_at(state: State, claim: Claim, limits: Limits) -> int:
    """When enough old claims have left the period for this one to fit (it fits on its own)."""
    for old in state.claims:
        later = replace(claim, at_s=max(claim.at_s, old.at_s + limits.period_s))
        epsilon, delta = spent(state, limits, later.at_s)
        if epsilon + _exact(claim.epsilon) <= _exact(limits.epsilon_per_period) and (
            delta + _exact(claim.delta) <= _exact(limits.delta_per_period)
        ):
            return later.at_s
    raise AssertionError("a report within its own limits fits an empty period")


def _exact(value: float) -> Fraction:
    # As written, not as stored: three reports at 0.1 fit a limit of 0.3.
    return Fraction(repr(value))
