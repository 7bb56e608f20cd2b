"""Takes a partition up: what Redis and the log say of it, reconciled.

Redis may be empty, have lost its tail, or belong to another topic or cluster; the log may have lost
its beginning; an epoch may be over on one side only. Where counting can go on, Redis is told from
which offset, and the fingerprints are read after that offset: a write in between then shows.
Where it cannot, the reason is a `Stop`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from streams import metrics, stops
from streams.epochs import Directory, EpochBook, Stem
from streams.kafka import KafkaLog
from streams.tables import CountTables, PartitionState
from streams.topics import Topic

__all__ = ["take_up"]

log = logging.getLogger(__name__)

#: A broker that has just come back may for a moment show an earlier end than it had.
_END_SETTLES_S: Final = 5.0


async def take_up(
    stem: Stem,
    topic: Topic,
    partition: int,
    topic_id: str,
    *,
    tables: CountTables,
    directory: Directory,
    kafka: KafkaLog,
) -> PartitionState:
    """Where a partition's counting goes on. The directory was read to its end before."""
    book = directory.book
    deadline = time.monotonic() + _END_SETTLES_S
    while True:
        read = await tables.stored_state(partition)
        bounds = await kafka.bounds(topic.name, partition)
        if read.applying is not None:
            raise stops.half_applied(read.applying)
        if _bars_open_epochs(book, stem, read.released_through):
            await directory.refresh_to_end()  # Released since we last read the log?
            book = directory.book
            if _bars_open_epochs(book, stem, read.released_through):
                raise stops.released_too_much(read.released_through)
        if read.topic_id not in (None, topic_id):
            raise stops.topic_recreated()
        if read.offset is not None and read.offset > bounds.end:
            if time.monotonic() < deadline:
                await asyncio.sleep(0.2)
                continue
            raise stops.offset_beyond_end(read.offset, bounds.end)
        start = read.offset or 0
        trimmed = book.trimmed(stem, topic.version, partition)
        lost = max(0, bounds.begin - max(start, trimmed))
        offset = max(start, bounds.begin)
        if await tables.open(
            partition,
            read,
            offset=offset,
            topic_id=topic_id,
            released_through=book.released_through(stem),
            lost=lost,
            unreleased=book.unreleased(stem),
        ):
            break
    if lost:
        metrics.LOST_OFFSETS.labels(stem).inc(lost)
        log.error(
            "offsets_lost",
            extra={"stem": stem, "partition": partition, "offset": start, "lost": lost},
        )
    state = PartitionState(partition, topic_id, offset)
    for epoch in book.unreleased(stem):
        state.seen[epoch.number] = await tables.load_seen(partition, epoch.number)
    return state


def _bars_open_epochs(book: EpochBook, stem: Stem, released_through: int) -> bool:
    return any(epoch.number <= released_through for epoch in book.unreleased(stem))
