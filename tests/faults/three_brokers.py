"""Three brokers and a replicated Redis that random schedules break: a cluster, or Sentinels.

Each step breaks something and returns soon; what it broke is mended by itself a little later, so
that the next steps meet it broken. `mend` returns when everything runs again.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import redis

from blendstream.agents.local.process_guard import StackError
from blendstream.agents.local.replicated_redis import PRIMARY
from tests.faults.breakable_servers import Step, nothing
from tests.faults.slot_moves import move_slots, replicas_of
from tests.service.settings import REPLICATED

if TYPE_CHECKING:
    from blendstream.agents.local import LocalRedisCluster, LocalSentinels
    from blendstream.agents.local.local_cluster import ClusterNode
    from blendstream.agents.local.replicated_redis import RedisNode, SentinelNode
    from tests.faults.peer_links import LinkedCluster


class ThreeBrokers(ABC):
    """Three brokers that replicate, and Redis nodes of which some follow others."""

    partitions = 6
    settings = REPLICATED
    transactions = False
    redis: LocalRedisCluster | LocalSentinels

    def __init__(self, kafka: LinkedCluster) -> None:
        self.rng = np.random.default_rng()
        self.kafka = kafka
        self.meanwhile: Step = nothing
        self._mending: set[asyncio.Task[None]] = set()
        #: Parts that a step has broken and will mend; no other step touches them.
        self._broken: set[object] = set()

    def steps(self) -> list[tuple[float, Step]]:
        # What only one kind of Redis has comes last and weighs as much as `wait` did alone once:
        # a seed of then still draws the same steps, but for its waits.
        return [
            (1.5, self.kill_a_broker), (1.5, self.pause_a_broker), (1, self.cut_a_broker_off),
            (0.4, self.kill_two_brokers), (0.4, self.stop_a_broker), (1, self.kill_a_master),
            (1, self.kill_a_master_whose_tail_is_missing), (1, self.pause_a_master),
            (1, self.kill_a_replica), (1, self.fail_over), (0.5, self.flush_a_master),
            (0.3, self.wait), (0.7, self.own_step),
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
        """Stop a broker gracefully and start it again, as in a rolling restart."""
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
        for other in replicas_of(self.redis, node):
            if other not in self._broken:
                self._until_mended(other, other.pause, other.resume, 1.5)
        await asyncio.sleep(1.0)
        self._until_mended(node, node.kill, node.start, self.rng.uniform(4, 10))
        await self.wait()

    async def pause_a_master(self) -> None:
        if (node := self._a_node(master=True)) is not None:
            self._until_mended(node, node.pause, node.resume, self.rng.uniform(0.1, 8))
        await self.wait()

    @abstractmethod
    async def fail_over(self) -> None:
        """Promote a replica, as before the removal of a master's machine."""

    @property
    @abstractmethod
    def own_step(self) -> Step:
        """A fault that only this kind of Redis has."""

    async def flush_a_master(self) -> None:
        if (node := self._a_node(master=True)) is not None:
            with contextlib.suppress(redis.RedisError):
                await asyncio.to_thread(node.ask, "FLUSHALL")

    def _a_node(self, *, master: bool, but: RedisNode | None = None) -> RedisNode | None:
        found = [
            node for node in self.redis.nodes
            if node not in self._broken and node is not but and self._is_master(node) is master
        ]  # fmt: skip
        return found[self.rng.integers(len(found))] if found else None

    @staticmethod
    def _is_master(node: RedisNode) -> bool | None:
        try:
            return node.is_master
        except redis.RedisError:
            return None

    # --- mending --------------------------------------------------------------------------------

    def _until_mended(
        self, part: object, break_: Callable[[], None], mend: Callable[[], None], after_s: float
    ) -> None:
        """Break a part now and mend it later, concurrently with the schedule's next steps."""
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


class WithRedisCluster(ThreeBrokers):
    """Beside the brokers three Redis masters with a replica each, whose slots move."""

    def __init__(self, kafka: LinkedCluster, redis: LocalRedisCluster) -> None:
        super().__init__(kafka)
        self.redis: LocalRedisCluster = redis

    @property
    def own_step(self) -> Step:
        return self.reshard

    async def fail_over(self) -> None:
        if (node := self._a_node(master=False)) is not None:
            with contextlib.suppress(redis.RedisError):  # Its master may be away just now.
                await asyncio.to_thread(node.ask, "CLUSTER FAILOVER")
        await self.wait()

    async def reshard(self) -> None:
        """All that one master has moves to another, while other nodes are broken.

        The two and their replicas are left alone meanwhile: a slot of which half has moved when
        its master dies waits for an operator.
        """
        source = self._a_node(master=True)
        if source is not None and (target := self._a_node(master=True, but=source)) is not None:
            nodes = [source, target, *replicas_of(self.redis, source, target)]
            mine = [node for node in nodes if node not in self._broken]
            self._broken.update(mine)

            async def move() -> None:
                await asyncio.to_thread(move_slots, self.redis, source, target)
                self._broken.difference_update(mine)

            self._mending.add(asyncio.create_task(move()))
        await self.wait()


class WithSentinels(ThreeBrokers):
    """Beside the brokers a Redis primary with its replica, and three Sentinels."""

    def __init__(self, kafka: LinkedCluster, redis: LocalSentinels) -> None:
        super().__init__(kafka)
        self.redis: LocalSentinels = redis

    @property
    def own_step(self) -> Step:
        return self.kill_a_sentinel

    async def fail_over(self) -> None:
        sentinel = self._a_sentinel()
        if sentinel is not None:
            with contextlib.suppress(redis.RedisError):  # No replica is fit to take over just now.
                await asyncio.to_thread(sentinel.ask, "SENTINEL FAILOVER", PRIMARY)
        await self.wait()

    async def kill_a_sentinel(self) -> None:
        """The other two are still a majority; a second one may go before it is back."""
        if (sentinel := self._a_sentinel()) is not None:
            self._until_mended(sentinel, sentinel.kill, sentinel.start, self.rng.uniform(0.1, 8))
        await self.wait()

    def _a_sentinel(self) -> SentinelNode | None:
        whole = [one for one in self.redis.sentinels if one not in self._broken]
        return whole[self.rng.integers(len(whole))] if whole else None
