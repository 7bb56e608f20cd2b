"""Counts the records of opt-in users, apart for S, T and the click graph."""

from __future__ import annotations

import logging

import faust

from agents.dead_letters import DeadLetters
from streams.app import CountingApp, by_partition
from streams.partitions import PartitionCounter
from streams.settings.sections import WorkerSettings

__all__ = ["add_optin_records_agent"]

log = logging.getLogger(__name__)


def add_optin_records_agent(
    app: CountingApp, counter: PartitionCounter, letters: DeadLetters, settings: WorkerSettings
) -> None:
    """Let the app count opt-in records."""
    optin_records = app.topic(counter.topic.name, value_type=bytes, value_serializer="raw")

    @app.agent(optin_records, name="count_optin_records")
    async def count_optin_records(frames: faust.StreamT[bytes]) -> None:
        """optin_records → counts of S, T and graph, once per Kafka offset however often sent."""
        async for events in frames.noack_take(settings.batch_frames, within=settings.batch_wait_s):
            try:
                summary = await counter.count(by_partition(events), letters.send)
            finally:
                # Counted, passed over, asked for again or another worker's: in any case settled.
                for event in events:
                    await frames.ack(event)
            if summary:
                log.info("optin_records_counted", extra=summary)
