"""Calibrate and keep one budget for a period of T epochs: noise, threshold and fixed parameters.

Not in the paper, which leaves "the temporal aspect" to future work. An opt-in user takes part in
every epoch of a period and spends (ε,δ) once. Noise for T epochs grows as √T, while averaging over
them gains a factor T.

    known record    noised and released in every epoch, at any count
    new record      considered only if someone has it;  released if N + X ≥ θ

Promises: all releases of a period together are (ε,δ)-DP for S; neighbouring: replace-one, all of
one person's records of the period. Let π = P(1 + X ≥ θ) and δ_G(ε, d) be the divergence between d
discrete Gaussians and the same shifted by one each. Then

    m·T·π + δ_G(ε + m·T·ln(1−π), 2·m·T)  ≤  δ

is enough (docs/privacy-over-time.md has the proof). It is a *sum*, where one epoch has the larger
of two (`blender.sharp.gaussian_histogram`): whether a record is known or new depends on earlier
releases, so one person may lose in both ways. docs/decisions/0153 has the cost of the sum for a
single epoch, and why both rules exist. T's users, with the same σ, have (ε,δ) too.
Assumes: the known records of an epoch depend on published values alone; a person's records of an
epoch are distinct; no one changes subgroup (S, T, click graph) within a period.

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

#: Most records that a person may release in a period, m·T. A year of epochs with two records each
#: is far below; above it the accountant's grid would have to be finer than it can compute with.
MAX_RECORDS = 3_000

#: Attempts at finding a pair, each with a goal further below δ.
_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class PeriodRule:
    """Parameters of a period, fixed before its first epoch and unchanged until its last."""

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
    """Return the least threshold that δ allows, and the least noise with which it does.

    Depends on no data, so it can run before any is read.

    >>> rule = calibrate_period(4.0, 1e-5, records_per_user=1, epochs=30)
    >>> rule.threshold, round(rule.scale, 1)
    (46, 8.5)
    """
    m, t = records_per_user, epochs
    _check(epsilon, delta, m, t)
    # The formulas of the continuous Gaussian guide the search, and prove nothing about discrete
    # noise. The accountant, which rounds up, decides: search a little below δ, and further below if
    # it finds more than δ.
    goal, spent, threshold, scale = delta * (1 - 2e-3), math.inf, 0, 0.0
    for _ in range(_ATTEMPTS):
        threshold, scale = _approximate_pair(epsilon, goal, m * t)
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
    """Return m·T·π + δ_G, with an upper bound of δ_G by dp-accounting."""
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
    """Refuse a rule whose noise and threshold exceed its δ, wherever it was read from.

    Depends on no data. Takes up to some seconds, once per rule.
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
    """A charged period and the epochs it has opened; refuses epochs that it does not cover.

    `shares_id` names the secret that assigns people to the subgroups S, T and click graph.

    >>> budget = PeriodBudget(calibrate_period(1.0, 1e-3, 1, 2), "a")
    >>> budget = budget.open_epoch(7, budget.rule, "a").open_epoch(8, budget.rule, "a")
    >>> budget.check_charge(9, budget.rule, "a")
    'a period of 2 epochs has opened all of them; epoch 9 belongs to the next period'
    """

    rule: PeriodRule
    shares_id: str
    epochs: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a history that no service can have produced."""
        rising = all(a < b for a, b in zip(self.epochs, self.epochs[1:], strict=False))
        require(
            rising and len(self.epochs) <= self.rule.epochs,
            f"a period must open at most {self.rule.epochs} epochs, each later than the last, "
            f"got {list(self.epochs)}",
        )

    def check_charge(self, epoch: int, rule: PeriodRule, shares_id: str) -> str | None:
        """Return why this epoch must not open in this period, or `None` if it may."""
        if rule != self.rule:
            changed = ", ".join(
                f"{f.name} from {getattr(self.rule, f.name)} to {getattr(rule, f.name)}"
                for f in fields(rule)
                if getattr(rule, f.name) != getattr(self.rule, f.name)
            )
            return f"nothing may change within a period, got {changed}; it takes effect in the next"
        if shares_id != self.shares_id:
            return "the subgroups S, T and click graph must stay the same people within a period"
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
        """Return the period with this epoch opened; refuse one that would break the proof."""
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


def _approximate_pair(epsilon: float, goal: float, records: int) -> tuple[int, float]:
    """Return the least θ that some σ allows, and the least of those σ, by continuous formulas."""
    low, high = 0.0, 1.0
    while _approximate_delta(epsilon, high, 2 * records) > goal:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        too_little = _approximate_delta(epsilon, middle, 2 * records) > goal
        low, high = (middle, high) if too_little else (low, middle)
    # Larger σ leaves more of δ for π but widens the noise; the best σ is close to the least one.
    tried = []
    for scale in high * (1 + np.geomspace(1e-4, 0.3, 120)):
        theta = _approximate_threshold(float(scale), epsilon, goal, records)
        if theta is not None:
            tried.append((theta, float(scale)))
    if not tried:
        raise ParameterError(f"no threshold satisfies epsilon={epsilon}, delta={goal}")
    return min(tried)


def _approximate_threshold(scale: float, epsilon: float, goal: float, records: int) -> int | None:
    def holds(theta: int) -> bool:
        pi = gaussian_tail(theta - 1, scale)
        if records * pi > goal:
            return False
        effective = epsilon + records * math.log1p(-pi)
        return records * pi + _approximate_delta(effective, scale, 2 * records) <= goal

    # Beyond 12σ the tail is below 1e-30 and only δ_G is left: then no θ helps.
    low, high = 1, 2 + math.ceil(12 * scale)
    if not holds(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _approximate_delta(epsilon: float, scale: float, shifts: int) -> float:
    """Return δ of a continuous Gaussian of deviation σ shifted by √d, close to the discrete δ_G."""
    mu = math.sqrt(shifts) / scale
    return _normal_tail(epsilon / mu - mu / 2) - math.exp(epsilon) * _normal_tail(
        epsilon / mu + mu / 2
    )


def _normal_tail(z: float) -> float:
    return math.erfc(z / math.sqrt(2)) / 2
