"""Reader of the release log, shared by gateways, workers, jobs and subcommands.

It folds committed records into a `ReleaseLogState`, and is used in two ways:

    to follow   `LogFollower`: read to an end offset that Kafka reports. It may be too low, since
                an isolated broker reports that of its stale replica
                (`streams.kafka.kafka_clients`). Where that would do harm, the follower reads to the
                highest end offset that any broker reports, or as far as a frame's writer had read
                (`read_for`).
    to decide   `read_until`: read until our own record was read (`streams.releases.log`), whatever
                end offset a broker reports.

An end is the log end offset at the time of the request. The reader has reached it when its consumer
of committed records has passed it, however long an open transaction delays that.

Promises: records are folded once, in the log's order, on the event loop. None is skipped: records
that were fetched and not folded, because of an error or because a caller stopped waiting, are
fetched again or folded before any others. The reader replaces a consumer that shows nothing new
although there is more: its broker may be isolated, and another may have more. It also replaces one
that has shown nothing new for `RENEW_AFTER_S`: that broker may not know that there is more.

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

#: A consumer that shows nothing new for this long, although there is more, may read from an
#: isolated broker: open another. If shorter, a transaction in flight opens needless consumers; if
#: longer, recovery from an isolated broker takes longer. Doubled each time: a slow machine may need
#: more than this to open a consumer.
REOPEN_AFTER_S = 3.0
#: A quiet consumer is replaced after this long. librdkafka requests metadata from the broker that
#: it reads from, and an isolated one names itself leader; a new consumer asks any of `kafka.url`.
#: If shorter, a quiet log opens needless consumers; if longer, recovery takes longer.
RENEW_AFTER_S = 15.0
#: Maximum time for which closing waits for a read in flight.
_CLOSE_S: Final = 2.0
#: Minimum time between two requests to every broker, however many partitions wait for them.
_ASK_ALL_EVERY_S: Final = 1.0


def _system_ms() -> int:
    return time.time_ns() // 1_000_000


class LogListener(Protocol):
    """Receives records as they are folded, before `position` moves past them."""

    def take(self, log_state: ReleaseLogState, record: LogRecord) -> None:
        """Process a record that was folded into the log state."""
        ...

    def publish(self, log_state: ReleaseLogState) -> None:
        """Process the end of a batch: all records that were fetched together are folded."""
        ...


class LogReader:
    """Folds the release log for one process, and replaces its consumer when that may be stale."""

    def __init__(
        self,
        kafka: KafkaSettings,
        topic: str,
        *,
        since_ms: int | None = None,
        listener: LogListener | None = None,
        now_ms: Callable[[], int] = _system_ms,
    ) -> None:
        """Start at the last checkpoint, or with records appended at or after `since_ms`.

        Either way the time to start does not grow with the log's age.
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
        self._in_flight: set[asyncio.Task[Any]] = set()
        #: All records below this offset are folded, and the listener has received them.
        self.position = 0
        self._moved = asyncio.Event()
        self._closing = False

    @property
    def log_state(self) -> ReleaseLogState:
        """The state folded from all records read so far. It changes as the reader continues."""
        if self._log_state is None:
            raise StoreUnavailable("the release log was not read yet")
        return self._log_state

    async def step(
        self, needed: Callable[[ReleaseLogState], bool] = lambda _log_state: True
    ) -> bool:
        """Read and fold the next batch, if `needed`. Return True if a record arrived in time."""
        return await self._shielded(self._step(needed))

    async def catch_up(self) -> ReleaseLogState:
        """Read to the last stable offset that one broker reports, which may be stale.

        The state is correct, but perhaps not the newest: enough to check whether anything is due,
        to display, and to publish committed documents. Decisions need a fenced session.
        """
        return await self._shielded(self._catch_up())

    async def read_until(self, fence_id: str, within_s: float) -> ReleaseLogState:
        """Read until the record with this fence id arrives, from another broker if one lacks it."""
        started = time.monotonic()
        if not await self._read_while(
            lambda log_state: fence_id not in log_state.fence_ids, within_s
        ):
            raise StoreUnavailable(
                "the release log must show a record that Kafka has acknowledged, and did not for "
                f"{time.monotonic() - started:.0f} s: a transaction before it is still open, or a "
                "broker is isolated from its peers. Run `blendstream doctor`"
            )
        return self.log_state

    async def reopen(self) -> None:
        """Continue with another consumer: an isolated broker responds without an error."""
        async with self._reading:
            await self._drop_consumer()

    async def with_dedicated_consumer(self, read: Callable[[LogConsumer], T]) -> T:
        """Run `read` in a thread with a dedicated consumer, leaving this reader unchanged."""

        def used() -> T:
            consumer = self._new_consumer()
            try:
                return read(consumer)
            finally:
                consumer.close()

        return await asyncio.to_thread(used)

    async def close(self) -> None:
        """Close the connection. A read that hangs ends with the process."""
        self._closing = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S), self._reading:
                await self._drop_consumer()

    async def _shielded(self, reading: Coroutine[Any, Any, T]) -> T:
        # A caller that stops waiting cannot end the thread that reads. That thread must stay the
        # only one: of two, the first to reach the end would call an epoch unknown whose entry the
        # other has fetched and not folded yet.
        task = asyncio.create_task(reading)
        self._in_flight.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._in_flight.discard(task)
        if not task.cancelled():
            task.exception()  # Its caller has it; a caller that stopped waiting will retry.

    async def _read_while(self, needed: Callable[[ReleaseLogState], bool], within_s: float) -> bool:
        """Read while more is needed. Return False if the time is up and no more records arrive."""
        if self._log_state is None:
            # Finding the start does not count towards the time.
            await self.step(lambda _log_state: False)
        started = progressed_at = time.monotonic()
        patience_s = REOPEN_AFTER_S
        while True:
            # One step at a time: another task of this process may read the record we wait for.
            progressed = await self.step(needed)
            if not needed(self.log_state):
                return True
            now = time.monotonic()
            if progressed:
                progressed_at = now
            if progressed or now < min(progressed_at + patience_s, started + within_s):
                continue
            await self.reopen()
            log.warning("release_log_waits", extra={"seconds": round(now - started)})
            if now >= started + within_s:
                return False
            progressed_at, patience_s = now, min(2 * patience_s, self._timeout_s)

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
            last_response = time.monotonic()
            while True:
                before = log_state.read_upto
                end = await self._fold_some(log_state, consumer)
                if end is not None:
                    return log_state
                if log_state.read_upto > before:
                    last_response = time.monotonic()
                elif time.monotonic() > last_response + self._timeout_s:
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
        """Read and fold the next batch. Return the last stable offset if this reached it."""
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
            # Records that were fetched and not folded must be fetched again.
            await self._drop_consumer()
            raise
        # Also moves past transaction markers, which are not records.
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
    """A frame that names an epoch or head list that a log state does not contain (yet)."""

    offset: int
    append_ms: int
    #: Offset up to which the frame's writer had read the release log, as the frame states.
    log_position: int


class LogFollower(LogReader):
    """A reader that reads to the log's end on request.

    An epoch or a head list counts as unknown only after the follower has read the log as far as the
    frame's writer had, which the frame states (`read_for`). A position that the log never reaches
    belongs to another log. The follower ignores it once the log has a record that was appended
    after the frame: everything that the writer had read precedes that record.
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
        """Allow brokers' clocks to be `skew_s` from any third clock."""
        super().__init__(kafka, topic, since_ms=since_ms, listener=listener, now_ms=now_ms)
        self._ends = ends
        self._skew_ms = round(2 * skew_s * 1000)
        #: When the log was last read to the highest end offset that any broker reports.
        self._max_end_read_at = -math.inf
        self._copy: ReleaseLogState | None = None

    @property
    def stable_state(self) -> ReleaseLogState:
        """An immutable copy of the state read so far; later reads make another one."""
        log_state = self._log_state or ReleaseLogState()
        if self._copy is None or self._copy.read_upto < log_state.read_upto:
            self._copy = log_state.copy()
        return self._copy

    async def end(self, *, furthest: bool = False) -> int:
        """Return the log end offset that one broker reports; `furthest`: the highest of all."""
        if furthest:
            return await self._ends.max_end_offset(self._topic, 0)
        return (await self._ends.ends(self._topic, [0]))[0]

    async def reached(self, end: int) -> None:
        """Wait until this reader has read up to this offset."""
        while self.position < end:
            await self._moved.wait()

    async def refresh_to_end(self, *, furthest: bool = False) -> None:
        """Read to the log's current end; raise `StoreUnavailable` when that takes too long.

        `furthest`: the highest end offset that any broker reports, not that of one broker.
        """
        requested_at = time.monotonic()
        end = await self.end(furthest=furthest)
        if not await self._read_while(lambda log_state: log_state.read_upto < end, self._timeout_s):
            raise StoreUnavailable(
                "the release log could not be read to its end in time; "
                "another job may hold a transaction open"
            )
        if furthest:
            self._max_end_read_at = requested_at

    async def read_for(self, frames: Sequence[UnknownFrame]) -> bool:
        """Read the log as far as the writers of these frames had; return True if that succeeded.

        After True, an epoch or a head list that a frame names and that is still unknown does not
        exist. After False, the caller may try again: the next read uses another consumer.
        """
        if self._far_enough(frames):
            return True
        await self.refresh_to_end()
        if self._far_enough(frames):
            return True
        if time.monotonic() - self._max_end_read_at > _ASK_ALL_EVERY_S:
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
