"""What the head-list job draws from: the counts up to the seal, and the last published list."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from agents.jobs.epoch_schedule import BuildHeadList
from agents.jobs.head_lists import HEAD_LISTS
from agents.jobs.job_context import JobContext, ReleaseDice
from agents.jobs.release_step import Due, Made
from blender.cells import HeadList
from blender.interfaces import OptinCounts
from blender.noise import COIN_BITS, Noise
from blender.parameters import PrivacyParameters
from blender.record import Record
from blender.stable_histogram import luck_below
from streams.releases import entries
from streams.releases.documents import DocumentReference, join
from streams.releases.sealed_counts import OptinRead
from streams.wire.head_list_document import HeadListDocument
from tests.agents.jobs.model_log import ModelLog
from tests.agents.jobs.test_epoch_schedule import START, WINDOW_MS, keep
from tests.doubles import NoNoise

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

    def __init__(self, noise: Noise | None = None) -> None:
        self.log = LogWithDocuments()
        self.dice = ReleaseDice(noise or NoNoise())
        self._counts: Mapping[Record, int] = {}

    async def read_optin(self, epoch: int, bounds: Sequence[int], *, complete: bool) -> OptinRead:
        """As `SealedCounts` does."""
        records = sorted(self._counts)
        held = np.array([self._counts[record] for record in records])
        counts = OptinCounts(records, held, np.zeros_like(held), USERS, 0)
        return OptinRead(counts, lost=False)

    async def drawn(self, epoch: int, counts: Mapping[Record, int]) -> HeadList:
        """The list that the job makes of these counts of S."""
        self._counts = counts
        now = START + (epoch + 1) * WINDOW_MS + 10_000
        keep(self.log, now, privacy=TWO_LISTED)
        book = self.log.book
        state = book.epochs[epoch]
        assert state.records_sealed is not None
        move = BuildHeadList(epoch, now + WINDOW_MS, ())
        due: Due[BuildHeadList] = Due(move, book, state, state.records_sealed, cast(Any, self))
        context = cast(JobContext, self)
        inputs = await HEAD_LISTS.read(context, due)
        assert not isinstance(inputs, Made)
        made = await HEAD_LISTS.draw(context, due, inputs)
        self.log.commit(now, *made.entries, documents=made.documents)
        reference = HEAD_LISTS.document(self.log.book.epochs[epoch])
        assert reference is not None
        return HeadListDocument.from_bytes(await self.log.read_document(reference)).head_list


async def test_known_are_all_records_of_the_last_published_list_and_no_others():
    """θ is 7. Taken for known, what this epoch counted would show from 2 people on, unpaid for;
    were only the listed part known, records below the cut would be lost as soon as they dip."""
    epochs = Epochs()
    keep(epochs.log, START, privacy=TWO_LISTED)
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
            assert heads == luck_below(TWO_LISTED.epsilon, TWO_LISTED.delta)
            return np.arange(number) == 0

    epochs = Epochs(FirstIsHeads())
    keep(epochs.log, START, privacy=TWO_LISTED)
    drawn = await epochs.drawn(0, {A: 50, B: 40, C: 5, D: 6, E: 6})

    assert drawn.records == (A, B, D)
    released = epochs.log.book.epochs[0].head_list
    assert released is not None
    stored = json.loads(await epochs.log.read_document(released.optin))
    assert stored["luck"] == luck_below(TWO_LISTED.epsilon, TWO_LISTED.delta) / 2**COIN_BITS > 0
    assert stored["threshold"] == 7
