"""Connections that are slow, endless or no HTTP at all, on the real server."""

# ruff: noqa: ASYNC110 - a test has the event loop to itself, and may wait.

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator

import pytest
import uvicorn

from agents.gateway.http.uvicorn_protocol import protocol_class, sweep
from agents.gateway.read.publications import PublishedDocument
from agents.local.ports import free_port
from streams.settings.sections import GatewaySettings
from tests.agents.gateway.doubles import TestGateway, make_gateway, report


@contextlib.asynccontextmanager
async def serving(
    *,
    max_connections: int = 100,
    read_timeout_s: float = 60.0,
    gateway: TestGateway | None = None,
) -> AsyncIterator[int]:
    port = free_port()
    app = (gateway or make_gateway()).app
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            port=port,
            http=protocol_class(
                max_connections=max_connections,
                read_timeout_s=read_timeout_s,
                direct=app.direct.take,
                direct_url=b"/v1/reports",
            ),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
        )
    )
    with contextlib.ExitStack() as stack:
        server.capture_signals = lambda: stack  # type: ignore[method-assign]
        running = asyncio.create_task(server.serve())
        sweeping = asyncio.create_task(sweep(server.server_state.connections, every_s=0.2))
        while not server.started:
            await asyncio.sleep(0.01)
        try:
            yield port
        finally:
            sweeping.cancel()
            server.should_exit = True
            await running


async def exchange(port: int, data: bytes, timeout_s: float = 10) -> bytes:
    """Send bytes and read until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        async with asyncio.timeout(timeout_s):
            return await reader.read()
    finally:
        writer.close()


def post(body: bytes, extra: bytes = b"connection: close\r\n") -> bytes:
    head = b"POST /v1/reports HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n" % len(body)
    return head + extra + b"\r\n" + body


async def test_a_report_over_a_socket():
    async with serving() as port:
        answer = await exchange(port, post(json.dumps(report()).encode()))
    assert answer.startswith(b"HTTP/1.1 202 ")


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/reports HTTP/1.1\r\ncontent-length: x\r\n\r\n",
        b"\x16\x03\x01\x00\xff",
    ],
)
async def test_what_is_no_http_gets_a_problem_and_is_closed(data):
    async with serving() as port:
        answer = await exchange(port, data)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in head
    assert json.loads(body)["status"] == 400


async def test_a_head_without_end_is_cut_off():
    """Headers are held in memory until they are complete."""
    async with serving() as port:
        endless = b"GET /healthz HTTP/1.1\r\n" + b"".join(
            b"x-%d: %s\r\n" % (i, b"y" * 100) for i in range(1000)
        )
        answer = await exchange(port, endless)
    assert answer.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize(
    "sent",
    [b"GET /healthz HT", b"GET /healthz\r\n", post(b"x" * 10)[:-5]],
    ids=["head", "HTTP/0.9", "body"],
)
async def test_a_request_that_does_not_arrive_in_time_is_turned_away(sent):
    """One byte a minute would otherwise hold a connection for ever."""
    async with serving(read_timeout_s=0.5) as port:
        answer = await exchange(port, sent)
    assert answer.startswith(b"HTTP/1.1 408 ")


async def test_a_connection_that_says_nothing_is_closed():
    async with serving(read_timeout_s=0.5) as port:
        assert await exchange(port, b"") == b""


async def test_a_sender_that_drips_is_not_saved_by_its_drops():
    """The clock starts with the first byte and is not reset by the next."""
    async with serving(read_timeout_s=1.0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        began = asyncio.get_running_loop().time()
        with contextlib.suppress(ConnectionError):
            for byte in post(b"{}" + b" " * 200):
                writer.write(bytes([byte]))
                await asyncio.sleep(0.05)
                if asyncio.get_running_loop().time() - began > 5:
                    break
                if reader.at_eof() or reader._buffer:
                    break
        try:
            answer = await reader.read()
        except ConnectionResetError:  # the answer was overtaken by the next drop
            answer = None
        took = asyncio.get_running_loop().time() - began
        writer.close()
    assert answer is None or answer.startswith(b"HTTP/1.1 408 ")
    assert took < 5


async def _open_after_an_answer(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection whose first request was answered, and that is kept for the next."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(27)
    return reader, writer


@pytest.mark.parametrize("drops", [1, 100], ids=["once", "dripping"])
async def test_empty_lines_between_requests_do_not_keep_a_connection(drops):
    """The parser begins no request for a bare CRLF, and uvicorn stops its clock at any byte.

    36 bytes on each of 10 000 connections shut the gateway to everyone, for good.
    """
    async with serving(read_timeout_s=0.5) as port:
        reader, writer = await _open_after_an_answer(port)
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionError):
                for _ in range(drops):
                    writer.write(b"\r\n")
                    await asyncio.sleep(0.1)
                    if reader.at_eof() or reader._buffer:
                        break
                await reader.read()
        assert asyncio.get_running_loop().time() - began < 3
        writer.close()


async def test_connections_full_of_empty_lines_make_room_for_others():
    async with serving(read_timeout_s=0.5, max_connections=5) as port:
        held = [await _open_after_an_answer(port) for _ in range(5)]
        for _, writer in held:
            writer.write(b"\r\n")
        assert (await exchange(port, _HEALTH)).startswith(b"HTTP/1.1 503 ")
        async with asyncio.timeout(5):
            while not (await exchange(port, _HEALTH)).startswith(b"HTTP/1.1 200 "):
                await asyncio.sleep(0.1)
        for _, writer in held:
            writer.close()


async def test_a_body_that_ends_after_its_answer_does_not_keep_a_connection():
    """Nothing is under way then, and uvicorn's clock was stopped by the body's last bytes."""
    async with serving(read_timeout_s=0.5) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        request = post(b"x" * 10, b"content-type: text/plain\r\n")
        writer.write(request[:-5])
        async with asyncio.timeout(5):
            assert (await reader.readline()).startswith(b"HTTP/1.1 415 ")
            writer.write(request[-5:])
            await reader.read()
        writer.close()


async def test_an_empty_line_before_a_request_is_allowed():
    """Old clients end a body with one; the next request has its whole time to arrive."""
    async with serving(read_timeout_s=1.0) as port:
        reader, writer = await _open_after_an_answer(port)
        for piece in (b"\r\n", b"GET /healthz HTTP/1.1\r\n", b"host: x\r\n\r\n"):
            writer.write(piece)
            await asyncio.sleep(0.5)
        async with asyncio.timeout(5):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        writer.close()


async def test_a_slow_answer_is_not_a_slow_request():
    """Kafka may take its time; the sender did everything in time."""
    patient = GatewaySettings(linger_s=0.001, delivery_deadline_s=30, buffer_bytes=1 << 20)
    gateway = make_gateway(frame_limits=patient)
    gateway.producer.holding = True
    async with serving(read_timeout_s=0.1, gateway=gateway) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post(json.dumps(report()).encode(), b""))
        await asyncio.sleep(0.7)  # longer than the time to arrive and the next look at it
        gateway.producer.release()
        assert (await reader.readline()).startswith(b"HTTP/1.1 202 ")
        writer.close()


@pytest.mark.parametrize("extra", [b"", b"connection: close\r\n"], ids=["kept", "closing"])
async def test_a_reader_that_does_not_take_its_answer_is_cut_off(extra):
    """It holds the answer and a connection; and closing waits for it to read the rest."""
    gateway = make_gateway()
    body = bytes(24 << 20)  # more than the kernel takes
    gateway.publications.estimates = {1: PublishedDocument(1, "ab" * 32, body)}
    async with serving(read_timeout_s=0.5, max_connections=1, gateway=gateway) as port:
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", port)) as stuck:
            stuck.setblocking(False)
            await loop.sock_sendall(
                stuck, b"GET /v1/estimates/1 HTTP/1.1\r\nhost: x\r\n" + extra + b"\r\n"
            )
            while (answer := await exchange(port, _HEALTH)).startswith(b"HTTP/1.1 503 "):
                await asyncio.sleep(0.1)
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert await _read_all(stuck) < len(body)


async def _read_all(connection: socket.socket) -> int:
    read = 0
    while piece := await asyncio.get_running_loop().sock_recv(connection, 1 << 20):
        read += len(piece)
    return read


_HEALTH = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


async def test_a_reader_that_takes_its_time_gets_all_of_it():
    """A telephone on a bad line reads slowly, but it reads."""
    gateway = make_gateway()
    body = bytes(24 << 20)
    gateway.publications.estimates = {1: PublishedDocument(1, "ab" * 32, body)}
    async with serving(read_timeout_s=1.0, gateway=gateway) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
        writer.write(b"GET /v1/estimates/1 HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        for _ in range(8):
            assert len(await reader.readexactly(3 << 20)) == 3 << 20
            await asyncio.sleep(0.3)
        writer.close()


async def test_headers_after_the_body_are_not_kept_and_have_an_end():
    """A body in pieces may be followed by headers, which would grow as long as they come."""
    chunked = b"POST /v1/reports HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n"
    body = json.dumps(report()).encode()
    whole = chunked + b"connection: close\r\n\r\n%x\r\n%s\r\n0\r\n" % (len(body), body)
    async with serving() as port:
        few = await exchange(port, whole + b"expires: never\r\n\r\n")
        answers = []
        for endless in (b"x: y\r\n" * 4000, b"x: " + b"y" * 24_000):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(whole)
            await asyncio.sleep(0.05)
            writer.write(endless)
            async with asyncio.timeout(10):
                answers.append(await reader.readline())
            writer.close()
    assert few.startswith(b"HTTP/1.1 202 ")
    assert [answer[9:12] for answer in answers] == [b"431", b"431"]


async def test_answers_without_a_body_are_sent_and_the_connection_goes_on():
    """Head and body leave together; a head that has no body must not wait for one."""
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for method in (b"HEAD", b"HEAD", b"OPTIONS", b"GET"):
            writer.write(method + b" /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            async with asyncio.timeout(5):
                head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 204 "))
        body = post(json.dumps(report()).encode(), b"expect: 100-continue\r\n")
        assert await reader.readexactly(27) == b'{"ready":true,"reasons":[]}'
        head, _, rest = body.partition(b"\r\n\r\n")
        writer.write(head + b"\r\n\r\n")
        async with asyncio.timeout(5):
            assert (await reader.readline()).startswith(b"HTTP/1.1 100 ")
            await reader.readline()
            writer.write(rest)
            assert (await reader.readline()).startswith(b"HTTP/1.1 202 ")
        writer.close()


async def test_too_many_connections_are_told_so():
    async with serving(max_connections=2) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        await asyncio.sleep(0.05)
        answer = await exchange(port, b"")
        for _, writer in held:
            writer.close()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after" in answer.lower()
