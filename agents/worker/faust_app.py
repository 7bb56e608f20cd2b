"""The Faust app and its two agents: which topics are read, from where, and in which batches.

Offsets live in Redis beside the counts. Faust seeks to what the group committed at the end of every
rebalance, after all its own hooks; the consumer here answers that question from Redis instead.
Kafka's own commits go on, for tools that show a group's lag, and nothing relies on them.

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
#: A broker that has just come back may not know its topics yet. The worker that divides partitions
#: then assigns none, and looks again when what it knows of the cluster is as old as this: by
#: Faust's default after five minutes. Costs a request each time.
_METADATA_AGE_MS = 5_000
#: aiokafka has one fetch on its way to a broker. While the busy partitions' records are being
#: counted it asks for the quiet ones, and the broker keeps that question this long, by Faust's
#: value 1.5 s, in which nothing else is fetched. Smaller costs an idle worker more questions.
_FETCH_WAIT_MS = 50
#: Messages that Faust takes as one. More would save nothing: its 100 µs are shared by these.
_JOINED = 256


class JoinedMessages(bytes):
    """Messages of one partition that Faust takes as one: it costs as much for one as for many.

    Together no longer than a frame may be, so that buffers that count messages still bound bytes.
    """

    messages: Sequence[Message]

    @classmethod
    def of(cls, records: Sequence[ConsumerRecord[Any, Any]]) -> Iterator[ConsumerRecord[Any, Any]]:
        """Fewer records, each under the offset of the last message that it holds."""
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
    # Its lines are Faust's, not ours. The name is not one of Faust's own: mode replaces those of
    # a subclass by the subclass's module.
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
    """Seeks to what Redis has counted."""

    logger = logging.getLogger("faust.counting.consumer")

    def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
        return _ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def seek_to_committed(self) -> Mapping[TP, int]:
        # A failure here only delays: a partition without a seek is resumed, and sought,
        # by the counter when its first message comes or at the next check.
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
        #: Resuming a partition and seeking are one step to Faust. One that takes longer than it
        #: waits ends the task that handles assignments, in silence: nothing would be fetched any
        #: more.
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
            # Counts messages, not bytes, and no message is longer than a frame may be. The other
            # half of the bytes is for the next batch: see `batches`.
            stream_buffer_maxsize=max(16, worker.buffer_bytes // 2 // MAX_FRAME_BYTES),
            # With it, one message in flight would hold up every rebalance and every stop.
            stream_wait_empty=False,
            stream_recovery_delay=0.0,
        )
        self.transport = _Transport(self.conf.broker_consumer, self)
        self.on_partitions_revoked.connect(self._on_revoked)  # type: ignore[arg-type]

    async def on_first_start(self) -> None:
        """Faust would make a folder for its tables; we have none, and a worker that is killed would
        leave it behind.
        """

    async def _on_revoked(self, _app: faust.App, revoked: set[TP], **_: Any) -> None:
        for counter in self.counters.values():
            counter.give_up([tp.partition for tp in revoked if tp.topic == counter.topic.name])

    def add_counter(self, counter: TopicCounter, refused: OnRefused | None = None) -> None:
        """Count a topic: its agent is `count_client_reports` or `count_optin_records`.

        The counter has the partitions of its topic whenever they come and go. `refused` gets those
        entries that point to a fault in a sender.
        """
        name, stem = counter.topic.name, counter.stem
        self.counters[name] = counter

        async def count(frames: faust.StreamT[bytes]) -> None:
            """Frames → counts, once per Kafka offset however often redelivered."""
            async with contextlib.aclosing(batches(frames, self._worker_settings)) as taken:
                async for messages in taken:
                    summary = await counter.count(messages, refused)
                    if summary.total():  # A frame may hold nothing but the mark of a seal.
                        reports = stem is InputStream.CLIENT_REPORTS
                        event = "client_reports_counted" if reports else "optin_records_counted"
                        log.info(event, extra=dict(summary))

        topic = self.topic(name, value_type=bytes, value_serializer="raw")
        self.agent(topic, name=f"count_{stem}")(count)

    @property
    def coordinator_died(self) -> bool:
        """Whether the task that keeps this worker in its group has ended.

        The worker would keep its partitions until the session ends, and then wait for ever.
        """
        return coordination_ended(self.group_member) and not self.should_stop

    def unhandled_for_s(self) -> float:
        """For how long the group has seen this worker with other partitions than it counts.

        A rebalance takes a while. But on a very busy machine Faust may never hand an assignment
        on: the worker then keeps its place in the group, and no worker counts its partitions.
        """
        given: set[TP] = set()
        with contextlib.suppress(ConsumerNotStarted):
            given = {tp for tp in self.consumer.assignment() if tp.topic in self.counters}
        counted = {TP(name, n) for name, of in self.counters.items() for n in of.assigned}
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

        # One deadline for all. None for each: large ones load slowly side by side, and would all be
        # thrown away half loaded.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._resume_s):
                await asyncio.gather(*(one(tp) for tp in sorted(waiting)))
        for tp in sorted(waiting):
            log.warning(
                "partition_not_taken_up",
                extra={"topic": SafeText(tp.topic), "partition": tp.partition},
            )
        return offsets

    async def seek(self, topic: str, partition: int, offset: int) -> None:
        """Move the consumer within a partition, if it is (still) ours.

        Where that fails, a rebalance is under way or the broker is gone: the caller sees
        that the wanted records do not come, and asks again.
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
        """Fetch no more of these, and again of those that were paused and are not among them; a
        rebalance would let all of them flow again, so repeat it."""
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
    """Batches of messages by partition. Each is acknowledged once the caller has settled it.

    Settled means: counted, passed over, asked for again, or another worker's.
    A message that is never acknowledged would hold up rebalances and stops.
    While one batch is counted the next is gathered (Faust's own `noack_take` gathers only when
    no batch is counted, which left a worker idle for most of its time).
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
            # A script costs much the same for one frame as for many: not more than one in this time
            # unless there is more than enough.
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
    """The messages of a batch of events, by partition, each in the order it was delivered."""
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
