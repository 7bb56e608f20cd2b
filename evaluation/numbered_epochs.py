"""Simulate one epoch of a large population quickly: only listed records have a text.

Millions of opt-in users hold millions of different records, of which some thousand are listed.
`simulated_epochs` makes the texts of all records once and reuses them in many epochs. This module
makes texts of listed records only. An epoch then takes seconds even if everyone in a large
population opts in, and its parameters can be varied.

Promises: the results have the distribution of those of `simulated_epochs.run_epoch`, and are
computed by the service's own functions.
Symbols: f_O = selection_share, m_C = answers of a device.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blendstream.blender.profiles import build_head_list
from blendstream.blender.registry import randomizer_for
from blendstream.blender.values.arrays import IntArray
from blendstream.blender.values.interfaces import OptinCounts
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.blender.values.record import Record
from blendstream.evaluation.populations import People, Setting
from blendstream.evaluation.simulated_epochs import (
    SimulatedEpoch,
    count_holders,
    estimate_without_intervals,
    truth_of,
)
from blendstream.evaluation.simulated_noise import SimulatedNoise
from blendstream.evaluation.simulated_reports import draw_answer_counts, draw_subjects

__all__ = ["NumberedRecords", "divide_users", "run_numbered_epoch"]


class NumberedRecords:
    """A `RecordTable` of a population's numbers, which makes the text of a record on request.

    It finds records by text only among those that it has returned: all others are not listed.
    """

    def __init__(self, people: People, numbers: IntArray) -> None:
        """Take the records' numbers, which must be distinct."""
        self._people, self._numbers = people, numbers
        self._places: dict[Record, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, number: int, /) -> Record:
        record = self._people.records(self._numbers[number : number + 1])[0]
        self._places[record] = number
        return record

    @property
    def numbers(self) -> dict[Record, int]:
        """Return the population's number of each record that this table has returned."""
        return {record: int(self._numbers[place]) for record, place in self._places.items()}

    def places(self, records: Sequence[Record]) -> IntArray:
        """Return the index of each of these records; −1 if it was never returned."""
        return np.array([self._places.get(record, -1) for record in records], dtype=np.int64)

    def sums_by_query(self, queries: Sequence[str], counts: IntArray) -> IntArray:
        """Return for each of these queries the sum of `counts` over its records."""
        listed = {record.query: place for record, place in self._places.items()}
        one_each = self._numbers[[listed[query] for query in queries]]
        wanted = self._people.query(one_each)
        order = np.argsort(wanted)
        of_record = self._people.query(self._numbers)
        place = np.searchsorted(wanted[order], of_record).clip(max=max(len(queries) - 1, 0))
        sums = np.zeros(len(queries), dtype=np.int64)
        if len(queries):
            match = wanted[order][place] == of_record
            np.add.at(sums, order[place[match]], counts[match])
        return sums


def divide_users(
    setting: Setting, share: float, rng: np.random.Generator
) -> tuple[IntArray, IntArray | None]:
    """Draw one record for each opt-in user, and for each client if they are a log's other users."""
    optin = round(setting.users * share)
    if not setting.is_log:
        return setting.people.draw(optin, rng), None
    held = setting.people.draw(setting.users, rng)
    return held[:optin], held[optin:]


def run_numbered_epoch(
    profile: str,
    setting: Setting,
    optin: IntArray,
    parameters: PrivacyParameters,
    rng: np.random.Generator,
    *,
    clients: IntArray | None = None,
    selection_share: float | None = None,
    client_records: int = 1,
) -> SimulatedEpoch:
    """Select, publish, let every other user report, denoise and blend.

    `optin` has one record per opt-in user, and `clients` one per client. Without `clients`
    the function draws them: each holds `client_records` records, and draws one for each answer.
    """
    share = setting.selection_share_of(profile) if selection_share is None else selection_share
    s_users = round(len(optin) * share)
    numbers, where = np.unique(optin, return_inverse=True)
    table = NumberedRecords(setting.people, numbers)
    selection, estimation = (
        np.bincount(users, minlength=len(numbers)).astype(np.int64)
        for users in (where[:s_users], where[s_users:])
    )
    counts = OptinCounts(table, selection, estimation, s_users, len(optin) - s_users)
    release = build_head_list(profile, counts, parameters, SimulatedNoise(rng))

    truth = truth_of(setting.people, release.head_list.cells, table.numbers)
    reporting, answers = setting.users - len(optin), parameters.records_per_client
    if clients is None:
        subjects = draw_subjects(reporting, answers, client_records, truth.cells, rng)
    else:
        cells = release.head_list.cells
        subjects = answers * count_holders(setting.people, cells, truth.listed, clients)
    reports = draw_answer_counts(randomizer_for(release.head_list), subjects, rng)
    return SimulatedEpoch(release, estimate_without_intervals(release, reports, reporting), truth)
