"""The links between the nodes of a Kafka cluster, through a proxy that can cut one node off.

Clients go on reaching every node: only what nodes say to each other passes through here. Each node
finds each of its peers at an address of its own (127.77.FROM.TO), so the address that was called
says who calls.

A cut is a black hole, as when a cable is pulled: nothing is refused or closed. What was on its way
arrives when the link is healed, however late; connections opened meanwhile lead nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Mapping
from typing import Any

from confluent_kafka import KafkaException

from blendstream.agents.local.local_cluster import LocalCluster, NodePorts


class LinkedCluster(LocalCluster):
    """Three brokers, each of which can be cut off from the others while clients still reach it."""

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        ports = {number: NodePorts.free() for number in (1, 2, 3)}
        self._links = PeerLinks(ports)
        self.cut_off: int | None = None
        try:
            super().__init__(ports=ports, peer_address=self._links.address, options=options)
        except BaseException:
            self._links.close()
            raise

    def cut(self, node: int) -> None:
        """Cut a node off from its peers; on return nothing passes any more."""
        self._links.cut(node)
        self.cut_off = node

    def heal(self) -> None:
        """Let everything pass again."""
        self._links.heal()
        self.cut_off = None

    @property
    def others(self) -> set[int]:
        """The nodes that still reach each other."""
        return set(self.ports) - {self.cut_off}

    def others_lead(self) -> bool:
        """Return True if the other brokers lead every partition, by their own metadata."""
        try:
            view = self.view(min(self.others))
        except KafkaException:
            return False
        return all(seen.leader in self.others for seen in view.partitions.values())

    def close(self) -> None:
        """End all nodes, then the links between them."""
        super().close()
        self._links.close()


class PeerLinks:
    """Every link of a cluster whose ports are these; to be passed on as its `peer_address`."""

    def __init__(self, ports: Mapping[int, NodePorts]) -> None:
        self._links = {(a, b): _Link() for a in ports for b in ports if a != b}
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._servers: list[asyncio.Server] = []
        self._do(self._listen(ports))

    def address(self, caller: int, called: int) -> str:
        """Return the address at which one node reaches another."""
        return f"127.77.{caller}.{called}"

    def cut(self, node: int) -> None:
        """Cut a node off from all its peers, both ways; on return nothing passes any more."""
        self._do(self._set(node, open_=False))

    def heal(self) -> None:
        """Let everything pass again."""
        self._do(self._set(None, open_=True))

    def close(self) -> None:
        """Close every connection and stop listening."""
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    async def _listen(self, ports: Mapping[int, NodePorts]) -> None:
        for (caller, called), link in self._links.items():
            for port in (ports[called].peers, ports[called].controller):
                self._servers.append(
                    await asyncio.start_server(
                        lambda reader, writer, link=link, port=port: link.carry(
                            reader, writer, port
                        ),
                        self.address(caller, called),
                        port,
                    )
                )

    async def _set(self, node: int | None, *, open_: bool) -> None:
        for ends, link in self._links.items():
            if node is None or node in ends:
                link.set(open_=open_)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        mine = asyncio.current_task()
        for task in asyncio.all_tasks():
            if task is not mine:
                task.cancel()


class _Link:
    """All connections that one node opened to another."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()

    def set(self, *, open_: bool) -> None:
        if open_:
            self._open.set()
        else:
            self._open.clear()

    async def carry(
        self, caller: asyncio.StreamReader, answers: asyncio.StreamWriter, port: int
    ) -> None:
        """One connection, from the caller's side, for as long as it lives."""
        with contextlib.suppress(OSError, asyncio.CancelledError):
            if not self._open.is_set():
                await self._open.wait()
                answers.close()
                return
            try:
                called, requests = await asyncio.open_connection("127.0.0.1", port)
            except OSError:  # The node is down.
                answers.close()
                return
            await asyncio.gather(self._pass(caller, requests), self._pass(called, answers))

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                await self._open.wait()
                target.write(data)
                await target.drain()
        await self._open.wait()
        target.close()
