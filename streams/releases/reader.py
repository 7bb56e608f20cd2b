"""The reader of the release log that gateways, workers, jobs and verbs share.

It folds committed records into a `ReleaseLogState`, and is used in two ways:

    to follow   `LogFollower`: read to an end that Kafka reports. That end may be too low, since
                a broker that was cut off from its peers reports an old one
                (`streams.kafka.kafka_clients`). Where that would do harm, it reads to the furthest
                end that any broker reports, or as far as a frame's writer had read (`read_for`).
    to decide   `read_until`: read until a record of our own is seen (`streams.releases.log`).
                Where the log ends is never asked.

An end is the one that readers of uncommitted records see when the question is asked, and is reached
when the reader of committed ones has passed it, however long an open transaction holds it up.

Promises: records are folded once, in the log's order, on the event loop. None is passed over: what
was fetched and not folded, because of an error or because a caller gave up waiting, is fetched
again or folded before anything else. A consumer that shows nothing new although there is more is
replaced: its server may have been cut off, and another may know more. So is one that has shown
nothing new for `RENEW_AFTER_S`, because whether there is more cannot be learnt from its server.

Decision: docs/decisions/0152-no-search-for-leaders-of-our-own.md
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from blendstream.streams.budget.ledger import Ledger
from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.kafka.kafka_clients import KafkaInspector, librdkafka_settings
from blendstream.streams.releases.epoch_state import ReleaseLogState
from blendstream.streams.releases.log_consumer import LogConsumer, LogRecord
from blendstream.streams.settings.sections import KafkaSettings

__all__ = ["LogFollower", "LogListener", "LogReader", "UnknownFrame"]

log = logging.getLogger(__name__)

T = TypeVar("T")

#: A consumer that shows nothing new for this long, although there is more, may be answered by a
#: server that is cut off: open another. Shorter opens consumers for nothing while a transaction is
#: under way; longer adds to the time that a cut costs. Doubled each time: a slow machine needs
#: longer to open a consumer than a stale one deserves.
REOPEN_AFTER_S = 3.0
#: A quiet consumer is replaced after this long. librdkafka asks the broker that it reads from who
#: leads, and a broker that was cut off names itself; a new consumer asks any of `kafka.url`.
#: Shorter opens consumers of a quiet log for nothing; longer adds to the time that a cut costs.
RENEW_AFTER_S = 15.0
#: How long closing waits for a read that is under way.
_CLOSE_S: Final = 2.0
#: Every broker is asked at most so often, however many partitions wait for the same.
_ASK_ALL_EVERY_S: Final = 1.0


def _system_ms() -> int:
    return time.time_ns() // 1_000_000


class LogListener(Protocol):
    """Turns what is read into something else, before `position` says that it was read."""

    def take(self, log_state: ReleaseLogState, record: LogRecord) -> None:
        """A record was folded into the log state."""
        ...

    def publish(self, log_state: ReleaseLogState) -> None:
        """All records that were fetched together were."""
        ...


class LogReader:
    """One process's log state, and the consumer that it is read with."""

    def __init__(
        self,
        kafka: KafkaSettings,
        topic: str,
        *,
        since_ms: int | None = None,
        listener: LogListener | None = None,
        now_ms: Callable[[], int] = _system_ms,
    ) -> None:
        """Reading begins at the last checkpoint, or with what was appended at `since_ms`.

        Either way the log's age costs nothing.
        """
        self._settings = librdkafka_settings(kafka)
        self._timeout_s = kafka.request_timeout_s
        self._topic = topic
        self._since_ms = since_ms
        self._listener = listener
        self._now_ms = now_ms
        self._log_state: ReleaseLogState | None = None
        self._consumer: LogConsumer | None = None
        self._renew_at = 0.0
        self._reading = asyncio.Lock()
        self._under_way: set[asyncio.Task[Any]] = set()
        #: Everything below this offset was read, and the listener has it.
        self.position = 0
        self._moved = asyncio.Event()
        self._closing = False

    @property
    def log_state(self) -> ReleaseLogState:
        """What was read so far. It changes as the log is read on."""
        if self._log_state is None:
            raise StoreUnavailable("the release log was not read yet")
        return self._log_state

    async def step(
        self, needed: Callable[[ReleaseLogState], bool] = lambda _log_state: True
    ) -> bool:
        """Read and fold what comes next, if `needed`; whether anything came within a moment."""
        return await self._undisturbed(self._step(needed))

    async def catch_up(self) -> ReleaseLogState:
        """Read to the committed end that one server reports: true, but perhaps not the newest.

        Enough to look whether anything is due, to show, and to publish what was committed. Never
        to decide: only a turn does.
        """
        return await self._undisturbed(self._catch_up())

    async def read_until(self, fence_id: str, within_s: float) -> ReleaseLogState:
        """Read until this record of ours is seen, by as many servers as that takes."""
        started = time.monotonic()
        if not await self._read_while(
            lambda log_state: fence_id not in log_state.fence_ids, within_s
        ):
            raise StoreUnavailable(
                "the release log must show a record that Kafka has acknowledged, and did not for "
                f"{time.monotonic() - started:.0f} s: a transaction before it is still open, or a "
                "broker is cut off from its peers. Run `blendstream doctor`"
            )
        return self.log_state

    async def reopen(self) -> None:
        """Read on with another consumer: a server that was cut off answers without an error."""
        async with self._reading:
            await self._drop_consumer()

    async def with_dedicated_consumer(self, read: Callable[[LogConsumer], T]) -> T:
        """Use a consumer of its own, in a thread; the log state stays as it is."""

        def used() -> T:
            consumer = self._new_consumer()
            try:
                return read(consumer)
            finally:
                consumer.close()

        return await asyncio.to_thread(used)

    async def close(self) -> None:
        """Close the connection. A read that hangs is left to the end of the process."""
        self._closing = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S), self._reading:
                await self._drop_consumer()

    async def _undisturbed(self, reading: Coroutine[Any, Any, T]) -> T:
        # A caller that gives up waiting cannot end the thread that reads. It must stay the only
        # one: of two, the first to reach the end would call an epoch unknown whose entry the other
        # has in hand.
        task = asyncio.create_task(reading)
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # Its caller has it; one who gave up will ask again anyway.

    async def _read_while(self, needed: Callable[[ReleaseLogState], bool], within_s: float) -> bool:
        """Read on while more is needed; False when nothing more came and the time is up."""
        if self._log_state is None:
            await self.step(
                lambda _log_state: False
            )  # Looking for the start is no part of that time.
        started = moved = time.monotonic()
        patience_s = REOPEN_AFTER_S
        while True:
            # One step at a time: another reader of this process may bring what ends our wait.
            came = await self.step(needed)
            if not needed(self.log_state):
                return True
            now = time.monotonic()
            if came:
                moved = now
            if came or now < min(moved + patience_s, started + within_s):
                continue
            await self.reopen()
            log.warning("release_log_waits", extra={"seconds": round(now - started)})
            if now >= started + within_s:
                return False
            moved, patience_s = now, min(2 * patience_s, self._timeout_s)

    async def _step(self, needed: Callable[[ReleaseLogState], bool]) -> bool:
        async with self._reading:
            log_state = await self._opened_log_state()
            if not needed(log_state):
                return False
            before = log_state.read_upto
            await self._fold_some(log_state, await self._opened_consumer(before))
            return log_state.read_upto > before

    async def _catch_up(self) -> ReleaseLogState:
        async with self._reading:
            log_state = await self._opened_log_state()
            consumer = await self._opened_consumer(log_state.read_upto)
            # A consumer reports the end once for each start.
            await asyncio.to_thread(consumer.start_at, log_state.read_upto)
            answered = time.monotonic()
            while True:
                before = log_state.read_upto
                end = await self._fold_some(log_state, consumer)
                if end is not None:
                    return log_state
                if log_state.read_upto > before:
                    answered = time.monotonic()
                elif time.monotonic() > answered + self._timeout_s:
                    await self._drop_consumer()
                    raise StoreUnavailable("Kafka did not answer a fetch of the release log")

    async def _opened_log_state(self) -> ReleaseLogState:
        if self._log_state is None:
            self._log_state = ReleaseLogState(*await self.with_dedicated_consumer(self._find_start))
        return self._log_state

    async def _opened_consumer(self, offset: int) -> LogConsumer:
        if time.monotonic() > self._renew_at:
            await self._drop_consumer()
        if self._consumer is None:
            self._renew_at = time.monotonic() + RENEW_AFTER_S
            consumer = await asyncio.to_thread(self._new_consumer)
            await asyncio.to_thread(consumer.start_at, offset)
            self._consumer = consumer
        return self._consumer

    def _find_start(self, consumer: LogConsumer) -> tuple[Ledger, int]:
        if self._since_ms is None:
            return consumer.find_start(self._now_ms())
        return Ledger(), consumer.first_since(self._since_ms) or 0

    async def _fold_some(self, log_state: ReleaseLogState, consumer: LogConsumer) -> int | None:
        """Read and fold what comes next; the committed end, if that was reached."""
        if self._closing:
            raise StoreUnavailable("the release log was closed while it was read")
        try:
            records, end = await asyncio.to_thread(consumer.poll)
            for record in records:
                if record.offset < log_state.read_upto:
                    continue
                log_state.apply(*record)
                if self._listener is not None:
                    self._listener.take(log_state, record)
            if self._listener is not None and records:
                self._listener.publish(log_state)
        except BaseException:
            # What was fetched and not folded must be fetched again.
            await self._drop_consumer()
            raise
        # Also moves over the marks that transactions leave, which are no records.
        log_state.read_upto = max(log_state.read_upto, end or 0)
        if log_state.read_upto > self.position:
            self.position = log_state.read_upto
            self._renew_at = time.monotonic() + RENEW_AFTER_S
            self._moved.set()
            self._moved.clear()
        return end

    def _new_consumer(self) -> LogConsumer:
        return LogConsumer(self._settings, self._topic, self._timeout_s)

    async def _drop_consumer(self) -> None:
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            await asyncio.to_thread(consumer.close)


class UnknownFrame(NamedTuple):
    """A frame that names an epoch or head list that a log state does not have (yet)."""

    offset: int
    append_ms: int
    #: The release log below it has what the frame names, the frame says.
    log_position: int


class LogFollower(LogReader):
    """A reader that reads to the log's end when asked.

    An epoch or a head list is unknown only after the log was read as far as the frame's writer had
    read it, which the frame says (`read_for`). A position never reached is no position of this
    log, and is passed over once the log has a record that was appended after the frame: what the
    writer had read lies before that record.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        ends: KafkaInspector,
        topic: str,
        *,
        skew_s: float = 5.0,
        since_ms: int | None = None,
        listener: LogListener | None = None,
        now_ms: Callable[[], int] = _system_ms,
    ) -> None:
        """`skew_s` is how far two brokers' clocks may be from any third one's."""
        super().__init__(kafka, topic, since_ms=since_ms, listener=listener, now_ms=now_ms)
        self._ends = ends
        self._skew_ms = round(2 * skew_s * 1000)
        #: When the log was last read to the furthest end that any broker reports.
        self._furthest_at = -math.inf
        self._copy: ReleaseLogState | None = None

    @property
    def stable_state(self) -> ReleaseLogState:
        """What was read so far. It stays as it is: after reading on there is another one."""
        log_state = self._log_state or ReleaseLogState()
        if self._copy is None or self._copy.read_upto < log_state.read_upto:
            self._copy = log_state.copy()
        return self._copy

    async def end(self, *, furthest: bool = False) -> int:
        """Where the log ends, by one broker; `furthest`: by the one that knows most."""
        if furthest:
            return await self._ends.max_end_offset(self._topic, 0)
        return (await self._ends.ends(self._topic, [0]))[0]

    async def reached(self, end: int) -> None:
        """Wait until the log was read to this end."""
        while self.position < end:
            await self._moved.wait()

    async def refresh_to_end(self, *, furthest: bool = False) -> None:
        """Read to the end that the log has now; `StoreUnavailable` when that takes too long.

        `furthest`: the end that the best informed broker reports, not just any.
        """
        asked_at = time.monotonic()
        end = await self.end(furthest=furthest)
        if not await self._read_while(lambda log_state: log_state.read_upto < end, self._timeout_s):
            raise StoreUnavailable(
                "the release log could not be read to its end in time; "
                "another job may hold a transaction open"
            )
        if furthest:
            self._furthest_at = asked_at

    async def read_for(self, frames: Sequence[UnknownFrame]) -> bool:
        """Read far enough to call unknown what these frames name; whether that was possible."""
        if self._far_enough(frames):
            return True
        await self.refresh_to_end()
        if self._far_enough(frames):
            return True
        if time.monotonic() - self._furthest_at > _ASK_ALL_EVERY_S:
            await self.refresh_to_end(furthest=True)
        if self._far_enough(frames):
            return True
        await self.reopen()
        return False

    def _far_enough(self, frames: Sequence[UnknownFrame]) -> bool:
        log_state = self._log_state or ReleaseLogState()
        return all(
            log_state.read_upto >= frame.log_position
            or log_state.last_ms > frame.append_ms + self._skew_ms
            for frame in frames
        )
