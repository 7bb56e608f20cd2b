"""Bound on what readers of publications learn about one client, as a publication states it.

Promises: the result is the smaller of two valid bounds:
- The local guarantee of the client's report holds against everyone.
- Amplification by shuffling (`blender.over_time.shuffled_reports`) holds against those who see only
  publications, and assumes that half of the reports are forged.

The local bound is used only if its δ, summed over all epochs, is within the statement's. In `paper`
a client spends δ in every epoch, so over several epochs only the shuffling bound remains.
"""

from __future__ import annotations

from dataclasses import dataclass

from blendstream.blender.over_time.shuffled_reports import ShuffleBound, readers_epsilon
from blendstream.blender.registry import randomizer_for
from blendstream.blender.values.cells import HeadList
from blendstream.streams.budget.epoch_plan import EpochParameters

__all__ = ["ReadersGuarantee", "readers_guarantee"]

#: Upper limit on the epochs of the period's figure: composing the losses of a million short
#: windows would delay the publication by minutes.
MAX_EPOCHS = 366


@dataclass(frozen=True, slots=True)
class ReadersGuarantee:
    """(ε, δ) of one client against readers of publications, for this epoch and for the period.

    The period's figure is for the epochs of the period in which the client reports (at most
    `MAX_EPOCHS`), if each has as many reports as this one.
    """

    epsilon: float
    delta: float
    honest_reports: int
    epochs: int
    period_epsilon: float


def readers_guarantee(
    parameters: EpochParameters, head_list: HeadList, reports: int
) -> ReadersGuarantee | None:
    """Compute the guarantee for an epoch with this many reports; `None` without reports."""
    if reports == 0:
        return None
    delta, own = parameters.plan.privacy.delta, parameters.charge.clients
    hidden = ShuffleBound.from_reports(randomizer_for(head_list), reports)
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
    """Return the number of the period's epochs in which a client reports: one out of R."""
    period, charge = parameters.period, parameters.charge
    if period is not None:
        epochs = period.rule.epochs
    else:
        epochs = (charge.period_end_s - charge.period_start_s) * 1000 // parameters.window_ms
    return min(MAX_EPOCHS, max(1, -(-epochs // charge.cohorts)))
