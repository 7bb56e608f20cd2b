"""HTTP/1.1 through nginx: no request of one client ends in another's, and few cases deviate.

nginx forwards requests of all clients over a few shared connections. If nginx and the gateway read
one byte stream in two ways (request smuggling), the rest of one client's request becomes the start
of another's. So after each case another client asks two questions over the same shared connection
and must get its own answers. Deviations from the gateway's own answers are listed with the reason.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator

import h11
import pytest

from blendstream.agents.gateway.state.publications import PublishedDocument
from blendstream.agents.local.local_edge import LocalEdge
from blendstream.agents.local.ports import free_port
from blendstream.streams.settings.sections import GatewaySettings
from tests.agents.gateway.doubles import TestGateway, make_gateway
from tests.agents.gateway.http.http_cases import CASES, Case, request
from tests.agents.gateway.live import Live, live_gateway

pytestmark = pytest.mark.integration

#: Where the answer through nginx is another than the gateway's own, by the reason.
DEVIATIONS: dict[str, dict[str, tuple[int, ...]]] = {
    "nginx normalises the head and body before it forwards them, so no one reads them twice": {
        "host: a port of letters": (200,),  # it forwards the name without the port
        "version: HTTP/1.2": (200,),
        "version: HTTP/1.10": (200,),
        "line: a space at the end": (200,),
        "line: lines ended by LF": (200,),
        "header: an LF at the end of a field": (200,),
        "header: no colon": (200,),  # a header without a value
        "coding: a bad trailer": (202,),  # it drops trailers
        "coding: 60 KB of trailers": (202,),
        "coding: many short trailers": (202,),
    },
    "neither nginx nor the gateway uses the name, and nobody is reached by it": {
        "host: a user in Host": (200,),
        "host: an open bracket": (200,),
        "host: a bad escape in Host": (200,),
        "host: a Host that is no ASCII": (200,),
    },
    "nginx refuses it before the gateway, which would read it": {
        "host: white space around it": (400,),  # a tab
        "version: RTSP/1.0, which the parser knows": (400,),
        "line: an escaped NUL": (400,),
        "line: a bad escape": (400,),
        "line: a way up": (400,),
        "line: OPTIONS for all": (400,),
        "header: a head just within the limit": (431,),  # 8 KiB per field
    },
    "nginx refuses it with another status": {
        "version: HTTP/0.9 by name": (400,),
        "version: HTTP/3.0": (505,),
        "header: 60 KB of target": (414,),
        "header: 60 KB without an end": (414,),
        "coding: chunks in chunks": (501,),
        "coding: gzip last": (501,),
        "coding: only gzip": (501,),
        "coding: identity": (501,),
        "coding: no coding": (501,),
        "coding: another word": (501,),
        "coding: a parameter": (501,),
        "coding: a vertical tab": (501,),
    },
    "nginx closes without an answer: HTTP/0.9 has no status": {
        "version: HTTP/0.9": (),
        "version: no version": (),
    },
    "nginx waits for the end of the chunk's extension, and closes after client_body_timeout": {
        "coding: an LF in an extension": (),
    },
    "nginx offers no upgrade, and serves both requests": {
        "connection: an upgrade with a body": (202, 200),
    },
}


def patient_gateway() -> TestGateway:
    gateway = make_gateway(
        frame_limits=GatewaySettings(linger_s=0.001, delivery_deadline_s=30, buffer_bytes=1 << 20)
    )
    gateway.publications.estimates = {1: PublishedDocument(1, "ab" * 32, b"{}" * 1000)}
    return gateway


#: nginx forwards these, and uvicorn refuses them before the application: 400, but in plain text.
IN_PLAIN_TEXT = {
    "line: an unknown method",
    "line: a target that is no ASCII",
    "header: a bracket in a name",
    "header: a name that is no ASCII",
    "header: a control character in a value",
}


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with live_gateway(patient_gateway) as running:
        yield running


@pytest.fixture(scope="module")
def edge(live: Live) -> Iterator[LocalEdge]:
    """One worker and one connection to the gateway: what is left over meets the next request."""
    with LocalEdge(
        plain_port=free_port(),
        gateways=[f"127.0.0.1:{live.port}"],
        changes=[
            ("worker_processes 2;", "worker_processes 1;"),
            ("        keepalive 256;", "        keepalive 1;"),
        ],
    ) as running:
        yield running


def connect(edge: LocalEdge) -> socket.socket:
    assert edge.plain_port is not None
    return socket.create_connection(("127.0.0.1", edge.plain_port), timeout=3)


def exchange(edge: LocalEdge, case: Case) -> tuple[tuple[int, ...], bool]:
    """Send a case; return every status, and True if the connection takes another request."""
    methods = ["HEAD"] if b"HEAD /" in case.sent[:8] else []
    statuses: list[int] = []
    with connect(edge) as connection:
        connection.sendall(case.sent)
        more = b""
        while len(statuses) < len(case.statuses):
            method = (methods or ["GET"]).pop()
            plain = case.name in IN_PLAIN_TEXT
            status, more, closes = one_response(connection, more, method, plain=plain)
            if status is not None:
                statuses.append(status)
            if closes:
                return tuple(statuses), False
        with contextlib.suppress(ConnectionError):
            connection.sendall(request(headers=b"host: x\r\nconnection: close\r\n"))
        status, more, closes = one_response(connection, more, "GET")
        while not closes:  # an answer to a request that the case was not known to contain
            assert status is not None
            statuses.append(status)
            status, more, closes = one_response(connection, more, "GET")
        assert not more, "bytes after the last answer"
        return tuple(statuses), status == 200


def one_response(
    connection: socket.socket, more: bytes, method: str, *, plain: bool = False
) -> tuple[int | None, bytes, bool]:
    """Status, bytes behind it, and whether the server closes; no status at the end."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
    client.send(h11.EndOfMessage())
    if more:
        client.receive_data(more)
    status, closes, problem, body = None, False, False, b""
    while True:
        event = client.next_event()
        if event is h11.NEED_DATA:
            try:
                received = connection.recv(1 << 16)
            except (ConnectionError, TimeoutError):
                received = b""
            if not received and status is None:
                return None, b"", True
            client.receive_data(received)
        elif isinstance(event, h11.InformationalResponse):
            return event.status_code, client.trailing_data[0], False
        elif isinstance(event, h11.Response):
            status = event.status_code
            closes = (b"connection", b"close") in list(event.headers)
            problem = (b"content-type", b"application/problem+json") in list(event.headers)
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            if status and status >= 400 and method != "HEAD":
                assert problem != plain, body
                assert plain or json.loads(body)["status"] == status
            return status, client.trailing_data[0], closes
        else:
            raise AssertionError(f"no response but {event!r}")


def ask_as_another_client(edge: LocalEdge) -> None:
    """Two requests whose answers cannot be confused with those of any case."""
    with connect(edge) as connection:
        for path, expected in ((b"/v1/estimates/1", b"{}{}"), (b"/nothing-but-this", b"404")):
            connection.sendall(request(b"GET " + path + b" HTTP/1.1"))
            answer = b""
            while expected not in answer:
                received = connection.recv(1 << 16)
                assert received, answer
                answer += received


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_request_through_nginx_ends_with_its_own_client(edge, case):
    """Behind a shared connection a request that is read in two ways reaches someone else."""
    statuses, goes_on = exchange(edge, case)
    ask_as_another_client(edge)

    known = [(reason, of[case.name]) for reason, of in DEVIATIONS.items() if case.name in of]
    if known:
        ((reason, expected),) = known
        assert statuses == expected, reason
        assert statuses != case.statuses, "no longer a deviation; remove it from the list"
    else:
        assert statuses == case.statuses
        # nginx has read a refused request whole, so it may go on where the gateway alone closes.
        assert goes_on or case.then != "open" or case.name == "line: TRACE"


def test_every_listed_deviation_is_a_case():
    """A case that was renamed would leave its deviation behind."""
    assert {name for of in DEVIATIONS.values() for name in of} <= {case.name for case in CASES}
