"""Asks Kafka and Redis now and then whether they answer, for the metric that says so.

Apart from the work itself, which notices too but cannot tell "away" from "nothing to do".
"""

from __future__ import annotations

import asyncio

from redis.exceptions import RedisError

from streams.errors import StoreUnavailable
from streams.kafka import KafkaLog
from streams.metrics import SERVER_UP
from streams.tables import Client

__all__ = ["watch_servers"]


async def watch_servers(kafka: KafkaLog, topic: str, redis: Client, every_s: float) -> None:
    """For ever: ask both, and keep the gauges."""
    while True:
        await asyncio.gather(_ask_kafka(kafka, topic), _ask_redis(redis))
        await asyncio.sleep(every_s)


async def _ask_kafka(kafka: KafkaLog, topic: str) -> None:
    try:
        await kafka.ends(topic, [0])
    except StoreUnavailable:
        SERVER_UP.labels("kafka").set(0)
    else:
        SERVER_UP.labels("kafka").set(1)


async def _ask_redis(redis: Client) -> None:
    try:
        await redis.ping()
    except (RedisError, OSError, TimeoutError):
        SERVER_UP.labels("redis").set(0)
    else:
        SERVER_UP.labels("redis").set(1)
