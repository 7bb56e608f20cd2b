"""Probe every few seconds whether Kafka and Redis respond, and whether Redis accepts writes.

Separate from the work itself, which cannot distinguish "unavailable" from "nothing to do".
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from typing import Final

from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.tables.redis import Client, write_refusal
from blendstream.streams.telemetry.metrics import SERVER_UP
from blendstream.streams.telemetry.structured_logs import SafeText

__all__ = ["ServerWatch"]

log = logging.getLogger(__name__)

_WRITE_EVERY_S: Final = 10.0


class ServerWatch:
    """Updates the gauge `blender_server_up`, and the reason why Redis refuses writes."""

    def __init__(
        self, kafka: KafkaInspector, topic: str, redis: Client, *, prefix: str, every_s: float
    ) -> None:
        """`prefix`: the prefix of the keys written to Redis, each of which expires."""
        self._kafka = kafka
        self._topic = topic
        self._redis = redis
        self._prefix = prefix
        self._every_s = every_s
        self._write_at = 0.0
        #: A sentence while Redis answers and refuses every write, else None.
        self.write_refusal: str | None = None

    async def run(self) -> None:
        """Probe both servers forever."""
        while True:
            await asyncio.gather(
                _ask("kafka", self._kafka.ends(self._topic, [0])),
                _ask("redis", self._redis.ping()),
                self._write(),
            )
            await asyncio.sleep(self._every_s)

    async def _write(self) -> None:
        # After a refusal, probe on every pass: work continues as soon as there is room.
        if self.write_refusal is None and time.monotonic() < self._write_at:
            return
        self._write_at = time.monotonic() + _WRITE_EVERY_S
        try:
            found = await write_refusal(self._redis, self._prefix)
        except Exception:
            return  # Redis does not respond, which the ping shows.
        if (found is None) != (self.write_refusal is None):
            event = "redis_accepts_writes" if found is None else "redis_refuses_writes"
            log.error(event, extra={"advice": SafeText(found or "")})
        self.write_refusal = found
        SERVER_UP.labels("redis_writes").set(found is None)


async def _ask(server: str, question: Awaitable[object]) -> None:
    """Set the gauge; any error counts as no response, since the loop must continue."""
    try:
        await question
    except Exception:
        SERVER_UP.labels(server).set(0)
    else:
        SERVER_UP.labels(server).set(1)
