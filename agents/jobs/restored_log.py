"""List the epochs that a release log restored from an older copy lacks, to charge them again.

The log of an older copy does not contain the epochs opened after it, nor their charges. The
operator's `blendstream epochs restored` charges and abandons the epochs listed here.

Promises: the list contains every number that the lost log can have used, if the settings are those
that were in force. So the limit's period is charged at least as much as it was, and the noise of
one budget period serves at most the epochs for which it was calibrated.
Assumes: no window was shorter than the shortest of these: the restored log's last one, the
settings' and those of published head lists.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from blendstream.agents.jobs.epoch_schedule import PERIOD_FIELDS, affordable_epoch, next_period
from blendstream.blender.values.errors import ParameterError
from blendstream.streams.budget.epoch_plan import EpochParameters, EpochPlan
from blendstream.streams.budget.ledger import Limit
from blendstream.streams.releases.epoch_state import ReleaseLogState

__all__ = ["lost_epochs"]


def lost_epochs(
    log_state: ReleaseLogState, plan: EpochPlan, limit: Limit, until_ms: int, *,
    epochs_ahead: int = 1, published_through: int = -1, published_windows_ms: Collection[int] = (),
) -> list[EpochParameters]:  # fmt: skip
    """List the epochs that a log restored from an older copy may lack.

    These are as many as the service can have opened up to `until_ms`, and at least all up to the
    highest published one. The list is never too short, because it uses the shortest window known to
    have been in force (the log's last, the settings' and those of published head lists). It is too
    long if windows were longer or the jobs did not run. People are then charged too much, but no
    number is used twice.
    """
    if log_state.last is None or log_state.ledger.last_epoch is None:
        return []
    found: list[EpochParameters] = []
    known = last = log_state.last.parameters
    ledger = log_state.ledger
    windows = {last.window_ms, plan.window_ms, *published_windows_ms}
    plan = replace(plan, window_ms=min(windows))
    # The jobs may have opened this many epochs ahead with each window length.
    most_ahead = epochs_ahead * len(windows)
    ahead = sum(s.parameters.window_start_ms > until_ms for s in log_state.epochs.values())
    while True:
        number, start_ms = log_state.ledger.last_epoch + 1 + len(found), last.window_end_ms
        of_epoch, period = next_period(last.plan, last.period, plan, number)
        parameters, _ = affordable_epoch(ledger, of_epoch, limit, number, start_ms, period)
        if number > published_through:
            ahead += parameters is not None and parameters.window_start_ms > until_ms
            if (
                parameters is None
                or ahead > most_ahead
                or parameters.window_start_ms > until_ms + epochs_ahead * max(windows)
            ):
                break
        elif parameters is None:
            raise ParameterError(
                f"epochs through {published_through} were published, and the limits in budget.* "
                f"leave no room for epoch {number}: put back the limits that were in force"
            )
        found.append(parameters)
        ledger, last = ledger.with_charge(parameters.charge), parameters
    until = limit.period_of(until_ms // 1000)
    return _end_doubtful_period([_charge_to_last_period(each, until) for each in found], known)


def _charge_to_last_period(parameters: EpochParameters, until: tuple[int, int]) -> EpochParameters:
    """Charge an epoch of a budget period to the limit's period in which the lost log ended.

    The restored log does not show in which of the limit's periods the epochs of a budget period
    were charged. Only the last of the limit's periods still admits epochs, so every budget that may
    overlap it is charged there.
    """
    charge, (start_s, end_s) = parameters.charge, until
    if charge.period is None or charge.period_end_s > start_s:
        return parameters
    return replace(parameters, charge=replace(charge, period_start_s=start_s, period_end_s=end_s))


def _end_doubtful_period(
    found: list[EpochParameters], known: EpochParameters
) -> list[EpochParameters]:
    """End a budget period that began in the lost log, perhaps with other settings than today's.

    The remaining epochs of such a period would open without a charge. So the last listed epoch gets
    a separate budget, and the epoch after it begins another period.
    """
    last = found[-1] if found else known
    if last.period is None or last.period.first_epoch <= known.epoch:
        return found
    same = all(getattr(last.plan, f) == getattr(known.plan, f) for f in (*PERIOD_FIELDS, "key_id"))
    if same:
        return found
    alone = replace(last.plan, period_epochs=0)
    charge = replace(last.charge, optin=alone.optin_cost, period=None)
    return [*found[:-1], replace(last, plan=alone, charge=charge)]
