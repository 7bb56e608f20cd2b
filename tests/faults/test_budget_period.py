"""One budget for a period of epochs, on real servers, disturbed: one charge, one release each.

What the ledger and the schedule decide is tested without servers (tests/streams/releases,
tests/agents/jobs); here, that the processes keep to it when they die and Redis forgets.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from blendstream.agents.commands.epochs import go_on_with_restored
from blendstream.streams.budget.ledger import Cost
from blendstream.streams.errors import StoreMismatch
from blendstream.streams.releases.compacted_topics import PublishedMarks
from blendstream.streams.releases.epoch_state import Stage
from blendstream.streams.releases.filtered_estimates import (
    FilterMemory,
    publication_of,
    rotates,
    with_filtered,
)
from blendstream.streams.releases.optin_release import SelectionNumbers
from blendstream.streams.wire.estimates_document import EstimatesDocument
from blendstream.streams.wire.head_list_document import HeadListDocument
from tests.service.epochs import EpochService, epoch_service, take_part
from tests.service.jobs import Clock, bench
from tests.service.released import RELEASES, all_entries, same_bytes_everywhere
from tests.service.settings import SHORT

T = 3
#: One budget of (4, 1e-5) for three epochs, and a limit that allows for no second one.
ONE_BUDGET = {
    "budget__period_epochs": str(T),
    "budget__optin_epsilon_limit": "4",
    "budget__optin_delta_limit": "1e-5",
}


async def known_after(made: EpochService, epoch: int) -> tuple[set, set]:
    """The records of an epoch's head list, and those of them that stay known."""
    state = (await made.log_state()).epochs[epoch]
    assert state.head_list is not None
    head_list, _ = await made.head_list(state)
    numbers = SelectionNumbers.read(await made.document(state.head_list.optin))
    gone = {head_list.records[place] for place in numbers.forgotten}
    return set(head_list.records), set(head_list.records) - gone


async def refiltered(made: EpochService, epochs: range) -> list[bytes]:
    """Each publication with its filtered estimate made again, from what readers have: the topics
    of head lists and estimates."""
    heads = await made.published(made.topics.head_lists.name)
    estimates = await made.published(made.topics.estimates.name)
    memory, again = FilterMemory(), []
    for epoch in epochs:
        head_list = HeadListDocument.from_bytes(heads[epoch])
        document = EstimatesDocument.from_bytes(estimates[epoch])
        assert document.filtered is not None
        own = replace(
            document,
            filtered=None,
            records=tuple(replace(row, filtered=None) for row in document.records),
            queries=tuple(replace(row, filtered=None) for row in document.queries),
        )
        again.append(with_filtered(own, head_list, memory).to_bytes())
        publication = publication_of(head_list, document)
        assert publication is not None
        memory = memory.follow(publication, clients_rotate=rotates(document))
    return again


@pytest.mark.more
@pytest.mark.timeout(240)
async def test_a_period_is_charged_and_released_once_whatever_dies_meanwhile(kafka, own_redis):
    """Jobs die between draw and commit, the worker dies, Redis is emptied. Then the next epoch does
    not open until it has a budget of its own."""
    async with epoch_service(kafka.url, own_redis.url, **SHORT, **ONE_BUDGET) as made:
        worker = made.start_worker()
        made.order("head-lists.drawn", "kill")
        made.start_jobs()
        people = [
            asyncio.create_task(take_part(made, epoch, np.random.default_rng(epoch)))
            for epoch in range(T)
        ]
        await made.disturbed(90)
        worker.kill()
        await made.flush_redis()
        made.start_worker()
        made.start_jobs()
        await asyncio.gather(*people)
        for epoch in range(T):
            await made.until_stage(epoch, Stage.PUBLISHED, timeout_s=90)

        async def refused() -> bool:
            paused = (await made.log_state()).paused
            return paused is not None and paused.epoch == T

        await made.until(refused, 30, "a pause after the last epoch of the period")
        log_state = await made.log_state()
        assert sorted(log_state.epochs) == list(range(T))
        assert log_state.ledger.basic_in_life("optin") == Cost(4.0, 1e-5)
        periods = [log_state.epochs[epoch].parameters.period for epoch in range(T)]
        assert periods[0] is not None
        assert periods[0].rule.epochs == T
        assert periods == [periods[0]] * T
        names = ("epoch_opened", *RELEASES)
        times = Counter((e["entry"], e["epoch"]) for e in all_entries(made) if e["entry"] in names)
        assert set(times.values()) == {1}, times
        await same_bytes_everywhere(made, range(T))

        # A reader who has the published documents and nothing else makes the same filtered numbers.
        shown = await made.published(made.topics.estimates.name)
        assert await refiltered(made, range(T)) == [shown[epoch] for epoch in range(T)]

        # Known is all that was published and not forgotten, though no one holds it any more.
        lists = [await known_after(made, epoch) for epoch in range(T)]
        for (_, known), (listed, _) in itertools.pairwise(lists):
            assert known
            assert known <= listed

        # With a limit that allows for another budget the next epoch begins a period of its own.
        for part in made.of_kind("jobs"):
            part.kill()
        made.change(budget__optin_epsilon_limit="8", budget__optin_delta_limit="2e-5")
        made.start_jobs()
        state = await made.until_stage(T, Stage.COLLECTING, timeout_s=60)
        assert state.parameters.period is not None
        assert state.parameters.period.first_epoch == T
        assert (await made.log_state()).ledger.basic_in_life("optin") == Cost(8.0, 2e-5)


@pytest.mark.timeout(120)
async def test_no_epoch_opens_with_a_log_that_lacks_what_was_published(kafka, redis_server):
    """An older copy of the log would open, and draw, epochs of the period again."""
    clock = Clock()
    async with epoch_service(kafka.url, redis_server.url, **ONE_BUDGET) as made:
        topic = made.topics.head_lists.name
        async with bench(made, clock) as jobs:
            await jobs.keep()
            assert sorted((await made.log_state()).epochs) == [0, 1]
            clock.now_ms += 3_600_000
            marks = PublishedMarks(jobs.context.redis, made.settings.topics.prefix, topic)
            await marks.add(2, "0" * 64)
            with pytest.raises(StoreMismatch, match="an older copy of the log was restored"):
                await jobs.keep()
            await marks.drop([2])
            await jobs.context.publisher.publish(topic, 2, b"a head list that the log lacks")
        async with bench(made, clock) as jobs:
            with pytest.raises(StoreMismatch, match="head list of epoch 2 is published"):
                await jobs.keep()
            assert sorted((await made.log_state()).epochs) == [0, 1]

            # The operator's remedy charges through the highest number published anywhere, even if
            # the time since the copy allows for fewer.
            await jobs.context.publisher.publish(
                made.topics.estimates.name, 4, b"an epoch's figures"
            )
            last = (await made.log_state()).epochs[1].parameters
            await go_on_with_restored(jobs.context, "log restored", last.window_start_ms)
            assert not (await made.log_state()).unfinished()
            assert max((await made.log_state()).epochs) == 4
            await jobs.keep()
