"""Servers that random schedules break: the common part, and one broker with one Redis.

`three_brokers` has those of an installation that survives the loss of machines.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from blendstream.agents.local import LocalKafka, LocalRedis
    from blendstream.agents.local.local_redis import RedisSnapshot

Step = Callable[[], Awaitable[None]]

#: How often a broker is killed, against 1 for most other steps: a start takes seconds.
BROKER_KILLS = float(os.environ.get("CHAOS_BROKER_KILLS", "0.3"))


class BreakableServers(Protocol):
    """The operations on servers that a schedule needs."""

    kafka: Any
    redis: Any
    rng: np.random.Generator
    partitions: int
    settings: Mapping[str, str]
    #: Transactions of a test's own are committed for sure.
    transactions: bool
    #: What the schedule does between two moments of a fault.
    meanwhile: Step

    def steps(self) -> list[tuple[float, Step]]:
        """Faults with their weights."""

    async def mend(self) -> None:
        """Everything runs again."""


def pick(rng: np.random.Generator, steps: list[tuple[float, Step]]) -> Step:
    """One of the steps, by weight."""
    weights = np.array([weight for weight, _ in steps])
    return steps[rng.choice(len(steps), p=weights / weights.sum())][1]


async def nothing() -> None:
    """Do nothing."""


class OneNode:
    """A broker and a Redis. Each step waits until its own fault is over."""

    partitions = 2
    settings: Mapping[str, str] = MappingProxyType(
        {
            "topics__replication": "1",
            "topics__min_insync_replicas": "1",
            "topics__allow_single_broker": "true",
        }
    )
    transactions = True

    def __init__(self, kafka: LocalKafka, redis: LocalRedis) -> None:
        self.rng = np.random.default_rng()
        self.kafka, self.redis = kafka, redis
        self.meanwhile: Step = nothing
        self._snapshot: RedisSnapshot | None = None

    def steps(self) -> list[tuple[float, Step]]:
        return [
            (1, self.kill_redis), (1, self.pause_redis), (1, self.remember_redis),
            (2, self.roll_redis_back), (0.6, self.flush_redis), (1, self.pause_broker),
            (BROKER_KILLS, self.kill_broker), (1, self.wait),
        ]  # fmt: skip

    async def wait(self) -> None:
        await asyncio.sleep(float(self.rng.uniform(0.1, 3)))

    async def kill_redis(self) -> None:
        self.redis.kill()
        await self.wait()
        await asyncio.to_thread(self.redis.start)

    async def pause_redis(self) -> None:
        self.redis.pause()
        await self.wait()
        self.redis.resume()

    async def remember_redis(self) -> None:
        self._snapshot = await asyncio.to_thread(self.redis.snapshot)

    async def roll_redis_back(self) -> None:
        if self._snapshot is None:
            await self.remember_redis()
            await self.meanwhile()
            await self.wait()
        assert self._snapshot is not None
        await asyncio.to_thread(self.redis.rollback, self._snapshot)

    async def flush_redis(self) -> None:
        with self.redis.client() as client:
            client.flushall()
        self._snapshot = None

    async def pause_broker(self) -> None:
        self.kafka.pause()
        await self.wait()
        self.kafka.resume()

    async def kill_broker(self) -> None:
        await asyncio.to_thread(self.kafka.restart)

    async def mend(self) -> None:
        """Do nothing: each step mended the part that it broke."""
