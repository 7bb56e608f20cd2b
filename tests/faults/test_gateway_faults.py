"""Gateways killed under load, brokers slow, paused and stopped, clocks that are wrong.

What must never happen: an accepted report that is not counted, or one counted twice. Each report
of a test has a cell of its own, so that every single one can be looked for.

What is not a failure: a report that was never accepted and is counted all the same. Its frame
landed after its sender was told to send again; it counts once.
"""

# ruff: noqa: ASYNC210 - a test has the event loop to itself, and may wait.

from __future__ import annotations

import asyncio
import random
import re
import secrets
import time

import httpx
import pytest

from blendstream.agents.gateway.submit.frame_producer import FrameProducer, make_producer
from blendstream.agents.local import LocalKafka
from blendstream.streams.names import InputStream
from tests.kafka_topics import SOON_BACK
from tests.service.builder import Service
from tests.service.builder import service as built
from tests.service.processes import Gateway
from tests.service.waiting import until
from tests.service.written_log import head_list_document

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]


class Senders:
    """Sends each report until it is accepted, to any gateway, always the same bytes."""

    def __init__(self, head_list: str, count: int) -> None:
        self.reports = [
            {"head_list": head_list, "contributor": secrets.token_hex(16), "answers": [[cell]]}
            for cell in range(count)
        ]
        self.accepted: set[int] = set()
        self.answers: dict[int, list[object]] = {cell: [] for cell in range(count)}
        self.reasons: list[str] = []
        self.gateways: list[str] = []

    async def send_all(
        self, at_once: int = 32, give_up_after_s: float = 120, first: int | None = None
    ) -> None:
        waiting = list(range(len(self.reports)))[:first]
        random.shuffle(waiting)
        until = time.monotonic() + give_up_after_s
        async with httpx.AsyncClient(timeout=20) as client:
            await asyncio.gather(*(self._sender(client, waiting, until) for _ in range(at_once)))

    async def _sender(self, client: httpx.AsyncClient, waiting: list[int], until: float) -> None:
        while waiting:
            cell = waiting.pop()
            while cell not in self.accepted and time.monotonic() < until:
                await self.send(client, cell)

    async def send(self, client: httpx.AsyncClient, cell: int) -> object:
        """Send one report once; what came of it."""
        url = random.choice(self.gateways)
        try:
            answer = await client.post(f"{url}/v1/reports", json=self.reports[cell])
        except httpx.TransportError as error:
            self.answers[cell].append(type(error).__name__)
            await asyncio.sleep(0.05)
            return None
        self.answers[cell].append(answer.status_code)
        assert answer.status_code in (202, 503), answer.text
        if answer.status_code == 202:
            self.accepted.add(cell)
        else:
            assert int(answer.headers["retry-after"]) >= 1
            self.reasons.append(answer.json()["reason"])
            await asyncio.sleep(0.1)
        return answer.status_code


async def _started(service: Service, reports: int) -> Senders:
    service.releases.open_epoch(7)
    service.releases.seal_records(7)
    head_list = service.releases.publish_head_list(head_list_document(7, records=reports)).id
    return Senders(head_list, reports)


async def _assert_counted_once(service: Service, senders: Senders) -> None:
    """Every accepted report is in Redis exactly once, every other at most once."""
    service.start_worker()
    tables = await service.until_total(InputStream.CLIENT_REPORTS, 7, len(senders.accepted))
    cells = await tables.cell_counts(7, range(service.partitions), len(senders.reports) + 1)
    await tables.close()
    lost = [cell for cell in senders.accepted if cells[cell] != 1]
    assert lost == [], [(cell, cells[cell], senders.answers[cell]) for cell in lost[:5]]
    assert cells.max() <= 1


async def test_a_gateway_killed_under_load_loses_nothing_it_accepted(
    kafka, redis_server, name_prefix
):
    """kill -9 in the middle of hundreds of frames; senders go to another gateway."""
    async with built(kafka.url, redis_server.url, name_prefix) as service:
        senders = await _started(service, 1500)
        victims = [service.start_gateway().wait_ready() for _ in range(2)]
        survivor = service.start_gateway().wait_ready()
        senders.gateways = [g.url for g in (*victims, survivor)]
        sending = asyncio.create_task(senders.send_all())
        for number, victim in enumerate(victims, start=1):
            enough = 400 * number
            await until(
                lambda n=enough: len(senders.accepted) >= n or sending.done(), f"{enough} accepted"
            )
            victim.kill()
            assert not sending.done(), "it must be killed under load"
        senders.gateways = [survivor.url]
        await sending

        assert len(senders.accepted) == 1500
        interrupted = [a for a in senders.answers.values() if len(a) > 1]
        assert interrupted, "nobody was interrupted: the test shows nothing"
        await _assert_counted_once(service, senders)


@pytest.fixture(scope="module")
def breakable():
    """A broker for this file alone, because it is paused and killed; each test leaves it well."""
    with LocalKafka(options=SOON_BACK) as broker:
        yield broker


@pytest.fixture
async def broken(breakable, redis_server, name_prefix):
    """A service on that broker, and a gateway."""
    soon = {"kafka__request_timeout_s": "2", "gateway__delivery_deadline_s": "2"}
    async with built(breakable.url, redis_server.url, name_prefix, **soon) as service:
        senders = await _started(service, 400)
        gateway = service.start_gateway().wait_ready()
        senders.gateways = [gateway.url]
        yield service, senders, gateway


async def test_a_paused_broker_is_503_at_the_deadline_then_at_once_and_all_is_well_after(
    broken, breakable
):
    """The idempotent producer waits for ever; the sender must not."""
    service, senders, gateway = broken
    async with httpx.AsyncClient(timeout=20) as client:
        assert await senders.send(client, 0) == 202
        breakable.pause()
        try:
            waited = await asyncio.gather(*(senders.send(client, n) for n in range(1, 40)))
            assert set(waited) == {503}
            assert "not_acknowledged" in senders.reasons
            senders.reasons.clear()
            at_once = await asyncio.gather(*(senders.send(client, n) for n in range(1, 40)))
            assert set(at_once) == {503}
            assert set(senders.reasons) == {"busy"}, "a stalled partition refuses without waiting"
            assert httpx.get(f"{gateway.url}/healthz", timeout=5).status_code == 200
        finally:
            breakable.resume()
    await senders.send_all()

    assert len(senders.accepted) == 400
    await _assert_counted_once(service, senders)


@pytest.mark.more
async def test_a_stop_ends_within_its_one_deadline_while_the_broker_is_paused(broken, breakable):
    """Answering, flushing and disconnecting share it: what came after it would be killed."""
    service, senders, other = broken
    deadline_s = 6.0
    gateway = service.start_gateway(gateway__stop_deadline_s=str(deadline_s)).wait_ready()
    senders.gateways = [gateway.url]
    async with httpx.AsyncClient(timeout=20) as client:
        assert await senders.send(client, 0) == 202
        breakable.pause()
        try:
            waiting = [asyncio.create_task(senders.send(client, n)) for n in range(1, 40)]
            await until(lambda: _held_bytes(gateway), "a report that waits")
            began = time.monotonic()
            stopped = await asyncio.to_thread(gateway.stop)
            took_s = time.monotonic() - began
            answers = await asyncio.gather(*waiting)
        finally:
            breakable.resume()

    assert stopped == 0, gateway.output()
    # A second for a busy machine; with a deadline for each of the three it took 7.7 s.
    assert took_s < deadline_s + 1, gateway.output()
    assert set(answers) <= {503, None}, "told to send again, or cut off before it was read"
    assert 503 in answers
    senders.gateways = [other.url]
    await senders.send_all(first=40)
    assert len(senders.accepted) == 40
    await _assert_counted_once(service, senders)


async def test_a_producer_that_cannot_be_flushed_leaves_nothing_behind(breakable, name_prefix):
    """Each one that was replaced while a partition had no leader kept its connections for ever."""
    async with built(breakable.url, prefix=name_prefix) as service:
        before = asyncio.all_tasks()
        producer = FrameProducer(lambda: make_producer(service.settings.kafka))
        await producer.start()
        await (await producer.send(service.topics.clock.name, 0, b"taken"))
        breakable.pause()
        try:
            stuck = await producer.send(service.topics.clock.name, 0, b"not taken")
            await producer.stop(0.5)
            with pytest.raises(ConnectionError):
                await stuck
            await until(lambda: not asyncio.all_tasks() - before, "the end of its tasks", 5)
        finally:
            breakable.resume()


def _held_bytes(gateway: Gateway) -> float:
    return float(re.findall(r"^blender_gateway_buffered_bytes (\S+)$", gateway.metrics(), re.M)[0])


@pytest.mark.more
async def test_a_stopped_broker_makes_the_gateway_unready_and_coming_back_ready(broken, breakable):
    """Away is unready, not dead; nothing accepted before or after is lost."""
    service, senders, gateway = broken
    sending = asyncio.create_task(senders.send_all())
    await until(lambda: len(senders.accepted) >= 100, "100 accepted")
    breakable.kill()
    await _until_status(gateway, 503)
    assert gateway.running
    breakable.restart()
    await _until_status(gateway, 200)
    await sending

    assert len(senders.accepted) == 400
    await _assert_counted_once(service, senders)


async def _until_status(gateway: Gateway, status: int, timeout_s: float = 90) -> None:
    async with httpx.AsyncClient(timeout=20) as client:

        async def said() -> bool:
            return (await client.get(f"{gateway.url}/readyz")).status_code == status

        await until(said, f"/readyz with {status}", timeout_s, about=gateway.tail)


@pytest.mark.more
async def test_a_slow_broker_slows_senders_down_and_loses_nothing(broken, breakable, thorough):
    """Stopped four fifths of the time, in short pulses: slower than the linger, within deadline."""
    service, senders, _ = broken

    async def slow_down() -> None:
        while True:
            breakable.pause()
            await asyncio.sleep(0.4)
            breakable.resume()
            await asyncio.sleep(0.1)

    reports = 400 if thorough else 128
    slowing = asyncio.create_task(slow_down())
    try:
        await senders.send_all(first=reports)
    finally:
        slowing.cancel()
        await asyncio.gather(slowing, return_exceptions=True)
        breakable.resume()

    assert len(senders.accepted) == reports
    await _assert_counted_once(service, senders)


@pytest.mark.parametrize("off_s", [30.0, pytest.param(-30.0, marks=pytest.mark.slow)])
async def test_a_gateway_whose_clock_is_off_is_unready_and_takes_nothing(kafka, name_prefix, off_s):
    """Five seconds are allowed. It would otherwise put records into the wrong epoch."""
    async with built(kafka.url, prefix=name_prefix) as service:
        senders = await _started(service, 10)
        gateway, good = service.start_gateway(clock_off_s=off_s), service.start_gateway()
        ready = ""
        for _ in range(3000):
            try:
                ready = httpx.get(f"{gateway.url}/readyz", timeout=5).text
                # Not even the first request that it answers is let through.
                refused = httpx.post(f"{gateway.url}/v1/reports", json=senders.reports[0])
            except httpx.TransportError:
                await asyncio.sleep(0.01)
                continue
            assert refused.status_code == 503, refused.text
            if "NTP" in ready:
                break
        assert "set this one right (NTP)" in ready
        refused = httpx.post(f"{gateway.url}/v1/reports", json=senders.reports[0], timeout=10)
        assert (refused.status_code, refused.json()["reason"]) == (503, "clock")
        good.wait_ready()
        accepted = httpx.post(f"{good.url}/v1/reports", json=senders.reports[0], timeout=10)
        assert accepted.status_code == 202, "another gateway takes the same bytes"
        assert "clock_skew_exceeded" in gateway.output()
