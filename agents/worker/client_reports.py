"""Counts what clients reported, by cell."""

from __future__ import annotations

import logging
from contextlib import aclosing

import faust

from agents.worker.dead_letters import DeadLetters
from agents.worker.faust_app import CountingApp, batches
from agents.worker.topic_counter import TopicCounter
from streams.settings.sections import WorkerSettings

__all__ = ["add_client_reports_agent"]

log = logging.getLogger(__name__)


def add_client_reports_agent(
    app: CountingApp, counter: TopicCounter, letters: DeadLetters, settings: WorkerSettings
) -> None:
    """Let the app count client reports."""
    client_reports = app.topic(counter.topic.name, value_type=bytes, value_serializer="raw")

    @app.agent(client_reports, name="count_client_reports")
    async def count_client_reports(frames: faust.StreamT[bytes]) -> None:
        """client_reports → cell counts, once per Kafka offset however often redelivered."""
        async with aclosing(batches(frames, settings)) as taken:
            async for messages in taken:
                summary = await counter.count(messages, letters.send)
                if summary.total():  # A frame may hold nothing but the mark of a seal.
                    log.info("client_reports_counted", extra=dict(summary))
