"""Removes raw records from Kafka once nothing unreleased can lie among them.

Epochs interleave while the grace of one and the window of the next overlap, so a partition is cut
at the first offset that an unreleased epoch may have, judged by the brokers' append times; the
rest is removed when the next epoch is released.

Promises: `bounds_before` never returns an offset above `at_most`, nor above one that an answering
broker does not have. Removing is safe to repeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from confluent_kafka import TopicPartition

from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.kafka.kafka_clients import KafkaInspector

__all__ = ["LogTrimmer"]

#: Kafka's answer where no record is as young as that. librdkafka has others below it.
_NONE: Final = -1


class LogTrimmer(KafkaInspector):
    """Asks where a time begins in a topic, and removes what lies before an offset.

    With a client of its own, so that no other question changes which broker is asked in between.
    """

    async def bounds_before(
        self, topic: str, time_ms: int | None, at_most: Sequence[int]
    ) -> list[int]:
        """For each partition the first offset appended at or after `time_ms`, capped.

        `None` is no such time: then the cap itself.
        """
        if time_ms is None:
            return list(at_most)
        # "No record is that young" is said of what the asked broker has, and that broker may have
        # been cut off while younger records were appended elsewhere. So it holds only up to the end
        # that the same broker reports, before and after.
        partitions = range(len(at_most))
        before = await self.ends(topic, partitions)
        found = await self._offsets(topic, partitions, time_ms, least=_NONE)
        after = await self.ends(topic, partitions)
        # Such as the time itself, which librdkafka has in the place of an offset until it knows it.
        if any(found[p] > after[p] for p in partitions):
            raise StoreUnavailable("Kafka returned an offset beyond the log's end")
        return [
            min(most, before[p], after[p]) if found[p] == _NONE else min(most, found[p])
            for p, most in enumerate(at_most)
        ]

    async def remove_below(self, topic: str, bounds: Sequence[int]) -> None:
        """Remove everything below the bounds; what is gone already stays gone."""
        wanted = [TopicPartition(topic, p, bound) for p, bound in enumerate(bounds) if bound > 0]
        if not wanted:
            return
        futures = self._admin.delete_records(wanted, request_timeout=self._timeout_s)
        for future in futures.values():
            # Below the log's beginning nothing is left to do, and Kafka says so without an error.
            # Out of range is beyond its end: a broker that is just coming back, or another log.
            await self._answer(asyncio.wrap_future(future))
