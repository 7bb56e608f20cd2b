"""What readers of publications can learn of one client, as a publication states it.

Promises: the smaller of two bounds that both hold: the client's own report, which is private
against everyone, and its report among all others of the epoch
(`blender.over_time.shuffled_reports`), which is private against those who see nothing but
publications. Half of the reports are taken for forged. The first is stated only where its δ, of all
epochs together, is within that of the statement: in `paper` a client spends δ in every epoch, so
over several only the second holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from blendstream.blender.over_time.shuffled_reports import ShuffleBound, readers_epsilon
from blendstream.blender.registry import randomizer_for
from blendstream.blender.values.cells import HeadList
from blendstream.streams.budget.epoch_plan import EpochParameters

__all__ = ["ReadersGuarantee", "readers_guarantee"]

#: Over more epochs than this no figure is worked out: adding up the losses of a million short
#: windows would hold the publication up for minutes.
MOST_EPOCHS = 366


@dataclass(frozen=True, slots=True)
class ReadersGuarantee:
    """(ε, δ) of one client against readers: for this epoch, and for all of the period in which it
    reports, at most `MOST_EPOCHS`, if each has as many reports."""

    epsilon: float
    delta: float
    honest_reports: int
    epochs: int
    period_epsilon: float


def readers_guarantee(
    parameters: EpochParameters, head_list: HeadList, reports: int
) -> ReadersGuarantee | None:
    """`None` where nothing is published of reports."""
    if reports == 0:
        return None
    delta, own = parameters.plan.privacy.delta, parameters.charge.clients
    hidden = ShuffleBound.among(randomizer_for(head_list), reports)
    epochs = _epochs_of_a_client(parameters)

    def at_most(times: int) -> float:
        among = readers_epsilon([hidden] * times, delta)
        return min(times * own.epsilon, among) if times * own.delta <= delta else among

    return ReadersGuarantee(
        epsilon=at_most(1),
        delta=delta,
        honest_reports=hidden.honest,
        epochs=epochs,
        period_epsilon=at_most(epochs),
    )


def _epochs_of_a_client(parameters: EpochParameters) -> int:
    """In how many epochs of the period a client reports: one of R."""
    period, charge = parameters.period, parameters.charge
    if period is not None:
        epochs = period.rule.epochs
    else:
        epochs = (charge.period_end_s - charge.period_start_s) * 1000 // parameters.window_ms
    return min(MOST_EPOCHS, max(1, -(-epochs // charge.cohorts)))
