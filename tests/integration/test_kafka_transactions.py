"""Open transactions are found, told apart from hanging ones, and a hanging one can be aborted."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import Producer

from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.kafka.kafka_transactions import transaction_admin
from blendstream.streams.releases.blocked import find_blocked
from blendstream.streams.settings.fields import Url
from blendstream.streams.settings.sections import KafkaSettings
from tests.hanging import hang


@pytest.fixture
def settings(kafka) -> KafkaSettings:
    return KafkaSettings(url=Url(kafka.url))


@pytest.fixture
async def ends(settings: KafkaSettings):
    log = KafkaInspector(settings)

    async def of(topic: str) -> tuple[int, int]:
        return await log.committed_end(topic, 0), (await log.ends(topic, [0]))[0]

    yield of
    await log.close()


def committed(bootstrap: str, transactional_id: str, topic: str, value: bytes) -> None:
    """One record in a transaction of its own, as a turn record is."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, value, partition=0)
    producer.commit_transaction(20)


async def settled(ends, topic: str) -> None:
    """Wait: an acknowledged end of a transaction is in the log a little later."""
    async with asyncio.timeout(10):
        while len(set(await ends(topic))) > 1:  # noqa: ASYNC110 - Kafka tells nobody
            await asyncio.sleep(0.05)


async def test_a_hanging_transaction_is_named_and_aborting_it_frees_the_log(
    kafka, make_topic, settings, ends
):
    """It blocked readers for good, and only an admin call of the Java client could end it."""
    topic = make_topic()
    await asyncio.to_thread(committed, kafka.bootstrap, f"{topic}.a", topic, b"first")
    producer_id, epoch, offset = await hang(
        kafka.bootstrap, topic, f"{topic}.a", [(b"k", b"hanging")]
    )
    await asyncio.to_thread(committed, kafka.bootstrap, f"{topic}.b", topic, b"behind it")
    assert (await ends(topic))[0] == offset

    async with transaction_admin(settings) as admin:
        (found,) = await admin.open_transactions(topic)
        assert (found.producer_id, found.producer_epoch) == (producer_id, epoch)
        assert found.first_offset == offset
        assert found.hanging
        assert found.transactional_id == f"{topic}.a"
        await admin.abort(topic, 0, found)
        assert await admin.open_transactions(topic) == []
    await settled(ends, topic)


async def test_a_turn_record_of_the_same_id_ends_a_hanging_transaction_by_committing_it(
    kafka, make_topic, settings, ends
):
    """What was acknowledged then stays: to be tried before anything is aborted."""
    topic = make_topic()
    await asyncio.to_thread(committed, kafka.bootstrap, f"{topic}.a", topic, b"first")
    _, _, offset = await hang(kafka.bootstrap, topic, f"{topic}.a", [(b"k", b"hanging")])
    await asyncio.to_thread(committed, kafka.bootstrap, f"{topic}.a", topic, b"turn")
    await settled(ends, topic)
    assert await ends(topic) == (offset + 3, offset + 3)


async def test_a_transaction_that_its_coordinator_will_end_is_not_called_hanging(
    kafka, make_topic, settings
):
    """A release that is being committed must not be taken for one that hangs."""
    topic = make_topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"{topic}.a"})
    await asyncio.to_thread(producer.init_transactions, 20)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    await asyncio.to_thread(producer.flush, 20)
    async with transaction_admin(settings) as admin:
        (found,) = await admin.open_transactions(topic)
    assert not found.hanging
    log = KafkaInspector(settings)
    blocked = await find_blocked(settings, log, topic)
    assert blocked is not None
    assert f"as {topic}.a; Kafka ends it at its timeout" in blocked.sentence()
    await asyncio.to_thread(producer.commit_transaction, 20)
    async with asyncio.timeout(10):  # The acknowledgement comes before the end is in the log.
        while await find_blocked(settings, log, topic):  # noqa: ASYNC110 - Kafka tells nobody
            await asyncio.sleep(0.05)
    await log.close()


async def test_kafka_away_is_said_in_time():
    """Whoever looks why the log is blocked must not hang too."""
    away = KafkaSettings(url=Url("kafka://127.0.0.1:1"), request_timeout_s=1.0)
    with pytest.raises(StoreUnavailable, match="did not answer"):
        async with transaction_admin(away):
            pass
