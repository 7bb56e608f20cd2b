"""Wait until Kafka and Redis answer, for a check right after they were started.

Promises: nothing is written, and it ends in time. What still does not answer is for the check that
follows to report, with what to do.
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

#: Between two questions; a server starts in seconds.
_ASK_EVERY_S = 0.5


async def wait_for_servers(
    settings: Settings, within_s: float, progress: Callable[[str], None] = lambda _line: None
) -> bool:
    """Whether both answered within this time; says once that it waits."""
    deadline = time.monotonic() + within_s
    admin = AdminClient(librdkafka_settings(settings.kafka))
    said = False
    while not (await _kafka_answers(admin) and await _redis_answers(settings)):
        if time.monotonic() > deadline:
            return False
        if not said:
            progress(f"waiting up to {within_s:g} s until Kafka and Redis answer ...")
            said = True
        await asyncio.sleep(_ASK_EVERY_S)
    return True


async def _kafka_answers(admin: AdminClient) -> bool:
    try:
        cluster = await asyncio.to_thread(admin.list_topics, timeout=_ASK_EVERY_S)
    except KafkaException:
        return False
    return bool(cluster.brokers)  # A broker that has not joined yet names none.


async def _redis_answers(settings: Settings) -> bool:
    try:
        client = await connect_redis(settings.redis)
    except BlenderError:
        return False
    await client.aclose()
    return True
