"""Rewriting Redis's files: what counts as rewritten, and what is reported when it is not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from blendstream.agents.jobs import file_rewriting, metrics
from blendstream.agents.jobs.file_rewriting import FileRewriting
from blendstream.agents.local import LocalRedis
from blendstream.agents.local.replicated_redis import LocalSentinels
from blendstream.agents.operations.findings import Grade
from blendstream.agents.operations.redis_checks import removal
from blendstream.streams.settings.fields import Url
from blendstream.streams.settings.sections import RedisSettings
from blendstream.streams.tables.redis import Client, connect_redis
from blendstream.streams.tables.redis_files import (
    NotRewritten,
    RewriteReport,
    may_rewrite,
    rewrite_files,
)
from tests.service.waiting import until

MARKER = b"a query that was removed"


def on_disk(server: LocalRedis) -> bool:
    return any(MARKER in path.read_bytes() for path in server.data.rglob("*") if path.is_file())


async def connected(url: str) -> Client:
    return await connect_redis(RedisSettings(url=Url(url)))


@pytest.fixture
async def client(own_redis: LocalRedis) -> AsyncIterator[Client]:
    made = await connected(own_redis.url)
    yield made
    await made.aclose()


def slow_down(server: LocalRedis, keys: int) -> None:
    """Let a rewrite take 10 ms for each of so many keys."""
    with server.client() as client:
        client.mset({f"key {n}": "x" for n in range(keys)})
        client.config_set("rdb-key-save-delay", 10_000)


async def test_a_rewrite_that_began_before_the_removal_does_not_count(
    own_redis: LocalRedis, client: Client
):
    """It writes what was in memory when it began, so that the text would be in the new file."""
    slow_down(own_redis, 100)
    with own_redis.client() as plain:
        plain.set("text", MARKER)
        plain.bgrewriteaof()
        assert plain.info("persistence")["aof_rewrite_in_progress"]
        plain.unlink("text")
    report = await rewrite_files(client, 60)
    assert report == RewriteReport(1, {})
    await until(lambda: not on_disk(own_redis), "disks without the text")


async def test_a_rewrite_that_takes_too_long_is_reported_and_awaited_no_longer(
    own_redis: LocalRedis, client: Client
):
    """Jobs must not collect waiting tasks where disks are slow."""
    slow_down(own_redis, 1000)
    began = time.monotonic()
    report = await rewrite_files(client, 0.6)
    assert time.monotonic() - began < 5
    assert list(report.remaining.values()) == [NotRewritten.FAILED]


async def test_a_server_without_an_append_only_file_replaces_its_snapshot(
    own_redis: LocalRedis, client: Client
):
    with own_redis.client() as plain:
        plain.config_set("appendonly", "no")
        plain.set("text", MARKER)
        plain.save()
        plain.unlink("text")
        assert on_disk(own_redis)
        await rewrite_files(client, 20)
        assert plain.info("persistence")["aof_rewrites"] == 0
    assert MARKER not in (own_redis.data / "dump.rdb").read_bytes()


@pytest.mark.parametrize("forbidden", ["-bgrewriteaof", "-bgsave"])
async def test_a_server_that_refuses_is_reported_by_jobs_and_doctor(
    own_redis: LocalRedis, forbidden: str
):
    """Managed services do: then only the operator can arrange that text leaves the disks."""
    with own_redis.client() as plain:
        plain.execute_command("ACL SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", forbidden)
    made = await connected(own_redis.url.replace("//", "//app:pw@"))
    rewriting = FileRewriting(made)
    try:
        found = await may_rewrite(made)
        assert list(found.remaining.values()) == [NotRewritten.REFUSED]
        finding = removal(found)
        assert finding.grade is Grade.NOTE
        assert "text may remain in Redis's files" in finding.found
        assert "+bgrewriteaof +bgsave" in finding.found

        rewriting.request()
        refused = metrics.FILES_WITH_TEXT.labels(NotRewritten.REFUSED)
        await until(lambda: refused._value.get() == 1, "the metric")
        assert rewriting._task is not None
        await asyncio.wait_for(rewriting._task, 5)  # It asks no more.
        with own_redis.client() as plain:
            plain.execute_command("ACL SETUSER", "app", "+@all")
        rewriting.request()
        await until(lambda: refused._value.get() == 0, "the end of it")
        assert removal(await may_rewrite(made)).grade is Grade.OK
    finally:
        await rewriting.close()
        await made.aclose()


@pytest.mark.more
@pytest.mark.timeout(90)
async def test_a_replica_that_was_away_is_asked_again_and_no_other(monkeypatch: pytest.MonkeyPatch):
    """Its files contain the text until then. The others have done their part once."""
    monkeypatch.setattr(file_rewriting, "_FIRST_RETRY_S", 0.3)
    with LocalSentinels() as servers:
        primary = servers.primary()
        (replica,) = [node for node in servers.nodes if node is not primary]
        replica.pause()
        made = await connected(servers.url)
        rewriting = FileRewriting(made)
        try:
            rewriting.request()
            away = metrics.FILES_WITH_TEXT.labels(NotRewritten.UNREACHABLE)
            await until(lambda: away._value.get() == 1, "the metric")
            replica.resume()
            await until(lambda: away._value.get() == 0, "the end of it")
            assert rewriting._task is not None
            await asyncio.wait_for(rewriting._task, 5)
            for node in servers.nodes:
                assert node.ask("INFO", "persistence")["aof_rewrites"] == 1
        finally:
            await rewriting.close()
            await made.aclose()
