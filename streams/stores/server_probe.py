"""Asks Kafka and Redis now and then whether they answer, for the metric that says so.

Separate from the work itself, which notices too but cannot tell "away" from "nothing to do".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from streams.stores.kafka import KafkaLog
from streams.stores.redis import Client
from streams.telemetry.metrics import SERVER_UP

__all__ = ["watch_servers"]


async def watch_servers(kafka: KafkaLog, topic: str, redis: Client, every_s: float) -> None:
    """For ever: ask both, and keep the gauges."""
    while True:
        await asyncio.gather(
            _ask("kafka", kafka.ends(topic, [0])),
            _ask("redis", redis.ping()),
        )
        await asyncio.sleep(every_s)


async def _ask(server: str, question: Awaitable[object]) -> None:
    """Set the gauge; any error means no answer, since this loop must continue in any case."""
    try:
        await question
    except Exception:
        SERVER_UP.labels(server).set(0)
    else:
        SERVER_UP.labels(server).set(1)
