"""Calls to Redis: each ends within a timeout, and its errors say whether to try again.

    StoreUnavailable   no server, or one that loads, fails over, is full or busy: try again
    StoreMismatch      it answered, and will answer the same again: an operator must intervene

Scripts are Lua files of this package. Only their callers know which may be sent twice, so nothing
is retried here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

import msgspec
import redis.asyncio as aioredis
from redis import exceptions as rerrors
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from blender.errors import BlenderError
from streams.errors import StoreMismatch, StoreUnavailable
from streams.settings.sections import RedisSettings

__all__ = [
    "Client",
    "Script",
    "answered",
    "append_only",
    "check_redis",
    "connect_redis",
    "node_info",
    "text_of",
]

Client = aioredis.Redis | aioredis.RedisCluster


async def connect_redis(settings: RedisSettings) -> Client:
    """A client whose every call ends within the timeout, for a single server or a cluster."""
    limits: dict[str, Any] = {
        "socket_timeout": settings.timeout_s,
        "socket_connect_timeout": settings.timeout_s,
        # Retried by the callers, who know what may be sent twice.
        "retry": Retry(NoBackoff(), 0),
    }
    if settings.tls_ca_file is not None:
        limits["ssl_ca_certs"] = str(settings.tls_ca_file)
    client = aioredis.Redis.from_url(settings.url.reveal(), **limits)
    try:
        info = await answered(client.info("cluster"))
    except BlenderError:
        await client.aclose()
        raise
    if not info.get("cluster_enabled"):
        return client
    await client.aclose()
    return aioredis.RedisCluster.from_url(settings.url.reveal(), **limits)


async def node_info(client: Client, section: str) -> list[Mapping[str, Any]]:
    """Each node's INFO; a server that is no cluster is one node."""
    if not isinstance(client, aioredis.RedisCluster):
        return [await answered(client.info(section))]
    info = await answered(client.info(section, target_nodes=aioredis.RedisCluster.ALL_NODES))
    # A cluster of one node answers without the node's name.
    each = list(info.values())
    return each if each and all(isinstance(node, dict) for node in each) else [info]


async def check_redis(client: Client) -> None:
    """Refuse a Redis that may evict counts."""
    for node in await node_info(client, "memory"):
        policy = node.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            raise StoreMismatch(
                f"Redis must have maxmemory-policy noeviction, found {policy}: it would drop "
                "counts when memory is short. Set it in redis.conf, or run "
                "`CONFIG SET maxmemory-policy noeviction`"
            )


async def append_only(client: Client) -> bool:
    """Whether every node writes all changes to disk, so that a restart loses nothing."""
    return all(int(n.get("aof_enabled", 0)) for n in await node_info(client, "persistence"))


class Script:
    """A Lua file of this package, sent once and called by its hash."""

    def __init__(self, name: str) -> None:
        self._text = files("streams.stores").joinpath("scripts", name).read_text(encoding="utf-8")
        self._sha = hashlib.sha1(self._text.encode(), usedforsecurity=False).hexdigest()

    async def run(self, client: Client, keys: Sequence[str], *arguments: object) -> Any:
        """Call it; a mapping travels as MessagePack, whose binary type Redis does not read."""
        packed: list[Any] = [
            msgspec.msgpack.encode(argument) if isinstance(argument, dict) else argument
            for argument in arguments
        ]
        try:
            return await answered(client.evalsha(self._sha, len(keys), *keys, *packed))
        except rerrors.NoScriptError:
            return await answered(client.eval(self._text, len(keys), *keys, *packed))


#: Answers that pass: no server, or one that loads, fails over, is full, busy or out of disk. Should
#: one of the last come half-way through a script, the script's own mark stops the next attempt.
_PASSING: Final = (
    rerrors.ConnectionError,
    rerrors.TimeoutError,
    rerrors.ReadOnlyError,
    rerrors.ClusterDownError,
    rerrors.ClusterError,
    rerrors.MovedError,
    rerrors.AskError,
    rerrors.TryAgainError,
    rerrors.MasterDownError,
    rerrors.OutOfMemoryError,
    rerrors.RedisClusterException,
    OSError,
    TimeoutError,
)
_PASSING_CODES: Final = ("BUSY", "MISCONF", "NOREPLICAS", "LOADING", "MASTERDOWN", "UNBLOCKED")
#: The error of a command inside a script, as Redis before 7 reports it: the answer starts with a
#: general code, and the command's own code comes last.
_PASSING_WITHIN_SCRIPT: Final = re.compile(
    r"(?:ERR )?Error running script .*: "
    rf"-({'|'.join((*_PASSING_CODES, 'OOM', 'READONLY', 'CLUSTERDOWN'))})\b"
)


async def answered(call: Any) -> Any:
    """The answer of a Redis call, with its errors sorted into *try again* and *do not*."""
    try:
        return await call
    except rerrors.NoScriptError:
        raise
    except _PASSING as error:
        raise StoreUnavailable(f"Redis did not answer ({type(error).__name__})") from error
    except rerrors.ResponseError as error:
        if str(error).startswith(_PASSING_CODES):
            raise StoreUnavailable(f"Redis cannot write now ({str(error).split()[0]})") from error
        if within := _PASSING_WITHIN_SCRIPT.match(str(error)):
            raise StoreUnavailable(f"Redis cannot write now ({within[1]})") from error
        # Our scripts' messages name keys, sizes and types; keys hold topics and numbers only.
        raise StoreMismatch(f"Redis refused a call: {error}") from error


def text_of(value: bytes | str) -> str:
    """Text that Redis answers in bytes, unless the client was set to decode it."""
    return value.decode() if isinstance(value, bytes) else value
