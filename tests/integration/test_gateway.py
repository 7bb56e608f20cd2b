"""The gateway as a process, over real HTTP, on a real Kafka, counted by a real worker in Redis."""

# ruff: noqa: ASYNC212 - a test has the event loop to itself, and may wait.

from __future__ import annotations

import asyncio
import re
import secrets
import socket
import subprocess
import sys
import time

import httpx
import pytest

from blendstream.agents.gateway.state.release_follower import ReleaseFold, ReleaseFollower
from blendstream.blender.registry import randomizer_for
from blendstream.blender.values.cells import RandomizerSpec
from blendstream.localclient.exchange import ResultCode
from blendstream.localclient.limits import Limits
from blendstream.localclient.local_client import LocalClient
from blendstream.localclient.opting_in import OptIn
from blendstream.streams.names import InputStream, OptinSubgroup
from blendstream.streams.tables.batch_verdict import SEPARATOR
from tests.agents.gateway.published import estimates
from tests.counted_records import record_counts
from tests.service.builder import Service
from tests.service.builder import service as built
from tests.service.processes import Gateway
from tests.service.settings import ROOT
from tests.service.waiting import until
from tests.service.written_log import head_list_document

pytestmark = pytest.mark.integration


@pytest.fixture
async def service(kafka, redis_server, name_prefix):
    async with built(kafka.url, redis_server.url, name_prefix) as made:
        yield made


def reports(head_list: str, count: int, *, cell: int | None = None) -> list[dict[str, object]]:
    return [
        {
            "head_list": head_list,
            "contributor": secrets.token_hex(16),
            "answers": [[n % 51 if cell is None else cell]],
        }
        for n in range(count)
    ]


async def test_what_was_accepted_over_http_is_what_the_worker_counts(service):
    """From a POST to a count in Redis: both groups, a batch, repetitions, a refusal.

    Opt-in records are repeated within their epoch and in its grace, as senders do who did not get
    an answer before it ended.
    """
    service.releases.open_epoch(7)
    service.releases.seal_records(7)
    head_list = service.releases.publish_head_list(head_list_document(7)).id
    gateway = service.start_gateway().wait_ready()
    ends_s = int(time.time()) + 4
    service.releases.open_epoch(8, start_ms=(ends_s - 3600) * 1000)
    service.releases.open_epoch(9, start_ms=ends_s * 1000)
    service.start_worker()
    entries = reports(head_list, 200)
    users = [
        {
            "user_id": f"user-{n}",
            "slot": 0,
            "epoch": 8,
            "query": "Weather",
            "url": "https://w.example/",
        }
        for n in range(40)
    ]
    with httpx.Client(base_url=gateway.url, timeout=30) as client:
        assert client.post("/v1/reports", json=entries[:199]).status_code == 202
        assert client.post("/v1/reports", json=entries[199]).status_code == 202
        assert client.post("/v1/reports", json=entries[199]).status_code == 202, (
            "a retry is accepted"
        )
        bad = client.post("/v1/reports", json=entries[0] | {"answers": [[51]]})
        assert bad.status_code == 422
        client.headers["authorization"] = f"Bearer {service.token}"
        for again in (False, True):
            answer = client.post("/v1/optin-records", json=users)
            assert (again, answer.status_code) == (again, 202), answer.text
        assert time.time() < ends_s, "this machine is too slow for the test"
        await asyncio.sleep(ends_s - time.time())
        in_grace = client.post("/v1/optin-records", json=users)
        assert in_grace.json() == {"verdicts": [{"status": "accepted"}] * 40}

    tables = await service.until_total(InputStream.CLIENT_REPORTS, 7, 200)
    cells = await tables.cell_counts(7, range(service.partitions), 51)
    assert cells.tolist() == [sum(1 for e in entries if e["answers"] == [[c]]) for c in range(51)]
    await tables.close()
    tables = await service.until_total(InputStream.OPTIN_RECORDS, 8, 120, "received")
    totals = [await tables.totals(p, 8) for p in range(service.partitions)]
    assert sum(t.get("counted", 0) for t in totals) == 40
    assert sum(t.get("refused:duplicate", 0) for t in totals) == 80
    assert [await tables.totals(p, 9) for p in range(service.partitions)] == [
        {}
    ] * service.partitions
    total = 0
    for share in OptinSubgroup:
        records = await record_counts(tables, 8, share, range(service.partitions))
        assert set(records) <= {b"weather" + SEPARATOR + b"https://w.example/"}
        total += sum(records.values())
    assert total == 40
    await tables.close()
    _nothing_personal(service, [f"user-{n}" for n in range(40)] + ["weather", "w.example"])


def _nothing_personal(service: Service, texts: list[str]) -> None:
    for gateway in service.of_kind("gateway"):
        for written in (gateway.output(), gateway.metrics()):
            where = written.lower()
            for own in (gateway.port, gateway.metrics_port):  # Where it listens, said at its start.
                where = where.replace(f'"http://127.0.0.1:{own}/', "")
            for text in [*texts, service.token, "127.0.0.1:"]:
                assert text.lower() not in where, f"{text} in what the gateway wrote"


async def test_publications_are_served_as_they_are_released_and_metrics_stay_inside(service):
    """A release shows up without a restart, within moments, byte for byte."""
    service.releases.open_epoch(7)
    gateway = service.start_gateway().wait_ready()
    with httpx.Client(base_url=gateway.url, timeout=30) as client:
        assert client.get("/v1/head-lists/current").status_code == 404
        service.releases.seal_records(7)
        document = head_list_document(7)
        head_list = service.releases.publish_head_list(document).id
        # A head list that this gateway may not have read yet is looked for, not refused.
        first = client.get(f"/v1/head-lists/{head_list}")
        assert first.status_code == 200
        assert first.content == document.to_bytes()
        assert client.post("/v1/reports", json=reports(head_list, 1)[0]).status_code == 202
        assert client.get("/v1/head-lists/current").content == document.to_bytes()
        body = estimates(7)
        service.releases.publish_estimates(7, body)
        await until(
            lambda: client.get("/v1/estimates/latest").status_code == 200, "the publication"
        )
        assert client.get("/v1/estimates/latest").content == body
        states = client.get("/v1/epochs").json()["epochs"]
        assert [(e["epoch"], e["state"]) for e in states] == [(7, "published")]
        assert client.get("/metrics").status_code == 404, "metrics have a port of their own"
        assert client.get("/docs").status_code == 200
        assert client.head("/v1/epochs").status_code == 200
    metrics = gateway.metrics()
    assert re.search(
        r'blender_gateway_entries_total\{stem="client_reports",verdict="accepted"\} 1', metrics
    )
    assert 'verdict="late"} 0' in metrics
    assert "blender_gateway_ready 1" in metrics


async def test_a_stop_answers_what_is_under_way_and_leaves_with_0(service):
    """Rolling upgrades must not cost anybody a report."""
    service.releases.open_epoch(7)
    service.releases.seal_records(7)
    head_list = service.releases.publish_head_list(head_list_document(7)).id
    gateway = service.start_gateway(gateway__linger_s="1").wait_ready()

    entries = reports(head_list, 20)  # a cell of its own for each

    async with httpx.AsyncClient(base_url=gateway.url, timeout=30) as client:
        under_way = [
            asyncio.create_task(client.post("/v1/reports", json=entry)) for entry in entries
        ]
        await until(lambda: _in_flight(gateway) > 0, "a report that waits")
        stopped = await asyncio.to_thread(gateway.stop)
        answers = await asyncio.gather(*under_way, return_exceptions=True)

    assert stopped == 0, gateway.output()
    # A request that the gateway had not begun to read is cut off, and its sender sends it again.
    begun = {
        cell: answer
        for cell, answer in enumerate(answers)
        if not isinstance(answer, httpx.TransportError)
    }
    assert begun
    assert {answer.status_code for answer in begun.values()} == {202}
    assert "gateway_stopped" in gateway.output()
    service.start_worker()
    tables = await service.until_total(InputStream.CLIENT_REPORTS, 7, len(begun))
    cells = await tables.cell_counts(7, range(service.partitions), 51)
    await tables.close()
    assert [cells[cell] for cell in begun] == [1] * len(begun), "accepted, and counted once"
    assert cells.max() == 1


def _in_flight(gateway: Gateway) -> float:
    """Reports gather before they enter a frame, so a request is what can be seen to wait."""
    found = re.findall(r"^blender_gateway_requests_in_flight (\S+)$", gateway.metrics(), re.M)
    return float(found[0])


async def test_the_reader_gets_to_the_end_past_the_marks_of_transactions(service):
    """Every commit leaves an offset without a record; waiting for it would be for ever."""
    from blendstream.agents.gateway.state.publications import Publications
    from blendstream.streams.epoch_keys import KeyRing
    from blendstream.streams.kafka.kafka_clients import KafkaInspector

    service.releases.open_epoch(7)
    kafka = KafkaInspector(service.settings.kafka)
    publications = Publications()
    fold = ReleaseFold(
        publications,
        keys=KeyRing(service.settings.keys.masters()),
        topics=service.topics,
        history_epochs=5,
    )
    reader = ReleaseFollower(
        service.settings.kafka,
        fold,
        kafka,
        service.topics.releases.name,
        patience_s=20,
    )
    following = asyncio.create_task(reader.run())
    try:
        assert await reader.read_to_end()
        assert sorted(publications.epochs) == [7]
        service.releases.open_epoch(8)
        results = await asyncio.gather(*(reader.read_to_end() for _ in range(50)))
        assert all(results)
        assert sorted(publications.epochs) == [7, 8]
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await kafka.close()


def _start_and_fail(service: Service, **values: str) -> str:
    run = subprocess.run(
        [sys.executable, "-m", "blendstream.agents.cli", "gateway"],
        cwd=ROOT,
        env=service.environment(**values),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert run.returncode == 1, run.stderr
    return run.stderr


async def test_what_cannot_work_does_not_start_and_says_so_in_one_line(service, tmp_path):
    """Half a start is worse than none."""
    bad = tmp_path / "tokens"
    bad.write_text("nonsense\n")
    bad.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        # Everything else fails first: before this process listens.
        port = {"gateway__port": str(taken.getsockname()[1])}
        text = _start_and_fail(service, gateway__token_file=str(bad), **port)
        assert "line 1 of the token file" in text
        assert "gateway.port must be an address" in _start_and_fail(service, **port)
        missing = _start_and_fail(service, gateway__admission="no.such:hook", **port)
        assert "gateway.admission must name a factory" in missing
        away = _start_and_fail(
            service, kafka__url="kafka://127.0.0.1:1", kafka__request_timeout_s="2", **port
        )
    assert away.count("\n") <= 3
    assert "Kafka" in away


async def test_it_serves_a_unix_socket_and_starts_again_after_kill_9(service, tmp_path):
    """Behind an edge it listens on a file, which a killed gateway leaves behind."""
    file = tmp_path / "gateway.sock"
    for _ in range(2):
        gateway = service.start_gateway(gateway__unix_socket=str(file))
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(file))) as edge:

            def alive(edge: httpx.Client = edge) -> bool:
                return edge.get("http://gateway/healthz", timeout=5).status_code == 200

            await until(alive, "the gateway", forgive=httpx.TransportError, about=gateway.tail)
        assert f"unix:{file}" in gateway.output()
        assert "gateway_needs_edge" not in gateway.output()
        gateway.kill()


async def test_a_device_reports_through_the_gateway(service, tmp_path):
    """LocalClient and gateway, both real: fetch, check, randomise, send, counted once."""
    service.releases.open_epoch(7)
    service.releases.seal_records(7)
    document = head_list_document(
        7, randomizer=RandomizerSpec("two-stage", 4.0, 1e-5), wildcards=True
    )
    randomizer = randomizer_for(document.head_list)
    service.releases.publish_head_list(document, cells_per_answer=randomizer.cells_per_answer)
    service.releases.open_epoch(8, cohorts=2)
    gateway = service.start_gateway().wait_ready()
    service.start_worker()
    limits = Limits(
        epsilon_per_report=4.0,
        delta_per_report=1e-5,
        epsilon_per_period=40.0,
        delta_per_period=1e-4,
        period_s=30 * 86_400,
    )
    device = LocalClient(gateway.url, tmp_path / "device", limits)
    device.record("query 3", "https://r3.example/")
    # Opt-in users take turns in two cohorts; this epoch is the turn of one of these two.
    turn, other = (
        LocalClient(gateway.url, tmp_path / user, limits, opt_in=OptIn(user, service.token))
        for user in ("user-2", "user-1")
    )
    turn.record("query 3", "https://r3.example/")
    other.record("query 3", "https://r3.example/")

    sent = await asyncio.to_thread(device.report_now)
    again = await asyncio.to_thread(device.report_now)
    trusted = await asyncio.to_thread(turn.report_now)
    waits = await asyncio.to_thread(other.report_now)

    assert sent.code is ResultCode.SENT, sent
    assert again.code is ResultCode.NOTHING_NEW, again
    assert trusted.code is ResultCode.SENT, trusted
    assert waits.code is ResultCode.NOTHING_NEW, waits
    assert "this person's cohort takes part in another epoch" in waits.detail
    assert other.status().unsent_epoch is None, "raw records must not stay to be sent again"
    posts = 'blender_gateway_entries_total{stem="optin_records",verdict="other_cohort"} 1'
    assert posts in gateway.metrics()
    assert (await asyncio.to_thread(other.report_now)).code is ResultCode.NOTHING_NEW
    assert posts in gateway.metrics(), "nothing was sent again"
    await (await service.until_total(InputStream.CLIENT_REPORTS, 7, 1)).close()
    await (await service.until_total(InputStream.OPTIN_RECORDS, 8, 1)).close()
    _nothing_personal(service, ["query 3", "r3.example", "user-1", "user-2"])
