"""Send frames by an idempotent Kafka producer, which is replaced after an unrecoverable error.

Promises: a message is retried until every in-sync replica has it, or fails with an exception. A
producer that Kafka has fenced, that lost its sequence, or that has not delivered a message for
`_STUCK_S` fails its messages and is replaced; the senders of those frames get the verdict retry,
and their entries count once.
Assumes: the caller has its own deadline (`agents.gateway.state.frame_writer`), because aiokafka's
idempotent producer has none.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, KafkaTimeoutError, MessageSizeTooLargeError
from aiokafka.structs import RecordMetadata

from blendstream.streams.kafka.aiokafka_internals import discard_producer
from blendstream.streams.kafka.kafka_clients import aiokafka_settings
from blendstream.streams.settings.sections import KafkaSettings
from blendstream.streams.wire.frames import MAX_FRAME_BYTES

__all__ = ["FrameProducer", "make_producer"]

log = logging.getLogger(__name__)

_STOP_OLD_WITHIN_S = 5.0
_CLOSE_WITHIN_S = 0.5
_REPLACE_EVERY_S = 1.0
#: Time after which a stuck producer is replaced. It is longer than an election; until then senders
#: get 503. aiokafka requests metadata only from brokers that it knows. A new producer starts with
#: the brokers of the settings, so it finds brokers that replaced all that the old one knew.
_STUCK_S = 30.0
#: Maximum size of a request per partition, two frames: a partition that lags catches up faster than
#: with one, and a request stays below the brokers' usual limit of 1 MB.
_BATCH_BYTES = 2 * MAX_FRAME_BYTES + 4096


def make_producer(kafka: KafkaSettings) -> AIOKafkaProducer:
    """Return an idempotent producer that waits for every in-sync replica."""
    return AIOKafkaProducer(
        **aiokafka_settings(kafka),
        acks="all",
        enable_idempotence=True,
        linger_ms=0,
        max_batch_size=_BATCH_BYTES,
        max_request_size=_BATCH_BYTES,
    )


class FrameProducer:
    """The frame writer's producer; replaces the underlying one when it fails."""

    def __init__(self, make: Callable[[], AIOKafkaProducer]) -> None:
        """Take a factory of producers that are idempotent and wait for all in-sync replicas."""
        self._make = make
        self._producer: AIOKafkaProducer | None = None
        self._replacing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect; raise if Kafka is unavailable."""
        producer = self._make()
        try:
            await producer.start()
        except BaseException:
            with contextlib.suppress(Exception):
                await producer.stop()
            raise
        self._producer = producer

    async def send(
        self, topic: str, partition: int, value: bytes
    ) -> asyncio.Future[RecordMetadata]:
        """Send one message; the future resolves when Kafka has acknowledged it."""
        producer = self._producer
        if producer is None:
            raise ConnectionError("no producer is connected")
        try:
            sent: asyncio.Future[RecordMetadata] = await producer.send(
                topic, value, partition=partition
            )
        except KafkaError as error:
            self._replace_after(producer, error)
            raise
        stuck = asyncio.get_running_loop().call_later(
            _STUCK_S, self._replace_after, producer, ConnectionError("a message was not delivered")
        )
        sent.add_done_callback(partial(self._check_delivery, producer, stuck))
        return sent

    def _check_delivery(
        self,
        producer: AIOKafkaProducer,
        stuck: asyncio.TimerHandle,
        sent: asyncio.Future[RecordMetadata],
    ) -> None:
        stuck.cancel()
        if not sent.cancelled() and (error := sent.exception()) is not None:
            self._replace_after(producer, error)

    def _replace_after(self, broken: AIOKafkaProducer, error: BaseException) -> None:
        if isinstance(error, KafkaTimeoutError | MessageSizeTooLargeError):
            return
        if self._producer is broken and self._replacing is None:
            self._producer = None
            self._replacing = asyncio.create_task(self._start_another(broken))

    async def _start_another(self, broken: AIOKafkaProducer) -> None:
        log.warning("producer_replaced")
        stopping = asyncio.create_task(_stop(broken))
        while self._producer is None:
            try:
                await self.start()
            except Exception as error:
                log.warning("producer_not_started", exc_info=error)
                await asyncio.sleep(_REPLACE_EVERY_S)
        await stopping
        self._replacing = None

    async def stop(self, within_s: float) -> None:
        """Disconnect; messages that Kafka has not acknowledged yet are abandoned."""
        if self._replacing is not None:
            self._replacing.cancel()
        producer, self._producer = self._producer, None
        if producer is not None:
            await _stop(producer, within_s)


async def _stop(producer: AIOKafkaProducer, within_s: float = _STOP_OLD_WITHIN_S) -> None:
    with contextlib.suppress(Exception):
        async with asyncio.timeout(within_s):
            await producer.stop()
            return
    # Its remaining messages were not acknowledged, so their senders retry them.
    await discard_producer(producer, _CLOSE_WITHIN_S)
