"""Make every Redis server write its files again, so that removed text leaves the disks too.

UNLINK removes a key from memory. The commands that made it stay in the append-only file until a
rewrite replaces the file, and a snapshot contains the key until the next snapshot. (A replica keeps
the snapshot of its first synchronisation on disk, even if it makes none of its own.) So each server
executes BGREWRITEAOF, if it has such a file, and BGSAVE.

Promises: the files of a server that `RewriteReport` does not name contain no key that was removed
before the call. A rewrite that began before the call does not count. A replica begins after it has
executed everything that its primary had executed at the time of the call.
Assumes: Sentinel, the cluster or the one server of redis.url knows all replicas. Copies of the
files, such as volume snapshots and backups, are the operator's responsibility (docs/install.md).
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import redis.asyncio as aioredis

from blendstream.streams.errors import StoreMismatch, StoreUnavailable
from blendstream.streams.tables.redis import Client, answered, each_server, text_of

__all__ = ["NotRewritten", "RewriteReport", "may_rewrite", "rewrite_files"]

_POLL_S: Final = 0.25
_COMMANDS: Final = {
    "BGREWRITEAOF": "aof_last_bgrewrite_status",
    "BGSAVE": "rdb_last_bgsave_status",
}
#: Fields of INFO that are 1 while a rewrite or a snapshot runs or is about to.
_BUSY: Final = ("aof_rewrite_in_progress", "aof_rewrite_scheduled", "rdb_bgsave_in_progress")
#: Replies of a server that began a rewrite or a snapshot after we checked that none was running.
_BUSY_REPLIES: Final = ("already in progress", "another child process")


class NotRewritten(enum.StrEnum):
    """Reason why a server's files may still contain removed text."""

    REFUSED = "refused"  #: it rejects the command, as managed services do
    UNREACHABLE = "unreachable"  #: it does not respond
    FAILED = "failed"  #: it could not write the file, or not before the deadline


@dataclass(frozen=True, slots=True)
class RewriteReport:
    """Number of servers asked, and those whose files may still contain text, by address."""

    servers: int
    remaining: Mapping[str, NotRewritten]


class _FileNotWrittenError(Exception):
    """The server reports that it could not write the file."""


async def rewrite_files(
    client: Client, deadline_s: float, only: Collection[str] | None = None
) -> RewriteReport:
    """Have all servers rewrite their files at the same time, and wait for them until the deadline.

    `only`: the addresses to ask, if not all. Safe to repeat.
    """
    async with each_server(client) as servers:
        chosen = {at: s for at, s in servers.items() if only is None or at in only}
        executed: dict[str, int] = {}
        for server in servers.values():
            executed |= await _executed_by_primary(server)
        outcomes = await asyncio.gather(
            *(_rewrite(server, executed, deadline_s) for server in chosen.values())
        )
    return _report(dict(zip(chosen, outcomes, strict=True)))


async def may_rewrite(client: Client) -> RewriteReport:
    """Ask every server whether it would accept the commands, without running them."""
    async with each_server(client) as servers:
        return _report({at: await _would_refuse(server) for at, server in servers.items()})


def _report(outcomes: Mapping[str, NotRewritten | None]) -> RewriteReport:
    return RewriteReport(len(outcomes), {at: why for at, why in outcomes.items() if why})


async def _executed_by_primary(server: aioredis.Redis) -> dict[str, int]:
    """Return a primary's replication position, with the id by which its replicas know it."""
    try:
        info = await answered(server.info("replication"))
    except StoreUnavailable:
        return {}
    if info.get("role") != "master" or "master_replid" not in info:
        return {}
    return {info["master_replid"]: info["master_repl_offset"]}


async def _rewrite(
    server: aioredis.Redis, executed: Mapping[str, int], deadline_s: float
) -> NotRewritten | None:
    try:
        async with asyncio.timeout(deadline_s):
            await _catch_up(server, executed)
            info = await answered(server.info("persistence"))
            for command in _COMMANDS:
                if command != "BGREWRITEAOF" or info.get("aof_enabled"):
                    await _run(server, command)
    except StoreUnavailable:
        return NotRewritten.UNREACHABLE
    except StoreMismatch:
        return NotRewritten.REFUSED
    except (_FileNotWrittenError, TimeoutError):
        return NotRewritten.FAILED
    return None


async def _catch_up(server: aioredis.Redis, executed: Mapping[str, int]) -> None:
    """Wait until a replica has executed what its primary had."""
    while True:
        info = await answered(server.info("replication"))
        if info.get("role", "master") == "master":
            return
        wanted = executed.get(info.get("master_replid", ""))
        if wanted is not None and info.get("slave_repl_offset", -1) >= wanted:
            return
        await asyncio.sleep(_POLL_S)


async def _run(server: aioredis.Redis, command: str) -> None:
    """Run a command that writes a file in the background, to its end."""
    while True:
        # A run that has begun has copied the memory: it may still contain what was removed since.
        before = await _idle(server)
        try:
            await _ask(server, command)
        except StoreMismatch as error:
            reply = str(error).lower()
            if any(busy in reply for busy in _BUSY_REPLIES):
                continue
            if "can't execute" in reply:
                raise _FileNotWrittenError from error
            raise
        after = await _idle(server)
        if after.get("run_id") != before.get("run_id"):
            continue  # It was restarted, or another server took over.
        if after.get(_COMMANDS[command]) != "ok":
            raise _FileNotWrittenError
        return


async def _ask(server: Any, *words: str) -> Any:
    return await answered(server.execute_command(*words))


async def _idle(server: aioredis.Redis) -> Mapping[str, Any]:
    """Wait until the server writes no file in the background."""
    while True:
        info: Mapping[str, Any] = await answered(server.info())
        if not any(info.get(name) for name in _BUSY):
            return info
        await asyncio.sleep(_POLL_S)


async def _would_refuse(server: aioredis.Redis) -> NotRewritten | None:
    try:
        if None in await _ask(server, "COMMAND INFO", *_COMMANDS):
            return NotRewritten.REFUSED
        user = text_of(await answered(server.acl_whoami()))
        for command in _COMMANDS:
            if text_of(await _ask(server, "ACL DRYRUN", user, command)) != "OK":
                return NotRewritten.REFUSED
    except StoreUnavailable:
        return NotRewritten.UNREACHABLE
    except StoreMismatch:
        return None  # It does not support this check; the first release will show it.
    return None
