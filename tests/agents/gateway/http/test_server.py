"""The gateway on its real server, without an edge: stops, lengths, headers."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from blendstream.agents.gateway.http.listening import listen
from blendstream.agents.gateway.http.server import KEEP_ALIVE_S
from blendstream.streams.settings.sections import GatewaySettings
from tests.agents.gateway.doubles import report
from tests.agents.gateway.http.http_cases import chunked, chunks, post, request, sized
from tests.agents.gateway.live import Live, live_gateway, patient_gateway

GOOD = json.dumps(report()).encode()
CLOSE = b"connection: close\r\n"


@pytest.fixture
def live() -> Iterator[Live]:
    with live_gateway(patient_gateway) as running:
        yield running


def all_of(connection: socket.socket) -> bytes:
    """Everything until the server closes."""
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def held(live: Live) -> socket.socket:
    """A connection whose report waits for Kafka."""
    live.gateway.producer.holding = True
    connection = live.connect()
    connection.sendall(sized(GOOD))
    live.wait_for(lambda: bool(live.gateway.producer.sent))
    return connection


def test_a_stop_answers_the_requests_in_flight_and_closes_their_connections(live):
    """What was queued is accepted, and its sender must hear so."""
    with held(live) as connection, live.connect() as idle:
        live.call(lambda: setattr(live.server, "should_exit", True))
        assert not idle.recv(1), "an idle connection is closed at once"
        time.sleep(0.2)
        live.call(live.gateway.producer.release)
        answer = all_of(connection)
    assert answer.startswith(b"HTTP/1.1 202 ")
    assert b"connection: close\r\n" in answer


def test_a_sender_that_leaves_before_the_response_leaves_nothing_behind(live):
    held(live).close()
    assert live.gateway.app.in_flight == 1
    live.call(live.gateway.producer.release)
    live.wait_for(lambda: live.gateway.app.in_flight == 0)
    assert live.gateway.app.held_bytes == 0


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (request(headers=b"host: x\r\n" + CLOSE), 200),
        (sized(GOOD, CLOSE), 202),
        (sized(b"{}", CLOSE), 422),
        (request(b"GET /nowhere HTTP/1.1", b"host: x\r\n" + CLOSE), 404),
        (request(b"GET /v1/estimates/1 HTTP/1.1", b"host: x\r\n" + CLOSE), 200),
        (b"no HTTP at all\r\n\r\n", 400),
    ],
)
def test_every_response_forbids_browsers_to_guess_its_type(live, sent, status):
    """A query in a JSON document must never run as a script."""
    with live.connect() as connection:
        connection.sendall(sent)
        head = all_of(connection).partition(b"\r\n\r\n")[0]
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert head.count(b"x-content-type-options: nosniff") == 1
    assert b"server:" not in head.lower()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (chunked(chunks(GOOD)), 411),
        (chunked(b"9\r\n" + GOOD[:9] + b"nonsense"), 400),
        (post(b"", b""), 411),
        # The parser takes what follows an upgrade for another protocol, and reads no body.
        (sized(GOOD, b"connection: upgrade\r\nupgrade: h2c\r\n"), 400),
        (post(b"content-length: %s\r\n" % (b"9" * 30), GOOD), 400),
        (post(b"content-length: 600000\r\n", b""), 413),
    ],
)
def test_a_body_whose_length_is_unknown_wrong_or_too_large_is_refused(live, sent, status):
    """Behind a body whose framing broke, bytes of somebody else's request may follow."""
    with live.connect() as connection:
        connection.sendall(sent)
        answer = all_of(connection)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert re.findall(rb"HTTP/1.1 (\d+)", answer)[1:] in ([], [b"400"]), "nothing else is accepted"
    assert live.gateway.producer.entries() == 0
    assert live.gateway.app.held_bytes == 0


def test_a_body_that_ends_too_early_is_not_accepted(live):
    with live.connect() as connection:
        connection.sendall(post(b"content-length: %d\r\n" % (len(GOOD) + 1), GOOD))
        live.wait_for(lambda: live.gateway.app.held_bytes > 0)
        connection.shutdown(socket.SHUT_WR)
        assert b" 202 " not in all_of(connection)
    live.wait_for(lambda: live.gateway.app.in_flight == 0)
    assert live.gateway.producer.entries() == 0
    assert live.gateway.app.held_bytes == 0


def test_connections_outlive_those_that_the_edge_keeps_open():
    """The side that sends the next request must close first, or that request may be lost."""
    edge = (Path(__file__).parents[4] / "deploy/edge/nginx.conf").read_text()
    upstream = edge[edge.index("upstream gateway") :].partition("}")[0]
    (edge_s,) = re.findall(r"keepalive_timeout (\d+)s", upstream)
    assert int(edge_s) < KEEP_ALIVE_S


def test_reports_arrive_over_a_unix_socket(tmp_path):
    file = tmp_path / "gateway.sock"
    with (
        live_gateway(patient_gateway, listen(GatewaySettings(unix_socket=file))) as live,
        socket.socket(socket.AF_UNIX) as edge,
    ):
        edge.settimeout(10)
        edge.connect(str(file))
        edge.sendall(sized(GOOD, CLOSE))
        assert all_of(edge).startswith(b"HTTP/1.1 202 ")
        assert live.gateway.producer.entries() == 1


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
            connection.sendall(
                request(b"GET /v1/estimates/1 HTTP/1.1", b"host: x\r\n" + CLOSE + fields)
            )
            assert all_of(connection).startswith(b"HTTP/1.1 %d " % status)
