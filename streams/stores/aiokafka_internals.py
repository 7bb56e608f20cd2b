"""The parts of aiokafka that it does not document, for the whole service: nothing else uses any.

Tested with aiokafka>=0.14,<0.15. Raise the bound only when the tests named here pass:

    AIOKafkaConsumer._fetch_max_wait_ms        tests/integration/test_counting.py
    AIOKafkaConsumer._coordinator, and its
        _coordination_task                     tests/integration/test_counting.py
    AIOKafkaProducer._sender, .client and
        ._message_accumulator                  tests/faults/test_gateway_faults.py
    client, conn, protocol.api, .types and
        .metadata                              tests/integration/test_kafka_transactions.py
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import create_conn
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)  # fmt: skip

__all__ = [
    "AIOKafkaClient", "Boolean", "CompactArray", "CompactString", "Int16", "Int32", "Int64",
    "Schema", "TaggedFields",
    "ask_metadata", "coordination_ended", "discard_producer", "request_type", "set_fetch_wait",
]  # fmt: skip


def set_fetch_wait(consumer: AIOKafkaConsumer, wait_ms: int) -> None:
    """How long a broker may keep a fetch that finds nothing; Faust sets its own value."""
    consumer._fetch_max_wait_ms = wait_ms


def coordination_ended(consumer: AIOKafkaConsumer | None) -> bool:
    """Whether the task that keeps this consumer in its group has ended; aiokafka is silent."""
    task = getattr(getattr(consumer, "_coordinator", None), "_coordination_task", None)
    return task is not None and task.done()


async def discard_producer(producer: AIOKafkaProducer, within_s: float) -> None:
    """Close a producer that does not stop, and fail what it holds.

    A partition without a leader takes nothing, and aiokafka waits for it before it closes anything:
    its sender and its connections would stay for ever.
    """
    sending = None if producer._sender is None else producer._sender.sender_task
    if sending is not None:
        sending.cancel()  # It ends when the requests under way have, which closing brings about.
    with contextlib.suppress(Exception):
        async with asyncio.timeout(within_s):
            await producer.client.close()
    if sending is not None:
        await asyncio.wait({sending}, timeout=within_s)
        sending.cancel()
    producer._message_accumulator.fail_all(ConnectionError("the producer could not be flushed"))


async def ask_metadata(host: str, port: int) -> Any:
    """What this one node says of the cluster. A client would ask any node that it knows."""
    connection = await create_conn(host, port)
    try:
        return await connection.send(MetadataRequest())
    finally:
        connection.close()


def request_type(name: str, key: int, version: int, asked: Schema, answered: Schema) -> Any:
    """A request that aiokafka lacks, as it sends them: called with its fields, in their order."""
    about = {"API_KEY": key, "API_VERSION": version}
    response = type(f"{name}Response", (Response,), {**about, "SCHEMA": answered})
    flexible = {"FLEXIBLE_VERSION": True, "RESPONSE_TYPE": response, "SCHEMA": asked}
    packed = type(f"{name}Request_v{version}", (RequestStruct,), {**about, **flexible})

    class Asked(Request[packed]):  # type: ignore[misc]
        API_KEY = key

        def __init__(self, *fields: Any) -> None:
            self._fields = fields

        def build(self, packed: Any) -> Any:
            return packed(*self._fields)

    return Asked
