"""One epoch as readers see it: the public API, and operators who list epochs.

`EpochState` is what the log says, for processes that act on it; `EpochView` is the part of it that
everyone may see, with times in seconds. Devices read `streams.wire.submissions.CollectingEpoch`,
which the API makes of it.

Promises: states, times and published reasons; nothing counted.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from blendstream.streams.releases.epoch_state import EpochState
from blendstream.streams.wire.epoch_numbers import MAX_EPOCH

__all__ = ["EpochNumber", "EpochView"]

EpochNumber = Annotated[int, Meta(ge=0, le=MAX_EPOCH)]


class EpochView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One epoch as the world may see it: its state and times, nothing counted."""

    epoch: EpochNumber
    state: str
    window_start_s: int
    window_end_s: int
    #: Opt-in records of the window are taken until then.
    optin_until_s: int
    #: Most records an opt-in user counts with (m_O).
    records_per_user: int
    #: Users and devices take turns in this many cohorts (R); the epoch admits cohort epoch mod R.
    cohorts: int
    head_list: str | None = None
    #: Reports on the head list are taken until then.
    reports_until_s: int | None = None
    outcome: str | None = None
    reasons: tuple[str, ...] = ()
    #: Why the epoch was abandoned, in the operator's or the job's words; no more is released.
    abandoned: str | None = None
    #: R of the opt-in users, where it is not that of the devices.
    optin_cohorts: int | None = None
    #: The first epoch of the budget period that this one belongs to, and how many it has.
    period_first_epoch: EpochNumber | None = None
    period_epochs: int | None = None

    @classmethod
    def of(cls, state: EpochState) -> EpochView:
        parameters, plan = state.parameters, state.parameters.plan
        head_list, estimates, period = state.head_list, state.estimates, parameters.period
        return cls(
            epoch=state.epoch,
            state=state.stage.value,
            window_start_s=parameters.window_start_ms // 1000,
            window_end_s=parameters.window_end_ms // 1000,
            optin_until_s=(parameters.window_end_ms + plan.grace_ms) // 1000,
            records_per_user=plan.privacy.records_per_optin_user,
            cohorts=plan.cohorts,
            head_list=None if head_list is None else head_list.head_list.id,
            reports_until_s=None if head_list is None else head_list.reports_until_ms // 1000,
            outcome=None if estimates is None else estimates.outcome.value,
            reasons=() if estimates is None else tuple(r.value for r in estimates.reasons),
            abandoned=state.abandoned,
            optin_cohorts=plan.optin_cohorts or None,
            period_first_epoch=None if period is None else period.first_epoch,
            period_epochs=None if period is None else period.rule.epochs,
        )
