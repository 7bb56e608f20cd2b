"""A gateway on a unix socket behind nginx, with a head list and a 7 MB publication to read."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import psutil

from blendstream.agents.local.local_edge import LocalEdge
from blendstream.agents.local.ports import free_port
from tests.agents.gateway.published import large_estimates
from tests.edge.attacks import LARGE_CSV, Attack, Honest, attacking, honest_reports, send_report
from tests.service.builder import Service, running_service
from tests.service.processes import Gateway
from tests.service.settings import NO_REDIS
from tests.service.written_log import head_list_document

#: So many records are 7 MB of CSV.
_RECORDS = 23_000


@dataclass
class EdgeService:
    """The parts, all real."""

    service: Service
    gateway: Gateway
    edge: LocalEdge
    head_list: str

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.edge.url, verify=self.edge.trust(), timeout=20)

    def report(self) -> dict[str, Any]:
        """A report of a new device."""
        contributor = secrets.token_hex(16)
        return {"head_list": self.head_list, "contributor": contributor, "answers": [[3]]}

    def under_attack(self, attack: Attack, seconds: float, *addresses: int) -> Honest:
        """Honest reports during the attack, from as many addresses; the attack begins first."""
        assert self.edge.plain_port is not None
        watched = psutil.Process(self.gateway.pid)
        with contextlib.ExitStack() as stack:
            for number in addresses:
                port = self.edge.plain_port
                stack.enter_context(attacking(attack, port, seconds + 30, number))
            return asyncio.run(
                honest_reports(self.edge.port, self.edge.trust(), self.head_list, watched, seconds)
            )

    def warm_up(self) -> None:
        """What the gateway makes once is made before its memory is compared."""
        with self.client() as client:
            table = client.get(LARGE_CSV.decode())
            assert table.status_code == 200
            assert 6.5e6 < len(table.content) < 8e6, len(table.content)
            assert client.get("/v1/estimates/1").status_code == 200
        for _ in range(20):
            status = asyncio.run(send_report(self.edge.port, self.edge.trust(), self.head_list))
            assert status == "202", status


@contextlib.contextmanager
def edge_service(
    kafka_url: str, redis_url: str = NO_REDIS, *, records: int = _RECORDS, **settings: str
) -> Iterator[EdgeService]:
    """Start all of it; the broker is the caller's. `records` are those of the publication."""
    with (
        running_service(kafka_url, redis_url, **settings) as service,
        LocalEdge(plain_port=free_port()) as edge,
    ):
        for epoch in (1, 2):
            service.releases.open_epoch(epoch)
            service.releases.seal_records(epoch)
            head_list = service.releases.publish_head_list(head_list_document(epoch)).id
        service.releases.publish_estimates(1, large_estimates(records))
        gateway = service.start_gateway(gateway__unix_socket=str(edge.socket())).wait_ready(60)
        yield EdgeService(service, gateway, edge, head_list)
