"""The pinned HTTP server against what HTTP/1.1 asks for, over real sockets.

h11 is the control, twice. It reads every answer, as a client would. And it reads every request: it
must come to the same verdict as the gateway, or the case says in which way h11 differs. Where a
proxy in front sees one request and the gateway another, one client can slip a request into
another's connection; so the gateway refuses what could be read in two ways.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from email.utils import parsedate_to_datetime

import h11
import pytest

from agents.gateway.read.publications import PublishedDocument
from streams.settings.sections import GatewaySettings
from tests.agents.gateway.doubles import TestGateway, make_gateway
from tests.agents.gateway.http.http_cases import CASES, HELD, Case, request
from tests.agents.gateway.live import Live, live_gateway

LAST = request(headers=b"host: x\r\nconnection: close\r\n")


def patient_gateway() -> TestGateway:
    gateway = make_gateway(
        frame_limits=GatewaySettings(linger_s=0.001, delivery_deadline_s=30, buffer_bytes=1 << 20)
    )
    gateway.publications.estimates = {1: PublishedDocument(1, "ab" * 32, b"{}" * 1000)}
    return gateway


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with live_gateway(patient_gateway) as running:
        yield running


class Answers:
    """Reads answers from a connection with h11, one after the other."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._more = b""

    def next(self, method: str = "GET") -> tuple[h11.Response | h11.InformationalResponse, bytes]:
        """One answer to a request of this method, and its body."""
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
        client.send(h11.EndOfMessage())
        if self._more:
            client.receive_data(self._more)
        answer, body = None, b""
        while True:
            event = client.next_event()
            if event is h11.NEED_DATA:
                client.receive_data(self._connection.recv(1 << 16))
            elif isinstance(event, h11.InformationalResponse):
                self._more = client.trailing_data[0]
                return event, b""
            elif isinstance(event, h11.Response):
                answer = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert answer is not None
                self._more = client.trailing_data[0]
                return answer, body
            else:
                raise AssertionError(f"no answer but {event!r}")

    def at_end(self) -> bool:
        """Whether the server closed without another byte."""
        return not self._more and not self._connection.recv(1)


def methods(case: Case) -> Iterator[str]:
    """The methods of the requests in a case, as far as they are told by their lines."""
    yield from ("HEAD",) if b"HEAD /" in case.sent[:8] else ()
    while True:
        yield "GET"


def check(answers: Answers, case: Case) -> None:
    """Read what came back."""
    for n, (status, method) in enumerate(zip(case.statuses, methods(case), strict=False)):
        answer, body = answers.next(method)
        assert answer.status_code == status, body
        named = answer.headers.raw_items()
        if status == 100:
            continue
        dates = [value for name, value in named if name.lower() == b"date"]
        assert len(dates) == 1, "every answer has a Date"
        assert parsedate_to_datetime(dates[0].decode()).tzinfo is not None
        names = {name.lower() for name, _ in named}
        assert (b"content-length" in names) == (status not in (204, 304))
        assert b"transfer-encoding" not in names
        last = n == len(case.statuses) - 1
        assert ((b"connection", b"close") in list(answer.headers)) == (last and case.then != "open")
        if last and case.then == "refused":
            assert (b"content-type", b"application/problem+json") in list(answer.headers)
            assert json.loads(body)["status"] == status


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_sent_gets_the_answer_that_http_asks_for(live, case):
    with live.connect() as connection:
        connection.sendall(case.sent)
        answers = Answers(connection)
        check(answers, case)
        if case.then == "open":
            # Nothing of what was sent is left over to be taken for a request.
            connection.sendall(LAST)
            assert answers.next()[0].status_code == 200
        assert answers.at_end()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_h11_sees_the_same_requests_or_is_known_to_differ(case):
    """A control that is no part of the server: a table of one's own mistakes proves nothing."""
    parsed = sum(status != 100 for status in case.statuses) - (case.then == "refused")
    ours = (parsed, case.then == "refused")
    if case.h11:
        assert seen_by_h11(case.sent) != ours, "h11 agrees by now; remove the note"
    else:
        assert seen_by_h11(case.sent) == ours


def seen_by_h11(sent: bytes) -> tuple[int, bool]:
    """How many requests h11 reads, and whether it refuses what comes then."""
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=64 * 1024)
    server.receive_data(sent)
    read = 0
    try:
        while True:
            event = server.next_event()
            if event in (h11.NEED_DATA, h11.PAUSED):
                return read, False
            if isinstance(event, h11.EndOfMessage):
                read += 1
                server.send(h11.Response(status_code=404, headers=[("content-length", "0")]))
                server.send(h11.EndOfMessage())
                if server.our_state is not h11.DONE:
                    return read, False
                server.start_next_cycle()
    except h11.RemoteProtocolError:
        return read, True


@pytest.mark.parametrize("case", HELD, ids=lambda case: case.name)
def test_answers_keep_the_order_of_their_requests(live, case):
    """A 400 that overtakes is taken for the answer to the report before it."""
    live.gateway.producer.holding = True
    before = len(live.gateway.producer.sent)
    with live.connect() as connection:
        connection.sendall(case.sent)
        live.wait_for(lambda: len(live.gateway.producer.sent) > before)
        connection.settimeout(0.05)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(10)
        live.call(live.gateway.producer.release)
        answers = Answers(connection)
        check(answers, case)
        if case.then == "open":
            connection.sendall(LAST)
            assert answers.next()[0].status_code == 200
        assert answers.at_end()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_size_of_segments_changes_nothing(live, case):
    """Limits that only look at what has come so far let through what comes at once."""
    step = 1 if len(case.sent) < 400 else 999
    with live.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for i in range(0, len(case.sent), step):
                connection.sendall(case.sent[i : i + step])
            check(Answers(connection), case)
        except ConnectionError:
            # It closed before all was sent: the answer may be lost on the way.
            assert case.then != "open"


def test_several_lines_of_one_list_are_one_list(live):
    """A cache may ask with each tag that it has on a line of its own."""
    tag = b'"%s"' % (b"ab" * 32)
    for lines, status in (
        ((b'"a"', tag), 304),
        ((tag, b'"a"'), 304),
        ((b'"a"', b'W/"b", ' + tag, b'"c"'), 304),
        ((b'"a"', b'"b"'), 200),
    ):
        fields = b"".join(b"if-none-match: " + line + b"\r\n" for line in lines)
        with live.connect() as connection:
            connection.sendall(request(b"GET /v1/estimates/1 HTTP/1.1", b"host: x\r\n" + fields))
            answer, _ = Answers(connection).next()
        assert answer.status_code == status


def test_what_cannot_be_read_is_logged_once_in_a_while_and_without_content(caplog):
    """Anybody can send rubbish, as fast as the network carries it."""
    with caplog.at_level(logging.WARNING), live_gateway() as live:
        for _ in range(50):
            with live.connect() as connection:
                connection.sendall(b"BREW /secret-query HTTP/1.1\r\n\r\n")
                assert Answers(connection).next()[0].status_code == 400
    assert [record.message for record in caplog.records] == ["requests_unreadable"]
    assert "secret" not in str(vars(caplog.records[0]))
