"""Check every Redis server: version, replicas, eviction, files, and what may remain in them."""

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
    """Every finding about Redis as it is made."""
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
        yield ok("redis", f"{name} {oldest} answers, {counted(len(servers), 'node')}")
    if refusal := await write_refusal(client, settings.topics.prefix):
        yield fix("writes", refusal)
    if silent := await silent_replicas(client):
        yield fix(
            "replicas",
            f"every replica that Sentinel knows must answer here, and {silent} did not; start it, "
            "let it announce an address that this host reaches, or run SENTINEL RESET if it is "
            "gone for good",
        )
    policies = {n.get("maxmemory_policy", "noeviction") for n in await node_info(client, "memory")}
    if policies == {"noeviction"}:
        yield ok("eviction", "noeviction: no count is dropped when memory is short")
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
            "appendonly is off: a restart of Redis counts everything again from Kafka; set "
            "`appendonly yes` in redis.conf, or `CONFIG SET appendonly yes`",
        )
    yield removal(await may_rewrite(client))


def removal(found: RewriteReport) -> Finding:
    """Judge whether released opt-in text can be removed from the disks of every Redis server."""
    refused = [at for at, why in found.remaining.items() if why is NotRewritten.REFUSED]
    if refused:
        return note(
            "raw text",
            f"{noun(len(refused), 'server')} {', '.join(refused)} must let this user run "
            "BGREWRITEAOF and BGSAVE, and does not: opt-in text may remain in Redis's files after "
            "its release. Allow both (ACL SETUSER USER +bgrewriteaof +bgsave), or where a managed "
            "Redis cannot, arrange what RawTextMayRemain in docs/runbook.md says",
        )
    silent = [at for at, why in found.remaining.items() if why is NotRewritten.UNREACHABLE]
    if silent:
        return note(
            "raw text",
            f"{noun(len(silent), 'server')} {', '.join(silent)} must answer, or opt-in text "
            "remains in its files after its release; start it, or let it announce an address that "
            "this host reaches",
        )
    return ok(
        "raw text",
        f"is removed from the files of {counted(found.servers, 'Redis server')} after its release",
    )


def version_numbers(version: str, parts: int = 2) -> tuple[int, ...]:
    """The first numbers of a version; what follows them (rc1, .post2) is left out."""
    start = re.match(r"[\d.]+", version)
    return tuple(int(part) for part in (start[0] if start else "0").split(".") if part)[:parts]
