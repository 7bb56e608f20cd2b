"""What the operator's verbs share: reading the release log once, and telling times."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime

from agents.job_context import JobContext
from streams.kafka import KafkaLog
from streams.settings import Settings
from streams.tables import connect_redis
from streams.topics import check_topics

__all__ = ["connected", "told"]


@contextlib.asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[JobContext]:
    """A context for one command; the topics must be right, and none is made."""
    topics = await check_topics(settings, KafkaLog(settings.kafka))
    context = JobContext.build(settings, topics, await connect_redis(settings.redis))
    try:
        yield context
    finally:
        await context.close()


def told(time_ms: int | None) -> str:
    """A time for people, in UTC."""
    if time_ms is None:
        return "-"
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
