"""The gateway's own TLS: memory and time have the same bounds as without it."""

from __future__ import annotations

import contextlib
import multiprocessing
import socket
import ssl
import time
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest

from agents.gateway.read.publications import PublishedDocument
from streams.wire.submissions import MAX_BODY_BYTES
from tests.agents.gateway.doubles import TestGateway, make_gateway
from tests.agents.gateway.live import Live, live_gateway
from tests.secured_servers import Authority

READERS = 40
spawning = multiprocessing.get_context("spawn")
MIB = 1 << 20
DOCUMENT = bytes(8 * MIB)
BODY = b" " * MAX_BODY_BYTES
SEND = b"POST /v1/reports HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)
ASK = b"GET /v1/estimates/1 HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    certificate, key = Authority(tmp_path_factory.mktemp("tls")).issue("gateway")
    return {"tls_certificate_file": certificate, "tls_key_file": key}


def with_document() -> TestGateway:
    gateway = make_gateway()
    gateway.publications.estimates = {1: PublishedDocument(1, "ab" * 32, DOCUMENT)}
    return gateway


def connected(port: int, *, tls: bool = True) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    if not tls:
        return connection
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(connection)


def settled_rss(process: psutil.Process) -> int:
    """Memory of a process when it no longer grows."""
    rss, since = process.memory_info().rss, time.monotonic()
    while time.monotonic() - since < 0.5:
        time.sleep(0.05)
        if abs(process.memory_info().rss - rss) > MIB:
            rss, since = process.memory_info().rss, time.monotonic()
    return process.memory_info().rss


def serve(pipe: Connection, settings: dict[str, Path]) -> None:
    """A process of its own, whose memory is the server's alone."""
    with live_gateway(with_document, **settings) as live:
        pipe.send(live.port)
        pipe.recv()


@pytest.mark.parametrize(
    ("tls", "each"), [(False, 64 * 1024), (True, 768 * 1024)], ids=["http", "https"]
)
def test_a_connection_takes_little_memory_after_large_bodies_and_answers_left_unread(
    files, tls, each
):
    """A large document is one for all its readers; encrypted whole, it was one for each of them.

    40 readers of 8 MiB took 729 MiB. docs/api.md states what a connection may take.
    """
    ours, theirs = spawning.Pipe()
    server = spawning.Process(target=serve, args=(theirs, files if tls else {}))
    server.start()
    try:
        port = ours.recv()
        process = psutil.Process(server.pid)
        with contextlib.ExitStack() as stack, connected(port, tls=tls) as first:
            exchange(first, SEND)
            exchange(first, ASK)
            before = settled_rss(process)
            for _ in range(READERS):
                connection = stack.enter_context(connected(port, tls=tls))
                exchange(connection, SEND)
                connection.sendall(ASK)
            grown = settled_rss(process) - before
    finally:
        ours.send("enough")
        server.join(10)
        server.kill()
    assert grown < READERS * each


def exchange(connection: socket.socket, request: bytes) -> None:
    """Send a request and read its answer, if it is a short one."""
    connection.sendall(request)
    assert connection.recv(4096).startswith(b"HTTP/1.1 ")


def test_a_reader_that_does_not_take_its_answer_is_cut_off(files):
    with (
        live_gateway(with_document, read_timeout_s=0.5, **files) as live,
        connected(live.port) as stuck,
    ):
        stuck.sendall(ASK)
        live.wait_for(lambda: len(live.server.server_state.connections) == 1)
        live.wait_for(lambda: not live.server.server_state.connections)
        assert len(read_all(stuck)) < len(DOCUMENT)


def test_a_reader_that_takes_its_time_gets_all_of_it(files):
    with (
        live_gateway(with_document, read_timeout_s=0.5, **files) as live,
        connected(live.port) as reader,
    ):
        reader.sendall(ASK.replace(b"host", b"connection: close\r\nhost"))
        head, _, body = read_all(reader, pause_s=0.002).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert body == DOCUMENT


def read_all(connection: socket.socket, pause_s: float = 0.0) -> bytes:
    read = bytearray()
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(MIB):
            read += piece
            time.sleep(pause_s)
    return bytes(read)


def test_a_handshake_that_does_not_come_ends(files):
    """Such a connection has no protocol of ours yet, and nothing of ours would close it."""
    with live_gateway(read_timeout_s=0.5, **files) as live, live.connect() as silent:
        began = time.monotonic()
        assert silent.recv(1) == b""
        assert time.monotonic() - began < 5


def test_connections_are_limited_from_their_first_byte(files):
    """And one that was closed makes room."""
    with live_gateway(connections=4, **files) as live:
        with contextlib.ExitStack() as stack:
            begun = [stack.enter_context(live.connect()) for _ in range(3)]
            stack.enter_context(connected(live.port))
            with pytest.raises(OSError), connected(live.port):  # noqa: PT011
                pytest.fail("there is room for four")
            assert [_closed(connection) for connection in begun] == [False] * 3
        live.wait_for(lambda: _takes_four(live))


def _closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False


def _takes_four(live: Live) -> bool:
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(4):
                stack.enter_context(connected(live.port))
    except OSError:
        return False
    return True
