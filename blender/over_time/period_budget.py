"""One budget for a period of T epochs: noise, threshold, and what must not change meanwhile.

Not in the paper, which leaves "the temporal aspect" to future work. An opt-in user takes part in
every epoch of a period and spends (ε,δ) once. Noise for T epochs grows as √T, while what is learned
by averaging over them grows as T.

    known record    noised and released in every epoch, at any count
    new record      looked at only if someone has it;  released if N + X ≥ θ

Promises: all releases of a period together are (ε,δ)-DP for S; neighbouring: replace-one, all of
one person's records of the period. Let π = P(1 + X ≥ θ) and δ_G(ε, d) be the divergence between d
discrete Gaussians and the same shifted by one each. Then

    m·T·π + δ_G(ε + m·T·ln(1−π), 2·m·T)  ≤  δ

is enough (docs/privacy-over-time.md has the proof). It is a *sum*, where one epoch has the larger
of two (`blender.sharp.gaussian_histogram`): whether a record is known or new depends on earlier
releases, so one person may lose in both ways. What a sum would cost one epoch, which is why both
rules exist: docs/decisions/0153. T's users, with the same σ, have (ε,δ) too.
Assumes: what is known in an epoch depends on published values alone; a person's records of an
epoch are distinct; no one changes share (S, T, click graph) within a period.

Symbols: m = m_O, T = epochs, σ = scale, θ = threshold, N = count, X = noise.

Decision: docs/decisions/0030-one-budget-for-a-period.md
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.noise.exact_noise import Noise
from blendstream.blender.sharp.gaussian_histogram import MIN_DELTA, gaussian_tail
from blendstream.blender.values.arrays import IntArray
from blendstream.blender.values.errors import ParameterError, require
from blendstream.blender.values.interfaces import Selection
from blendstream.blender.values.kept_records import keep_records

__all__ = [
    "PERIOD_HISTOGRAM",
    "PeriodBudget",
    "PeriodRule",
    "accounted_delta",
    "calibrate_period",
    "check_rule",
    "select_in_period",
]

#: The name of `select_in_period` among the selectors.
PERIOD_HISTOGRAM: Final = "period-histogram"

#: The most records a person may release in a period, m·T. A year of epochs with two records each is
#: far below; beyond it the accountant's grid would have to be finer than it can add up.
MAX_RECORDS = 3_000

#: How often a pair is looked for again, each time further below δ.
_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class PeriodRule:
    """What is fixed before a period's first epoch and must stay so until its last."""

    epsilon: float
    delta: float
    records_per_user: int
    epochs: int
    scale: float
    threshold: int
    delta_spent: float


@lru_cache(maxsize=64)
def calibrate_period(
    epsilon: float, delta: float, records_per_user: int, epochs: int
) -> PeriodRule:
    """The least threshold that the sum allows, and the least noise that reaches it.

    Depends on no data, so it may be asked before any is seen.

    >>> rule = calibrate_period(4.0, 1e-5, records_per_user=1, epochs=30)
    >>> rule.threshold, round(rule.scale, 1)
    (46, 8.5)
    """
    m, t = records_per_user, epochs
    _check(epsilon, delta, m, t)
    # The formulas of the continuous Gaussian say where to look, and prove nothing about discrete
    # noise. The accountant, which rounds up, has the last word: look a little below δ, and further
    # below if it does not agree.
    goal, spent, threshold, scale = delta * (1 - 2e-3), math.inf, 0, 0.0
    for _ in range(_ATTEMPTS):
        threshold, scale = _likely_pair(epsilon, goal, m * t)
        spent = accounted_delta(scale, threshold, epsilon, m, t)
        if spent <= delta:
            return PeriodRule(epsilon, delta, m, t, scale, threshold, spent)
        goal *= delta / spent * (1 - 1e-3)
    raise ParameterError(
        f"the accountant finds delta={spent} for epsilon={epsilon}, m_O={m}, {t} epochs, "
        f"above {delta}"
    )


def accounted_delta(
    scale: float, threshold: int, epsilon: float, records_per_user: int, epochs: int
) -> float:
    """m·T·π + δ_G, with δ_G by dp-accounting, never below the truth."""
    # Imported here: a device has numpy alone, and only servers account.
    from dp_accounting.pld import (  # noqa: PLC0415
        privacy_loss_distribution as pld,
    )

    records = records_per_user * epochs
    pi = gaussian_tail(threshold - 1, scale)
    if records * pi >= 1:
        return 1.0
    # Each of the 2mT losses is rounded up to this grid: about 1e-3 in all.
    one: Any = pld.from_discrete_gaussian_mechanism(
        scale,
        sensitivity=1,
        pessimistic_estimate=True,
        value_discretization_interval=min(1e-4, 1.5e-3 / records),
    )
    effective = epsilon + records * math.log1p(-pi)
    shifted = float(one.self_compose(2 * records).get_delta_for_epsilon(effective))
    return min(1.0, records * pi + shifted)


@lru_cache(maxsize=8)
def check_rule(rule: PeriodRule) -> None:
    """Refuse a rule that does not keep its promise, from wherever it was read.

    Depends on no data. Takes up to some seconds, once.
    """
    _check(rule.epsilon, rule.delta, rule.records_per_user, rule.epochs)
    spent = accounted_delta(
        rule.scale, rule.threshold, rule.epsilon, rule.records_per_user, rule.epochs
    )
    require(
        spent <= rule.delta,
        f"the noise of a period must keep delta={rule.delta:g} at epsilon={rule.epsilon:g} for "
        f"{rule.epochs} epochs of {rule.records_per_user} records, got sigma={rule.scale:g} and "
        f"theta={rule.threshold}, which keep {spent:.3g}",
    )


def select_in_period(
    rule: PeriodRule, counts: IntArray, known: NDArray[np.bool_], noise: Noise
) -> Selection:
    """Keep every known record at any noisy count, and new ones from θ on."""
    if counts.shape != known.shape:
        raise ParameterError(
            f"counts and known must be of one length, got {counts.shape} and {known.shape}"
        )
    draw = partial(noise.discrete_gaussian, scale=rule.scale)
    return keep_records(counts, known, draw, threshold=rule.threshold, drop=None)


@dataclass(frozen=True, slots=True)
class PeriodBudget:
    """A period that has been charged: which epochs it has opened, and why another may not open.

    `shares_id` names the secret that puts people into S, T and the click graph's share.

    >>> budget = PeriodBudget(calibrate_period(1.0, 1e-3, 1, 2), "a")
    >>> budget = budget.open_epoch(7, budget.rule, "a").open_epoch(8, budget.rule, "a")
    >>> budget.refusal(9, budget.rule, "a")
    'a period of 2 epochs has opened all of them; epoch 9 belongs to the next period'
    """

    rule: PeriodRule
    shares_id: str
    epochs: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """A log that says what no service may have done is not to be gone on from."""
        rising = all(a < b for a, b in zip(self.epochs, self.epochs[1:], strict=False))
        require(
            rising and len(self.epochs) <= self.rule.epochs,
            f"a period must open at most {self.rule.epochs} epochs, each later than the last, "
            f"got {list(self.epochs)}",
        )

    def check_charge(self, epoch: int, rule: PeriodRule, shares_id: str) -> str | None:
        """Why this epoch must not open in this period, or `None` when it may."""
        if rule != self.rule:
            changed = ", ".join(
                f"{f.name} from {getattr(self.rule, f.name)} to {getattr(rule, f.name)}"
                for f in fields(rule)
                if getattr(rule, f.name) != getattr(self.rule, f.name)
            )
            return f"nothing may change within a period, got {changed}; it takes effect in the next"
        if shares_id != self.shares_id:
            return "the shares S, T and click graph must stay the same people within a period"
        if self.epochs and epoch <= self.epochs[-1]:
            return (
                f"epoch {self.epochs[-1]} of this period has opened; epoch {epoch} must not again"
            )
        if len(self.epochs) == self.rule.epochs:
            return (
                f"a period of {self.rule.epochs} epochs has opened all of them; "
                f"epoch {epoch} belongs to the next period"
            )
        return None

    def open_epoch(self, epoch: int, rule: PeriodRule, shares_id: str) -> PeriodBudget:
        """The period with this epoch opened; refuses what would break the proof."""
        refused = self.check_charge(epoch, rule, shares_id)
        require(refused is None, refused or "")
        return replace(self, epochs=(*self.epochs, epoch))


def _check(epsilon: float, delta: float, m: int, t: int) -> None:
    require(
        math.isfinite(epsilon) and epsilon > 0,
        f"epsilon must be finite and above 0, got epsilon={epsilon!r}",
    )
    require(
        MIN_DELTA <= delta < 1,
        f"a period budget needs delta of at least {MIN_DELTA} to account for, got {delta!r}",
    )
    require(m >= 1, f"records_per_user must be at least 1, got records_per_user={m}")
    require(t >= 1, f"a period must have at least 1 epoch, got epochs={t}")
    require(
        m * t <= MAX_RECORDS,
        f"a person may release at most {MAX_RECORDS} records in a period, got {m} records "
        f"in each of {t} epochs; shorten the period or lower m_O",
    )


def _likely_pair(epsilon: float, goal: float, records: int) -> tuple[int, float]:
    """The least θ that some σ allows, and the least of those σ, by continuous formulas."""
    low, high = 0.0, 1.0
    while _likely_delta(epsilon, high, 2 * records) > goal:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if _likely_delta(epsilon, middle, 2 * records) > goal else (low, middle)
        )
    # Larger σ leaves more of δ for π but widens the noise; the best lies close to the least σ.
    tried = []
    for scale in high * (1 + np.geomspace(1e-4, 0.3, 120)):
        theta = _likely_threshold(float(scale), epsilon, goal, records)
        if theta is not None:
            tried.append((theta, float(scale)))
    if not tried:
        raise ParameterError(f"no threshold satisfies epsilon={epsilon}, delta={goal}")
    return min(tried)


def _likely_threshold(scale: float, epsilon: float, goal: float, records: int) -> int | None:
    def holds(theta: int) -> bool:
        pi = gaussian_tail(theta - 1, scale)
        if records * pi > goal:
            return False
        effective = epsilon + records * math.log1p(-pi)
        return records * pi + _likely_delta(effective, scale, 2 * records) <= goal

    # Beyond 12σ the tail is below 1e-30 and only δ_G is left: then no θ helps.
    low, high = 1, 2 + math.ceil(12 * scale)
    if not holds(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _likely_delta(epsilon: float, scale: float, shifts: int) -> float:
    """δ of one continuous Gaussian of deviation σ shifted by √d: a guess for d discrete ones."""
    mu = math.sqrt(shifts) / scale
    return _normal_tail(epsilon / mu - mu / 2) - math.exp(epsilon) * _normal_tail(
        epsilon / mu + mu / 2
    )


def _normal_tail(z: float) -> float:
    return math.erfc(z / math.sqrt(2)) / 2
