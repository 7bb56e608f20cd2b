"""Counts the records of opt-in users, apart for S, T and the click graph."""

from __future__ import annotations

import logging
from contextlib import aclosing

import faust

from agents.worker.dead_letters import DeadLetters
from agents.worker.faust_app import CountingApp, batches
from agents.worker.topic_counter import TopicCounter
from streams.settings.sections import WorkerSettings

__all__ = ["add_optin_records_agent"]

log = logging.getLogger(__name__)


def add_optin_records_agent(
    app: CountingApp, counter: TopicCounter, letters: DeadLetters, settings: WorkerSettings
) -> None:
    """Let the app count opt-in records."""
    optin_records = app.topic(counter.topic.name, value_type=bytes, value_serializer="raw")

    @app.agent(optin_records, name="count_optin_records")
    async def count_optin_records(frames: faust.StreamT[bytes]) -> None:
        """optin_records → counts of S, T and graph, once per Kafka offset however often sent."""
        async with aclosing(batches(frames, settings)) as taken:
            async for messages in taken:
                summary = await counter.count(messages, letters.send)
                if summary.total():  # A frame may hold nothing but the mark of a seal.
                    log.info("optin_records_counted", extra=dict(summary))
