"""Reads epochs and head lists from the release log, as far as its end.

The end is the one that readers of uncommitted records see when the question is asked; the reader
takes committed records only, and waits until it has passed that end, however long an open
transaction holds it up. Only then may anybody say that an epoch or a head list is unknown.
"""

from __future__ import annotations

import asyncio
import time

from confluent_kafka import Consumer, KafkaError, TopicPartition

from streams.epochs import EpochBook
from streams.errors import StoreUnavailable
from streams.kafka import KafkaLog, librdkafka_settings
from streams.settings.sections import KafkaSettings

__all__ = ["ReleaseLogDirectory"]


class ReleaseLogDirectory:
    """The epoch book of this process, read from the release log on demand."""

    def __init__(self, settings: KafkaSettings, log: KafkaLog, topic: str) -> None:
        self._settings = librdkafka_settings(settings)
        self._timeout_s = settings.request_timeout_s
        self._log = log
        self._topic = topic
        self._book = EpochBook()
        self._position = 0
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
            bounds = await self._log.bounds(self._topic, 0)
            if self._position < bounds.end:
                await asyncio.to_thread(self._read_to, bounds.end)

    def _read_to(self, end: int) -> None:
        if self._reader is None:
            self._reader = Consumer(
                {
                    **self._settings,
                    "group.id": "blendstream-release-log",  # Required, never joined.
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "earliest",
                    "isolation.level": "read_committed",
                    "fetch.wait.max.ms": 100,
                }
            )
            self._reader.assign([TopicPartition(self._topic, 0, self._position)])
        deadline = time.monotonic() + self._timeout_s
        while self._position < end:
            message = self._reader.poll(max(0.0, deadline - time.monotonic()))
            if message is None:
                raise StoreUnavailable(
                    "the release log could not be read to its end in time; "
                    "another job may hold a transaction open"
                )
            error = message.error()
            if error is None:
                self._book.apply_message(message.key(), message.value())
                self._position = int(message.offset() or 0) + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                # Past the last committed record and the marks of transactions after it.
                self._position = max(self._position, int(message.offset() or 0))
            else:
                raise StoreUnavailable(f"Kafka did not answer ({error.name()})")

    async def close(self) -> None:
        if self._reader is not None:
            await asyncio.to_thread(self._reader.close)
            self._reader = None
