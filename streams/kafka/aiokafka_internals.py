"""Every use of undocumented parts of aiokafka in this service.

Tested with aiokafka>=0.14,<0.15. Raise the bound only when the tests named here pass:

    AIOKafkaConsumer._fetch_max_wait_ms        tests/integration/test_counting.py
    AIOKafkaConsumer._coordinator, and its
        _coordination_task                     tests/integration/test_counting.py
    AIOKafkaProducer._sender, .client and
        ._message_accumulator                  tests/faults/test_gateway_faults.py
"""

from __future__ import annotations

import asyncio
import contextlib

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

__all__ = ["coordination_ended", "discard_producer", "set_fetch_wait"]


def set_fetch_wait(consumer: AIOKafkaConsumer, wait_ms: int) -> None:
    """Set how long a broker may delay an empty fetch response; Faust sets another value."""
    consumer._fetch_max_wait_ms = wait_ms


def coordination_ended(consumer: AIOKafkaConsumer | None) -> bool:
    """Return True if the consumer's group task has ended, which aiokafka does not report."""
    task = getattr(getattr(consumer, "_coordinator", None), "_coordination_task", None)
    return task is not None and task.done()


async def discard_producer(producer: AIOKafkaProducer, within_s: float) -> None:
    """Close a producer that does not stop, and fail its buffered messages.

    A partition without a leader accepts nothing, and aiokafka waits for it before it closes
    anything: its sender and its connections would stay open permanently.
    """
    sending = None if producer._sender is None else producer._sender.sender_task
    if sending is not None:
        sending.cancel()  # It ends with the requests in flight, which closing the client ends.
    with contextlib.suppress(Exception):
        async with asyncio.timeout(within_s):
            await producer.client.close()
    if sending is not None:
        await asyncio.wait({sending}, timeout=within_s)
        sending.cancel()
    producer._message_accumulator.fail_all(ConnectionError("the producer could not be flushed"))
