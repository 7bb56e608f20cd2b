"""The Faust app: which topics are read, and from where.

Offsets live in Redis beside the counts. Faust seeks to what the group committed at the end of every
rebalance, after all its own hooks; the consumer here answers that question from Redis instead.
Kafka's own commits go on, for tools that show a group's lag, and nothing relies on them.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import faust
from faust.auth import SASLCredentials, SSLCredentials
from faust.transport.drivers.aiokafka import Consumer as AiokafkaConsumer
from faust.transport.drivers.aiokafka import Transport as AiokafkaTransport
from faust.types import TP, EventT, TransportT
from yarl import URL

from streams.errors import BlenderError
from streams.partitions import Message, PartitionCounter
from streams.records.frames import MAX_FRAME_BYTES
from streams.settings import Settings
from streams.settings.sections import KafkaSettings

__all__ = ["CountingApp", "by_partition"]

log = logging.getLogger(__name__)

_TAKE_UP_AT_ONCE = 8


class _Consumer(AiokafkaConsumer):
    """Seeks to what Redis has counted."""

    async def seek_to_committed(self) -> Mapping[TP, int]:
        # Whatever goes wrong here only delays: a partition without a seek is taken up, and sought,
        # by the counter when its first message comes or at the next check.
        app = cast(CountingApp, self.app)
        offsets = await app.take_up(self.assignment())
        if offsets:
            await self.seek_wait(offsets)
        return offsets


class _Transport(AiokafkaTransport):
    Consumer = _Consumer


class CountingApp(faust.App):
    """A Faust app whose partitions are counted by `PartitionCounter`s."""

    def __init__(self, settings: Settings, *, group: str) -> None:
        self.counters: dict[str, PartitionCounter] = {}
        self._take_up_s = settings.kafka.request_timeout_s / 2
        self._folder = tempfile.TemporaryDirectory(prefix="blendstream-worker-")
        worker, kafka = settings.worker, settings.kafka
        super().__init__(
            group,
            broker=[URL(f"kafka://{host}") for host in kafka.bootstrap.split(",")],
            broker_credentials=_credentials(kafka),
            broker_request_timeout=kafka.request_timeout_s,
            broker_session_timeout=worker.session_timeout_s,
            broker_heartbeat_interval=worker.session_timeout_s / 5,
            broker_commit_interval=2.0,
            # Never relied on: every partition is sought to Redis's offset before it is counted.
            consumer_auto_offset_reset="earliest",
            datadir=Path(self._folder.name) / "data",
            store="memory://",
            autodiscover=False,
            web_enabled=False,
            topic_allow_declare=False,
            topic_disable_leader=True,
            # Counts messages, not bytes, and no message is longer than a frame may be.
            stream_buffer_maxsize=max(16, worker.buffer_bytes // MAX_FRAME_BYTES),
            # With it, one message in flight would hold up every rebalance and every stop.
            stream_wait_empty=False,
            stream_recovery_delay=0.0,
        )
        self.on_partitions_revoked.connect(self._on_revoked)

    async def _on_revoked(self, _app: faust.App, revoked: set[TP], **_: Any) -> None:
        for counter in self.counters.values():
            counter.give_up([tp.partition for tp in revoked if tp.topic == counter.topic.name])

    def _new_transport(self) -> TransportT:
        return _Transport(self.conf.broker_consumer, self)

    def add_counter(self, counter: PartitionCounter) -> None:
        """Let a counter have the partitions of its topic whenever they come and go."""
        self.counters[counter.topic.name] = counter

    async def take_up(self, assignment: set[TP]) -> dict[TP, int]:
        """Take exactly these partitions up, and say where each goes on."""
        for counter in self.counters.values():
            counter.assign(
                sorted(tp.partition for tp in assignment if tp.topic == counter.topic.name)
            )
        limit = asyncio.Semaphore(_TAKE_UP_AT_ONCE)
        offsets: dict[TP, int] = {}

        async def one(tp: TP) -> None:
            async with limit:
                try:
                    async with asyncio.timeout(self._take_up_s):
                        offset = await self.counters[tp.topic].take_up(tp.partition)
                except (BlenderError, TimeoutError) as error:
                    log.warning(
                        "partition_not_taken_up",
                        extra={"partition": tp.partition, "why": type(error).__name__},
                    )
                else:
                    if offset is not None:
                        offsets[tp] = offset

        await asyncio.gather(*(one(tp) for tp in assignment if tp.topic in self.counters))
        return offsets

    async def seek(self, topic: str, partition: int, offset: int) -> None:
        """Move the consumer within a partition, if it is (still) ours."""
        tp = TP(topic, partition)
        if tp in self.consumer.assignment():
            await self.consumer.seek_wait({tp: offset})

    def pause(self, topic: str, partitions: Iterable[int]) -> None:
        """Fetch no more of these; a rebalance would let them flow again, so repeat it."""
        wanted = {TP(topic, partition) for partition in partitions}
        self.consumer.pause_partitions(wanted & self.consumer.assignment())


def by_partition(events: Iterable[EventT]) -> dict[int, list[Message]]:
    """The messages of a batch of events, by partition, each in the order it was delivered."""
    found: dict[int, list[Message]] = {}
    for event in events:
        message = event.message
        found.setdefault(message.partition, []).append(
            Message(message.offset, round(message.timestamp * 1000), message.value)
        )
    return found


def _credentials(kafka: KafkaSettings) -> Any:
    context = None
    if kafka.tls:
        context = ssl.create_default_context(cafile=kafka.tls_ca_file)
        if kafka.tls_certificate_file is not None:
            context.load_cert_chain(
                kafka.tls_certificate_file,
                kafka.tls_key_file,
                kafka.tls_key_password.reveal() or None,
            )
    if kafka.sasl_mechanism != "none":
        return SASLCredentials(
            mechanism=kafka.sasl_mechanism,
            username=kafka.user,
            password=kafka.password.reveal(),
            ssl_context=context,
        )
    return SSLCredentials(context) if context is not None else None
