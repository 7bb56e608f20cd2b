"""Reads epochs and head lists from the release log.

The end is the one that readers of uncommitted records see when the question is asked; the reader
takes committed records only, and waits until it has passed that end, however long an open
transaction holds it up. Reading begins at the last checkpoint, so that a worker's start does not
depend on the log's age.

A broker may tell an old end (`streams.stores.kafka`). So an epoch or a head list is unknown only
after the log was read as far as the frame's writer had read it, which the frame says (`read_for`).
A frame that says nothing (version 1) is judged after reading to the furthest end that any broker
tells. A position that is never reached is no position of this log, and is passed over once the log
has a record that was appended after the frame: what the writer had read lies before that record.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from streams.errors import StoreUnavailable
from streams.releases.counted_epochs import EpochBook, UnknownFrame
from streams.releases.log import ReleaseLog
from streams.settings.sections import KafkaSettings
from streams.stores.kafka import KafkaLog, librdkafka_settings

__all__ = ["ReleaseLogDirectory"]

#: Every broker is asked at most so often, however many partitions wait for the same.
_ASK_ALL_EVERY_S: Final = 1.0
#: A reader that brings nothing for so long, although there is more, is replaced.
_REOPEN_S: Final = 3.0


class ReleaseLogDirectory:
    """The epoch book of this process, read from the release log on demand."""

    def __init__(
        self,
        settings: KafkaSettings,
        log: KafkaLog,
        topic: str,
        *,
        skew_s: float = 5.0,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`skew_s` is how far two brokers' clocks may be from any third one's."""
        self._settings = librdkafka_settings(settings)
        self._timeout_s = settings.request_timeout_s
        self._log = log
        self._topic = topic
        self._checkpoints = ReleaseLog(settings, topic, now_ms=now_ms)
        self._now_ms = now_ms
        self._book = EpochBook()
        #: What the reading thread folds into; `_book` is a copy of it as of the last end reached.
        self._folded = EpochBook()
        self._position: int | None = None
        #: The latest append time of a record that was read.
        self._last_ms = 0
        #: How far the log was read for `_book`, by offset and by append time.
        self._book_upto = 0
        self._book_ms = 0
        self._skew_ms = round(2 * skew_s * 1000)
        #: When the log was last read to the furthest end that any broker tells, on two clocks.
        self._furthest_at = -math.inf
        self._furthest_ms = 0
        self._reader: Consumer | None = None
        self._reading = asyncio.Lock()
        self._refreshes: set[asyncio.Task[None]] = set()

    @property
    def book(self) -> EpochBook:
        return self._book

    async def refresh_to_end(self, *, furthest: bool = False) -> None:
        """Read to the end that the log has now; `StoreUnavailable` when that takes too long.

        `furthest`: the end that the best informed broker tells, not just any.
        """
        # Whoever gives up waiting (taking a partition up has a deadline) cannot end the thread that
        # reads. It must stay the only one: of two, the first to reach the end would call an epoch
        # unknown whose entry the other has in hand.
        refresh = asyncio.create_task(self._refresh(furthest))
        self._refreshes.add(refresh)
        refresh.add_done_callback(self._ended)
        await asyncio.shield(refresh)

    async def read_for(self, frames: Sequence[UnknownFrame]) -> bool:
        """Read far enough to call unknown what these frames name; whether that was possible."""
        if any(not frame.log_position and self._asked_before(frame) for frame in frames):
            await self.refresh_to_end(furthest=True)
        if self._far_enough(frames):
            return True
        await self.refresh_to_end()
        if self._far_enough(frames):
            return True
        if time.monotonic() - self._furthest_at > _ASK_ALL_EVERY_S:
            await self.refresh_to_end(furthest=True)
        if self._far_enough(frames):
            return True
        await self._reopen()
        return False

    def _asked_before(self, frame: UnknownFrame) -> bool:
        """Whether all brokers were asked before the frame was appended, as far as clocks tell."""
        return self._furthest_ms < frame.append_ms + self._skew_ms

    def _far_enough(self, frames: Sequence[UnknownFrame]) -> bool:
        """By what the book holds, which may be less than a reader has in hand."""
        return all(
            self._book_upto >= frame.log_position or self._book_ms > frame.append_ms + self._skew_ms
            for frame in frames
        )

    def _ended(self, refresh: asyncio.Task[None]) -> None:
        self._refreshes.discard(refresh)
        if not refresh.cancelled():
            refresh.exception()  # Told to whoever waits; if nobody does, asked again anyway.

    async def _refresh(self, furthest: bool) -> None:
        async with self._reading:
            if self._position is None:
                self._position = await self._checkpoints.find_start()
            asked_at, asked_ms = time.monotonic(), self._now_ms()
            if furthest:
                end = await self._log.furthest_end(self._topic, 0)
            else:
                end = (await self._log.bounds(self._topic, 0)).end
            try:
                if self._position < end:
                    await asyncio.to_thread(self._read_to, self._position, end)
            finally:
                self._book = self._folded.copy()
                self._book_upto, self._book_ms = self._position, self._last_ms
            if furthest:
                self._furthest_at, self._furthest_ms = asked_at, asked_ms

    async def _reopen(self) -> None:
        """Close the reader: a broker that was cut off answers it without an error, for ever."""
        async with self._reading:
            reader, self._reader = self._reader, None
            if reader is not None:
                await asyncio.to_thread(reader.close)

    def _read_to(self, position: int, end: int) -> None:
        reader = self._reader or self._open_reader(position)
        self._reader = None
        deadline = time.monotonic() + self._timeout_s
        try:
            while position < end:
                left_s = deadline - time.monotonic()
                message = reader.poll(max(0.0, min(left_s, _REOPEN_S)))
                if message is None and left_s > _REOPEN_S:
                    # Its broker may have been cut off; another reader may find another one.
                    reader.close()
                    reader = self._open_reader(position)
                    continue
                if message is None:
                    raise StoreUnavailable(
                        "the release log could not be read to its end in time; "
                        "another job may hold a transaction open"
                    )
                error = message.error()
                if error is None:
                    self._folded.apply_message(message.key(), message.value())
                    self._last_ms = max(self._last_ms, message.timestamp()[1])
                    position = int(message.offset() or 0) + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    # Past the last committed record and the marks of transactions after it.
                    position = max(position, int(message.offset() or 0))
                else:
                    raise StoreUnavailable(f"Kafka did not answer ({error.name()})")
                self._position = position
        except BaseException:
            # What was fetched and not folded must be fetched again: else whoever asks next would
            # pass over an entry that could not be read.
            reader.close()
            raise
        self._reader = reader

    def _open_reader(self, offset: int) -> Consumer:
        reader = Consumer(
            {
                **self._settings,
                "group.id": "blendstream-release-log",  # Required, never joined.
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,
            }
        )
        reader.assign([TopicPartition(self._topic, 0, offset)])
        return reader

    async def close(self) -> None:
        await self._checkpoints.close()
        if self._reader is not None:
            await asyncio.to_thread(self._reader.close)
            self._reader = None
