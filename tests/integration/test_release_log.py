"""The release log on a real broker: fenced, all or none, and never blind to a release."""

from __future__ import annotations

import asyncio
import os
import time

import pytest
from confluent_kafka import Producer

from agents.epochs import Open, next_keeper_move
from streams.errors import StoreMismatch
from streams.releases import entries
from streams.releases.book import Stage
from streams.releases.documents import PART_BYTES, split
from streams.releases.entries import Kind, Outcome
from streams.releases.log import Fenced, ReleaseLog
from streams.settings.fields import Url
from streams.settings.sections import KafkaSettings
from tests.agents.model_log import PLENTY, plan

#: Nothing is ever due for sealing: these tests are about the log.
PLAN = plan(grace_ms=3_600_000)
CONFIG = {"retention.ms": "-1", "message.timestamp.type": "LogAppendTime"}


@pytest.fixture
def topic(make_topic) -> str:
    return make_topic("releases", config=CONFIG)


@pytest.fixture
async def make_log(kafka, topic: str):
    """As many processes' views of one log as a test wants."""
    made: list[ReleaseLog] = []

    def make(**options) -> ReleaseLog:
        log = ReleaseLog(
            KafkaSettings(url=Url(kafka.url)), topic, transaction_timeout_s=10.0, **options
        )
        made.append(log)
        return log

    yield make
    for log in made:
        await log.close()


async def open_epoch(log: ReleaseLog, now_ms: int | None = None) -> int:
    """Open the next epoch as the keeper does; windows of one minute."""
    now = now_ms or time.time_ns() // 1_000_000
    async with log.turn(Kind.KEEPER) as turn:
        move = next_keeper_move(turn.book, PLAN, PLENTY, now)
        assert isinstance(move, Open)
        await turn.commit([entries.epoch_opened(move.parameters)])
        return move.parameters.epoch


def released(epoch: int, data: bytes):
    """An estimates release of these bytes."""
    document = split("estimates", data)
    return entries.estimate_released(epoch, document, Outcome.COMPLETE, []), document


async def test_what_one_process_commits_every_other_reads(make_log):
    """States, parameters and ledger come from the log alone."""
    writer, reader = make_log(), make_log()
    assert await open_epoch(writer) == 0
    async with writer.turn(Kind.KEEPER) as turn:
        await turn.commit([entries.records_sealed(0, [3, 4])])

    book = await reader.catch_up()
    assert book.epochs[0].stage is Stage.SEALED
    assert book.epochs[0].parameters.plan == PLAN
    assert book.ledger == (await writer.catch_up()).ledger
    assert book.ledger.epochs() == 1


async def test_a_document_of_several_megabytes_is_read_whole_by_all(make_log):
    """A broker takes no record over about 1 MB, and random bytes do not compress."""
    writer, reader = make_log(), make_log()
    await open_epoch(writer)
    async with writer.turn(Kind.KEEPER) as turn:
        await turn.commit([entries.records_sealed(0, [0, 0])])
    data = os.urandom(5 * PART_BYTES + 17)
    entry, document = released(0, data)
    assert len(document.parts) >= 6
    async with writer.turn(Kind.ESTIMATES) as turn:
        await turn.commit([entry], [document])

    for log in (writer, reader):
        publication = (await log.catch_up()).epochs[0].estimates
        assert publication is not None
        assert await log.read_document(publication.document) == data


async def test_a_turn_started_later_fences_the_earlier_one_at_its_commit(make_log):
    """The earlier one may have drawn already; its draw must never be seen."""
    slow, quick = make_log(), make_log()
    await open_epoch(slow)
    async with slow.turn(Kind.KEEPER) as first:
        async with quick.turn(Kind.KEEPER) as second:
            await second.commit([entries.records_sealed(0, [1, 1])])
        with pytest.raises(Fenced):
            await first.commit([entries.records_sealed(0, [2, 2])])

    state = (await make_log().catch_up()).epochs[0]
    assert state.records_sealed is not None
    assert state.records_sealed.bounds == (1, 1)


async def test_a_turn_started_while_another_is_between_send_and_commit_aborts_it(make_log):
    """A pauses with its release sent, B starts, A wakes: A's commit fails, B saw nothing of it."""
    slow, quick = make_log(), make_log()
    await open_epoch(slow)
    sent, wake = asyncio.Event(), asyncio.Event()

    async def pause(step: str) -> None:
        if step == "sent":
            sent.set()
            await wake.wait()

    async def first() -> None:
        async with slow.turn(Kind.KEEPER, pause) as turn:
            await turn.commit([entries.records_sealed(0, [1, 1])])

    task = asyncio.create_task(first())
    await sent.wait()
    async with quick.turn(Kind.KEEPER) as turn:
        assert turn.book.epochs[0].records_sealed is None
        wake.set()
        with pytest.raises(Fenced):
            await task
        await turn.commit([entries.records_sealed(0, [2, 2])])

    state = (await make_log().catch_up()).epochs[0]
    assert state.records_sealed is not None
    assert state.records_sealed.bounds == (2, 2)


async def test_another_jobs_open_transaction_delays_a_reader_and_hides_nothing(
    make_log, kafka, topic: str
):
    """A release committed after a foreign open transaction lies beyond what readers may read."""
    writer = make_log()
    await open_epoch(writer)
    foreign = Producer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "transactional.id": f"{topic}.foreign",
            "transaction.timeout.ms": 60_000,
        }
    )
    foreign.init_transactions(10)
    async with writer.turn(Kind.KEEPER) as turn:
        foreign.begin_transaction()
        foreign.produce(topic, b"{}", key=b"foreign", partition=0)
        foreign.flush(10)
        await turn.commit([entries.records_sealed(0, [1, 1])])

    late = make_log()
    reading = asyncio.create_task(late.catch_up())
    done, _ = await asyncio.wait([reading], timeout=1.5)
    assert not done, "the reader answered without what lies beyond the open transaction"
    await asyncio.to_thread(foreign.abort_transaction, 10)
    book = await asyncio.wait_for(reading, 10)
    assert book.epochs[0].stage is Stage.SEALED


async def test_a_reader_that_starts_at_a_checkpoint_knows_what_one_from_the_start_knows(make_log):
    """The log's age must not cost anything, and must not change anything."""
    writer = make_log()
    now = time.time_ns() // 1_000_000
    for window in range(6):
        await open_epoch(writer, now + window * 60_000)
    for epoch in range(4):
        async with writer.turn(Kind.OPERATOR) as turn:
            await turn.commit([entries.epoch_abandoned(epoch, "over")])
    book = await writer.catch_up()
    for epoch in range(4):  # What a book keeps is a matter of memory; here it forgets at once.
        del book.epochs[epoch]
    async with writer.turn(Kind.KEEPER) as turn:
        await turn.commit([entries.checkpoint(turn.book.ledger, turn.book.checkpoint_offset())])
    await open_epoch(writer, now + 6 * 60_000)
    expected = await writer.catch_up()

    fresh = await make_log().catch_up()
    assert sorted(fresh.epochs) == [4, 5, 6]
    assert fresh.epochs == expected.epochs
    assert fresh.ledger == expected.ledger
    assert fresh.ledger.epochs() == 7
    # A log in which nothing happened for years is found all the same.
    old = make_log(now_ms=lambda: now + 5 * 365 * 86_400_000)
    assert (await old.catch_up()).ledger == expected.ledger


async def test_a_turn_commits_once(make_log):
    """A second commit would rest on a book that the first one changed."""
    log = make_log()
    await open_epoch(log)
    async with log.turn(Kind.KEEPER) as turn:
        await turn.commit([entries.records_sealed(0, [1, 1])])
        with pytest.raises(StoreMismatch, match="commits once"):
            await turn.commit([entries.records_sealed(0, [1, 1])])
