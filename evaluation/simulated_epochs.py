"""Simulate one epoch: draw people, then run the service's own functions on them.

The simulation calls `build_head_list` and `estimate_epoch`, as the epoch jobs do, with seeded noise
instead of secure noise. Reports are drawn from their exact distribution
(`evaluation.simulated_reports`).

Promises: given the same generator, the same epoch.
Symbols: S, T = the opt-in users who select and who estimate; m = records an opt-in user sends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.epoch_estimates import EpochEstimates, OptinRelease, estimate_epoch
from blendstream.blender.paper.blend import VarianceBlender
from blendstream.blender.paper.optin import estimate_noisy_counts
from blendstream.blender.profiles import SELECTION_SHARES, build_head_list
from blendstream.blender.registry import randomizer_for
from blendstream.blender.values.arrays import FloatArray, IntArray
from blendstream.blender.values.cells import Cells
from blendstream.blender.values.interfaces import OptinCounts
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.blender.values.record import Record
from blendstream.evaluation.log_people import LogPeople
from blendstream.evaluation.populations import People, Setting
from blendstream.evaluation.simulated_noise import SimulatedNoise
from blendstream.evaluation.simulated_reports import draw_report_counts

__all__ = [
    "Optin",
    "SimulatedEpoch",
    "Truth",
    "count_holders",
    "distinct",
    "draw_optin",
    "draw_records",
    "estimate_without_intervals",
    "parameters_of",
    "release_head_list",
    "run_epoch",
    "truth_of",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Optin:
    """All opt-in users: `held[slot, user]` is a record, numbered as in the population.

    Each profile splits the same people with its own f_O: the first users, a proportion f_O, are S.
    """

    people: People
    held: IntArray
    #: Each client's record, if the clients are the other users of a log; None if they are drawn.
    clients: IntArray | None = None
    #: Every record that at least one user holds, by number and by text.
    numbers: IntArray = field(init=False)
    records: list[Record] = field(init=False)
    _where: IntArray = field(init=False)

    def __post_init__(self) -> None:
        """Make the texts once, for every division of the users."""
        numbers, where = np.unique(self.held, return_inverse=True)
        set_once = object.__setattr__
        set_once(self, "numbers", numbers)
        set_once(self, "records", self.people.records(numbers))
        set_once(self, "_where", where.reshape(self.held.shape))

    @property
    def users(self) -> int:
        """Return the number of users in S and T together."""
        return int(self.held.shape[1])

    @property
    def number(self) -> dict[Record, int]:
        """Return the population's number of each record."""
        return dict(zip(self.records, self.numbers.tolist(), strict=True))

    def counts(self, selection_share: float) -> OptinCounts:
        """Count as the service does: all distinct records of users in S, one per user in T."""
        s_users = round(self.users * selection_share)
        selection, estimation = (
            np.bincount(records, minlength=len(self.numbers)).astype(np.int64)
            for records in (distinct(self._where[:, :s_users]), self._where[0, s_users:])
        )
        return OptinCounts(self.records, selection, estimation, s_users, self.users - s_users)


@dataclass(frozen=True, slots=True)
class Truth:
    """The true probabilities of the cells of one head list."""

    #: The listed records, numbered as in the population, in published order.
    listed: IntArray
    #: The probability of every cell.
    cells: FloatArray


@dataclass(frozen=True, slots=True)
class SimulatedEpoch:
    """A released head list, the estimates on it and the truth."""

    release: OptinRelease
    estimates: EpochEstimates
    truth: Truth


def parameters_of(
    setting: Setting,
    *,
    epsilon: float | None = None,
    list_size: int | None = None,
    query_budget_share: float | None = None,
    records_per_optin_user: int | None = None,
) -> PrivacyParameters:
    """Return the setting's parameters (the paper's, Figure 10) with the given changes."""

    def chosen(given: T | None, usual: T) -> T:
        return usual if given is None else given

    return PrivacyParameters(
        epsilon=chosen(epsilon, setting.epsilon),
        delta=setting.delta,
        head_list_cells=chosen(list_size, setting.list_size),
        query_budget_share=chosen(query_budget_share, setting.query_budget_share),
        records_per_optin_user=chosen(records_per_optin_user, setting.records_per_optin_user),
        records_per_client=setting.records_per_client,
    )


def draw_optin(
    setting: Setting,
    rng: np.random.Generator,
    *,
    share: float | None = None,
    records_each: int | None = None,
    same_query: float = 0.0,
) -> Optin:
    """Draw the opt-in users' records; a log's users keep those that were drawn from their clicks.

    With `records_each` > 1, each further record of a person is a click for the query of one of
    their earlier records with probability `same_query`, and otherwise a fresh draw: every single
    record still follows the population.
    """
    users = round(setting.users * (setting.optin_share if share is None else share))
    if isinstance(setting.people, LogPeople):
        return Optin(setting.people, *setting.people.divide(users, rng))
    each = setting.records_per_optin_user if records_each is None else records_each
    return Optin(setting.people, draw_records(setting.people, users, each, same_query, rng))


def draw_records(
    people: People, users: int, records_each: int, same_query: float, rng: np.random.Generator
) -> IntArray:
    """Draw `held[slot, user]`, repetitions included."""
    held = np.empty((records_each, users), dtype=np.int64)
    held[0] = people.draw(users, rng)
    everyone = np.arange(users)
    for slot in range(1, records_each):
        earlier = held[rng.integers(0, slot, size=users), everyone]
        returns = rng.random(users) < same_query
        held[slot] = np.where(returns, people.draw_again(earlier, rng), people.draw(users, rng))
    return held


def distinct(held: IntArray) -> IntArray:
    """Return the distinct records of each user, one after another."""
    if len(held) == 1:
        return np.asarray(held[0], dtype=np.int64)
    # Within a person, sorted: a record that equals the one before it is a repetition.
    in_order = np.sort(held, axis=0)
    fresh = np.ones(in_order.shape, dtype=np.bool_)
    fresh[1:] = in_order[1:] != in_order[:-1]
    return np.asarray(in_order[fresh], dtype=np.int64)


def release_head_list(
    profile: str,
    optin: Optin,
    parameters: PrivacyParameters,
    rng: np.random.Generator,
    *,
    selection_share: float | None = None,
) -> OptinRelease:
    """Build the opt-in group's part of an epoch, by default with the profile's own f_O."""
    own = SELECTION_SHARES[profile] if selection_share is None else selection_share
    counts = optin.counts(own)
    return build_head_list(profile, counts, parameters, SimulatedNoise(rng))


def run_epoch(
    profile: str,
    setting: Setting,
    optin: Optin,
    parameters: PrivacyParameters,
    rng: np.random.Generator,
    *,
    differing: Callable[[Truth], FloatArray] | None = None,
    intervals: bool = False,
) -> SimulatedEpoch:
    """Select, publish, let every other user report, denoise and blend.

    `differing` returns the clients' cell probabilities if they must differ from the truth. Without
    `intervals` those of the opt-in group are [0, 1] in `paper`: exact ones take nine tenths of an
    epoch's time, and no estimate depends on them.
    """
    release = release_head_list(
        profile, optin, parameters, rng, selection_share=setting.selection_share
    )
    cells = release.head_list.cells
    truth = truth_of(setting.people, cells, optin.number)
    clients = setting.users - optin.users
    if optin.clients is None:
        holders = rng.multinomial(clients, differing(truth) if differing else truth.cells)
    else:
        holders = count_holders(setting.people, cells, truth.listed, optin.clients)
    reports = draw_report_counts(randomizer_for(release.head_list), holders, rng)
    estimate = estimate_epoch if intervals else estimate_without_intervals
    return SimulatedEpoch(release, estimate(release, reports, clients), truth)


def estimate_without_intervals(
    release: OptinRelease, reports: IntArray, clients: int
) -> EpochEstimates:
    """Estimate as `estimate_epoch` does, but omit the opt-in group's intervals in `paper`."""
    if release.mechanisms.profile != "paper":
        return estimate_epoch(release, reports, clients)
    cells = release.head_list.cells
    optin = estimate_noisy_counts(release.noisy, cells, intervals_from=len(cells))
    client = randomizer_for(release.head_list).estimate(reports, clients)
    blended = VarianceBlender().blend(optin, client, cells) if clients else optin
    nothing = np.zeros(len(cells), dtype=np.bool_)
    return EpochEstimates(release.mechanisms, optin, client, blended, None, nothing)


def count_holders(people: People, cells: Cells, listed: IntArray, records: IntArray) -> IntArray:
    """Count the records per cell: a record's cell is its own, its query's ⟨q,⋆⟩ or ⟨⋆,⋆⟩."""
    cell = np.full(len(records), len(cells) - 1, dtype=np.int64)
    if cells.query_wildcards and len(listed):
        queries, first = np.unique(people.query(listed), return_index=True)
        place, found = _places(queries, people.query(records))
        wildcard = len(listed) + cells.query_of_cell[: len(listed)][first]
        cell[found] = wildcard[place[found]]
    order = np.argsort(listed)
    place, found = _places(listed[order], records)
    cell[found] = order[place[found]]
    return np.bincount(cell, minlength=len(cells)).astype(np.int64)


def _places(within: IntArray, numbers: IntArray) -> tuple[IntArray, NDArray[np.bool_]]:
    """Return each number's place in a sorted array, and True for the numbers that it contains."""
    if not len(within):
        return np.zeros(len(numbers), dtype=np.int64), np.zeros(len(numbers), dtype=np.bool_)
    place = np.minimum(np.searchsorted(within, numbers), len(within) - 1)
    return place, within[place] == numbers


def truth_of(people: People, cells: Cells, number: dict[Record, int]) -> Truth:
    """Return the true probability of every cell; ⟨q,⋆⟩ has its query's unlisted records."""
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
