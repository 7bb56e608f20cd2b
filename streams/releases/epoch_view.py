"""The public view of one epoch, for the API and for operators who list epochs.

`EpochState` has the full state, for processes that act on it; `EpochView` has the public part, with
times in seconds. The API makes `streams.wire.submissions.CollectingEpoch` of it, for devices.

Promises: states, times and published reasons; no counts.
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
    """Public state and times of one epoch; no counts."""

    epoch: EpochNumber
    state: str
    window_start_s: int
    window_end_s: int
    #: Opt-in records of the window are accepted until then.
    optin_until_s: int
    #: Maximum number of records counted per opt-in user (m_O).
    records_per_user: int
    #: Number of cohorts of users and devices (R); the epoch admits cohort number epoch mod R.
    cohorts: int
    head_list: str | None = None
    #: Reports on the head list are accepted until then.
    reports_until_s: int | None = None
    outcome: str | None = None
    reasons: tuple[str, ...] = ()
    #: Reason of the operator or the job that abandoned the epoch; no more is released.
    abandoned: str | None = None
    #: R of the opt-in users, if it differs from that of the devices.
    optin_cohorts: int | None = None
    #: First epoch of this epoch's budget period, and the period's number of epochs.
    period_first_epoch: EpochNumber | None = None
    period_epochs: int | None = None

    @classmethod
    def of(cls, state: EpochState) -> EpochView:
        """Make the view of an epoch's state."""
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
