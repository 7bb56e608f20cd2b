"""Run three real Kafka nodes on this machine, replicated as in production.

    with LocalCluster() as cluster:
        cluster.url, cluster.nodes[2].kill()

Each node is broker and controller in one process (KRaft). Clients reach every node at 127.0.0.1.
Nodes reach each other by name (`kafka-1` ...) and resolve these names by a hosts file per node. So
a test can put a proxy between any two nodes: each caller uses a separate address, by which the
proxy identifies it. Clients still connect directly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from blendstream.agents.local.jars import Progress
from blendstream.agents.local.local_kafka import LocalKafka, Member, new_cluster_id
from blendstream.agents.local.ports import free_port
from blendstream.agents.local.process_guard import Closing, ProcessGuard, StackError

__all__ = [
    "ClusterNode",
    "ClusterView",
    "LocalCluster",
    "NodePorts",
    "PartitionView",
    "PeerAddress",
]

#: The address by which one node reaches another: `(from, to) -> address`, at the peer's own port.
PeerAddress = Callable[[int, int], str]

SIZE = 3
HEAP_MB = 256
_WHOLE_WITHIN_S = 90.0
_QUESTION_S = 10.0


def direct(_from: int, _to: int) -> str:
    """Return the loopback address: no proxy between the nodes."""
    return "127.0.0.1"


@dataclass(frozen=True, slots=True)
class NodePorts:
    """The ports of one node on 127.0.0.1."""

    clients: int
    peers: int
    controller: int

    @classmethod
    def free(cls) -> Self:
        """Return three ports that are free now."""
        return cls(free_port(), free_port(), free_port())


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition's leader (-1: none), its replicas, and those in sync."""

    leader: int
    replicas: frozenset[int]
    in_sync: frozenset[int]

    @property
    def whole(self) -> bool:
        """True if the partition has a leader and all replicas are in sync."""
        return self.leader in self.replicas and self.in_sync == self.replicas


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster as one node sees it."""

    nodes: frozenset[int]
    partitions: dict[tuple[str, int], PartitionView]


class ClusterNode(LocalKafka):
    """One of the nodes, to pause, kill and restart."""

    def __init__(
        self, number: int, folder: Path | None, member: Member, options: Mapping[str, str]
    ) -> None:
        self.number = number
        self.name = f"Kafka node {number}"
        super().__init__(folder, options=options, member=member)


class LocalCluster(Closing):
    """Three nodes that are ready, with every internal topic on all of them.

    - `ports`: for callers that must know them before the start; by default free ones.
    - `peer_address`: the address by which one node reaches another; by default direct.
    - `options`: further properties of every node.
    - `folder`: stores the data for the next start.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        ports: Mapping[int, NodePorts] | None = None,
        peer_address: PeerAddress = direct,
        options: Mapping[str, str] | None = None,
        progress: Progress = lambda _line: None,
    ) -> None:
        self.ports = dict(ports or {number: NodePorts.free() for number in range(1, SIZE + 1)})
        self.nodes: dict[int, ClusterNode] = {}
        self._options = dict(options or {})
        with ExitStack() as undo:
            self._guard = undo.enter_context(ProcessGuard())  # Its folder has the hosts files.
            undo.callback(self._close_nodes)
            cluster_id = new_cluster_id()

            def start(number: int) -> None:
                hosts = self._hosts_file(number, peer_address)
                member = Member(
                    self.ports[number].clients,
                    cluster_id,
                    HEAP_MB,
                    (f"-Djdk.net.hosts.file={hosts}",),
                )
                place = folder / f"node-{number}" if folder else None
                self.nodes[number] = ClusterNode(number, place, member, self._properties(number))

            # Concurrently, because a node is ready only when most of the others run.
            progress(f"starting {len(self.ports)} Kafka nodes ...")
            with ThreadPoolExecutor(len(self.ports)) as threads:
                for started in [threads.submit(start, number) for number in self.ports]:
                    started.result()
            self.wait_until_whole()
            undo.pop_all()

    @property
    def bootstrap(self) -> str:
        return self.bootstrap_of(self.ports)

    @property
    def url(self) -> str:
        return f"kafka://{self.bootstrap}"

    def bootstrap_of(self, numbers: Mapping[int, object] | set[int]) -> str:
        """Return the bootstrap string of some nodes."""
        return ",".join(f"127.0.0.1:{self.ports[number].clients}" for number in sorted(numbers))

    def view(self, number: int) -> ClusterView:
        """Return the cluster as one node sees it; an isolated node may see another state."""
        # Use a new client for each call: it knows no other node yet, so it asks this one.
        node = AdminClient({"bootstrap.servers": self.bootstrap_of({number}), "log_level": 0})
        metadata = node.list_topics(timeout=_QUESTION_S)
        partitions = {
            (topic, n): PartitionView(p.leader, frozenset(p.replicas), frozenset(p.isrs))
            for topic, described in metadata.topics.items()
            for n, p in described.partitions.items()
        }
        return ClusterView(frozenset(metadata.brokers), partitions)

    def wait_until_whole(self, within_s: float = _WHOLE_WITHIN_S) -> None:
        """Return when every node sees all others and every replica is in sync."""
        deadline = time.monotonic() + within_s
        while missing := next(filter(None, map(self._missing, self.ports)), None):
            if time.monotonic() > deadline:
                raise StackError(
                    f"all {len(self.ports)} Kafka nodes must be in sync within {within_s:g} s, "
                    f"and {missing}"
                )
            time.sleep(0.2)

    def _missing(self, number: int) -> str | None:
        """Return why the cluster is not whole, as one node sees it; None if it is."""
        try:
            view = self.view(number)
        except KafkaException as error:
            return f"node {number} did not answer ({error.args[0].name()})"
        if view.nodes != set(self.ports):
            return f"node {number} sees only {sorted(view.nodes)}"
        behind = [f"{topic}/{n}" for (topic, n), seen in view.partitions.items() if not seen.whole]
        return f"by node {number}, {', '.join(behind[:5])} are not" if behind else None

    def close(self) -> None:
        """End all nodes, and remove their folders unless they were named."""
        self._close_nodes()
        self._guard.close()

    def _close_nodes(self) -> None:
        for node in self.nodes.values():
            node.close()

    def _hosts_file(self, number: int, peer_address: PeerAddress) -> Path:
        file = self._guard.folder / f"hosts-{number}"
        addresses = {
            peer: "127.0.0.1" if peer == number else peer_address(number, peer)
            for peer in self.ports
        }
        lines = [f"{address} kafka-{peer}\n" for peer, address in addresses.items()]
        file.write_text("".join(["127.0.0.1 localhost\n", *lines]))
        return file

    def _properties(self, number: int) -> dict[str, str]:
        mine, copies = self.ports[number], str(len(self.ports))
        return {
            "node.id": str(number),
            "controller.quorum.voters": ",".join(
                f"{peer}@kafka-{peer}:{ports.controller}" for peer, ports in self.ports.items()
            ),
            "listeners": f"PLAINTEXT://127.0.0.1:{mine.clients},PEERS://127.0.0.1:{mine.peers},"
            f"CONTROLLER://127.0.0.1:{mine.controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{mine.clients},"
            f"PEERS://kafka-{number}:{mine.peers},CONTROLLER://kafka-{number}:{mine.controller}",
            "inter.broker.listener.name": "PEERS",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PEERS:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT",
            # As in production: an acknowledged write is on two nodes, and only in-sync nodes lead.
            "default.replication.factor": copies,
            "min.insync.replicas": "2",
            "unclean.leader.election.enable": "false",
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": "2",
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": "2",
            # Long enough that a node on a busy machine is not considered dead.
            "broker.session.timeout.ms": "6000",
            "broker.heartbeat.interval.ms": "1000",
            "controller.quorum.fetch.timeout.ms": "4000",
            "controller.quorum.election.timeout.ms": "2000",
            "controller.quorum.request.timeout.ms": "4000",
            "replica.lag.time.max.ms": "10000",
            # Timeouts for a silent peer. Kafka's default of 30 s would fill most of a fault test.
            "controller.socket.timeout.ms": "4000",
            "replica.socket.timeout.ms": "4000",
            "request.timeout.ms": "4000",
            **self._options,
        }
