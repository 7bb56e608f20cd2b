"""The inputs of the head-list job: the counts up to the seal, and the last published list."""

from __future__ import annotations

import asyncio
import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Unpack, cast

import numpy as np
import pytest
from numpy.typing import NDArray

import blendstream.blender.noise.opendp_noise
from blendstream.agents.jobs import jobs_process
from blendstream.agents.jobs.epoch_schedule import BuildHeadList
from blendstream.agents.jobs.head_lists import HEAD_LISTS
from blendstream.agents.jobs.job_context import (
    ContextOverrides,
    FilterProgress,
    JobContext,
    RandomnessSources,
)
from blendstream.agents.jobs.release_step import CommitContents, PendingRelease
from blendstream.blender.noise.exact_noise import COIN_BITS, Noise
from blendstream.blender.noise.opendp_noise import OpenDPNoise
from blendstream.blender.over_time.publication_filter import Publication, RecordFilter
from blendstream.blender.sharp.stable_histogram import below_threshold_heads
from blendstream.blender.values.cells import HeadList
from blendstream.blender.values.interfaces import OptinCounts
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.blender.values.record import Record
from blendstream.streams.releases import entries
from blendstream.streams.releases.documents import DocumentReference, join
from blendstream.streams.releases.optin_release import SelectionNumbers
from blendstream.streams.releases.sealed_counts import OptinRead
from blendstream.streams.settings import Settings
from blendstream.streams.settings.loading import Loaded
from blendstream.streams.wire.head_list_document import HeadListDocument
from tests.agents.jobs.kept_epochs import START, keep
from tests.agents.jobs.model_log import WINDOW_MS, ModelLog
from tests.doubles import NoNoise
from tests.service.settings import service_values

A, B, C, D, E = (Record("query", f"https://{name}.example/") for name in "abcde")
USERS = 1000
#: Two records are listed; more may pass the threshold.
TWO_LISTED = PrivacyParameters(head_list_cells=2)


class LogWithDocuments(ModelLog):
    """Reads documents as the release log does."""

    async def read_document(self, reference: DocumentReference) -> bytes:
        keys = [entries.part_key(reference.id, number) for number in range(reference.parts)]
        held = {key: value for _, _, key, value in self.records}
        return join(reference, [held[key] for key in keys])


class Epochs:
    """Epochs one after the other: the job's own steps, a log in memory and counts as given.

    It is the job's context and counts at once, as far as the job asks.
    """

    def __init__(self, noise: Noise | None = None, **plan: object) -> None:
        self.log = LogWithDocuments()
        self.dice = RandomnessSources(noise or NoNoise())
        self.selection = FilterProgress(RecordFilter.start())
        self._counts: Mapping[Record, int] = {}
        self._plan = {"privacy": TWO_LISTED, **plan}
        keep(self.log, START, **self._plan)

    async def read_optin(self, epoch: int, bounds: Sequence[int], *, complete: bool) -> OptinRead:
        """Return the counts as `SealedCounts` does."""
        records = sorted(self._counts)
        held = np.array([self._counts[record] for record in records])
        counts = OptinCounts(records, held, np.zeros_like(held), USERS, 0)
        return OptinRead(counts, lost=False)

    def change(self, **plan: object) -> None:
        """Changed settings; they take effect with the next epoch that opens."""
        self._plan = {"privacy": TWO_LISTED, **plan}

    async def drawn(self, epoch: int, counts: Mapping[Record, int]) -> HeadList:
        """The list that the job makes of these counts of S."""
        self._counts = counts
        now = START + (epoch + 1) * WINDOW_MS + 10_000
        keep(self.log, now, **self._plan)
        log_state = self.log.log_state
        state = log_state.epochs[epoch]
        assert state.records_sealed is not None
        move = BuildHeadList(epoch, now + WINDOW_MS, ())
        due: PendingRelease[BuildHeadList] = PendingRelease(
            move, log_state, state, state.records_sealed, cast(Any, self)
        )
        context = cast(JobContext, self)
        inputs = await HEAD_LISTS.read(context, due)
        assert not isinstance(inputs, CommitContents)
        made = await HEAD_LISTS.draw(context, due, inputs)
        self.log.commit(now, *made.entries, documents=made.documents)
        reference = HEAD_LISTS.document(self.log.log_state.epochs[epoch])
        assert reference is not None
        return HeadListDocument.from_bytes(await self.log.read_document(reference)).head_list


async def test_known_are_all_records_of_the_last_published_list_and_no_others():
    """θ is 7. Taken for known, what this epoch counted would show from 2 people on, unpaid for;
    were only the listed part known, records below the cut would be lost as soon as they dip."""
    epochs = Epochs()
    first = await epochs.drawn(0, {A: 50, B: 40, C: 9, D: 6})
    assert (first.records, first.listed) == ((A, B, C), 2)

    second = await epochs.drawn(1, {A: 50, B: 40, C: 3, D: 6, E: 6})

    assert (second.records, second.listed) == ((A, B, C), 2)
    third = await epochs.drawn(2, {A: 50, B: 1, C: 3, D: 7, E: 6})
    assert third.records == (A, D, C)
    fourth = await epochs.drawn(3, {B: 6, C: 3})
    assert fourth.records == (C,), "B was on an earlier list, not on the last one"


async def test_the_coin_below_the_threshold_is_thrown_by_the_job_and_stored_with_the_draw():
    """θ is 7: D and E have one less, and the first coin shows heads. Estimates made later must know
    by which rule the list was made."""

    class FirstIsHeads(NoNoise):
        def coins(self, number: int, *, heads: int) -> NDArray[np.bool_]:
            assert heads == below_threshold_heads(TWO_LISTED.epsilon, TWO_LISTED.delta)
            return np.arange(number) == 0

    epochs = Epochs(FirstIsHeads())
    drawn = await epochs.drawn(0, {A: 50, B: 40, C: 5, D: 6, E: 6})

    assert drawn.records == (A, B, D)
    released = epochs.log.log_state.epochs[0].head_list
    assert released is not None
    stored = json.loads(await epochs.log.read_document(released.optin))
    assert (
        stored["below_threshold_probability"]
        == below_threshold_heads(TWO_LISTED.epsilon, TWO_LISTED.delta) / 2**COIN_BITS
        > 0
    )
    assert stored["threshold"] == 7


def test_opendp_draws_head_lists_for_the_program_that_its_module_shows(monkeypatch):
    """Story: the program in the docstring named a class that was not there."""
    settings = Settings.from_values(service_values())
    handed: list[ContextOverrides] = []

    async def connect(_: Settings, **instead: Unpack[ContextOverrides]) -> None:
        handed.append(instead)

    monkeypatch.setattr("blendstream.streams.settings.load_settings", lambda: Loaded(settings, {}))
    monkeypatch.setattr(jobs_process.process, "run", lambda connect, *_: connect())
    monkeypatch.setattr(jobs_process.Jobs, "connect", connect)
    about = blendstream.blender.noise.opendp_noise.__doc__ or ""
    program = about.partition("to the jobs:\n")[2].partition("\nPromises")[0]

    exec(textwrap.dedent(program), {})

    (instead,) = handed
    noise = instead["dice"].noise
    assert isinstance(noise, OpenDPNoise)
    held = {Record("query", f"https://{n}.example/"): 1000 for n in range(200)}
    drawn = asyncio.run(Epochs(noise).drawn(0, held))
    # b is 0.5: all 200 without noise once in 10^23, one of them 30 off once in 10^23.
    assert set(drawn.records) == set(held)
    assert any(count != 1000 for count in drawn.noisy_counts or ())
    assert all(abs(count - 1000) < 30 for count in drawn.noisy_counts or ())


#: One budget for three epochs; or one for each.
WAYS = [
    {"known_records": 3},
    {"known_records": 3, "period_epochs": 3, "optin_cohorts": 1, "cohorts": 3},
]


async def forgotten(epochs: Epochs, epoch: int) -> list[Record]:
    """Return the records that the log forgets after this epoch."""
    released = epochs.log.log_state.epochs[epoch].head_list
    assert released is not None
    listed = HeadListDocument.from_bytes(await epochs.log.read_document(released.head_list))
    places = json.loads(await epochs.log.read_document(released.optin))["forgotten"]
    return [listed.head_list.records[place] for place in places]


@pytest.mark.parametrize("way", WAYS)
async def test_known_is_all_that_was_ever_published_and_what_is_forgotten_is_in_the_log(way):
    """With a budget for each epoch and with one for three. At most three stay known: the rest is
    written down, and must pass the threshold again."""
    epochs = Epochs(**way)
    first = await epochs.drawn(0, {A: 300, B: 200, C: 90})
    assert first.records == (A, B, C)
    second = await epochs.drawn(1, {A: 300, D: 100})
    assert dict(zip(second.records, second.noisy_counts or (), strict=True)) == {
        A: 300, B: 0, C: 0, D: 100,
    }, "at any count"  # fmt: skip
    assert await forgotten(epochs, 0) == []
    gone = await forgotten(epochs, 1)
    assert len(gone) == 1
    assert gone[0] in (B, C)

    third = await epochs.drawn(2, {A: 300, D: 100, gone[0]: 3, E: 3})

    assert set(third.records) == {A, B, C, D} - set(gone), "3 is below the threshold"


async def test_what_is_cut_off_a_list_that_is_too_long_is_forgotten_in_the_log(monkeypatch):
    """It was once dropped silently: the log did not contain the records that were new again."""
    held = {A: 50, B: 40, C: 9, D: 8}
    epochs = Epochs()
    assert (await epochs.drawn(0, held)).records == (A, B, C, D)
    reference = HEAD_LISTS.document(epochs.log.log_state.epochs[0])
    assert reference is not None
    size = len(await epochs.log.read_document(reference))
    monkeypatch.setattr("blendstream.agents.jobs.head_lists.MAX_HEAD_LIST_BYTES", size - 1)

    epochs = Epochs()
    assert (await epochs.drawn(0, held)).records == (A, B, C)
    released = epochs.log.log_state.epochs[0].head_list
    assert released is not None
    numbers = SelectionNumbers.read(await epochs.log.read_document(released.optin))
    assert numbers.forgotten == (3,), "the place of D, which the list lacks"
    second = await epochs.drawn(1, {A: 50, B: 40, C: 3, D: 6})
    assert second.records == (A, B, C), "D must pass the threshold again"


@pytest.mark.parametrize("way", WAYS)
async def test_a_new_process_knows_and_forgets_the_same_from_the_log_alone(way):
    held = [{A: 300, B: 200, C: 90}, {A: 290, D: 100}, {A: 310, B: 150, D: 120, E: 90}]
    one, other = Epochs(**way), Epochs(**way)
    for epoch, counts in enumerate(held):
        other.selection = FilterProgress(RecordFilter.start())  # as after a restart
        assert await one.drawn(epoch, counts) == await other.drawn(epoch, counts)
        assert await forgotten(one, epoch) == await forgotten(other, epoch)


@pytest.mark.parametrize("way", WAYS)
async def test_a_filter_that_fails_on_earlier_lists_costs_no_epoch(way, caplog):
    """Story: an epoch of a period was tried until its deadline and then abandoned, for what only
    orders its list."""

    class Broken(RecordFilter):
        def follow(self, publication: Publication) -> RecordFilter:
            raise FloatingPointError("a covariance is not positive")

    epochs = Epochs(**way)
    await epochs.drawn(0, {A: 300, B: 200, C: 90})
    epochs.selection = FilterProgress(Broken((), RecordFilter.start().state))
    second = await epochs.drawn(1, {A: 100, B: 200, C: 90, D: 95})

    assert second.records == (B, A, D, C)
    told = [(record.message, record.epoch) for record in caplog.records]
    assert told == [("filter_failed", 0), ("filter_failed", 1)]
    assert await forgotten(epochs, 1) == [C]
    third = await epochs.drawn(2, {A: 300, B: 200})
    assert set(third.records) == {A, B, D}


async def test_what_is_known_is_carried_over_from_one_way_of_spending_to_the_other():
    """From a budget for each epoch to one for three, and back at the period's end: all that was
    published stays known, each list with the noise of its own way."""
    each, period = WAYS
    epochs = Epochs(**each)
    lists = [await epochs.drawn(0, {A: 300, B: 200})]
    epochs.change(**period)
    for epoch in range(1, 7):
        if epoch == 4:
            epochs.change(**each)
        lists.append(await epochs.drawn(epoch, {A: 300, B: 5, C: 5}))

    opened = [epochs.log.log_state.epochs[epoch].parameters.period for epoch in range(7)]
    # Epochs 1 and 2 were open ahead when the way was changed.
    assert [p and p.first_epoch for p in opened] == [None, None, None, 3, 3, 3, None]
    for head_list in lists:
        assert head_list.records == (A, B), "B is known; C, as frequent now, never was"
    noise = []
    for epoch in range(7):
        released = epochs.log.log_state.epochs[epoch].head_list
        assert released is not None
        noise.append(SelectionNumbers.read(await epochs.log.read_document(released.optin)).noise)
    assert noise[0] == noise[1] == noise[2] == noise[6] < 1
    assert noise[3] == noise[4] == noise[5] > 1
