"""Reads epochs and head lists from the release log, as far as its end.

The end is the one that readers of uncommitted records see when the question is asked; the reader
takes committed records only, and waits until it has passed that end, however long an open
transaction holds it up. Only then may anybody say that an epoch or a head list is unknown.
Reading begins at the last checkpoint, so that a worker's start does not depend on the log's age.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, TopicPartition

from streams.epochs import EpochBook
from streams.errors import StoreUnavailable
from streams.kafka import KafkaLog, librdkafka_settings
from streams.releases.log import ReleaseLog
from streams.settings.sections import KafkaSettings

__all__ = ["ReleaseLogDirectory"]


class ReleaseLogDirectory:
    """The epoch book of this process, read from the release log on demand."""

    def __init__(
        self,
        settings: KafkaSettings,
        log: KafkaLog,
        topic: str,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._settings = librdkafka_settings(settings)
        self._timeout_s = settings.request_timeout_s
        self._log = log
        self._topic = topic
        self._checkpoints = ReleaseLog(settings, topic, now_ms=now_ms)
        self._book = EpochBook()
        #: What the reading thread folds into; `_book` is a copy of it as of the last end reached.
        self._folded = EpochBook()
        self._position: int | None = None
        self._reader: Consumer | None = None
        self._reading = asyncio.Lock()
        self._refreshes: set[asyncio.Task[None]] = set()

    @property
    def book(self) -> EpochBook:
        return self._book

    async def refresh_to_end(self) -> None:
        """Read to the end that the log has now; `StoreUnavailable` when that takes too long."""
        # Whoever gives up waiting (taking a partition up has a deadline) cannot end the thread that
        # reads. It must stay the only one: of two, the first to reach the end would call an epoch
        # unknown whose entry the other has in hand.
        refresh = asyncio.create_task(self._refresh())
        self._refreshes.add(refresh)
        refresh.add_done_callback(self._ended)
        await asyncio.shield(refresh)

    def _ended(self, refresh: asyncio.Task[None]) -> None:
        self._refreshes.discard(refresh)
        if not refresh.cancelled():
            refresh.exception()  # Told to whoever waits; if nobody does, asked again anyway.

    async def _refresh(self) -> None:
        async with self._reading:
            if self._position is None:
                self._position = await self._checkpoints.find_start()
            bounds = await self._log.bounds(self._topic, 0)
            if self._position < bounds.end:
                await asyncio.to_thread(self._read_to, self._position, bounds.end)
                self._book = self._folded.copy()

    def _read_to(self, position: int, end: int) -> None:
        reader = self._reader or self._open_reader(position)
        self._reader = None
        deadline = time.monotonic() + self._timeout_s
        try:
            while position < end:
                message = reader.poll(max(0.0, deadline - time.monotonic()))
                if message is None:
                    raise StoreUnavailable(
                        "the release log could not be read to its end in time; "
                        "another job may hold a transaction open"
                    )
                error = message.error()
                if error is None:
                    self._folded.apply_message(message.key(), message.value())
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
