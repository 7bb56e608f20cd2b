"""A hanging transaction, made on purpose: open on the partition, unknown to its coordinator.

A new producer id or epoch is taken for a transactional id, and a transactional batch is sent to the
partition's leader although the partition was never added to a transaction. Kafka 3.6 and newer
refuse that (`transaction.partition.verification.enable`), so the check is off for that moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import InitProducerIdRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

_CONCURRENT_TRANSACTIONS = 51
_INVALID_TXN_STATE = 48
_VERIFIED = "transaction.partition.verification.enable"


async def hang(
    bootstrap: str, topic: str, transactional_id: str, records: Sequence[tuple[bytes, bytes]]
) -> tuple[int, int, int]:
    """Leave keys and values behind in a hanging transaction: its producer id, epoch, offset."""
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    await client.bootstrap()
    try:
        async with unverified(bootstrap), asyncio.timeout(60):
            await client.set_topics([topic])
            coordinator = await client.coordinator_lookup(
                CoordinationType.TRANSACTION, transactional_id
            )
            while True:
                began = await client.send(
                    coordinator, InitProducerIdRequest(transactional_id, 60_000)
                )
                if began.error_code != _CONCURRENT_TRANSACTIONS:
                    break
                await asyncio.sleep(0.05)
            assert began.error_code == 0, began
            batch = DefaultRecordBatchBuilder(
                magic=2, compression_type=0, is_transactional=1, batch_size=1_000_000,
                producer_id=began.producer_id, producer_epoch=began.producer_epoch, base_sequence=0,
            )  # fmt: skip
            for number, (key, value) in enumerate(records):
                batch.append(number, round(time.time() * 1000), key, value, [])
            packed = bytes(batch.build())
            leader = client.cluster.leader_for_partition(TopicPartition(topic, 0))
            while True:
                request = ProduceRequest(transactional_id, -1, 10_000, [(topic, [(0, packed)])])
                sent = (await client.send(leader, request)).topics[0][1][0]
                if sent[1] != _INVALID_TXN_STATE:  # Else the check is still on.
                    break
                await asyncio.sleep(0.05)
            assert sent[1] == 0, sent
            return began.producer_id, began.producer_epoch, sent[2]
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def unverified(bootstrap: str) -> AsyncIterator[None]:
    """Brokers that append a transactional batch without asking its coordinator."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    async def change(operation: AlterConfigOpType) -> None:
        for broker in (await asyncio.to_thread(admin.list_topics, timeout=20)).brokers:
            entry = ConfigEntry(_VERIFIED, "false", incremental_operation=operation)
            which = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
            await asyncio.wrap_future(admin.incremental_alter_configs([which])[which])

    await change(AlterConfigOpType.SET)
    try:
        yield
    finally:
        await change(AlterConfigOpType.DELETE)
