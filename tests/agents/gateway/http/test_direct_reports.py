"""Reports that are answered without the application: nothing shows it, nothing is left behind."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agents.gateway.http.cors import Cors
from agents.gateway.metrics import GATEWAY_TOTALS
from agents.gateway.submit.direct_reports import REPORTS_PATH
from streams.settings.sections import GatewaySettings
from tests.agents.gateway.doubles import (
    HEAD_LIST,
    TestGateway,
    make_gateway,
    report,
    report_target,
)
from tests.agents.gateway.http.http_cases import chunked, chunks, post, request, sized
from tests.agents.gateway.live import Live, live_gateway

GOOD = json.dumps(report()).encode()
JSON = b"content-type: application/json\r\n"
OLD = "cd" * 32


def gateway(deadline_s: float = 30.0, **options: Any) -> Callable[[], TestGateway]:
    limits = GatewaySettings(linger_s=0.001, delivery_deadline_s=deadline_s, buffer_bytes=1 << 20)
    targets = {HEAD_LIST: report_target(), OLD: report_target(head_list_id=OLD, late_from_ms=1)}
    return lambda: make_gateway(frame_limits=limits, targets=targets, **options)


@pytest.fixture
def live() -> Iterator[Live]:
    with live_gateway(gateway()) as running:
        yield running


def only_by_the_application(live: Live) -> None:
    live.server.config.http_protocol_class.direct = None  # type: ignore[union-attr]


def read_answer(connection: Any) -> bytes:
    answer = b""
    while b"\r\n\r\n" not in answer:
        more = connection.recv(4096)
        assert more, "closed before the answer"
        answer += more
    head = answer.partition(b"\r\n\r\n")[0]
    length = int(re.search(rb"content-length: (\d+)", head)[1])  # type: ignore[index]
    while len(answer) < len(head) + 4 + length:
        answer += connection.recv(4096)
    return answer


def held(live: Live, sent: bytes = b"") -> Any:
    """A connection whose report waits for Kafka."""
    live.gateway.producer.holding = True
    connection = live.connect()
    connection.sendall(sent or sized(GOOD))
    live.wait_for(lambda: bool(live.gateway.producer.sent))
    return connection


BODIES = {
    "good": GOOD,
    "good, with spaces": b"  " + GOOD + b"\n",
    "late": json.dumps(report() | {"head_list": OLD}).encode(),
    "unknown head list": json.dumps(report() | {"head_list": "ef" * 32}).encode(),
    "contributor not hexadecimal": json.dumps(report() | {"contributor": "x" * 32}).encode(),
    "cell out of range": json.dumps(report() | {"answers": [[51]]}).encode(),
    "two answers": json.dumps(report() | {"answers": [[1], [2]]}).encode(),
    "unknown field": json.dumps(report() | {"more": 1}).encode(),
    "batch": json.dumps([report(), report(contributor=2)]).encode(),
    "empty batch": b"[]",
    "number": b"7",
    "no JSON": b"{",
    "no UTF-8": GOOD.replace(b"ab", b"\xff\xff"),
    "deep": b"[" * 5000,
    "beyond the limit": GOOD + b" " * 3000,
}
REQUESTS = {
    **{name: sized(body) for name, body in BODIES.items()},
    "type given": sized(more=JSON),
    "type with charset": sized(more=b"content-type: application/json; charset=utf-8\r\n"),
    "other type": sized(more=b"content-type: text/plain\r\n"),
    "compressed": sized(more=b"content-encoding: gzip\r\n"),
    "closing": sized(more=b"connection: close\r\n"),
    "listed origin": sized(more=b"origin: https://news.example\r\n"),
    "other origin": sized(more=b"origin: https://evil.example\r\n"),
    "in chunks": chunked(chunks(GOOD[:9], GOOD[9:])),
    "no body": post(b"content-length: 0\r\n", b""),
    "with a question": sized().replace(b"/v1/reports", b"/v1/reports?a=b"),
    "another method": sized().replace(b"POST", b"PUT"),
    "HTTP/1.0": request(b"POST /v1/reports HTTP/1.0", b"content-length: %d\r\n" % len(GOOD), GOOD),
}


@pytest.mark.parametrize("origins", [(), ("https://news.example",), ("*",)])
def test_a_request_gets_the_same_answer_and_is_counted_alike_either_way(origins):
    """Two ways to one answer would otherwise be two services that drift apart."""
    limits = GatewaySettings(body_bytes=2048)
    options = {"limits": limits, "cors": Cors(origins) if origins else None}
    seen = []
    for by_the_application in (False, True):
        with live_gateway(gateway(**options)) as live:
            if by_the_application:
                only_by_the_application(live)
            answers: dict[str, Any] = {}
            for name, sent in REQUESTS.items():
                before = totals()
                with live.connect() as connection:
                    connection.sendall(sent)
                    answer = re.sub(rb"date: [^\r]+", b"date: now", read_answer(connection))
                counted = {key: n - before.get(key, 0) for key, n in totals().items()}
                answers[name] = (answer, {key: n for key, n in counted.items() if n})
            frames = sorted(entry for _, _, entry in live.gateway.producer.sent)
            assert live.gateway.app.in_flight == live.gateway.app.held_bytes == 0
            seen.append((answers, frames))
    assert seen[0] == seen[1]
    assert seen[0][0]["good"][0].startswith(b"HTTP/1.1 202 ")
    assert {answer[9:12] for answer, _ in seen[0][0].values()} == {
        b"202", b"400", b"405", b"413", b"415", b"422",
    }  # fmt: skip


def totals() -> dict[tuple[str, ...], float]:
    """Answers by route and status and verdicts on entries, without what depends on the time."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for metric in GATEWAY_TOTALS.collect()
        for sample in metric.samples
        if not sample.name.endswith(("_bucket", "_sum"))
    }


def test_a_report_waits_for_kafka_without_a_task(live):
    """What this way is for: a task and its scope cost more than the report."""
    with held(live) as connection:
        assert not live.server.server_state.tasks
        assert live.gateway.app.in_flight == 1
        assert live.gateway.app.held_bytes > 0
        live.call(live.gateway.producer.release)
        assert read_answer(connection).startswith(b"HTTP/1.1 202 ")
        assert live.gateway.app.in_flight == live.gateway.app.held_bytes == 0


def test_requests_sent_ahead_are_answered_in_their_order(live):
    get = request(b"GET /healthz HTTP/1.1")
    with held(live, sized(GOOD) + get + sized(b"{}") + sized(GOOD)) as connection:
        time.sleep(0.05)
        live.call(live.gateway.producer.release)
        answers = b""
        while answers.count(b'"accepted"') < 2:
            answers += connection.recv(4096)
    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"202", b"200", b"422", b"202"]


@pytest.mark.parametrize("pieces", [[20], [60], [len(sized()) - 5]], ids=["line", "head", "body"])
def test_a_report_in_pieces_is_read_whole(live, pieces):
    with live.connect() as connection:
        sent = sized()
        connection.sendall(sent[: pieces[0]])
        time.sleep(0.05)
        connection.sendall(sent[pieces[0] :])
        assert read_answer(connection).startswith(b"HTTP/1.1 202 ")


def test_what_is_no_http_behind_a_report_is_refused_after_the_reports_answer(live):
    with held(live, sized(GOOD) + b"nonsense\r\n\r\n") as connection:
        live.call(live.gateway.producer.release)
        answers = b""
        while more := connection.recv(4096):
            answers += more
    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"202", b"400"]


def test_a_sender_that_leaves_before_the_answer_leaves_nothing_behind(live):
    held(live).close()
    live.wait_for(lambda: not live.server.connections)
    assert live.gateway.app.in_flight == 1
    live.call(live.gateway.producer.release)
    live.wait_for(lambda: live.gateway.app.in_flight == 0)
    assert live.gateway.app.held_bytes == 0


def test_a_report_that_kafka_does_not_take_in_time_is_asked_for_again():
    with live_gateway(gateway(deadline_s=0.2)) as live, held(live) as connection:
        answer = read_answer(connection)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\n" in answer
        connection.sendall(request(b"GET /healthz HTTP/1.1"))
        assert read_answer(connection).startswith(b"HTTP/1.1 200 ")


def test_a_stop_waits_for_the_answer_and_closes_the_connection(live):
    with held(live) as connection:
        live.call(lambda: setattr(live.server, "should_exit", True))
        time.sleep(0.3)
        live.call(live.gateway.producer.release)
        answer = read_answer(connection)
        assert answer.startswith(b"HTTP/1.1 202 ")
        assert b"connection: close\r\n" in answer
        assert not connection.recv(1)


def test_a_connection_takes_many_reports(live):
    with live.connect() as connection:
        for number in range(20):
            connection.sendall(sized(json.dumps(report(contributor=number)).encode()))
            assert read_answer(connection).startswith(b"HTTP/1.1 202 ")
    assert live.gateway.producer.entries() == 20


def test_an_unexpected_error_is_a_500_and_the_log_does_not_tell_the_report(live, caplog):
    live.gateway.writer.add_report = None
    with live.connect() as connection:
        connection.sendall(sized(json.dumps(report(contributor=0xDECAF)).encode()))
        answer = read_answer(connection)
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert "request_failed" in caplog.text
    assert "decaf" not in caplog.text.lower()
    assert live.gateway.app.in_flight == live.gateway.app.held_bytes == 0


def test_a_limit_on_the_rate_holds_and_what_is_refused_costs_nothing_of_it():
    limits = GatewaySettings(reports_per_s=0.001)
    with live_gateway(gateway(limits=limits)) as live:
        bucket = live.gateway.app._report_rate
        assert bucket is not None
        bucket.burst = bucket._left = 2.0
        statuses = []
        with live.connect() as connection:
            for body in (BODIES["late"], GOOD, GOOD):
                connection.sendall(sized(body))
                statuses.append(read_answer(connection)[9:12])
        assert statuses == [b"422", b"202", b"429"]


def test_with_an_admission_hook_the_application_judges_every_request():
    class Nobody:
        async def refusal(self, headers: Any, body: bytes) -> str:
            return "nobody is admitted"

    with live_gateway(gateway(admission=Nobody())) as live, live.connect() as connection:
        connection.sendall(sized())
        assert read_answer(connection).startswith(b"HTTP/1.1 403 ")


def test_the_address_is_that_of_the_route(live):
    assert ("POST", REPORTS_PATH) in GATEWAY_TOTALS._routes
    assert live.server.config.http_protocol_class.direct_url == REPORTS_PATH.encode()  # type: ignore[union-attr]
