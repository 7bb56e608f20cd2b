"""Wait until Kafka and Redis respond, for a check right after they were started.

Promises: writes nothing, and ends in time. If a server still does not respond, the check that
follows reports it, with advice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from blendstream.blender.values.errors import BlenderError
from blendstream.streams.kafka.kafka_clients import librdkafka_settings
from blendstream.streams.settings import Settings
from blendstream.streams.tables.redis import connect_redis

__all__ = ["wait_for_servers"]

#: Pause between attempts; a server starts in seconds.
_POLL_EVERY_S = 0.5


async def wait_for_servers(
    settings: Settings, within_s: float, progress: Callable[[str], None] = lambda _line: None
) -> bool:
    """Return True if both responded within this time; report once that it waits."""
    deadline = time.monotonic() + within_s
    admin = AdminClient(librdkafka_settings(settings.kafka))
    reported = False
    while not (await _kafka_responds(admin) and await _redis_responds(settings)):
        if time.monotonic() > deadline:
            return False
        if not reported:
            progress(f"waiting up to {within_s:g} s until Kafka and Redis respond ...")
            reported = True
        await asyncio.sleep(_POLL_EVERY_S)
    return True


async def _kafka_responds(admin: AdminClient) -> bool:
    try:
        cluster = await asyncio.to_thread(admin.list_topics, timeout=_POLL_EVERY_S)
    except KafkaException:
        return False
    return bool(cluster.brokers)  # A broker that has not joined yet lists none.


async def _redis_responds(settings: Settings) -> bool:
    try:
        client = await connect_redis(settings.redis)
    except BlenderError:
        return False
    await client.aclose()
    return True
