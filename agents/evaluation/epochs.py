"""One simulated epoch: people are drawn, the service's own functions do the rest.

`build_head_list` and `estimate_epoch` are what the epoch jobs call; only the dice are swapped, for
seeded ones. Devices are drawn from the exact law of their reports (`agents.evaluation.clients`).

Promises: given the same generator, the same epoch.
Symbols: S, T = the opt-in users who select and who estimate; m = records an opt-in user sends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from agents.evaluation.clients import draw_report_counts
from agents.evaluation.shapes import People, Setting
from agents.evaluation.simulated_noise import SimulatedNoise
from blender.cells import Cells
from blender.estimates import FloatArray
from blender.noise import IntArray
from blender.parameters import PrivacyParameters
from blender.profiles import EpochEstimates, OptinRelease, build_head_list, estimate_epoch
from blender.record import Record
from blender.registry import randomizer_for
from blender.roles import OptinCounts

__all__ = ["Epoch", "Optin", "Truth", "draw_optin", "parameters_of", "run_epoch"]


@dataclass(frozen=True, slots=True)
class Optin:
    """Everybody who opted in, counted; `number` finds a listed record in the population again."""

    counts: OptinCounts
    number: dict[Record, int]

    @property
    def users(self) -> int:
        """S and T together."""
        return self.counts.selection_users + self.counts.estimation_users


@dataclass(frozen=True, slots=True)
class Truth:
    """What the estimates of one head list should have said."""

    #: The listed records, numbered as in the population, in published order.
    listed: IntArray
    #: The probability of every cell.
    cells: FloatArray


@dataclass(frozen=True, slots=True)
class Epoch:
    """A released head list, the estimates on it and the truth."""

    release: OptinRelease
    estimates: EpochEstimates
    truth: Truth


def parameters_of(
    setting: Setting,
    *,
    epsilon: float = 4.0,
    list_size: int | None = None,
    query_budget_share: float = 0.85,
    records_per_optin_user: int = 1,
) -> PrivacyParameters:
    """The paper's parameters for this population (Figure 10), with what an experiment changes."""
    return PrivacyParameters(
        epsilon=epsilon,
        delta=setting.delta,
        head_list_cells=setting.list_size if list_size is None else list_size,
        query_budget_share=query_budget_share,
        records_per_optin_user=records_per_optin_user,
    )


def draw_optin(
    setting: Setting,
    rng: np.random.Generator,
    *,
    share: float | None = None,
    selection_share: float = 0.95,
    records_each: int = 1,
    same_query: float = 0.0,
) -> Optin:
    """Draw the opt-in users' records and count them as the service does: distinct ones in S, the
    first one in T.

    With `records_each` > 1, each further record of a person is a click for the query of one of
    their earlier records with probability `same_query`, and otherwise a fresh draw: every single
    record still follows the population.
    """
    users = round(setting.users * (setting.optin_share if share is None else share))
    s_users = round(users * selection_share)
    held = draw_records(setting.people, s_users, records_each, same_query, rng)
    t_held = setting.people.draw(users - s_users, rng)

    numbers, where = np.unique(np.concatenate([held, t_held]), return_inverse=True)
    in_s, in_t = where[: len(held)], where[len(held) :]
    records = setting.people.records(numbers)
    counts = OptinCounts(
        records=records,
        selection=np.bincount(in_s, minlength=len(numbers)).astype(np.int64),
        estimation=np.bincount(in_t, minlength=len(numbers)).astype(np.int64),
        selection_users=s_users,
        estimation_users=users - s_users,
    )
    return Optin(counts, dict(zip(records, numbers.tolist(), strict=True)))


def draw_records(
    people: People, users: int, records_each: int, same_query: float, rng: np.random.Generator
) -> IntArray:
    """All distinct records that `users` people hold, one after another."""
    first = people.draw(users, rng)
    if records_each == 1:
        return first
    held = np.empty((records_each, users), dtype=np.int64)
    held[0] = first
    everyone = np.arange(users)
    for slot in range(1, records_each):
        earlier = held[rng.integers(0, slot, size=users), everyone]
        returns = rng.random(users) < same_query
        held[slot] = np.where(returns, people.draw_again(earlier, rng), people.draw(users, rng))
    # Within a person, sorted: a record that equals the one before it is a repetition.
    held.sort(axis=0)
    fresh = np.ones(held.shape, dtype=np.bool_)
    fresh[1:] = held[1:] != held[:-1]
    return held[fresh]


def run_epoch(
    profile: str,
    setting: Setting,
    optin: Optin,
    parameters: PrivacyParameters,
    rng: np.random.Generator,
    *,
    known: Sequence[Record] = (),
    differing: Callable[[Truth], FloatArray] | None = None,
) -> Epoch:
    """Select, publish, let every other user report, denoise and blend.

    `differing` gives the clients' cell probabilities, where they are not to be the truth.
    """
    release = build_head_list(profile, optin.counts, parameters, SimulatedNoise(rng), known)
    truth = truth_of(setting.people, release.head_list.cells, optin.number)
    clients = setting.users - optin.users
    holders = rng.multinomial(clients, differing(truth) if differing else truth.cells)
    reports = draw_report_counts(randomizer_for(release.head_list), holders, rng)
    return Epoch(release, estimate_epoch(release, reports, clients), truth)


def truth_of(people: People, cells: Cells, number: dict[Record, int]) -> Truth:
    """The true probability of every cell: ⟨q,⋆⟩ is what its query holds beyond listed records."""
    listed = np.array([number[record] for record in cells.records], dtype=np.int64)
    p = people.probability(listed)
    parts = [p]
    if cells.query_wildcards:
        queries = len(cells.queries)
        of_query = np.zeros(queries)
        of_query[cells.query_of_cell[: len(p)]] = people.query_probability(listed)
        rest = of_query - np.bincount(cells.query_of_cell[: len(p)], weights=p, minlength=queries)
        parts.append(np.maximum(rest, 0.0))
    known = np.concatenate(parts)
    return Truth(listed, np.append(known, max(0.0, 1.0 - known.sum())))
