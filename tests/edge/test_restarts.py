"""Certificates are renewed and gateways restarted while devices report."""

import asyncio
import contextlib
import json
import secrets
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from blendstream.agents.local.local_edge import write_certificate
from blendstream.streams.names import InputStream
from tests.edge.attacks import exchange_report
from tests.edge.edge_service import EdgeService, edge_service
from tests.service.builder import Service
from tests.service.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.faults]


@dataclass
class Devices:
    """Report one after the other, each until it is accepted; `answers` has every status."""

    service: EdgeService
    trust: ssl.SSLContext
    answers: Counter[int] = field(default_factory=Counter)
    problems: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    accepted: int = 0

    async def report_until(self, stop: threading.Event) -> None:
        async def device() -> None:
            while not stop.is_set():
                contributor = secrets.token_hex(16)
                while True:
                    status, headers, body = await exchange_report(
                        self.service.edge.port, self.trust, self.service.head_list, contributor
                    )
                    self.answers[status] += 1
                    if status == 202:
                        break
                    self.problems.append((headers, body))
                    await asyncio.sleep(0.1)
                self.accepted += 1

        await asyncio.gather(*(device() for _ in range(8)))


@contextlib.contextmanager
def reporting(service: EdgeService, trust: ssl.SSLContext | None = None) -> Iterator[Devices]:
    """Devices report while the block runs; all that began are accepted when it ends."""
    devices = Devices(service, trust or service.edge.trust())
    stop = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(devices.report_until(stop))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield devices
    finally:
        stop.set()
        thread.join(30)
    assert failed == [], "a request failed without an answer"
    assert not thread.is_alive()


def serial_of(service: EdgeService) -> str:
    return ssl.get_server_certificate(("127.0.0.1", service.edge.port))


def test_a_renewed_certificate_is_served_after_a_reload_and_no_request_fails(behind_edge):
    """An expired one stops every device; a restart for it would lose requests."""
    folder = behind_edge.edge.folder
    trust = behind_edge.edge.trust()
    with reporting(behind_edge, trust) as devices:
        for _ in range(2):
            time.sleep(0.5)
            before = serial_of(behind_edge)
            write_certificate(folder)
            trust.load_verify_locations(behind_edge.edge.certificate)
            behind_edge.edge.reload()
            wait_for(lambda old=before: serial_of(behind_edge) != old, "the new certificate", 10)
        time.sleep(0.5)
    assert set(devices.answers) == {202}
    assert devices.accepted > 20


@pytest.mark.more
def test_gateways_restart_behind_the_edge_and_accounting_stays_exact(kafka, redis_server):
    """With one gateway devices are told to wait; with two they notice nothing.

    A report that a killed gateway had stored is sent again, and counts once.
    """
    with edge_service(kafka.url, redis_server.url, records=10) as service:
        one = service.gateway
        sockets = [str(service.edge.socket(number)) for number in (1, 2)]

        def start(number: int) -> None:
            started = service.service.start_gateway(gateway__unix_socket=sockets[number])
            gateways[number] = started
            started.wait_ready(60)

        gateways = [one, one]
        with reporting(service) as alone:
            time.sleep(1)
            one.kill()
            time.sleep(1)
            start(0)
            time.sleep(1)
        assert alone.answers[202] > 20
        assert set(alone.answers) <= {202, 502, 503}
        assert alone.problems
        for headers, body in alone.problems:
            assert headers["content-type"] == "application/problem+json"
            assert int(headers["retry-after"]) >= 1
            assert json.loads(body)["status"] in (502, 503)

        start(1)
        with reporting(service) as rolling:
            time.sleep(0.5)
            gateways[0].stop()
            start(0)
            gateways[1].kill()
            time.sleep(0.5)
        assert set(rolling.answers) == {202}, "a rolling restart leaves no site without a gateway"

        service.service.start_worker()
        expected = alone.accepted + rolling.accepted
        assert asyncio.run(counted_reports(service.service, expected)) == expected


async def counted_reports(service: Service, expected: int) -> int:
    """Wait for so many; return how many there are."""
    tables = await service.until_total(InputStream.CLIENT_REPORTS, 2, expected)
    totals = [await tables.totals(number, 2) for number in range(service.partitions)]
    return sum(total.get("counted", 0) for total in totals)
