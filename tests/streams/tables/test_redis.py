"""Tests of Redis's errors: temporary ones are retried, the others need an operator."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from redis.asyncio.connection import Connection
from redis.exceptions import ReadOnlyError, ResponseError

from blendstream.agents.local import GivenServer, LocalRedis
from blendstream.agents.local.ports import free_port
from blendstream.streams.errors import StoreMismatch, StoreUnavailable
from blendstream.streams.settings.fields import Url
from blendstream.streams.settings.sections import RedisSettings
from blendstream.streams.tables.redis import answered, connect_redis

HOST = "127.0.0.1"
SCRIPT = "Error running script (call to f_0123abcd): @user_script:62: @user_script: 62: "


async def told(error: Exception) -> None:
    async def call() -> None:
        raise error

    await answered(call())


@pytest.mark.parametrize(
    "text",
    [
        "MISCONF Errors writing to the AOF file: No space left on device",
        "BUSY Redis is busy running a script.",
        SCRIPT + "-OOM command not allowed when used memory > 'maxmemory'.",
        f"ERR {SCRIPT}-OOM command not allowed when used memory > 'maxmemory'. ",
        SCRIPT + "-READONLY You can't write against a read only replica.",
        SCRIPT + "-MISCONF Redis is configured to save RDB snapshots, but it is unable to.",
        SCRIPT + "-NOREPLICAS Not enough good replicas to write.",
    ],
)
async def test_a_full_or_failing_server_is_tried_again(text: str) -> None:
    """Otherwise a full Redis would halt every partition until an operator rebuilds it."""
    with pytest.raises(StoreUnavailable):
        await told(ResponseError(text))


async def test_a_server_that_fails_over_is_tried_again() -> None:
    with pytest.raises(StoreUnavailable):
        await told(ReadOnlyError("You can't write against a read only replica."))


@pytest.mark.parametrize(
    "text",
    [
        SCRIPT + "WRONGKEY x-OOM:{t/0}:totals must be a hash, found a string",
        SCRIPT + "-WRONGTYPE Operation against a key holding the wrong kind of value",
        SCRIPT + "-NOPERM this user has no permissions to run the 'hset' command",
        "NOPERM this user has no permissions to run the 'hset' command",
    ],
)
async def test_what_will_be_answered_again_is_not_repeated_for_ever(text: str) -> None:
    with pytest.raises(StoreMismatch):
        await told(ResponseError(text))


async def test_a_connection_that_redis_py_closed_under_a_call_is_tried_again() -> None:
    """Seen while a cluster changed: redis-py reads from a connection that another task closed."""
    connection = Connection(port=1)
    connection._parser = None  # type: ignore[assignment]
    with pytest.raises(StoreUnavailable):
        await answered(connection.read_response())


async def test_an_attribute_error_of_our_own_is_a_mistake_and_stays_one() -> None:
    with pytest.raises(AttributeError):
        await told(AttributeError("no such thing"))


async def test_several_hosts_that_are_no_cluster_are_refused(
    redis_server: LocalRedis | GivenServer,
) -> None:
    """The first may be a replica, or two servers that know nothing of each other."""
    host = urlsplit(redis_server.url).netloc
    twice = RedisSettings(url=Url(f"redis://{host},{host}"))
    with pytest.raises(StoreMismatch, match=r"names 2 hosts.*redis\+sentinel://"):
        await connect_redis(twice)


async def test_a_cluster_is_reached_although_the_first_node_is_down(
    own_cluster_redis: LocalRedis,
) -> None:
    url = Url(f"redis://{HOST}:{free_port()},{HOST}:{own_cluster_redis.port}/0")
    client = await connect_redis(RedisSettings(url=url))
    try:
        assert await answered(client.set("a", 1))
    finally:
        await client.aclose()
