"""Decide where to resume counting a newly assigned partition.

The stores may disagree in these ways:
- Redis is empty, has lost its newest writes, or belongs to another topic or cluster.
- The topic has lost its oldest records.
- An epoch is released in the log and not yet in Redis, or vice versa.

If counting can resume, `resume_state` stores the offset in Redis first and then reads the
fingerprints: a concurrent write of another worker then shows as a changed offset. Otherwise it
raises a `PartitionHalt` with the reason.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import Final

from blendstream.agents.worker import halt_reasons, metrics
from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.kafka.topics import Topic
from blendstream.streams.names import InputStream
from blendstream.streams.releases.epoch_state import ReleaseLogState
from blendstream.streams.releases.reader import LogFollower
from blendstream.streams.tables.count_table import CountTable, PartitionState

__all__ = ["resume_state"]

log = logging.getLogger(__name__)

#: A broker that has just restarted may briefly report an earlier end offset than the topic has.
_END_SETTLES_S: Final = 5.0


async def resume_state(
    stem: InputStream,
    topic: Topic,
    partition: int,
    topic_id: str,
    *,
    tables: CountTable,
    release_log: LogFollower,
    kafka: KafkaInspector,
) -> PartitionState:
    """Return the state to resume from. The caller must have read the release log to its end."""
    log_state = release_log.stable_state
    deadline = time.monotonic() + _END_SETTLES_S
    surely_read = False
    while True:
        read = await tables.stored_state(partition)
        bounds = await kafka.bounds(topic.name, partition)
        if read.applying is not None:
            raise halt_reasons.half_applied(read.applying)
        if _bars_open_epochs(log_state, stem, read.released_through):
            # Perhaps released since we last read the log.
            await release_log.refresh_to_end(furthest=True)
            log_state, surely_read = release_log.stable_state, True
            if _bars_open_epochs(log_state, stem, read.released_through):
                raise halt_reasons.released_too_much(
                    read.released_through,
                    partial(_released_now, release_log, stem, read.released_through),
                )
        if read.topic_id not in (None, topic_id):
            raise halt_reasons.topic_recreated()
        if read.offset is not None and read.offset > bounds.end:
            # One broker's response is not enough: that broker may be isolated from the others.
            end = await kafka.max_end_offset(topic.name, partition)
            if read.offset > end:
                if time.monotonic() < deadline:
                    await asyncio.sleep(0.2)
                    continue
                noticed_ms = time.time_ns() // 1_000_000
                raise halt_reasons.offset_beyond_end(
                    read.offset,
                    end,
                    partial(_reaches, kafka, topic.name, partition, read.offset, noticed_ms),
                )
        start = read.offset or 0
        trimmed = log_state.trimmed_below(stem, topic.version, partition)
        lost = max(0, bounds.begin - max(start, trimmed))
        if lost and not surely_read:
            # Perhaps the keeper removed them, and this worker has not read its entry yet.
            await release_log.refresh_to_end(furthest=True)
            log_state, surely_read = release_log.stable_state, True
            continue
        offset = max(start, bounds.begin)
        if await tables.open(
            partition,
            read,
            offset=offset,
            topic_id=topic_id,
            released_through=log_state.released_through(stem),
            lost=lost,
            unreleased=[epoch.epoch for epoch in log_state.unreleased(stem)],
        ):
            break
    if lost:
        metrics.LOST_OFFSETS.labels(stem).inc(lost)
        log.error(
            "offsets_lost",
            extra={"stem": stem, "partition": partition, "offset": start, "lost": lost},
        )
    state = PartitionState(partition, topic_id, offset)
    for epoch in log_state.unreleased(stem):
        state.seen[epoch.epoch] = await tables.load_seen(partition, epoch.epoch)
    return state


async def _released_now(release_log: LogFollower, stem: InputStream, released_through: int) -> bool:
    """Return True if the release log, read again, has released the epochs that Redis released."""
    await release_log.refresh_to_end(furthest=True)
    return not _bars_open_epochs(release_log.stable_state, stem, released_through)


async def _reaches(
    kafka: KafkaInspector, topic: str, partition: int, offset: int, noticed_ms: int
) -> bool:
    """Return True if the topic has the records up to `offset` that Redis has counted, after all.

    False if the topic lost its end and has grown again: then other records have these offsets, and
    the last of them was appended after `noticed_ms`, the time of the halt.
    """
    if await kafka.max_end_offset(topic, partition) < offset:
        return False
    append_ms = await kafka.append_ms(topic, partition, offset - 1)
    return append_ms is None or append_ms < noticed_ms


def _bars_open_epochs(log_state: ReleaseLogState, stem: InputStream, released_through: int) -> bool:
    return any(epoch.epoch <= released_through for epoch in log_state.unreleased(stem))
