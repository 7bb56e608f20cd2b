"""Faults of single machines: brokers, Redis nodes, and the service's own processes.

Each is a context manager over a running service. It begins the fault, calls `go_on` at the decisive
moment (a job that was held at a step then goes on), and yields the moment from which recovery is
reckoned; on leaving, every node is back and in sync.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import redis

from blendstream.agents.local.jars import find_java, kafka_jars
from blendstream.agents.local.replicated_redis import (
    PRIMARY,
    LocalRedisCluster,
    LocalSentinels,
    RedisNode,
)
from blendstream.streams.names import InputStream
from tests.faults.peer_links import LinkedCluster
from tests.faults.slot_moves import move_slots, replicas_of

if TYPE_CHECKING:
    from tests.faults.replicated_service import ReplicatedService

GoOn = Callable[[], None]
NodeFault = Callable[["ReplicatedService", GoOn], AbstractAsyncContextManager[float]]

#: Longer than brokers, group and Sentinels wait for a silent node.
SILENT_S = 12.0
#: All nodes are back and in sync by then, also on a machine that does ten other things.
WHOLE_WITHIN_S = 180.0


def _controller(cluster: LinkedCluster) -> int:
    """The node that is the active controller. (Metadata names any node for it.)"""
    tool = f"{kafka_jars()}/*", "org.apache.kafka.tools.MetadataQuorumCommand"
    asked = [find_java(), "-cp", *tool, "--bootstrap-server", cluster.bootstrap]
    said = subprocess.run(
        [*asked, "describe", "--status"], capture_output=True, text=True, check=True
    ).stdout
    found = re.search(r"LeaderId:\s+(\d+)", said)
    assert found, said
    return int(found[1])


async def broker(running: ReplicatedService, role: str) -> int:
    """The node that has this role now."""
    cluster = running.cluster
    view = await asyncio.to_thread(cluster.view, min(cluster.ports))
    leader = view.partitions[running.made.topics.releases.name, 0].leader
    controller = await asyncio.to_thread(_controller, cluster)
    if role == "leader":
        return leader
    if role == "controller":
        return controller
    others = sorted(set(cluster.ports) - {leader})
    return next((number for number in others if number != controller), others[0])


# --- brokers ------------------------------------------------------------------------------------


def broker_killed(role: str) -> NodeFault:
    """kill -9; started again when the service has recovered without it."""

    @contextlib.asynccontextmanager
    async def fault(running: ReplicatedService, go_on: GoOn) -> AsyncIterator[float]:
        node = running.cluster.nodes[await broker(running, role)]
        at = time.monotonic()
        node.kill()
        go_on()
        try:
            yield at
        finally:
            await asyncio.to_thread(node.start)

    return _until_whole(fault)


def broker_paused(role: str) -> NodeFault:
    """SIGSTOP: connections stay open; it wakes up after others have taken over."""

    @contextlib.asynccontextmanager
    async def fault(running: ReplicatedService, go_on: GoOn) -> AsyncIterator[float]:
        node = running.cluster.nodes[await broker(running, role)]
        at = time.monotonic()
        node.pause()
        go_on()
        try:
            yield at
            await _lasted(at)
        finally:
            node.resume()

    return _until_whole(fault)


def broker_restarted(role: str) -> NodeFault:
    """SIGTERM and start, as for an upgrade."""

    @contextlib.asynccontextmanager
    async def fault(running: ReplicatedService, go_on: GoOn) -> AsyncIterator[float]:
        number = await broker(running, role)
        yield await _restart(running.cluster, number, go_on)

    return _until_whole(fault)


def broker_cut_off(role: str) -> NodeFault:
    """Its peers no longer reach it; clients do, and it goes on answering them.

    The test itself asks the others, once they lead.
    """

    @contextlib.asynccontextmanager
    async def fault(running: ReplicatedService, go_on: GoOn) -> AsyncIterator[float]:
        cluster = running.cluster
        number = await broker(running, role)
        at = time.monotonic()
        cluster.cut(number)
        go_on()
        try:
            await running.made.until(cluster.others_lead, 60, f"others than {number}")
            running.look_from(f"kafka://{cluster.bootstrap_of(cluster.others)}")
            yield at
            await _lasted(at)
        finally:
            cluster.heal()
            running.look_from(cluster.url)

    return _until_whole(fault)


@contextlib.asynccontextmanager
async def rolling_restart(running: ReplicatedService, go_on: GoOn) -> AsyncIterator[float]:
    """All three, one after the other; recovery is reckoned from the last one's stop."""
    at = 0.0
    for number in sorted(running.cluster.nodes):
        at = await _restart(running.cluster, number, go_on)
        await asyncio.to_thread(running.cluster.wait_until_whole, WHOLE_WITHIN_S)
    yield at


@contextlib.asynccontextmanager
async def two_brokers_gone(running: ReplicatedService, go_on: GoOn) -> AsyncIterator[float]:
    """Nothing can be acknowledged, so nothing is accepted; recovery is reckoned from the return."""
    leader = await broker(running, "leader")
    other = next(number for number in running.cluster.nodes if number != leader)
    gone = [running.cluster.nodes[number] for number in (leader, other)]
    for node in gone:
        node.kill()
    go_on()
    # What was acknowledged before is on its way to the people for a moment.
    await asyncio.sleep(5.0)
    before = running.people.verdicts["accepted"]
    await asyncio.sleep(SILENT_S)
    assert running.people.verdicts["accepted"] == before, "accepted by one broker of three"
    at = time.monotonic()
    await asyncio.gather(*(asyncio.to_thread(node.start) for node in gone))
    yield at
    await asyncio.to_thread(running.cluster.wait_until_whole, WHOLE_WITHIN_S)


async def _restart(cluster: LinkedCluster, number: int, go_on: GoOn) -> float:
    node = cluster.nodes[number]
    at = time.monotonic()
    stopping = asyncio.create_task(asyncio.to_thread(node.stop))
    await asyncio.sleep(0.2)
    go_on()
    await stopping
    await asyncio.to_thread(node.start)
    return at


async def _lasted(since_s: float, seconds: float = SILENT_S) -> None:
    await asyncio.sleep(max(0.0, since_s + seconds - time.monotonic()))


def _until_whole(fault: NodeFault) -> NodeFault:
    @contextlib.asynccontextmanager
    async def whole(running: ReplicatedService, go_on: GoOn) -> AsyncIterator[float]:
        async with fault(running, go_on) as at:
            yield at
        await asyncio.to_thread(running.cluster.wait_until_whole, WHOLE_WITHIN_S)

    return whole


# --- Redis --------------------------------------------------------------------------------------


def counting_master(running: ReplicatedService) -> RedisNode:
    """The node that has the counts of one partition of records."""
    made = running.made
    topic = made.topics.of(InputStream.OPTIN_RECORDS).name
    key = f"{made.settings.topics.prefix}:{{{topic}/0}}:state"
    if isinstance(running.redis, LocalSentinels):
        return running.redis.primary()
    for node in running.redis.nodes:
        with contextlib.suppress(redis.RedisError):
            node.ask("EXISTS", key)  # Any other node says MOVED.
            return node
    raise AssertionError("no node has the slot")


@contextlib.asynccontextmanager
async def master_killed_with_its_tail(
    running: ReplicatedService, go_on: GoOn
) -> AsyncIterator[float]:
    """Replicas stop to follow, the master counts on and dies: a replica is promoted without it."""
    master = await asyncio.to_thread(counting_master, running)
    followers = [node for node in running.redis.nodes if not node.is_master]
    for node in followers:
        node.pause()
    await running.counts_more(2.0)
    at = time.monotonic()
    master.kill()
    for node in followers:
        node.resume()
    go_on()
    try:
        yield at
    finally:
        await asyncio.to_thread(master.start)
    await asyncio.to_thread(running.redis.wait_until_whole, WHOLE_WITHIN_S)


@contextlib.asynccontextmanager
async def master_paused(running: ReplicatedService, go_on: GoOn) -> AsyncIterator[float]:
    """SIGSTOP; when it wakes up, another has taken its place."""
    master = await asyncio.to_thread(counting_master, running)
    at = time.monotonic()
    master.pause()
    go_on()
    try:
        yield at
        await _lasted(at)
    finally:
        master.resume()
    await asyncio.to_thread(running.redis.wait_until_whole, WHOLE_WITHIN_S)


@contextlib.asynccontextmanager
async def planned_failover(running: ReplicatedService, go_on: GoOn) -> AsyncIterator[float]:
    """Promote a replica, as an operator does before an upgrade of the primary."""
    at = time.monotonic()
    if isinstance(running.redis, LocalSentinels):
        await asyncio.to_thread(running.redis.sentinels[0].ask, "SENTINEL FAILOVER", PRIMARY)
    else:
        master = await asyncio.to_thread(counting_master, running)
        replica, *_ = await asyncio.to_thread(replicas_of, running.redis, master)
        await asyncio.to_thread(replica.ask, "CLUSTER FAILOVER")
    go_on()
    yield at
    await asyncio.to_thread(running.redis.wait_until_whole, WHOLE_WITHIN_S)


@contextlib.asynccontextmanager
async def resharded(running: ReplicatedService, go_on: GoOn) -> AsyncIterator[float]:
    """Slots with counts move to another master, key by key: MOVED, ASK, TRYAGAIN."""
    assert isinstance(running.redis, LocalRedisCluster)
    nodes = running.redis
    source = await asyncio.to_thread(counting_master, running)
    target = next(n for n in nodes.nodes if n is not source and n.is_master)
    at = time.monotonic()
    go_on()
    moved = await asyncio.to_thread(move_slots, nodes, source, target)
    assert moved, "there was nothing to move"
    yield at
    await asyncio.to_thread(nodes.wait_until_whole, WHOLE_WITHIN_S)


# --- the service's own processes ----------------------------------------------------------------


def process_killed(kind: str) -> NodeFault:
    """kill -9 of a worker, of jobs or of a gateway; its supervisor starts another."""

    @contextlib.asynccontextmanager
    async def fault(running: ReplicatedService, go_on: GoOn) -> AsyncIterator[float]:
        at = time.monotonic()
        running.pick(kind).kill()
        go_on()
        yield at

    return fault


def process_paused(kind: str) -> NodeFault:
    """SIGSTOP for longer than its lease or its membership."""

    @contextlib.asynccontextmanager
    async def fault(running: ReplicatedService, go_on: GoOn) -> AsyncIterator[float]:
        part = running.pick(kind)
        at = time.monotonic()
        part.pause()
        go_on()
        try:
            yield at
            await _lasted(at)
        finally:
            part.resume()

    return fault


BROKER_FAULTS: dict[str, NodeFault] = {
    f"{role} {verb}": make(role)
    for role in ("leader", "follower", "controller")
    for verb, make in (
        ("killed", broker_killed),
        ("paused", broker_paused),
        ("restarted", broker_restarted),
        ("cut off", broker_cut_off),
    )
} | {"all restarted in turn": rolling_restart, "two of three gone": two_brokers_gone}
REDIS_FAULTS: dict[str, NodeFault] = {
    "master killed, tail missing": master_killed_with_its_tail,
    "master paused": master_paused,
    "planned fail-over": planned_failover,
}
CLUSTER_FAULTS: dict[str, NodeFault] = {"resharded": resharded}
PROCESS_FAULTS: dict[str, NodeFault] = {
    f"{kind} {verb}": make(kind)
    for kind in ("worker", "jobs", "gateway")
    for verb, make in (("killed", process_killed), ("paused", process_paused))
}
FAULTS = BROKER_FAULTS | REDIS_FAULTS | CLUSTER_FAULTS | PROCESS_FAULTS
