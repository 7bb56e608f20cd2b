"""What to expect of each way of spending a budget over many epochs, before any data is there.

    paper, each epoch       the paper's mechanisms, everyone in every epoch at the full ε
    sharp, each epoch       the same with `sharp`, and the filter over epochs
    sharp, taking turns     everyone in one epoch of T, at the full ε
    one budget              opt-in users in every epoch with noise for all T, clients in one of T

Records are taken to follow Zipf's law: the r-th most common is what s/r of all people hold. The
paper lists a record if its noisy count reaches θ in an epoch. `sharp` lists it if that happened in
any epoch so far, and two or more of S's users hold it: then it is never forgotten. Of those listed
the error is that of the combined estimate, of the others all of their share:

    L1 = Σ over the M most common of  q·√(2/π)·σ + (1 − q)·s/r,        1/σ² = 1/σ²_O + 1/σ²_C

Promises: uses no data. A rough guide: the formulas take records that do not change and normal
errors; simulations (docs/evaluation.md) come out within about a third of it. Where one
person holds several records, or none, take fewer people.
Symbols: T = epochs, M = cells, s = top_share, n_O, n_C = people of each group in an epoch, θ =
threshold, h = share of opt-in users who stay with their records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from blendstream.blender.noise.exact_noise import GRID, laplace_scale, laplace_variance
from blendstream.blender.over_time.known_records import SHOWN_FROM
from blendstream.blender.over_time.period_budget import calibrate_period
from blendstream.blender.paper.head_list import threshold_for
from blendstream.blender.paper.local import TwoStage
from blendstream.blender.registry import randomizer_for
from blendstream.blender.sharp.best_randomizer import best_randomizer
from blendstream.blender.sharp.stable_histogram import stable_threshold
from blendstream.blender.values.arrays import FloatArray
from blendstream.blender.values.cells import HeadList, RandomizerSpec
from blendstream.blender.values.errors import require
from blendstream.blender.values.parameters import SELECTION_SHARES, PrivacyParameters
from blendstream.blender.values.record import Record

__all__ = ["Expectation", "PlannedService", "expectations"]

#: What the filter does not reach of the best average over epochs (docs/evaluation.md).
_FILTER = 1.2


@dataclass(frozen=True, slots=True)
class PlannedService:
    """The sizes that an operator knows beforehand."""

    optin_users: int
    clients: int
    epsilon: float
    delta: float
    epochs: int
    cells: int
    #: s: the share of people who hold the most common record.
    top_share: float = 0.05
    #: h: the share of opt-in users who are there again, with their record.
    staying: float = 0.5

    def __post_init__(self) -> None:
        """Sizes that a service can have."""
        for name in ("optin_users", "clients", "epochs", "cells"):
            value = getattr(self, name)
            require(value >= 1, f"{name} must be at least 1, got {name}={value}")
        require(
            0 < self.top_share <= 0.5, f"top_share must lie in (0, 0.5], got {self.top_share!r}"
        )
        require(0 <= self.staying < 1, f"staying must lie in [0, 1), got {self.staying!r}")


@dataclass(frozen=True, slots=True)
class Expectation:
    """One way of spending: what a person present in all T epochs pays, and what it gives.

    `found` is how many records a head list has after T epochs, `error` L1 over the M most common
    records, as published, in the last epoch.
    """

    way: str
    optin_epsilon: float
    client_epsilon: float
    found: int
    error: float


def expectations(service: PlannedService) -> list[Expectation]:
    """Every way of spending, in the order above."""
    s, t = service, service.epochs
    every = s.epsilon * t
    turns = replace(s, optin_users=max(1, s.optin_users // t), clients=max(1, s.clients // t))
    rotated = replace(s, clients=max(1, s.clients // t))
    laplace = laplace_variance(laplace_scale(sensitivity=2, epsilon=s.epsilon))
    theta = stable_threshold(s.epsilon, s.delta)
    rule = calibrate_period(s.epsilon, s.delta, 1, t)
    return [
        _paper(s, every),
        _sharp("sharp, each epoch", s, (every, every), theta, laplace, s.staying),
        # Those of the next epoch are other people.
        _sharp("sharp, taking turns", turns, (s.epsilon, s.epsilon), theta, laplace, 0.0),
        _sharp(
            "one budget", rotated, (s.epsilon, s.epsilon), rule.threshold, rule.scale**2, s.staying
        ),
    ]  # fmt: skip


def _paper(s: PlannedService, total: float) -> Expectation:
    share = SELECTION_SHARES["paper"]
    p = _shares(s)
    n_s, n_t = share * s.optin_users, max(1.0, (1 - share) * s.optin_users)
    scale = laplace_scale(sensitivity=2, epsilon=s.epsilon)
    noise = laplace_variance(scale * GRID) / GRID**2
    theta = threshold_for(scale=scale, pass_probability=Fraction(s.delta) / 2, grid=GRID) / GRID
    q = _passes(p * n_s, noise, theta + 0.5)  # noise on the fine grid is as good as continuous
    top = p[: s.cells]
    variance = _combined(top / n_t + noise / n_t**2, _client_variance(s, top, "paper"))
    return Expectation(
        "paper, each epoch", total, total, round(q.sum()), _error(top, q[: s.cells], variance)
    )


def _sharp(
    way: str,
    s: PlannedService,
    totals: tuple[float, float],
    theta: int,
    noise: float,
    staying: float,
) -> Expectation:
    p, n = _shares(s), float(s.optin_users)
    held = SELECTION_SHARES["sharp"] * n * p
    # What a count has in common with the next epoch's gives a record no other chance to show:
    # people who stay, but not the noise.
    chances = 1 + (s.epochs - 1) * (1 - staying * held / (held + noise))
    once = -np.expm1(chances * np.log1p(-np.minimum(_passes(held, noise, theta), 1 - 1e-12)))
    q = np.where(held >= SHOWN_FROM, once, 0.0)
    top = p[: s.cells]
    # Averaged over T epochs: noise and devices' randomisation by T, people by those who change.
    fresh = min(1.0, (1 + staying) / (1 - staying) / s.epochs)
    optin = top / n * fresh + noise / n**2 / s.epochs
    clients = _client_variance(s, top, "sharp") / s.epochs
    variance = _FILTER**2 * _combined(optin, clients)
    return Expectation(way, *totals, round(q.sum()), _error(top, q[: s.cells], variance))


def _shares(s: PlannedService) -> FloatArray:
    """Of the most common records: those with a fifth of a holder or more, and the M listed."""
    most = max(s.cells, min(200_000, round(5 * s.top_share * s.optin_users)))
    return np.asarray(s.top_share / np.arange(1, most + 1))


def _passes(mean: FloatArray, noise: float, level: float) -> FloatArray:
    """P(a Poisson count of this mean, with normal noise of this variance, is at least `level`).

    Noise of whole numbers: it reaches `level` where normal noise reaches `level` − 1/2.
    """
    most = 4 * level + 100  # A count of so large a mean is never as low as the level.
    low = np.minimum(mean, most)
    logs, total = np.log(low), np.zeros(len(mean))
    for count in range(math.ceil(most + 8 * math.sqrt(most)) + 1):
        over = math.erfc((level - 0.5 - count) / math.sqrt(2 * noise)) / 2
        if over > 0:
            total += over * np.exp(count * logs - low - math.lgamma(count + 1))
    return np.asarray(np.minimum(total, 1.0))


def _error(p: FloatArray, found: FloatArray, variance: FloatArray) -> float:
    missed = (1 - found) * p
    return float((found * math.sqrt(2 / math.pi) * np.sqrt(variance) + missed).sum())


def _combined(one: FloatArray, other: FloatArray) -> FloatArray:
    return np.asarray(1 / (1 / one + 1 / other))


def _client_variance(s: PlannedService, p: FloatArray, profile: str) -> FloatArray:
    """σ²_C of one epoch's reports, by the randomizer that the profile would choose."""
    parameters = PrivacyParameters(epsilon=s.epsilon, delta=s.delta, head_list_cells=s.cells)
    records = tuple(Record(f"query {n}", "https://example.org/") for n in range(len(p)))
    if profile == "paper":
        spec = RandomizerSpec(TwoStage.name, s.epsilon, s.delta, 1, parameters.query_budget_share)
    else:
        spec = best_randomizer(records, parameters, parameters.max_cells_per_answer)
    head_list = HeadList(records, len(records), spec, query_wildcards=spec.name == TwoStage.name)
    randomizer = randomizer_for(head_list)
    cells = np.zeros(len(head_list.cells))
    cells[: len(p)] = p
    cells[-1] = max(0.0, 1 - p.sum())
    counts = np.round(randomizer.expected_shares(cells) * s.clients).astype(np.int64)
    width = randomizer.cells_per_answer
    if randomizer.wildcard_alone:
        counts[-1] //= width  # `expected_shares` has it so often,
        counts[: width - 1] += counts[-1]  # while the first cells fill the answer up.
    # What rounding left over; a cell in the middle is neither empty nor full.
    counts[len(p) // 2] += s.clients * width - counts.sum()
    estimate = randomizer.estimate(counts, s.clients)
    return np.asarray(np.maximum(estimate.cells.variance[: len(p)], 1e-300))
