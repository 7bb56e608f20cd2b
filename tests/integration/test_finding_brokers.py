"""Brokers that are all replaced are found again by the addresses in the settings.

aiokafka asks the brokers of its last answer and no others: when all of them were replaced by new
ones under the address that the settings name, a gateway answered 503 until it was restarted.
"""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import BrokerMetadata

from blendstream.agents.gateway.submit.frame_producer import make_producer
from blendstream.agents.local.ports import free_port
from blendstream.streams.kafka.aiokafka_internals import keep_finding_brokers
from blendstream.streams.settings.fields import Url
from blendstream.streams.settings.sections import KafkaSettings


def _all_replaced(client) -> None:
    """What it knows is one broker that is gone."""
    client.cluster._brokers = {7: BrokerMetadata(7, "127.0.0.1", free_port(), None)}


@pytest.mark.timeout(60)
async def test_a_gateway_finds_brokers_that_took_the_place_of_all_it_knew(kafka, make_topic):
    topic = make_topic()
    producer = make_producer(KafkaSettings(url=Url(kafka.url)))
    await producer.start()
    try:
        _all_replaced(producer.client)
        assert await producer.client.force_metadata_update()
        await asyncio.wait_for(producer.send_and_wait(topic, b"x", partition=0), 20)
    finally:
        await producer.stop()


@pytest.mark.timeout(60)
async def test_a_worker_finds_them_too(kafka):
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap)
    keep_finding_brokers(consumer)
    await consumer.start()
    try:
        _all_replaced(consumer._client)
        assert await consumer._client.force_metadata_update()
    finally:
        await consumer.stop()


@pytest.mark.timeout(60)
async def test_it_says_so_when_nobody_answers_at_any_address(kafka):
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap)
    keep_finding_brokers(producer)
    await producer.start()
    try:
        _all_replaced(producer.client)
        producer.client._bootstrap_servers = f"127.0.0.1:{free_port()}"
        assert not await producer.client.force_metadata_update()
    finally:
        await producer.client.close()
