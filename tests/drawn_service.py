"""A service without servers: people are drawn, and the jobs' own code publishes what they hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pytest

from blendstream.agents.jobs import estimates
from blendstream.agents.jobs.job_context import RandomnessSources
from blendstream.blender.noise.exact_noise import laplace_variance
from blendstream.blender.over_time.epoch_memory import EpochMemory
from blendstream.blender.over_time.publication_filter import Publication, RecordFilter
from blendstream.blender.profiles import OptinRelease, build_head_list
from blendstream.blender.registry import randomizer_for
from blendstream.blender.values.arrays import FloatArray
from blendstream.blender.values.interfaces import OptinCounts
from blendstream.blender.values.record import Record
from blendstream.evaluation.simulated_noise import SimulatedNoise
from blendstream.evaluation.simulated_reports import draw_report_counts
from blendstream.streams.releases.epoch_state import EpochState, HeadListRelease
from blendstream.streams.releases.filtered_estimates import (
    FilterMemory,
    publication_of,
    rotates,
    with_filtered,
)
from blendstream.streams.releases.sealed_counts import ReportsRead
from blendstream.streams.wire.estimates_document import EstimatesDocument
from blendstream.streams.wire.head_list_document import HeadListDocument
from tests.agents.jobs.kept_epochs import START, keep
from tests.agents.jobs.model_log import WINDOW_MS, ModelLog
from tests.head_lists import QUANTITY
from tests.streams.wire.published_epochs import REFERENCE

__all__ = ["EACH", "EPOCHS", "ONE", "DrawnService", "Spending", "only_shares"]

EPOCHS = 12
_KNOWN = 1_000


@dataclass(frozen=True)
class Spending:
    """Who takes part in an epoch, and how the budget is spent: `period` epochs by one, or each."""

    selection: int
    estimation: int
    clients: int
    period: int = 0


#: As the demo spends: ε for every epoch.
EACH = Spending(3_600, 400, 36_000)
#: The default: one budget for 30 epochs, of which devices report in one.
ONE = Spending(40_000, 0, 30_000, period=30)


def only_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish shares alone: privacy and agreement take most of the time, and change no share."""
    monkeypatch.setattr(estimates, "readers_guarantee", lambda *_: None)
    monkeypatch.setattr(estimates, "_agreement", lambda *_: None)
    monkeypatch.setattr(estimates, "versions", lambda *_: {})


@cache
def _opened(period: int) -> list[EpochState]:
    """The epochs as the keeper opens them."""
    log, plan = ModelLog(), {"cohorts": 1}
    if period:
        plan = {"cohorts": period, "period_epochs": period, "optin_cohorts": 1}
    for epoch in range(EPOCHS):
        keep(log, START + epoch * WINDOW_MS, known_records=_KNOWN, **plan)
    return [log.log_state.epochs[epoch] for epoch in range(EPOCHS)]


@dataclass
class DrawnService:
    """Draws people who hold one of `records` or none, and publishes what the jobs would."""

    spending: Spending
    rng: np.random.Generator
    records: Sequence[Record]
    known: tuple[Record, ...] = ()
    lists: RecordFilter = field(default_factory=RecordFilter.start)
    memory: FilterMemory = field(default_factory=FilterMemory)

    def __post_init__(self) -> None:
        """Number the records once."""
        self._place = {record: i for i, record in enumerate(self.records)}

    def publish(self, p: Callable[[int], FloatArray], epochs: int) -> list[EstimatesDocument]:
        """So many epochs, in which people hold records with these probabilities."""
        return [
            self._epoch(state, p(state.epoch)) for state in _opened(self.spending.period)[:epochs]
        ]

    def _epoch(self, state: EpochState, p: FloatArray) -> EstimatesDocument:
        release = self._head_list(state, p)
        head_list = release.head_list
        cells = [self._place[r] for r in head_list.records[: head_list.listed]]
        holders = self._held(self.spending.clients, p[cells])
        counts = draw_report_counts(randomizer_for(head_list), holders, self.rng)
        state = replace(
            state,
            head_list=HeadListRelease(
                REFERENCE, REFERENCE, len(head_list.cells), 1, 1, False, START, (), START
            ),
        )
        own = estimates.build_estimates(
            state,
            release,
            ReportsRead(counts, self.spending.clients, False),
            (),
            RandomnessSources(SimulatedNoise(self.rng), lambda: self.rng),
        )
        heads = HeadListDocument(
            state.epoch,
            own.window_start_s,
            own.window_end_s,
            own.window_end_s + 60,
            head_list,
            QUANTITY,
        )
        document = with_filtered(own, heads, self.memory)
        publication = publication_of(heads, document)
        assert publication is not None
        self.memory = self.memory.follow(publication, clients_rotate=rotates(document))
        return document

    def _head_list(self, state: EpochState, p: FloatArray) -> OptinRelease:
        n_s, n_t = self.spending.selection, self.spending.estimation
        s, t = (self._held(n, p)[:-1] for n in (n_s, n_t))
        # Of the many that nobody holds only known ones matter.
        known = [self._place[record] for record in self.known]
        some = np.union1d(np.flatnonzero(s + t), np.array(known, dtype=np.int64))
        period = state.parameters.period
        rule = None if period is None else period.rule
        release = build_head_list(
            "sharp",
            OptinCounts([self.records[i] for i in some], s[some], t[some], n_s, n_t),
            state.parameters.plan.privacy,
            SimulatedNoise(self.rng),
            self.known,
            EpochMemory(state.epoch, self.lists, _KNOWN, rule),
        )
        assert release.filter_failure is None
        records, counts = release.head_list.records, release.head_list.noisy_counts
        assert counts is not None
        gone = tuple(records[place] for place in release.forgotten)
        scale = release.selection_scale
        self.known = tuple(r for r in records if r not in gone)
        self.lists = self.lists.drop(r for r in self.lists.records if r not in records).follow(
            Publication(
                state.epoch, records, np.array(counts, dtype=np.int64), n_s,
                laplace_variance(scale) if rule is None else scale**2, 0, forgotten=gone,
            )
        )  # fmt: skip
        return release

    def _held(self, people: int, p: FloatArray) -> np.ndarray:
        return self.rng.multinomial(people, np.append(p, 1 - p.sum()))
