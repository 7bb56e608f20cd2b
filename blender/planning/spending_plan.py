"""Predict the results of each way to spend a budget over many epochs, before any data exists.

    paper, each epoch       the paper's mechanisms, everyone in every epoch at the full ε
    sharp, each epoch       `sharp` with the filter over epochs, everyone in every epoch
    sharp, taking turns     cohort rotation: everyone in one epoch of T, at the full ε
    one budget              opt-in users in every epoch with noise for all T, clients in one of T

The model assumes Zipf's law: a proportion s/r of all people holds the r-th most common record. The
paper lists a record if its noisy count reaches θ in an epoch. `sharp` lists it if that happened in
any epoch so far and at least two of S's users hold it: then it is never forgotten. The error of a
listed record is that of the combined estimate, the error of any other its whole share:

    L1 = Σ over the M most common of  q·√(2/π)·σ + (1 − q)·s/r,        1/σ² = 1/σ²_O + 1/σ²_C

Promises: uses no data. A rough guide: the formulas assume constant records and normal errors;
simulations (docs/evaluation.md) agree within about a third. If people hold several records, or
none, enter fewer people.
Symbols: T = epochs, M = cells, s = top_share, n_O, n_C = people of each group in an epoch, θ =
threshold, h = proportion of opt-in users who take part again with the record they had.
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

#: Error of the filter, relative to the best average over epochs (docs/evaluation.md).
_FILTER = 1.2


@dataclass(frozen=True, slots=True)
class PlannedService:
    """Numbers of people, ε, δ and epochs of a service that is not running yet."""

    optin_users: int
    clients: int
    epsilon: float
    delta: float
    epochs: int
    cells: int
    #: s: the proportion of people who hold the most common record.
    top_share: float = 0.05
    #: h: the proportion of opt-in users who take part again, with the record they had.
    staying: float = 0.5

    def __post_init__(self) -> None:
        """Refuse sizes that no service can have."""
        for name in ("optin_users", "clients", "epochs", "cells"):
            value = getattr(self, name)
            require(value >= 1, f"{name} must be at least 1, got {name}={value}")
        require(
            0 < self.top_share <= 0.5, f"top_share must lie in (0, 0.5], got {self.top_share!r}"
        )
        require(0 <= self.staying < 1, f"staying must lie in [0, 1), got {self.staying!r}")


@dataclass(frozen=True, slots=True)
class Expectation:
    """One way of spending: its total ε for a person present in all T epochs, and its results.

    `found` is the number of records of the head list after T epochs, `error` the L1 distance over
    the M most common records, as published, in the last epoch.
    """

    way: str
    optin_epsilon: float
    client_epsilon: float
    found: int
    error: float


def expectations(service: PlannedService) -> list[Expectation]:
    """Predict every way of spending, in the order above."""
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
        # The next epoch's people are others, so nobody stays.
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
    # Only what is new in an epoch's count gives a record another chance to pass: noise and new
    # people, not those who stay.
    chances = 1 + (s.epochs - 1) * (1 - staying * held / (held + noise))
    once = -np.expm1(chances * np.log1p(-np.minimum(_passes(held, noise, theta), 1 - 1e-12)))
    q = np.where(held >= SHOWN_FROM, once, 0.0)
    top = p[: s.cells]
    # Variance over T epochs: noise and randomisation average over T, sampling over new people.
    fresh = min(1.0, (1 + staying) / (1 - staying) / s.epochs)
    optin = top / n * fresh + noise / n**2 / s.epochs
    clients = _client_variance(s, top, "sharp") / s.epochs
    variance = _FILTER**2 * _combined(optin, clients)
    return Expectation(way, *totals, round(q.sum()), _error(top, q[: s.cells], variance))


def _shares(s: PlannedService) -> FloatArray:
    """Return the shares of the most common records: at least M, down to a fifth of a holder."""
    most = max(s.cells, min(200_000, round(5 * s.top_share * s.optin_users)))
    return np.asarray(s.top_share / np.arange(1, most + 1))


def _passes(mean: FloatArray, noise: float, level: float) -> FloatArray:
    """Return P(Poisson count of this mean + normal noise of this variance ≥ `level`).

    The noise is an integer: it reaches `level` where normal noise reaches `level` − 1/2.
    """
    most = 4 * level + 100  # A count of a larger mean is never as low as the level.
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
    """Return σ²_C of one epoch's reports, with the randomizer that the profile would choose."""
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
        counts[-1] //= width  # `expected_shares` counts "none" `width` times,
        counts[: width - 1] += counts[-1]  # while a report pads it with the first cells.
    # Add the rounding error to a middle cell, which is neither empty nor full.
    counts[len(p) // 2] += s.clients * width - counts.sum()
    estimate = randomizer.estimate(counts, s.clients)
    return np.asarray(np.maximum(estimate.cells.variance[: len(p)], 1e-300))
