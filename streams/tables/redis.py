"""Calls to Redis: each ends within a timeout, and the type of its error decides whether to retry.

    StoreUnavailable   no server, or one that loads, fails over, is full or busy: retry
    StoreMismatch      the server would respond to a retry with the same error: an operator must act

Scripts are Lua files of this package. Only their callers know which may be sent twice, so this
module retries nothing.
"""

from __future__ import annotations

import hashlib
import re
import traceback
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any, Final

import msgspec
import redis.asyncio as aioredis
from redis import exceptions as rerrors
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from blendstream.streams.errors import StoreMismatch, StoreUnavailable
from blendstream.streams.settings.fields import Url
from blendstream.streams.settings.sections import RedisSettings

__all__ = [
    "Client",
    "Script",
    "answered",
    "append_only",
    "check_redis",
    "connect_redis",
    "each_server",
    "node_info",
    "silent_replicas",
    "text_of",
    "write_refusal",
]

Client = aioredis.Redis | aioredis.RedisCluster
PORT: Final = 6379
SENTINEL_PORT: Final = 26379


async def connect_redis(settings: RedisSettings) -> Client:
    """Connect to the servers of redis.url, with a client whose every call ends within the timeout.

    redis://host:port/0                      one server, or a node of a cluster
    redis://host:port,host:port/0            a cluster, reached through any of these nodes
    redis+sentinel://host:port,.../name/0    the primary that these Sentinels know by this name
    """
    limits: dict[str, Any] = {
        "socket_timeout": settings.timeout_s,
        "socket_connect_timeout": settings.timeout_s,
        # Callers retry; they know what may be sent twice.
        "retry": Retry(NoBackoff(), 0),
    }
    if settings.tls_ca_file is not None:
        limits["ssl_ca_certs"] = str(settings.tls_ca_file)
    if settings.by_sentinel:
        return await _primary(settings, limits)
    nodes = settings.url.of_each_host(settings.url.scheme, settings.url.path)
    if await _is_cluster(nodes, limits):
        others = [ClusterNode(at["host"], at.get("port", PORT)) for at in map(_parts, nodes)]
        return aioredis.RedisCluster.from_url(nodes[0].reveal(), startup_nodes=others, **limits)
    if len(nodes) > 1:
        raise StoreMismatch(
            f"redis.url must name one server or nodes of a cluster, and names {len(nodes)} hosts "
            "that are no cluster; name only the primary, or its Sentinels as "
            "redis+sentinel://host:26379,host:26379/NAME/0"
        )
    return aioredis.Redis.from_url(nodes[0].reveal(), **limits)


async def _is_cluster(nodes: Sequence[Url], limits: Mapping[str, Any]) -> bool:
    """Return True if the first node that responds belongs to a cluster."""
    for node in nodes:
        client = aioredis.Redis.from_url(node.reveal(), **limits)
        try:
            return bool((await answered(client.info("cluster"))).get("cluster_enabled"))
        except StoreUnavailable:
            if node is nodes[-1]:
                raise
        finally:
            await client.aclose()
    raise AssertionError("redis.url was checked to name a host")


async def _primary(settings: RedisSettings, limits: Mapping[str, Any]) -> Client:
    """Connect to the primary according to Sentinel, which every new connection asks again."""
    service, _, database = settings.url.path.partition("/")
    scheme = settings.url.scheme.removesuffix("+sentinel")
    sentinels = [_parts(url) for url in settings.url.of_each_host(scheme, database or "0")]
    server = {**limits, **sentinels[0]}
    for name in ("host", "port", "connection_class"):
        server.pop(name, None)
    asked = {**limits, "password": settings.sentinel_password.reveal() or None}
    if scheme == "rediss":
        server["ssl"] = asked["ssl"] = True
    manager = Sentinel(  # type: ignore[no-untyped-call]
        [(at["host"], at.get("port", SENTINEL_PORT)) for at in sentinels], sentinel_kwargs=asked
    )
    client: _Primary = manager.master_for(service, redis_class=_Primary, **server)
    client.replica_settings = server
    try:
        await answered(client.ping())
    except (StoreMismatch, StoreUnavailable):
        await client.aclose()
        raise
    return client


class _Primary(aioredis.Redis):
    """A client of the primary that also closes its connections to Sentinel, and finds replicas."""

    #: Connection settings of a replica, except its address.
    replica_settings: Mapping[str, Any]

    async def replicas(self) -> list[aioredis.Redis]:
        """Make a client for each replica that Sentinel knows; the caller closes them."""
        pool: Any = self.connection_pool
        for sentinel in pool.sentinel_manager.sentinels:
            try:
                known = await answered(sentinel.sentinel_slaves(pool.service_name))
            except StoreUnavailable:
                continue
            return [
                aioredis.Redis(host=at["ip"], port=int(at["port"]), **self.replica_settings)
                for at in known
            ]
        raise StoreUnavailable("no Sentinel answered")

    async def replica_info(self, section: str) -> list[Mapping[str, Any] | None]:
        """Return INFO of each replica that Sentinel knows; None for one that does not respond."""
        return [await _info_of(replica, section) for replica in await self.replicas()]

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        await super().aclose(close_connection_pool)
        pool: Any = self.connection_pool
        await pool.sentinel_manager.aclose()


async def _info_of(replica: aioredis.Redis, section: str) -> Mapping[str, Any] | None:
    try:
        info: Mapping[str, Any] = await answered(replica.info(section))
        return info
    except StoreUnavailable:
        return None
    finally:
        await replica.aclose()


def _parts(url: Url) -> dict[str, Any]:
    return dict(parse_url(url.reveal()))


async def node_info(client: Client, section: str) -> list[Mapping[str, Any]]:
    """Return INFO of each node. Behind Sentinel: of the primary and each replica that responds."""
    if isinstance(client, _Primary):
        replicas = await client.replica_info(section)
        return [await answered(client.info(section)), *filter(None, replicas)]
    if not isinstance(client, aioredis.RedisCluster):
        return [await answered(client.info(section))]
    info = await answered(client.info(section, target_nodes=aioredis.RedisCluster.ALL_NODES))
    # The response of a cluster of one node lacks the node's name.
    each = list(info.values())
    return each if each and all(isinstance(node, dict) for node in each) else [info]


@asynccontextmanager
async def each_server(client: Client) -> AsyncIterator[Mapping[str, aioredis.Redis]]:
    """Open a client for every primary and replica, by address. Some may not respond."""
    if isinstance(client, aioredis.RedisCluster):
        await answered(client.initialize())
        opened = [_at(n.connection_class, n.connection_kwargs) for n in client.get_nodes()]
        servers = opened
    else:
        if isinstance(client, _Primary):
            opened = await client.replicas()
        else:
            info = await answered(client.info("replication"))
            followers = [value for name, value in info.items() if re.fullmatch(r"slave\d+", name)]
            pool = client.connection_pool
            opened = [
                _at(pool.connection_class, pool.connection_kwargs, host=at["ip"], port=at["port"])
                for at in followers
            ]
        servers = [client, *opened]
    try:
        yield {_address(server): server for server in servers}
    finally:
        for server in opened:
            await server.aclose(close_connection_pool=True)


def _at(kind: type[Any], settings: Mapping[str, Any], **address: Any) -> aioredis.Redis:
    pool = aioredis.ConnectionPool(connection_class=kind, **{**settings, **address})
    return aioredis.Redis(connection_pool=pool)


def _address(server: aioredis.Redis) -> str:
    at = server.connection_pool.connection_kwargs
    return f"{at['host']}:{at.get('port', PORT)}" if "host" in at else "primary"


async def silent_replicas(client: Client) -> int:
    """Count the replicas known to Sentinel that do not respond. Processes start without them."""
    if not isinstance(client, _Primary):
        return 0
    return (await client.replica_info("server")).count(None)


async def check_redis(client: Client) -> None:
    """Raise `StoreMismatch` if Redis may evict counts."""
    for node in await node_info(client, "memory"):
        policy = node.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            raise StoreMismatch(
                f"Redis must have maxmemory-policy noeviction, found {policy}: it would drop "
                "counts when memory is short. Set it in redis.conf, or run "
                "`CONFIG SET maxmemory-policy noeviction`"
            )


async def append_only(client: Client) -> bool:
    """Return True if every node has an append-only file, so that a restart loses nothing."""
    return all(int(n.get("aof_enabled", 0)) for n in await node_info(client, "persistence"))


#: Cause of refused writes, by Redis's error code, and the action for an operator.
_WRITE_REFUSALS: Final = {
    "OOM": "its memory is full: raise maxmemory, or give its host more memory",
    "MISCONF": "it cannot write to its disk: free space there, or repair the disk",
    "NOREPLICAS": "too few of its replicas answer (min-replicas-to-write): start them",
    "READONLY": "it is a replica: let redis.url name the primary, or wait for the fail-over to end",
}
_PROBE_LIVES_S: Final = 60
#: Names tried to find a key on each primary of a cluster: with 100 primaries each has one, except
#: with probability e^-100.
_PROBE_NAMES: Final = 10_000


async def write_refusal(client: Client, prefix: str) -> str | None:
    """Write a key that soon expires to every primary; return a sentence if one refuses, else None.

    A server with a full disk or at `maxmemory` still responds to PING and to every read.
    """
    for key in await _probe_keys(client, prefix):
        try:
            await answered(client.set(key, b"", ex=_PROBE_LIVES_S))
        except StoreUnavailable as error:
            code = _error_code(error.__cause__)
            if code not in _WRITE_REFUSALS:
                raise
            return f"Redis refuses every write ({code}), because {_WRITE_REFUSALS[code]}"
    return None


def _error_code(error: BaseException | None) -> str:
    """Return the code of a Redis error; redis-py replaces some codes by an exception type."""
    if isinstance(error, rerrors.OutOfMemoryError):
        return "OOM"
    if isinstance(error, rerrors.ReadOnlyError):
        return "READONLY"
    return str(error).partition(" ")[0]


async def _probe_keys(client: Client, prefix: str) -> list[str]:
    """Choose one key per primary."""
    names = [f"{prefix}:{{probe-{number}}}" for number in range(_PROBE_NAMES)]
    if not isinstance(client, aioredis.RedisCluster):
        return names[:1]
    await answered(client.initialize())
    keys: dict[str, str] = {}
    for name in names:
        node = client.get_node_from_key(name)
        if node is not None:
            keys.setdefault(node.name, name)
        if len(keys) >= len(client.get_primaries()):
            break
    return list(keys.values())


class Script:
    """A Lua file of this package, sent once and called by its hash."""

    def __init__(self, name: str) -> None:
        self._text = (
            files("blendstream.streams.tables")
            .joinpath("scripts", name)
            .read_text(encoding="utf-8")
        )
        self._sha = hashlib.sha1(self._text.encode(), usedforsecurity=False).hexdigest()

    async def run(self, client: Client, keys: Sequence[str], *arguments: object) -> Any:
        """Run the script. Mappings are sent as MessagePack, but must not contain bytes."""
        packed: list[Any] = [
            msgspec.msgpack.encode(argument) if isinstance(argument, dict) else argument
            for argument in arguments
        ]
        try:
            return await answered(client.evalsha(self._sha, len(keys), *keys, *packed))
        except rerrors.NoScriptError:
            return await answered(client.eval(self._text, len(keys), *keys, *packed))


#: Temporary errors: no server, or one that loads, fails over, is full, busy or out of disk. If one
#: of the last occurs half-way through a script, its `applying` mark stops the next attempt.
_TEMPORARY: Final = (
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
_TEMPORARY_CODES: Final = ("BUSY", "MISCONF", "NOREPLICAS", "LOADING", "MASTERDOWN", "UNBLOCKED")
#: The error of a command inside a script, as Redis before 7 reports it: it starts with a general
#: code and ends with the command's code.
_TEMPORARY_WITHIN_SCRIPT: Final = re.compile(
    r"(?:ERR )?Error running script .*: "
    rf"-({'|'.join((*_TEMPORARY_CODES, 'OOM', 'READONLY', 'CLUSTERDOWN'))})\b"
)


async def answered(call: Any) -> Any:
    """Await a Redis call; raise its errors as `StoreUnavailable` (retry) or `StoreMismatch`."""
    try:
        return await call
    except rerrors.NoScriptError:
        raise
    except _TEMPORARY as error:
        raise StoreUnavailable(f"Redis did not answer ({type(error).__name__})") from error
    except AttributeError as error:
        # redis-py uses a connection that another task has just closed, when a cluster changes.
        if not _raised_by_redis_py(error):
            raise
        raise StoreUnavailable("Redis closed the connection during a call") from error
    except rerrors.ResponseError as error:
        if str(error).startswith(_TEMPORARY_CODES):
            raise StoreUnavailable(f"Redis cannot write now ({str(error).split()[0]})") from error
        if within := _TEMPORARY_WITHIN_SCRIPT.match(str(error)):
            raise StoreUnavailable(f"Redis cannot write now ({within[1]})") from error
        # Our scripts' messages name keys, sizes and types; keys contain topics and numbers only.
        raise StoreMismatch(f"Redis refused a call: {error}") from error


def _raised_by_redis_py(error: BaseException) -> bool:
    frames = list(traceback.walk_tb(error.__traceback__))
    return str(frames[-1][0].f_globals.get("__name__", "")).startswith("redis.")


def text_of(value: bytes | str) -> str:
    """Decode text of a Redis response, unless the client has already decoded it."""
    return value.decode() if isinstance(value, bytes) else value
