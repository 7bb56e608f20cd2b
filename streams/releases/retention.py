"""Removes raw records from Kafka once nothing unreleased can lie among them.

Epochs interleave while the grace of one and the window of the next overlap, so a partition is cut
at the first offset that an unreleased epoch may have, judged by the brokers' append times; the
rest goes when the next epoch is released.

Promises: `bounds_before` never returns an offset above `at_most`, nor above one that an answering
broker does not have. Removing is safe to repeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from streams.errors import StoreUnavailable
from streams.settings.sections import KafkaSettings
from streams.stores.kafka import librdkafka_settings

__all__ = ["LogTrimmer"]

#: Kafka's answer where no record is as young as that. librdkafka has others below it.
_NONE = -1
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class LogTrimmer:
    """Asks where a time begins in a topic, and removes what lies before an offset."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._settings = librdkafka_settings(kafka)
        self._timeout_s = kafka.request_timeout_s
        self._client: AdminClient | None = None

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
        # that the same broker tells, before and after.
        before = await self._offsets(topic, len(at_most), _LATEST)
        found = await self._offsets(topic, len(at_most), OffsetSpec.for_timestamp(time_ms))
        after = await self._offsets(topic, len(at_most), _LATEST)
        return [
            min(most, *ends) if first == _NONE else min(most, first)
            for most, first, *ends in zip(at_most, found, before, after, strict=True)
        ]

    async def _offsets(self, topic: str, partitions: int, spec: OffsetSpec) -> list[int]:
        wanted = {TopicPartition(topic, p): spec for p in range(partitions)}
        futures = self._admin().list_offsets(wanted, request_timeout=self._timeout_s)
        offsets = [0] * partitions
        for where, future in futures.items():
            offsets[where.partition] = int((await self._answer(future)).offset)
        if min(offsets, default=0) < _NONE:
            # A broker that is just coming back. Taken for "none", it would remove what counts.
            raise StoreUnavailable("Kafka did not tell an offset")
        return offsets

    async def remove_below(self, topic: str, bounds: Sequence[int]) -> None:
        """Remove everything below the bounds; what is gone already stays gone."""
        wanted = [TopicPartition(topic, p, bound) for p, bound in enumerate(bounds) if bound > 0]
        if not wanted:
            return
        futures = self._admin().delete_records(wanted, request_timeout=self._timeout_s)
        for future in futures.values():
            # Below the log's beginning nothing is left to do, and Kafka says so without an error.
            # Out of range is beyond its end: a broker that is just coming back, or another log.
            await self._answer(future)

    def _admin(self) -> AdminClient:
        # Kept, because a new one may take three seconds to find its broker.
        if self._client is None:
            self._client = AdminClient(self._settings)
        return self._client

    async def _answer(self, future: Any) -> Any:
        """The answer, within a deadline."""
        try:
            async with asyncio.timeout(self._timeout_s + 1):
                return await asyncio.wrap_future(future)
        except KafkaException as error:
            # A kept client holds on to leaders that a restarted broker no longer recognises.
            self._client = None
            raise StoreUnavailable(f"Kafka did not answer ({error.args[0].name()})") from error
        except TimeoutError as error:
            self._client = None
            raise StoreUnavailable("Kafka did not answer in time") from error
