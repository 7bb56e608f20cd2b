"""Servers that random schedules break: one broker and one Redis, or three brokers and a cluster.

Each step breaks something and returns soon; what it broke is mended by itself a little later, so
that the next steps meet it broken. `mend` returns when everything runs again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import redis

from agents.local.process_guard import StackError

if TYPE_CHECKING:
    from agents.local import LocalKafka, LocalRedis, LocalRedisCluster
    from agents.local.local_cluster import ClusterNode
    from agents.local.local_redis import RedisSnapshot
    from agents.local.replicated_redis import RedisNode
    from tests.faults.peer_links import LinkedCluster

Step = Callable[[], Awaitable[None]]

#: How often a broker is killed, against 1 for most other steps: a start takes seconds.
BROKER_KILLS = float(os.environ.get("CHAOS_BROKER_KILLS", "0.3"))

#: Settings of an installation on three brokers.
REPLICATED = {
    "topics__replication": "3",
    "topics__min_insync_replicas": "2",
    "topics__one_node": "false",
}


class BreakableServers(Protocol):
    """What a schedule needs of its servers."""

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

    def forget(self) -> None:
        """What was remembered belongs to an installation that is gone."""


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
            "topics__one_node": "true",
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
        """Nothing: each step mended what it broke."""

    def forget(self) -> None:
        self._snapshot = None


class ThreeBrokers:
    """Three brokers that replicate, and three Redis masters with a replica each."""

    partitions = 6
    settings = REPLICATED
    transactions = False

    def __init__(self, kafka: LinkedCluster, redis: LocalRedisCluster) -> None:
        self.rng = np.random.default_rng()
        self.kafka, self.redis = kafka, redis
        self.meanwhile: Step = nothing
        self._mending: set[asyncio.Task[None]] = set()
        #: Parts that a step has broken and will mend; no other step touches them.
        self._broken: set[object] = set()

    def steps(self) -> list[tuple[float, Step]]:
        return [
            (1.5, self.kill_a_broker), (1.5, self.pause_a_broker), (1, self.cut_a_broker_off),
            (0.4, self.kill_two_brokers), (0.4, self.stop_a_broker), (1, self.kill_a_master),
            (1, self.kill_a_master_whose_tail_is_missing), (1, self.pause_a_master),
            (1, self.kill_a_replica), (1, self.fail_over), (0.5, self.flush_a_master),
            (1, self.wait),
        ]  # fmt: skip

    async def wait(self) -> None:
        await asyncio.sleep(float(self.rng.uniform(0.1, 3)))

    # --- brokers --------------------------------------------------------------------------------

    async def kill_a_broker(self) -> None:
        if (node := self._a_broker()) is not None:
            self._until_mended(node, node.kill, node.start, self.rng.uniform(0.1, 12))
        await self.wait()

    async def kill_two_brokers(self) -> None:
        """Nothing can be acknowledged until one is back."""
        await self.kill_a_broker()
        await self.kill_a_broker()

    async def stop_a_broker(self) -> None:
        """As an operator does who restarts one after another."""
        if (node := self._a_broker()) is not None:
            self._until_mended(node, node.stop, node.start, self.rng.uniform(0.1, 3))
        await self.wait()

    async def pause_a_broker(self) -> None:
        """For longer than the others wait for it, or not as long."""
        if (node := self._a_broker()) is not None:
            self._until_mended(node, node.pause, node.resume, self.rng.uniform(0.5, 12))
        await self.wait()

    async def cut_a_broker_off(self) -> None:
        """From its peers; clients still reach it."""
        if "cut" in self._broken or (node := self._a_broker()) is None:
            return
        self._broken.add("cut")

        def heal() -> None:
            self.kafka.heal()
            self._broken.discard("cut")

        self._until_mended(node, lambda: self.kafka.cut(node.number), heal, self.rng.uniform(1, 15))
        await self.wait()

    def _a_broker(self) -> ClusterNode | None:
        whole = [node for node in self.kafka.nodes.values() if node not in self._broken]
        return whole[self.rng.integers(len(whole))] if whole else None

    # --- Redis ----------------------------------------------------------------------------------

    async def kill_a_master(self) -> None:
        await self._kill_a_node(master=True)

    async def kill_a_replica(self) -> None:
        await self._kill_a_node(master=False)

    async def _kill_a_node(self, *, master: bool) -> None:
        if (node := self._a_node(master=master)) is not None:
            self._until_mended(node, node.kill, node.start, self.rng.uniform(0.1, 8))
        await self.wait()

    async def kill_a_master_whose_tail_is_missing(self) -> None:
        """Its replica follows no longer when it is killed, and takes its place."""
        node = self._a_node(master=True)
        if node is None:
            return
        followers = [
            other for other in self.redis.nodes
            if other not in self._broken and self._follows(other, node)
        ]  # fmt: skip
        for other in followers:
            self._until_mended(other, other.pause, other.resume, 1.5)
        await asyncio.sleep(1.0)
        self._until_mended(node, node.kill, node.start, self.rng.uniform(4, 10))
        await self.wait()

    async def pause_a_master(self) -> None:
        if (node := self._a_node(master=True)) is not None:
            self._until_mended(node, node.pause, node.resume, self.rng.uniform(0.1, 8))
        await self.wait()

    async def fail_over(self) -> None:
        """As an operator does before a master's machine is taken away."""
        if (node := self._a_node(master=False)) is not None:
            with contextlib.suppress(redis.RedisError):  # Its master may be away just now.
                await asyncio.to_thread(node.ask, "CLUSTER FAILOVER")
        await self.wait()

    async def flush_a_master(self) -> None:
        if (node := self._a_node(master=True)) is not None:
            with contextlib.suppress(redis.RedisError):
                await asyncio.to_thread(node.ask, "FLUSHALL")

    def _a_node(self, *, master: bool) -> RedisNode | None:
        found = [
            node for node in self.redis.nodes
            if node not in self._broken and self._is_master(node) is master
        ]  # fmt: skip
        return found[self.rng.integers(len(found))] if found else None

    @staticmethod
    def _is_master(node: RedisNode) -> bool | None:
        try:
            return node.is_master
        except redis.RedisError:
            return None

    @staticmethod
    def _follows(node: RedisNode, master: RedisNode) -> bool:
        try:
            role = node.ask("ROLE")
        except redis.RedisError:
            return False
        return bool(role[0] == "slave" and int(role[2]) == master.port)

    # --- mending --------------------------------------------------------------------------------

    def _until_mended(
        self, part: object, break_: Callable[[], None], mend: Callable[[], None], after_s: float
    ) -> None:
        """Break a part now and mend it after a while, beside what the schedule does next."""
        self._broken.add(part)
        break_()

        async def later() -> None:
            await asyncio.sleep(float(after_s))
            try:
                await asyncio.to_thread(mend)
            except StackError:  # It runs, but a busy machine made it late.
                await asyncio.to_thread(mend)
            self._broken.discard(part)

        task = asyncio.create_task(later())
        self._mending.add(task)

    async def mend(self) -> None:
        """Wait until every part that was broken runs again, whatever it has still to catch up."""
        done, self._mending = self._mending, set()
        await asyncio.gather(*done)

    def forget(self) -> None:
        """Nothing is remembered."""
