"""Why no producer of ours has two requests in flight (docs/decisions/0063).

The first test is about Kafka, not about us. When it fails, a broker has learnt better, and the
decision may be looked at again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import NoError, OutOfOrderSequenceNumber, for_code
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from blendstream.streams.kafka.kafka_clients import producer_settings
from blendstream.streams.settings import Settings
from tests.kafka_topics import create_topic
from tests.service.settings import service_values

if TYPE_CHECKING:
    from blendstream.agents.local import GivenServer, LocalKafka

pytestmark = pytest.mark.integration


async def test_a_broker_takes_the_second_batch_of_a_producer_whose_first_it_refused(
    kafka: LocalKafka | GivenServer, name_prefix: str
) -> None:
    """Idempotence does not cover a partition's first batches: what came second stays alone.

    A first request that met a partition without a leader is refused and tried again; a second one
    in flight finds the leader. The broker knows nothing of this producer, takes it, and the first
    can never be written any more. librdkafka then tells its caller that both were.
    """
    create_topic(kafka.bootstrap, name_prefix)
    client = AIOKafkaClient(bootstrap_servers=kafka.bootstrap)
    await client.bootstrap()
    try:
        node = client.get_random_node()

        async def produce(sequence: int) -> Any:
            batch = DefaultRecordBatchBuilder(2, 0, 0, 987_654_321, 0, sequence, 1000)
            batch.append(0, 0, None, b"frame", [])
            topics = [(name_prefix, [(0, bytes(batch.build()))])]
            answer = await client.send(node, ProduceRequest(None, -1, 10_000, topics))
            return for_code(answer.topics[0][1][0][1])

        assert await produce(1) is NoError
        assert await produce(0) is OutOfOrderSequenceNumber
    finally:
        await client.close()


def test_our_producers_wait_for_each_answer() -> None:
    """Of aiokafka's, which the gateway uses, there is nothing to set: it never sends two."""
    settings = Settings.from_values(service_values())
    given = producer_settings(settings.kafka)
    assert given["max.in.flight.requests.per.connection"] == 1
    assert given["enable.idempotence"] is True
    assert given["acks"] == "all"
