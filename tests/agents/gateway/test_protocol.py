"""Connections that are slow, endless or no HTTP at all, on the real server."""

# ruff: noqa: ASYNC110 - a test has the event loop to itself, and may wait.

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest
import uvicorn

from agents.gateway.protocol import protocol_class, sweep
from agents.stack.ports import free_port
from tests.agents.gateway.doubles import make_gateway, report


@contextlib.asynccontextmanager
async def serving(
    *, max_connections: int = 100, read_timeout_s: float = 60.0
) -> AsyncIterator[int]:
    port = free_port()
    server = uvicorn.Server(
        uvicorn.Config(
            make_gateway().app,
            port=port,
            http=protocol_class(max_connections=max_connections, read_timeout_s=read_timeout_s),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
        )
    )
    with contextlib.ExitStack() as stack:
        server.capture_signals = lambda: stack  # type: ignore[method-assign]
        running = asyncio.create_task(server.serve())
        sweeping = asyncio.create_task(sweep(server.server_state.connections))
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


@pytest.mark.parametrize("sent", [b"GET /healthz HT", post(b"x" * 10)[:-5]], ids=["head", "body"])
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


async def test_a_slow_answer_is_not_a_slow_request():
    """Kafka may take its time; the sender did everything in time."""
    async with serving(read_timeout_s=0.3) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post(json.dumps(report()).encode(), b""))
        assert (await reader.readline()).startswith(b"HTTP/1.1 202 ")
        writer.close()


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
