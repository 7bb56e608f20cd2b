"""Removal of raw records from Kafka once no unreleased epoch needs them.

Epochs interleave while the grace of one and the window of the next overlap. So a partition is
truncated at the first offset that may belong to an unreleased epoch, by the brokers' append times;
the rest is removed when the next epoch is released.

Promises: `bounds_before` never returns an offset above `at_most`, nor above the end offset of the
broker that responded. Removing is idempotent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from confluent_kafka import TopicPartition

from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.kafka.kafka_clients import KafkaInspector

__all__ = ["LogTrimmer"]

#: Kafka's response where no record is that young. librdkafka uses lower values too.
_NONE: Final = -1


class LogTrimmer(KafkaInspector):
    """Finds the offset at which a time begins in a topic, and removes records below an offset.

    Its client is separate, so that no other request changes its broker between two requests.
    """

    async def bounds_before(
        self, topic: str, time_ms: int | None, at_most: Sequence[int]
    ) -> list[int]:
        """Return per partition the first offset appended at or after `time_ms`, capped.

        Without a time (`None`), return the cap itself.
        """
        if time_ms is None:
            return list(at_most)
        # "No record is that young" is true of the responding broker's replica only, which may be
        # stale. So it holds only up to the end that the same broker reports, before and after.
        partitions = range(len(at_most))
        before = await self.ends(topic, partitions)
        found = await self._offsets(topic, partitions, time_ms, least=_NONE)
        after = await self.ends(topic, partitions)
        # For example the time itself, which librdkafka stores as the offset until it knows it.
        if any(found[p] > after[p] for p in partitions):
            raise StoreUnavailable("Kafka returned an offset beyond the log's end")
        return [
            min(most, before[p], after[p]) if found[p] == _NONE else min(most, found[p])
            for p, most in enumerate(at_most)
        ]

    async def remove_below(self, topic: str, bounds: Sequence[int]) -> None:
        """Remove all records below the bounds; bounds below the log start offset are no-ops."""
        wanted = [TopicPartition(topic, p, bound) for p, bound in enumerate(bounds) if bound > 0]
        if not wanted:
            return
        futures = self._admin.delete_records(wanted, request_timeout=self._timeout_s)
        for future in futures.values():
            # Kafka reports no error below the log start offset, where there is nothing to remove.
            # Out of range means beyond the end: a broker that is recovering, or another log.
            await self._answer(asyncio.wrap_future(future))
