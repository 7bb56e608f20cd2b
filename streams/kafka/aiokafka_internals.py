"""The parts of aiokafka that it does not document, for the whole service: nothing else uses any.

Tested with aiokafka>=0.14,<0.15. Raise the bound only when the tests named here pass:

    AIOKafkaConsumer._fetch_max_wait_ms        tests/integration/test_counting.py
    AIOKafkaConsumer._coordinator, and its
        _coordination_task                     tests/integration/test_counting.py
    AIOKafkaProducer._sender, .client and
        ._message_accumulator                  tests/faults/test_gateway_faults.py
    client, conn, protocol.api, .types and
        .metadata                              tests/integration/test_kafka_transactions.py,
                                               tests/faults/test_frozen_leader.py
    AIOKafkaClient._metadata_update, its
        settings, AIOKafkaConsumer._client     tests/integration/test_finding_brokers.py
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.errors import KafkaError
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
    "ask_metadata", "coordination_ended", "create_conn", "discard_producer", "keep_finding_brokers",
    "request_type", "set_fetch_wait",
]  # fmt: skip

log = logging.getLogger(__name__)
#: A client says once in this time that no broker answers.
SILENT_S = 10.0


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


def keep_finding_brokers(user: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    """Let a client look brokers up by connections of its own, and in the settings if need be.

    aiokafka asks by the connection that its requests travel on. A broker answers a connection's
    requests in order, so the question who leads now waited behind a write that waited for a dead
    replica, until both timed out. And it asks the brokers of its last answer only: should all of
    them be replaced, it would look for them for ever.
    """
    client = user.client if isinstance(user, AIOKafkaProducer) else user._client
    turns = itertools.count()
    complained_s = -SILENT_S

    async def look_up(cluster: Any, topics: Any) -> bool:
        nonlocal complained_s
        known = [(broker.host, broker.port) for broker in client.cluster.brokers()]
        named = [(host, port) for host, port, _ in client.hosts]
        # Another one first each time: one that was cut off answers too, and is wrong.
        first = next(turns) % max(1, len(known))
        for host, port in dict.fromkeys([*known[first:], *known[:first], *named]):
            answer = await _ask(client, host, port, MetadataRequest(list(topics or ()) or None))
            if answer is not None and answer.brokers:
                cluster.update_metadata(answer)
                return True
        if time.monotonic() >= complained_s + SILENT_S:  # It asks up to thirty times a second.
            complained_s = time.monotonic()
            log.warning("no_broker_answered")
        cluster.failed_update(None)
        return False

    client._metadata_update = look_up


async def _ask(client: Any, host: str, port: int, request: Any) -> Any:
    """One question to one broker; None if it does not answer soon enough to ask another."""
    connection = AIOKafkaConnection(
        host,
        port,
        client_id=client._client_id,
        request_timeout_ms=client._request_timeout_ms,
        ssl_context=client._ssl_context,
        security_protocol=client._security_protocol,
        sasl_mechanism=client._sasl_mechanism,
        sasl_plain_username=client._sasl_plain_username,
        sasl_plain_password=client._sasl_plain_password,
    )
    try:
        async with asyncio.timeout(client._request_timeout_ms / 1000 / 2):
            await connection.connect()
            return await connection.send(request)
    except (KafkaError, OSError, TimeoutError):
        return None
    finally:
        connection.close()


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
