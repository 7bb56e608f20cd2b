"""Brokers that are all replaced are found again by the addresses in the settings.

aiokafka asks the brokers of its last answer and no others: when all of them were replaced by new
ones under the address that the settings name, a gateway answered 503 until it was restarted.
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.structs import BrokerMetadata

from blendstream.agents.gateway.submit import frame_producer
from blendstream.agents.gateway.submit.frame_producer import FrameProducer, make_producer
from blendstream.agents.local.ports import free_port
from blendstream.streams.settings.fields import Url
from blendstream.streams.settings.sections import KafkaSettings


@pytest.mark.timeout(120)
async def test_a_gateway_finds_brokers_that_took_the_place_of_all_it_knew(
    kafka, make_topic, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(frame_producer, "_STUCK_S", 1.0)
    monkeypatch.setattr(frame_producer, "_STOP_OLD_WITHIN_S", 0.5)
    made: list[AIOKafkaProducer] = []

    def make() -> AIOKafkaProducer:
        made.append(make_producer(KafkaSettings(url=Url(kafka.url))))
        return made[-1]

    topic, producer = make_topic(), FrameProducer(make)
    send = partial(producer.send, topic, 0)
    await producer.start()
    try:
        await (await send(b"w"))
        # What it knows is one broker that is gone.
        gone = {7: BrokerMetadata(7, "127.0.0.1", free_port(), None)}
        made[0].client.cluster._brokers = gone
        for connection in made[0].client._conns.values():
            connection.close()
        stuck = await send(b"x")
        with pytest.raises(ConnectionError, match="could not be flushed"):
            await asyncio.wait_for(stuck, 60)
        assert len(made) == 2
        await asyncio.wait_for(await send(b"y"), 30)
    finally:
        await producer.stop(2.0)
