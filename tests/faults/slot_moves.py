"""Slots of a Redis cluster that move from one master to another, key by key, under load."""

from __future__ import annotations

import contextlib
import time

import redis

from blendstream.agents.local.process_guard import StackError
from blendstream.agents.local.replicated_redis import LocalRedisCluster, LocalSentinels, RedisNode

#: How long a move may wait for other nodes that are away: without all slots served, none moves.
MOVED_WITHIN_S = 60.0
#: Between two pairs of keys: long enough that scripts find half of their keys.
_PAUSE_S = 0.05


def move_slots(nodes: LocalRedisCluster, source: RedisNode, target: RedisNode) -> int:
    """Move every slot of the source that has keys; return how many there were.

    Clients meet MOVED, ASK and TRYAGAIN. A slot whose move fails half-way, because another node is
    away or the two have changed places with their replicas, is moved again until it has arrived.
    """
    slots = set()
    with source.client() as client:
        for key in client.scan_iter(count=1000):
            slots.add(int(client.execute_command("CLUSTER KEYSLOT", key)))
    sources, targets = _shard(nodes, source), _shard(nodes, target)
    deadline = time.monotonic() + MOVED_WITHIN_S
    for slot in sorted(slots):
        while True:
            try:
                _move(nodes, slot, _master(sources), _master(targets))
                break
            except (redis.RedisError, StackError) as error:
                if time.monotonic() > deadline:
                    error.add_note(f"slot {slot} must move within {MOVED_WITHIN_S:g} s")
                    raise
                time.sleep(0.2)
    return len(slots)


def replicas_of(nodes: LocalRedisCluster | LocalSentinels, *masters: RedisNode) -> list[RedisNode]:
    """Return the nodes that report one of these as their primary; unavailable ones report none."""
    ports = {master.port for master in masters}
    found = []
    for node in nodes.nodes:
        with contextlib.suppress(redis.RedisError):
            role = node.ask("ROLE")
            if role[0] == "slave" and int(role[2]) in ports:
                found.append(node)
    return found


def _shard(nodes: LocalRedisCluster, master: RedisNode) -> list[RedisNode]:
    return [master, *replicas_of(nodes, master)]


def _master(shard: list[RedisNode]) -> RedisNode:
    for node in shard:
        with contextlib.suppress(redis.RedisError):
            if node.is_master:
                return node
    raise StackError("one node of the shard must be its master, and none says so")


def _move(nodes: LocalRedisCluster, slot: int, source: RedisNode, target: RedisNode) -> None:
    from_id, to_id = source.ask("CLUSTER MYID"), target.ask("CLUSTER MYID")
    if _owner(target, slot) != target.port:
        target.ask("CLUSTER SETSLOT", slot, "IMPORTING", from_id)
        source.ask("CLUSTER SETSLOT", slot, "MIGRATING", to_id)
        while keys := source.ask("CLUSTER GETKEYSINSLOT", slot, 2):
            source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "REPLACE", "KEYS", *keys)
            time.sleep(_PAUSE_S)
        target.ask("CLUSTER SETSLOT", slot, "NODE", to_id)
    source.ask("CLUSTER SETSLOT", slot, "NODE", to_id)
    for node in nodes.nodes:
        if node not in (target, source):
            with contextlib.suppress(redis.RedisError):  # It is away, or a replica: it will hear.
                node.ask("CLUSTER SETSLOT", slot, "NODE", to_id)


def _owner(node: RedisNode, slot: int) -> int | None:
    """The port of the master that has a slot, as this node sees it."""
    for low, high, master, *_ in node.ask("CLUSTER SLOTS"):
        if low <= slot <= high:
            return int(master[1])
    return None
