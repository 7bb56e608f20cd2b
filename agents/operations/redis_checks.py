"""Check every Redis server: version, replicas, eviction, persistence, released text in files."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from blendstream.agents.operations.findings import Finding, Grade, fix, note, ok
from blendstream.agents.plurals import counted, noun
from blendstream.blender.values.errors import BlenderError
from blendstream.streams.settings import Settings
from blendstream.streams.tables.redis import (
    Client,
    append_only,
    connect_redis,
    node_info,
    silent_replicas,
    write_refusal,
)
from blendstream.streams.tables.redis_files import NotRewritten, RewriteReport, may_rewrite

__all__ = ["redis_checks", "removal", "version_numbers"]

_OLDEST_REDIS = (6, 2)


async def redis_checks(settings: Settings) -> AsyncIterator[Finding]:
    """Check Redis and yield each finding immediately."""
    try:
        client = await connect_redis(settings.redis)
    except BlenderError as error:
        yield fix(
            "redis",
            f"{error}; start Redis, or correct redis.url (user, password, TLS) or redis.timeout_s",
        )
        return
    try:
        async for finding in _redis_server(client, settings):
            yield finding
    except BlenderError as error:
        yield fix("redis", str(error))
    finally:
        await client.aclose()


async def _redis_server(client: Client, settings: Settings) -> AsyncIterator[Finding]:
    servers = await node_info(client, "server")
    name = "Valkey" if "valkey_version" in servers[0] else "Redis"
    versions = {str(s.get("valkey_version") or s.get("redis_version", "0.0")) for s in servers}
    oldest = min(versions, key=version_numbers)
    if version_numbers(oldest) < _OLDEST_REDIS:
        yield fix("redis", f"version 6.2 or newer is needed, found {oldest}; upgrade")
    else:
        yield ok("redis", f"{name} {oldest} responds, {counted(len(servers), 'node')}")
    if refusal := await write_refusal(client, settings.topics.prefix):
        yield fix("writes", refusal)
    if silent := await silent_replicas(client):
        yield fix(
            "replicas",
            f"every replica that Sentinel knows must respond to this host, and {silent} did not; "
            "start it, let it announce an address that this host reaches, or run SENTINEL RESET if "
            "it was removed permanently",
        )
    policies = {n.get("maxmemory_policy", "noeviction") for n in await node_info(client, "memory")}
    if policies == {"noeviction"}:
        yield ok("eviction", "noeviction: Redis evicts no counts when memory is short")
    else:
        yield fix(
            "eviction",
            "every node must have maxmemory-policy noeviction, found "
            f"{', '.join(sorted(policies - {'noeviction'}))}; set it in redis.conf of all",
        )
    if await append_only(client):
        yield ok("persistence", "append-only file is on")
    else:
        yield Finding(
            Grade.NOTE if settings.topics.allow_single_broker else Grade.FIX,
            "persistence",
            "appendonly is off: after a restart of Redis the workers recount all from Kafka; set "
            "`appendonly yes` in redis.conf, or `CONFIG SET appendonly yes`",
        )
    yield removal(await may_rewrite(client))


def removal(found: RewriteReport) -> Finding:
    """Check that released opt-in text can be removed from the disks of every Redis server."""
    refused = [at for at, why in found.remaining.items() if why is NotRewritten.REFUSED]
    if refused:
        return note(
            "raw text",
            f"{noun(len(refused), 'server')} {', '.join(refused)} must let this user run "
            "BGREWRITEAOF and BGSAVE, and does not: opt-in text may remain in Redis's files after "
            "its release. Allow both (ACL SETUSER USER +bgrewriteaof +bgsave), or if a managed "
            "Redis cannot, follow RawTextMayRemain in docs/runbook.md",
        )
    silent = [at for at, why in found.remaining.items() if why is NotRewritten.UNREACHABLE]
    if silent:
        return note(
            "raw text",
            f"{noun(len(silent), 'server')} {', '.join(silent)} must respond, or opt-in text "
            "remains in its files after its release; start it, or let it announce an address that "
            "this host reaches",
        )
    return ok(
        "raw text",
        f"is removed from the files of {counted(found.servers, 'Redis server')} after its release",
    )


def version_numbers(version: str, parts: int = 2) -> tuple[int, ...]:
    """Return the first numbers of a version, without suffixes such as rc1 or .post2."""
    start = re.match(r"[\d.]+", version)
    return tuple(int(part) for part in (start[0] if start else "0").split(".") if part)[:parts]
