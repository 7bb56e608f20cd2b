"""The Faust app and its two agents, which read the input topics in batches.

Redis stores the offsets with the counts. At the end of every rebalance, after all its own hooks,
Faust seeks to the offsets that the group committed; the consumer here uses Redis's offsets instead.
The group still commits offsets to Kafka, for tools that show a group's lag; nothing relies on them.

Private parts of Faust and mode are used here and nowhere else. Tested with
faust-streaming>=0.15.3,<0.16; raise the bound only when tests/integration/test_counting*.py and
tests/faults/test_counting_*.py pass:

    transport.drivers.aiokafka      its consumer, consumer thread and transport, subclassed
    Consumer._new_consumer_thread, .seek_to_committed
    AIOKafkaConsumerThread._create_worker_consumer, .getmany
    Stream.enable_acks, .ack
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import math
import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, cast

import faust
from aiokafka import AIOKafkaConsumer, ConsumerRecord
from aiokafka.errors import KafkaError
from faust.auth import SASLCredentials, SSLCredentials
from faust.exceptions import ConsumerNotStarted, FaustError
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread
from faust.transport.drivers.aiokafka import Consumer as AiokafkaConsumer
from faust.transport.drivers.aiokafka import Transport as AiokafkaTransport
from faust.types import TP, EventT
from yarl import URL

from blendstream.agents.worker import metrics
from blendstream.agents.worker.frame_batches import Message
from blendstream.agents.worker.topic_counter import OnRefused, TopicCounter
from blendstream.blender.values.errors import BlenderError
from blendstream.streams.kafka.aiokafka_internals import coordination_ended, set_fetch_wait
from blendstream.streams.kafka.kafka_clients import ssl_context
from blendstream.streams.names import InputStream
from blendstream.streams.settings import Settings
from blendstream.streams.settings.sections import KafkaSettings, WorkerSettings
from blendstream.streams.telemetry.structured_logs import SafeText
from blendstream.streams.wire.frames import MAX_FRAME_BYTES

__all__ = ["CountingApp", "batches"]

log = logging.getLogger(__name__)

_RESUMED_AT_ONCE = 8
#: Maximum age of metadata (Faust: five minutes). A broker that has just restarted may not know its
#: topics yet. The worker that divides partitions then assigns none, and checks again when its
#: metadata reach this age. Each check costs a request.
_METADATA_AGE_MS = 5_000
#: Maximum time for which a broker delays an empty fetch response (Faust: 1.5 s). aiokafka has one
#: fetch per broker in flight. While the worker counts records of busy partitions, that fetch is for
#: the other partitions, and the worker fetches nothing else until it ends. With a shorter time an
#: idle worker sends more requests.
_FETCH_WAIT_MS = 50
#: Number of messages that Faust handles as one, to share its cost of 100 µs. More saves nothing.
_JOINED = 256


class JoinedMessages(bytes):
    """Messages of one partition that Faust handles as one, since its cost is per message.

    They are together no longer than the maximum frame, so a limit on messages also limits bytes.
    """

    messages: Sequence[Message]

    @classmethod
    def of(cls, records: Sequence[ConsumerRecord[Any, Any]]) -> Iterator[ConsumerRecord[Any, Any]]:
        """Join records; each result has the offset of the last message that it contains."""
        run: list[Message] = []
        size = 0
        for record, following in zip_longest(records, records[1:]):
            run.append(Message(record.offset, record.timestamp, record.value))
            size += len(record.value or b"")
            if (
                following is None
                or len(run) == _JOINED
                or size + len(following.value or b"") > MAX_FRAME_BYTES
            ):
                joined = cls()
                joined.messages = run
                yield dataclasses.replace(record, value=joined)
                run, size = [], 0


class _ConsumerThread(AIOKafkaConsumerThread):
    # Log lines of this class are Faust's. The name must differ from Faust's names: mode replaces
    # those, in a subclass, by the subclass's module.
    logger = logging.getLogger("faust.counting.consumer_thread")

    def _create_worker_consumer(self, transport: AiokafkaTransport) -> AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        set_fetch_wait(consumer, _FETCH_WAIT_MS)
        cast(CountingApp, self.app).group_member = consumer
        return consumer

    async def getmany(self, *arguments: Any, **options: Any) -> Any:
        fetched = await super().getmany(*arguments, **options)
        return {tp: list(JoinedMessages.of(records)) for tp, records in fetched.items()}


class _Consumer(AiokafkaConsumer):
    """Seeks to the offsets that Redis has counted."""

    logger = logging.getLogger("faust.counting.consumer")

    def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
        return _ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def seek_to_committed(self) -> Mapping[TP, int]:
        # A failure here only delays: the counter resumes and seeks such a partition when its first
        # message arrives or at the next check.
        app = cast(CountingApp, self.app)
        offsets = await app.resume_partitions(self.assignment())
        if offsets:
            await self.seek_wait(offsets)
        return offsets


class _Transport(AiokafkaTransport):
    Consumer = _Consumer


class CountingApp(faust.App):
    """A Faust app whose partitions are counted by `TopicCounter`s."""

    logger = logging.getLogger("faust.app")

    def __init__(self, settings: Settings, *, group: str) -> None:
        self.counters: dict[str, TopicCounter] = {}
        #: aiokafka's own consumer, once there is one.
        self.group_member: AIOKafkaConsumer | None = None
        self._differs_since: float | None = None
        self._paused: dict[str, set[TP]] = {}
        worker, kafka = settings.worker, settings.kafka
        self._worker_settings = worker
        # Faust wants it above the session's, because joining a group may take that long.
        faust_waits_s = max(kafka.request_timeout_s, worker.session_timeout_s + 5)
        #: Faust waits for resuming and seeking together. After a timeout, the task that handles
        #: assignments ends silently, and the worker would never fetch again.
        self._resume_s = faust_waits_s / 2
        super().__init__(
            group,
            broker=[URL(f"kafka://{host}") for host in kafka.bootstrap.split(",")],
            broker_credentials=_credentials(kafka),
            broker_request_timeout=faust_waits_s,
            broker_session_timeout=worker.session_timeout_s,
            broker_heartbeat_interval=worker.session_timeout_s / 5,
            broker_commit_interval=2.0,
            consumer_metadata_max_age_ms=_METADATA_AGE_MS,
            # Never relied on: every partition is sought to Redis's offset before it is counted.
            consumer_auto_offset_reset="earliest",
            store="memory://",
            autodiscover=False,
            web_enabled=False,
            topic_allow_declare=False,
            topic_disable_leader=True,
            # Counts messages, not bytes, and no message is longer than the maximum frame. The other
            # half of the bytes is for the next batch: see `batches`.
            stream_buffer_maxsize=max(16, worker.buffer_bytes // 2 // MAX_FRAME_BYTES),
            # With it, one message in flight would hold up every rebalance and every stop.
            stream_wait_empty=False,
            stream_recovery_delay=0.0,
        )
        self.transport = _Transport(self.conf.broker_consumer, self)
        self.on_partitions_revoked.connect(self._on_revoked)  # type: ignore[arg-type]

    async def on_first_start(self) -> None:
        """Skip Faust's creation of a folder for its tables, which this app does not use."""

    async def _on_revoked(self, _app: faust.App, revoked: set[TP], **_: Any) -> None:
        for counter in self.counters.values():
            counter.revoke([tp.partition for tp in revoked if tp.topic == counter.topic.name])

    def add_counter(self, counter: TopicCounter, refused: OnRefused | None = None) -> None:
        """Count a topic with an agent, `count_client_reports` or `count_optin_records`.

        The app tells the counter its assigned partitions. `refused` receives the entries that
        indicate a fault in a sender.
        """
        name, stem = counter.topic.name, counter.stem
        self.counters[name] = counter

        async def count(frames: faust.StreamT[bytes]) -> None:
            """Count frames, once per Kafka offset however often Kafka delivers them."""
            async with contextlib.aclosing(batches(frames, self._worker_settings)) as taken:
                async for messages in taken:
                    summary = await counter.count(messages, refused)
                    if summary.total():  # A frame may contain only the marker of a seal.
                        reports = stem is InputStream.CLIENT_REPORTS
                        event = "client_reports_counted" if reports else "optin_records_counted"
                        log.info(event, extra=dict(summary))

        topic = self.topic(name, value_type=bytes, value_serializer="raw")
        self.agent(topic, name=f"count_{stem}")(count)

    @property
    def coordinator_died(self) -> bool:
        """True if the task that keeps this worker in its group has ended.

        The worker would keep its partitions until the session ends, and then wait forever.
        """
        return coordination_ended(self.group_member) and not self.should_stop

    def unhandled_for_s(self) -> float:
        """Return how long the group's assignment has differed from the counted partitions.

        A rebalance takes some time. But on a very busy machine Faust may never deliver an
        assignment: the worker then stays in the group, and no worker counts its partitions.
        """
        given: set[TP] = set()
        with contextlib.suppress(ConsumerNotStarted):
            given = {tp for tp in self.consumer.assignment() if tp.topic in self.counters}
        counted = {TP(name, n) for name, each in self.counters.items() for n in each.assigned}
        now = time.monotonic()
        if given == counted:
            self._differs_since = None
        elif self._differs_since is None:
            self._differs_since = now
        return 0.0 if self._differs_since is None else now - self._differs_since

    async def resume_partitions(self, assignment: set[TP]) -> dict[TP, int]:
        """Resume exactly these partitions; return the offset of each that was ready in time."""
        metrics.REBALANCES.inc()
        for counter in self.counters.values():
            counter.assign(
                sorted(tp.partition for tp in assignment if tp.topic == counter.topic.name)
            )
        limit = asyncio.Semaphore(_RESUMED_AT_ONCE)
        offsets: dict[TP, int] = {}
        waiting = {tp for tp in assignment if tp.topic in self.counters}

        async def one(tp: TP) -> None:
            async with limit:
                with contextlib.suppress(BlenderError, TimeoutError):
                    offset = await self.counters[tp.topic].resume(tp.partition)
                    waiting.discard(tp)
                    if offset is not None:
                        offsets[tp] = offset

        # One deadline for all, none per partition: large ones load slowly when loaded concurrently,
        # and separate deadlines would discard all of them half loaded.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._resume_s):
                await asyncio.gather(*(one(tp) for tp in sorted(waiting)))
        for tp in sorted(waiting):
            log.warning(
                "partition_not_resumed",
                extra={"topic": SafeText(tp.topic), "partition": tp.partition},
            )
        return offsets

    async def seek(self, topic: str, partition: int, offset: int) -> None:
        """Move the consumer within a partition, if the partition is (still) assigned.

        It fails during a rebalance or when the broker is unavailable: the caller notices that the
        wanted records do not arrive, and retries.
        """
        tp = TP(topic, partition)
        try:
            if tp in self.consumer.assignment():
                await self.consumer.seek_wait({tp: offset})
        except (FaustError, KafkaError, TimeoutError):
            log.warning(
                "seek_failed",
                extra={"topic": SafeText(topic), "partition": partition},
                exc_info=True,
            )

    def pause(self, topic: str, partitions: Iterable[int]) -> None:
        """Pause fetching of exactly these partitions. A rebalance undoes it, so call it again."""
        try:
            ours = self.consumer.assignment()
        except ConsumerNotStarted:
            return  # Nothing is fetched yet.
        wanted = {TP(topic, partition) for partition in partitions}
        before, self._paused[topic] = self._paused.get(topic, set()), wanted
        self.consumer.pause_partitions(wanted & ours)
        self.consumer.resume_partitions((before - wanted) & ours)


async def batches(
    frames: faust.StreamT[bytes], settings: WorkerSettings
) -> AsyncGenerator[dict[int, list[Message]], None]:
    """Yield batches of messages by partition; acknowledge each when the caller asks for the next.

    By then the caller has counted, skipped or requested again every message, or another worker has
    its partition. A message that is never acknowledged would delay rebalances and stops.
    The next batch is gathered while the caller counts one (Faust's own `noack_take` gathers only
    when no batch is counted, which left a worker idle for most of its time).
    """
    gathered: list[EventT[bytes]] = []
    gathered_frames = gathered_bytes = 0
    some, room = asyncio.Event(), asyncio.Event()
    cast(Any, frames).enable_acks = False  # They are acknowledged here.

    def enough() -> bool:
        return (
            gathered_frames >= settings.batch_frames or gathered_bytes >= settings.buffer_bytes // 2
        )

    async def gather() -> None:
        nonlocal gathered_frames, gathered_bytes
        async for event in frames.events():
            gathered.append(event)
            messages = _messages(event)
            gathered_frames += len(messages)
            gathered_bytes += sum(len(message.value or b"") for message in messages)
            some.set()
            if enough():
                room.clear()
                await room.wait()

    gathering = asyncio.create_task(gather())
    gathering.add_done_callback(lambda _: some.set())
    began = -math.inf
    try:
        while True:
            if not gathering.done():
                await some.wait()
            if gathering.done():
                gathering.result()
                return
            # A script costs about the same for one frame as for many: run at most one in this time
            # unless a full batch is waiting.
            rest_s = began + settings.batch_wait_s - time.monotonic()
            if rest_s > 0 and not enough():
                await asyncio.sleep(rest_s)
            began = time.monotonic()
            events = gathered.copy()
            gathered.clear()
            gathered_frames = gathered_bytes = 0
            some.clear()
            room.set()
            try:
                yield _by_partition(events)
            finally:
                for event in events:
                    await cast(Any, frames).ack(event)
    finally:
        gathering.cancel()


def _by_partition(events: Iterable[EventT[bytes]]) -> dict[int, list[Message]]:
    """Group the messages of a batch of events by partition, in the order of delivery."""
    found: dict[int, list[Message]] = {}
    for event in events:
        found.setdefault(event.message.partition, []).extend(_messages(event))
    return found


def _messages(event: EventT[bytes]) -> Sequence[Message]:
    return cast(JoinedMessages, event.message.value).messages


def _credentials(kafka: KafkaSettings) -> Any:
    context = ssl_context(kafka)
    if kafka.sasl_mechanism != "none":
        return SASLCredentials(
            mechanism=kafka.sasl_mechanism,
            username=kafka.user,
            password=kafka.password.reveal(),
            ssl_context=context,
        )
    return SSLCredentials(context) if context is not None else None
