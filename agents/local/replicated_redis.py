"""Run a replicated Redis on this machine, as in production: a cluster, or one with Sentinels.

    with LocalRedisCluster() as redis:
        redis.url, redis.nodes[0].kill()

`LocalRedisCluster` has three masters, each with a replica. `LocalSentinels` has a primary and a
replica, with three Sentinels that decide by majority. Replication is asynchronous: a promoted
replica may lack the newest acknowledged writes. Each node can be killed, paused and restarted. The
data cannot outlast the nodes, because nodes identify each other by ports that change at each start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Final

import redis

from blendstream.agents.local.local_redis import LocalRedis, find_redis_server
from blendstream.agents.local.local_server import LocalPart
from blendstream.agents.local.ports import free_port
from blendstream.agents.local.process_guard import Closing, StackError

__all__ = ["LocalRedisCluster", "LocalSentinels", "RedisNode", "SentinelNode"]

SLOTS: Final = 16_384
MASTERS: Final = 3
SENTINELS: Final = 3
#: Time without a response after which the other nodes replace a node.
SILENCE_MS: Final = 3_000
#: The name under which the Sentinels know the primary.
PRIMARY: Final = "blendstream"
_WHOLE_WITHIN_S: Final = 30.0


class RedisNode(LocalRedis):
    """One node of a replicated Redis."""

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        self.name = name
        self.bus_port = free_port()
        if "cluster-enabled" in options:
            options = {**options, "cluster-port": str(self.bus_port)}
        super().__init__(options=options)

    def ask(self, *command: object) -> Any:
        """Run a command on this node and return its reply."""
        with self.client() as client:
            return client.execute_command(*command)

    @property
    def is_master(self) -> bool:
        """True if this node reports that it accepts writes."""
        return bool(self.ask("ROLE")[0] == "master")


class _Nodes(Closing):
    """Nodes that are started together and closed together."""

    def __init__(self) -> None:
        self.nodes: list[RedisNode] = []

    def _start(self, names: list[str], options: Mapping[str, str]) -> None:
        with ThreadPoolExecutor(len(names)) as threads:
            started = [threads.submit(RedisNode, name, options) for name in names]
        # One that failed must not leave the others running.
        self.nodes = [one.result() for one in started if one.exception() is None]
        for one in started:
            one.result()

    def close(self) -> None:
        for node in self.nodes:
            node.close()


class LocalRedisCluster(_Nodes):
    """Three masters and a replica of each."""

    def __init__(self, *, options: Mapping[str, str] | None = None) -> None:
        super().__init__()
        settings = {
            "cluster-enabled": "yes",
            "cluster-node-timeout": str(SILENCE_MS),
            # Even a replica that was isolated for a long time may take over, because workers
            # recount from Kafka the writes that it lacks.
            "cluster-replica-validity-factor": "0",
            **(options or {}),
        }
        with ExitStack() as undo:
            undo.callback(self.close)
            names = [f"redis-{number}" for number in range(1, 2 * MASTERS + 1)]
            self._start(names, settings)
            self._join()
            self.wait_until_whole()
            undo.pop_all()

    @property
    def url(self) -> str:
        return f"redis://{','.join(f'127.0.0.1:{node.port}' for node in self.nodes)}/0"

    def _join(self) -> None:
        """Join the separate nodes to a cluster."""
        first, *others = self.nodes
        for node in others:
            first.ask("CLUSTER MEET", "127.0.0.1", node.port, node.bus_port)
        masters, replicas = self.nodes[:MASTERS], self.nodes[MASTERS:]
        for number, node in enumerate(masters):
            begin, end = (SLOTS * n // MASTERS for n in (number, number + 1))
            node.ask("CLUSTER ADDSLOTSRANGE", begin, end - 1)
        _wait(self._all_met, "know each other")
        for master, replica in zip(masters, replicas, strict=True):
            replica.ask("CLUSTER REPLICATE", master.ask("CLUSTER MYID"))

    def wait_until_whole(self, within_s: float = _WHOLE_WITHIN_S) -> None:
        """Wait until all slots are served and every replica follows its master."""
        _wait(self._whole, "serve all slots with a replica each", within_s)

    def _all_met(self) -> bool:
        return all(
            int(node.ask("CLUSTER INFO")["cluster_known_nodes"]) == len(self.nodes)
            for node in self.nodes
        )

    def _whole(self) -> bool:
        try:
            states = [node.ask("CLUSTER INFO")["cluster_state"] for node in self.nodes]
            return set(states) == {"ok"} and _followed(self.nodes) == MASTERS
        except redis.RedisError:
            return False


class SentinelNode(LocalPart):
    """One Sentinel. It stores its state in its configuration file."""

    name = "Redis Sentinel"
    ready_within_s = 20.0

    def __init__(self, primary_port: int) -> None:
        self.port = free_port()
        self._primary_port = primary_port
        super().__init__()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def _prepare(self) -> None:
        self._binary = find_redis_server()
        (self.folder / "sentinel.conf").write_text(
            f"bind 127.0.0.1\nport {self.port}\ndir {self.folder}\n"
            f"sentinel monitor {PRIMARY} 127.0.0.1 {self._primary_port} {SENTINELS // 2 + 1}\n"
            f"sentinel down-after-milliseconds {PRIMARY} {SILENCE_MS}\n"
            f"sentinel failover-timeout {PRIMARY} {3 * SILENCE_MS}\n"
        )

    def _command(self) -> list[str]:
        return [str(self._binary), str(self.folder / "sentinel.conf"), "--sentinel"]

    def ask(self, *command: object) -> Any:
        """Run a command on this Sentinel and return its reply."""
        with redis.Redis(port=self.port, socket_timeout=3.0, decode_responses=True) as client:
            return client.execute_command(*command)

    def _answers(self) -> bool:
        try:
            return bool(self.ask("PING"))
        except redis.RedisError:
            return False


class LocalSentinels(_Nodes):
    """A primary with its replica, and three Sentinels that replace it if it does not respond."""

    def __init__(self, *, options: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.sentinels: list[SentinelNode] = []
        with ExitStack() as undo:
            undo.callback(self.close)
            self._start(["redis-1", "redis-2"], options or {})
            primary, replica = self.nodes
            replica.ask("REPLICAOF", "127.0.0.1", primary.port)
            for _ in range(SENTINELS):
                self.sentinels.append(SentinelNode(primary.port))
            self.wait_until_whole()
            undo.pop_all()

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{PRIMARY}/0"

    def primary(self) -> RedisNode:
        """Return the primary, as reported by the first Sentinel that responds."""
        for sentinel in self.sentinels:
            try:
                _, port = sentinel.ask("SENTINEL GET-MASTER-ADDR-BY-NAME", PRIMARY)
            except redis.RedisError:
                continue
            return next(node for node in self.nodes if node.port == int(port))
        raise StackError("one Sentinel must answer, and none did; start one again")

    def wait_until_whole(self, within_s: float = _WHOLE_WITHIN_S) -> None:
        """Wait until the Sentinels know each other and the replica, and the replica follows."""
        _wait(self._whole, "know each other and a replica that follows", within_s)

    def _whole(self) -> bool:
        try:
            known = [sentinel.ask("SENTINEL MASTER", PRIMARY) for sentinel in self.sentinels]
            return _followed(self.nodes) == 1 and all(
                int(state["num-other-sentinels"]) == SENTINELS - 1
                and int(state["num-slaves"]) == 1
                and state["flags"] in ("master", {"master"})
                for state in known
            )
        except redis.RedisError:
            return False

    def close(self) -> None:
        for sentinel in self.sentinels:
            sentinel.close()
        super().close()


def _followed(nodes: list[RedisNode]) -> int:
    """Return how many replicas are connected to their master and in sync."""
    roles = [node.ask("ROLE") for node in nodes]
    return sum(role[0] == "slave" and role[3] == "connected" for role in roles)


def _wait(condition: Callable[[], bool], what: str, within_s: float = _WHOLE_WITHIN_S) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise StackError(f"the Redis nodes must {what} within {within_s:g} s, and did not")
        time.sleep(0.1)
