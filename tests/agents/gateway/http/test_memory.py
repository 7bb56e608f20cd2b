"""What requests hold while they wait is what the gateway counts, and it is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from blendstream.agents.gateway.state.verdicts import QUEUED_ENTRY_BYTES
from blendstream.agents.tokens import ApplicationTokens, add_token
from blendstream.streams.settings.sections import GatewaySettings
from tests.agents.gateway.doubles import HEAD_LIST, TestGateway, make_gateway, report, report_target

REQUESTS = 8
#: A task, a scope, a few futures: what every request holds, whatever is in it.
_EACH_REQUEST = 8 * 1024


@pytest.fixture
def application(tmp_path):
    path = tmp_path / "tokens"
    token = add_token(path, "news")
    return ApplicationTokens(path, clock=lambda: 0.0), {"authorization": f"Bearer {token}"}


def patient_gateway(**options: Any) -> TestGateway:
    limits = GatewaySettings(linger_s=0.001, delivery_deadline_s=30, buffer_bytes=64 << 20)
    return make_gateway(frame_limits=limits, **options)


def wide(contributor: int) -> dict[str, Any]:
    """It can be read but fits no head list; decoded it takes thirty times its bytes."""
    return report(contributor) | {"answers": [[1000 + contributor]] * 250}


def record(user: int) -> dict[str, Any]:
    return {"user_id": f"user-{user}", "slot": 0, "epoch": 8, "query": "q", "url": "u"}


@contextlib.asynccontextmanager
async def all_waiting(
    gateway: TestGateway, path: str, body: Any, headers: dict[str, str] | None = None
) -> AsyncIterator[int]:
    """Requests that wait for Kafka; yields the memory they take, and lets them be answered."""
    content = json.dumps(body).encode()
    assert (await gateway.ask("POST", path, content, headers)).status == 202  # what is made once
    gateway.producer.holding = True
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        asked = [
            asyncio.create_task(gateway.ask("POST", path, content, headers))
            for _ in range(REQUESTS)
        ]
        await asyncio.sleep(0.1)
        assert not any(one.done() for one in asked)
        after, _ = tracemalloc.get_traced_memory()
        yield after - before
    finally:
        tracemalloc.stop()
        gateway.producer.release()
    assert {reply.status for reply in await asyncio.gather(*asked)} == {202}
    assert gateway.app.held_bytes == 0, "everything is given back"


def uncounted(gateway: TestGateway, taken: int) -> int:
    """How much more memory is taken than the gateway knows of."""
    counted = gateway.app.held_bytes + gateway.writer.held_bytes
    return taken - counted - REQUESTS * _EACH_REQUEST


@pytest.mark.parametrize(
    "body",
    [
        [report(n) for n in range(1000)],
        [report(0), *(wide(n) for n in range(60))],
        [report(0), *({"answers": [[0]] * (n % 180) + ["x"]} for n in range(999))],
    ],
    ids=["good", "wide", "wrong in many ways"],
)
async def test_reports_that_wait_for_kafka_hold_no_more_than_is_counted(body):
    """Kafka may take ten seconds; decoded bodies kept for that long once took a gigabyte."""
    gateway = patient_gateway()
    async with all_waiting(gateway, "/v1/reports", body) as taken:
        assert uncounted(gateway, taken) < 0


async def test_reports_on_a_list_that_is_being_looked_for_hold_no_more_than_their_bytes():
    """Strangers may invent ids; while the log is read to its end, nothing decoded is kept."""
    gateway = patient_gateway(targets={HEAD_LIST: report_target()})
    found = asyncio.Event()

    async def read() -> bool:
        await found.wait()
        return True

    gateway.publications.read_to_end = read
    body = json.dumps([wide(n) | {"head_list": "cd" * 32} for n in range(60)]).encode()
    tracemalloc.start()
    try:
        asked = [
            asyncio.create_task(gateway.ask("POST", "/v1/reports", body)) for _ in range(REQUESTS)
        ]
        await asyncio.sleep(0.1)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert gateway.app.held_bytes > REQUESTS * len(body), "bodies are kept, and counted"
    assert uncounted(gateway, taken) < 0
    found.set()
    assert {reply.json()["reason"] for reply in await asyncio.gather(*asked)} == {
        "unknown_head_list"
    }


async def test_records_that_wait_for_kafka_hold_no_more_than_is_counted(application):
    tokens, headers = application
    gateway = patient_gateway(tokens=tokens)
    over_limit = [record(n) | {"slot": 1} for n in range(500)]
    body = [record(n) for n in range(500)] + over_limit
    async with all_waiting(gateway, "/v1/optin-records", body, headers) as taken:
        assert uncounted(gateway, taken) < 0


async def test_beyond_the_limit_requests_are_told_to_come_again():
    """Back-pressure, never more memory."""
    body = json.dumps([report(n) for n in range(900)])
    limit = 3 * len(body) - 1
    assert limit > 2 * (len(body) + 900 * QUEUED_ENTRY_BYTES)
    gateway = patient_gateway(limits=GatewaySettings(max_in_flight_body_bytes=limit))
    gateway.producer.holding = True
    asked = [
        asyncio.create_task(gateway.report(*(report(n) for n in range(900)))) for _ in range(5)
    ]
    await asyncio.sleep(0.1)
    assert 0 < gateway.app.held_bytes <= limit
    gateway.producer.release()

    replies = await asyncio.gather(*asked)

    assert sorted(reply.status for reply in replies) == [202, 202, 503, 503, 503]
    turned_away = next(reply for reply in replies if reply.status == 503)
    assert turned_away.json()["reason"] == "busy"
    assert int(turned_away.headers["retry-after"]) >= 1
    assert gateway.app.held_bytes == 0


async def test_an_answer_that_there_is_no_room_for_is_a_short_one():
    """Its sender sends all of it again, and what was queued counts once."""
    gateway = patient_gateway(limits=GatewaySettings(max_in_flight_body_bytes=100_000))

    reply = await gateway.report(report(1), *([1] * 900))

    assert (reply.status, reply.json()["reason"]) == (503, "busy")
    assert "verdicts" not in reply.json()
    assert gateway.app.held_bytes == 0


async def test_a_large_answer_is_counted_until_it_was_taken():
    """A sender that does not read its answer holds it, and two bytes may get 150 in return."""
    gateway = patient_gateway()
    body = json.dumps([1] * 1000).encode()
    taken = asyncio.Event()
    sent = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        # As a server does: what comes after a full buffer waits until it was emptied.
        if message["type"] == "http.response.body" and sent[-1]["type"] == "http.response.body":
            await taken.wait()
        sent.append(message)

    headers = [(b"content-length", b"%d" % len(body))]
    scope = {"type": "http", "method": "POST", "path": "/v1/reports", "headers": headers}
    answering = asyncio.create_task(gateway.app(scope, receive, send))
    await asyncio.sleep(0.05)

    size = int(dict(sent[0]["headers"])[b"content-length"])
    assert len(sent[-1]["body"]) < size, "the rest waits for its reader"
    assert gateway.app.held_bytes >= size > 64 * 1024
    taken.set()
    await answering
    assert gateway.app.held_bytes == 0
