"""Simulate epochs in which opt-in users and clients are different populations.

Everyone participates; a proportion a ("activity") of each group has a record in the window, the
others report "none". The estimated quantity is the proportion of *participating clients* whose one
record, drawn from the window, is r:

    p_O(r) = a·π(r)  for opt-in users,     p_C(r) = p_O(r)·f(r)  for clients,

π is the population of `evaluation.populations`, f the difference between the groups, drawn per
epoch. ⟨⋆,⋆⟩ has the remaining probability. `build_head_list` and `estimate_epoch` do the rest.

Promises: the generator determines the epoch.
Symbols: S, T = the opt-in users who select and who estimate; M = listed records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from blendstream.blender.epoch_estimates import OptinRelease
from blendstream.blender.profiles import build_head_list
from blendstream.blender.randomizers.whole_records import choose_batch
from blendstream.blender.registry import randomizer_for
from blendstream.blender.values.arrays import FloatArray, IntArray
from blendstream.blender.values.interfaces import OptinCounts
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.blender.values.record import Record
from blendstream.evaluation.populations import People
from blendstream.evaluation.simulated_noise import SimulatedNoise
from blendstream.evaluation.simulated_reports import draw_report_counts

__all__ = ["DIFFERENCES", "Groups", "Reports", "draw_release", "draw_reports", "forge"]

#: f for the listed records, given their queries and how likely they are, most likely first.
Factor = Callable[[IntArray, np.random.Generator], FloatArray]


def _lognormal(spread: float) -> Factor:
    return lambda query, rng: np.exp(rng.normal(0.0, spread, size=len(query)))


def _some_queries(count: int, factor: float) -> Factor:
    def chosen(query: IntArray, rng: np.random.Generator) -> FloatArray:
        present = np.unique(query)
        some = rng.choice(present, size=min(count, len(present)), replace=False)
        return np.where(np.isin(query, some), factor, 1.0)

    return chosen


def _by_rank(spread: float) -> Factor:
    """From e^−spread for the most likely record to e^+spread for the least, even in log rank."""

    def shifted(query: IntArray, _rng: np.random.Generator) -> FloatArray:
        place = np.log1p(np.arange(len(query)))
        return np.asarray(np.exp(spread * (2 * place / max(place[-1:].sum(), 1e-9) - 1)))

    return shifted


#: How clients' shares differ from opt-in users'.
DIFFERENCES: Final[Mapping[str, Factor]] = {
    "none": lambda query, _rng: np.ones(len(query)),
    "lognormal .1": _lognormal(0.1),
    "lognormal .2": _lognormal(0.2),
    "lognormal .3": _lognormal(0.3),
    "lognormal .5": _lognormal(0.5),
    "five queries tripled": _some_queries(5, 3.0),
    "shift with rank": _by_rank(0.3),
    "five queries missing": _some_queries(5, 0.1),
    "all a fifth less": lambda query, _rng: np.full(len(query), 0.8),
}


@dataclass(frozen=True, slots=True)
class Groups:
    """The numbers of people of each kind."""

    people: People
    users: int
    activity: float = 1.0
    optin_share: float = 0.05
    list_size: int = 50
    epsilon: float = 4.0
    delta: float = 1e-5
    selection_share: float = 0.9

    @property
    def optin_users(self) -> int:
        """S and T."""
        return round(self.users * self.optin_share)

    @property
    def parameters(self) -> PrivacyParameters:
        """The parameters of the epoch."""
        return PrivacyParameters(
            epsilon=self.epsilon,
            delta=self.delta,
            head_list_cells=self.list_size,
            selection_share=self.selection_share,
        )


@dataclass(frozen=True, slots=True)
class Reports:
    """Return the sums of the devices' answers, and the clients' true proportion per cell."""

    counts: IntArray
    devices: int
    truth: FloatArray


def draw_release(
    groups: Groups, rng: np.random.Generator, known: tuple[Record, ...] = ()
) -> tuple[OptinRelease, IntArray]:
    """The opt-in group's release, and the listed records' numbers in the population."""
    s_users = round(groups.optin_users * groups.selection_share)
    t_users = groups.optin_users - s_users
    in_s, in_t = (int(rng.binomial(users, groups.activity)) for users in (s_users, t_users))
    held = groups.people.draw(in_s + in_t, rng)
    numbers, where = np.unique(held, return_inverse=True)
    records = groups.people.records(numbers)
    s, t = (
        np.bincount(part, minlength=len(numbers)).astype(np.int64)
        for part in (where[:in_s], where[in_s:])
    )
    counts = OptinCounts(records, s, t, s_users, t_users)
    release = build_head_list("sharp", counts, groups.parameters, SimulatedNoise(rng), known)
    number = dict(zip(records, numbers.tolist(), strict=True))
    listed = release.head_list.records[: release.head_list.listed]
    return release, np.array([number[record] for record in listed], dtype=np.int64)


def draw_reports(
    groups: Groups,
    release: OptinRelease,
    listed: IntArray,
    factor: Factor,
    rng: np.random.Generator,
) -> Reports:
    """Every client reports, honestly."""
    p = groups.activity * groups.people.probability(listed)
    order = np.argsort(-p, kind="stable")
    differing = np.ones(len(p))
    differing[order] = factor(groups.people.query(listed)[order], rng)
    p = p * differing
    truth = np.append(p, max(1 - p.sum(), 0.0))
    truth /= truth.sum()
    devices = groups.users - groups.optin_users
    holders = rng.multinomial(devices, truth)
    counts = draw_report_counts(randomizer_for(release.head_list), holders, rng)
    return Reports(counts, devices, truth)


def forge(
    release: OptinRelease,
    reports: Reports,
    share: float,
    targets: IntArray,
    rng: np.random.Generator,
) -> Reports:
    """`share` of all devices are invented, and each names one of the targets, evenly.

    Where an answer names ω records, the others are any, so that no second record stands out.
    """
    randomizer = randomizer_for(release.head_list)
    width, size = randomizer.cells_per_answer, len(reports.counts)
    forged = round(reports.devices * share / (1 - share))
    counts = reports.counts.copy()
    each = np.bincount(np.arange(forged) % len(targets), minlength=len(targets))
    for target, answers in zip(targets.tolist(), each.tolist(), strict=True):
        others = choose_batch(answers, size - 2, width - 1, rng)
        counts += np.bincount((others + (others >= target)).ravel(), minlength=size)
        counts[target] += answers
    return Reports(counts, reports.devices + forged, reports.truth)
