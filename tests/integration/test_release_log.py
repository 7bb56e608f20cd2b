"""The release log on a real broker: fenced, all or none, and never blind to a release."""

from __future__ import annotations

import asyncio
import os
import time

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from blendstream.agents.jobs.epoch_schedule import Open, next_keeper_move
from blendstream.streams.errors import StoreMismatch, StoreUnavailable
from blendstream.streams.kafka.kafka_clients import librdkafka_settings
from blendstream.streams.releases import entries
from blendstream.streams.releases.documents import PART_BYTES, split
from blendstream.streams.releases.entries import EpochOutcome, Kind
from blendstream.streams.releases.epoch_state import Stage
from blendstream.streams.releases.log import CommitInDoubt, Fenced, ReleaseLog
from blendstream.streams.releases.log_consumer import LogConsumer
from blendstream.streams.settings.fields import Url
from blendstream.streams.settings.sections import KafkaSettings
from tests.agents.jobs.model_log import PLENTY, plan

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

    def make(*, timeout_s: float = 10.0, **options) -> ReleaseLog:
        settings = KafkaSettings(url=Url(kafka.url), request_timeout_s=timeout_s)
        log = ReleaseLog(settings, topic, **{"transaction_timeout_s": 10.0} | options)
        made.append(log)
        return log

    yield make
    for log in made:
        await log.close()


async def open_epoch(log: ReleaseLog, now_ms: int | None = None) -> int:
    """Open the next epoch as the keeper does; windows of one minute."""
    now = now_ms or time.time_ns() // 1_000_000
    async with log.fenced_session(Kind.KEEPER) as session:
        move = next_keeper_move(session.log_state, PLAN, PLENTY, now)
        assert isinstance(move, Open)
        await session.commit([entries.epoch_opened(move.parameters)])
        return move.parameters.epoch


def released(epoch: int, data: bytes):
    """An estimates release of these bytes."""
    document = split("estimates", data)
    return entries.estimate_released(epoch, document, EpochOutcome.COMPLETE, []), document


async def test_what_one_process_commits_every_other_reads(make_log):
    """States, parameters and ledger come from the log alone."""
    writer, reader = make_log(), make_log()
    assert await open_epoch(writer) == 0
    async with writer.fenced_session(Kind.KEEPER) as session:
        await session.commit([entries.records_sealed(0, [3, 4])])

    log_state = await reader.catch_up()
    assert log_state.epochs[0].stage is Stage.SEALED
    assert log_state.epochs[0].parameters.plan == PLAN
    assert log_state.ledger == (await writer.catch_up()).ledger
    assert log_state.ledger.epochs() == 1


async def test_a_document_of_several_megabytes_is_read_whole_by_all(make_log):
    """A broker takes no record over about 1 MB, and random bytes do not compress."""
    writer, reader = make_log(), make_log()
    await open_epoch(writer)
    async with writer.fenced_session(Kind.KEEPER) as session:
        await session.commit([entries.records_sealed(0, [0, 0])])
    data = os.urandom(5 * PART_BYTES + 17)
    entry, document = released(0, data)
    assert len(document.parts) >= 6
    async with writer.fenced_session(Kind.ESTIMATES) as session:
        await session.commit([entry], [document])

    for log in (writer, reader):
        publication = (await log.catch_up()).epochs[0].estimates
        assert publication is not None
        assert await log.read_document(publication.document) == data


async def test_a_turn_started_later_fences_the_earlier_one_at_its_commit(make_log):
    """The earlier one may have drawn already; its draw must never be seen."""
    slow, quick = make_log(), make_log()
    await open_epoch(slow)
    async with slow.fenced_session(Kind.KEEPER) as first:
        async with quick.fenced_session(Kind.KEEPER) as second:
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
        if step == "keeper.sent":
            sent.set()
            await wake.wait()

    async def first() -> None:
        async with slow.fenced_session(Kind.KEEPER, pause) as session:
            await session.commit([entries.records_sealed(0, [1, 1])])

    task = asyncio.create_task(first())
    await sent.wait()
    async with quick.fenced_session(Kind.KEEPER) as session:
        assert session.log_state.epochs[0].records_sealed is None
        wake.set()
        with pytest.raises(Fenced):
            await task
        await session.commit([entries.records_sealed(0, [2, 2])])

    state = (await make_log().catch_up()).epochs[0]
    assert state.records_sealed is not None
    assert state.records_sealed.bounds == (2, 2)


@pytest.fixture
def foreign(kafka, topic: str):
    """A writer of another kind, with a transaction that holds readers of the log up."""
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "transactional.id": f"{topic}.foreign",
            "transaction.timeout.ms": 60_000,
        }
    )
    producer.init_transactions(10)

    def open_transaction() -> Producer:
        producer.begin_transaction()
        producer.produce(topic, b"{}", key=b"foreign", partition=0)
        producer.flush(10)
        return producer

    return open_transaction


async def test_a_turn_waits_for_another_jobs_open_transaction(make_log, foreign):
    """A release committed before our session may lie beyond what readers may read yet."""
    writer, other = make_log(), make_log()
    await open_epoch(writer)
    sent, wake = asyncio.Event(), asyncio.Event()

    async def pause(step: str) -> None:
        if step == "keeper.acknowledged":
            sent.set()
            await wake.wait()

    async def seal() -> None:
        async with writer.fenced_session(Kind.KEEPER, pause) as session:
            open_elsewhere.append(foreign())
            await session.commit([entries.records_sealed(0, [1, 1])])

    open_elsewhere: list[Producer] = []
    sealing = asyncio.create_task(seal())
    await sent.wait()
    deciding = asyncio.create_task(other.fence_and_read(Kind.KEEPER))
    done, _ = await asyncio.wait([deciding], timeout=1.5)
    assert not done, "a session decided without what lies beyond the open transaction"
    await asyncio.to_thread(open_elsewhere[0].abort_transaction, 10)
    wake.set()
    log_state = await asyncio.wait_for(deciding, 20)
    assert log_state.epochs[0].stage is Stage.SEALED
    await sealing


async def test_looking_at_the_log_never_waits_for_an_open_transaction(make_log, foreign):
    """A transaction that hangs for ever must not hang the verbs that only show the log."""
    writer = make_log()
    await open_epoch(writer)
    open_elsewhere = foreign()
    log_state = await asyncio.wait_for(make_log().catch_up(), 10)
    assert log_state.epochs[0].stage is Stage.COLLECTING
    await asyncio.to_thread(open_elsewhere.abort_transaction, 10)


async def test_a_turn_that_cannot_be_read_back_ends_with_a_sentence(make_log, foreign):
    """Nothing waits for ever: the next attempt begins at the producer."""
    log = make_log(transaction_timeout_s=1.0, timeout_s=1.0)
    await open_epoch(log)
    open_elsewhere = foreign()
    with pytest.raises(StoreUnavailable, match=r"must show a record.*blendstream doctor"):
        await log.fence_and_read(Kind.KEEPER)
    await asyncio.to_thread(open_elsewhere.abort_transaction, 10)
    assert (await log.fence_and_read(Kind.KEEPER)).epochs[0].stage is Stage.COLLECTING


async def test_a_commit_that_is_acknowledged_but_not_seen_is_in_doubt(make_log, foreign):
    """On a loaded broker an acknowledged commit stayed invisible for good: its entry could be
    removed later, so nothing may follow from it before it was read."""
    log = make_log(transaction_timeout_s=1.0, timeout_s=1.0)
    await open_epoch(log)
    async with log.fenced_session(Kind.KEEPER) as session:
        open_elsewhere = foreign()
        with pytest.raises(CommitInDoubt, match="acknowledged"):
            await session.commit([entries.records_sealed(0, [1, 1])])
        assert not session.committed
    await asyncio.to_thread(open_elsewhere.abort_transaction, 10)


class FrozenConsumer(LogConsumer):
    """A reader whose server was cut off: it shows the log as it was, and says that this is all."""

    #: Offsets at and above this do not exist on that server.
    end = 0
    #: So many readers are still answered by it; later ones find another server.
    opened_on_it = 0

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self._frozen = FrozenConsumer.opened_on_it > 0
        FrozenConsumer.opened_on_it -= 1

    def poll(self):
        records, end = super().poll()
        if not self._frozen:
            return records, end
        shown = [record for record in records if record.offset < FrozenConsumer.end]
        at_end = end is not None or len(shown) < len(records)
        return shown, FrozenConsumer.end if at_end else None


@pytest.fixture
def frozen(monkeypatch) -> type[FrozenConsumer]:
    monkeypatch.setattr("blendstream.streams.releases.reader.LogConsumer", FrozenConsumer)
    monkeypatch.setattr("blendstream.streams.releases.reader.REOPEN_AFTER_S", 1.0)
    FrozenConsumer.opened_on_it = 0
    return FrozenConsumer


async def test_a_server_with_a_frozen_copy_of_the_log_decides_nothing(make_log, frozen):
    """A broker cut off from its peers answered jobs from its old copy: they found no release there
    and drew noise for one epoch 99 times."""
    first, second = make_log(), make_log()
    await open_epoch(first)
    async with first.fenced_session(Kind.KEEPER) as session:
        end = session.log_state.read_upto
        await session.commit([entries.records_sealed(0, [1, 1])])

    frozen.end, frozen.opened_on_it = end, 3
    looked = await second.catch_up()
    assert looked.epochs[0].stage is Stage.COLLECTING, "the frozen copy must have been read"
    async with second.fenced_session(Kind.KEEPER) as session:
        assert session.log_state.epochs[0].stage is Stage.SEALED
    assert frozen.opened_on_it < 0, "a reader that does not show our own record is reopened"


async def test_a_reader_that_starts_at_a_checkpoint_knows_what_one_from_the_start_knows(make_log):
    """The log's age must not cost anything, and must not change anything."""
    writer = make_log()
    now = time.time_ns() // 1_000_000
    for window in range(6):
        await open_epoch(writer, now + window * 60_000)
    for epoch in range(4):
        async with writer.fenced_session(Kind.OPERATOR) as session:
            await session.commit([entries.epoch_abandoned(epoch, "over")])
    log_state = await writer.catch_up()
    for epoch in range(4):  # What a log state keeps is a matter of memory; here it forgets at once.
        del log_state.epochs[epoch]
    async with writer.fenced_session(Kind.KEEPER) as session:
        await session.commit(
            [entries.checkpoint(session.log_state.ledger, session.log_state.checkpoint_offset())]
        )
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


@pytest.fixture
def reader(kafka, topic: str):
    made = LogConsumer(librdkafka_settings(KafkaSettings(url=Url(kafka.url))), topic, 10.0)
    yield made
    made.close()


async def test_a_server_whose_copy_ends_before_what_was_read_shows_nothing(make_log, reader):
    """A broker that was cut off answered "out of range", and the job took the log for damaged."""
    log = make_log()
    await open_epoch(log)
    reader.start_at(log.log_state.read_upto + 100)
    for _ in range(8):
        assert await asyncio.to_thread(reader.poll) == ([], None)


async def test_a_log_that_lost_its_beginning_is_refused(make_log, reader, kafka, topic: str):
    """Going on behind the gap would read the releases in it as if they never were."""
    log = make_log()
    await open_epoch(log)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, 3)]).values():
        await asyncio.to_thread(future.result, 10)
    with pytest.raises(StoreMismatch, match="must be kept permanently"):
        await asyncio.to_thread(list, reader.to_end(1))


async def test_a_turn_commits_once(make_log):
    """A second commit would rest on a log state that the first one changed."""
    log = make_log()
    await open_epoch(log)
    async with log.fenced_session(Kind.KEEPER) as session:
        await session.commit([entries.records_sealed(0, [1, 1])])
        with pytest.raises(StoreMismatch, match="commits once"):
            await session.commit([entries.records_sealed(0, [1, 1])])
