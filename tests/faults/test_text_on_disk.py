"""After its release no opt-in text is on a disk, neither of Kafka nor of any Redis server.

The tests search every byte of every file below the servers' data folders, also of files that no
server reads any more. A Redis server first makes a snapshot, so that both kinds of its files
contain the text; compression is off, or a search would find nothing.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from blendstream.agents.local import LocalKafka, LocalRedis
from blendstream.agents.local.replicated_redis import LocalRedisCluster, LocalSentinels, RedisNode
from blendstream.streams.epoch_keys import EpochKeys
from blendstream.streams.names import InputStream, OptinSubgroup
from blendstream.streams.releases.entries import Kind
from blendstream.streams.releases.epoch_state import Stage
from blendstream.streams.wire.frames import OptinEntry, encode_optin_records
from tests.service.epochs import epoch_service
from tests.service.jobs import Clock, bench, count_records, some_records
from tests.service.settings import MASTER, SHORT
from tests.service.waiting import until

READABLE = {"rdbcompression": "no"}


def files_with(text: str, folders: Sequence[Path]) -> list[str]:
    """Files that contain the text."""
    found = []
    for folder in folders:
        for path in folder.rglob("*"):
            try:
                if path.is_file() and text.encode() in path.read_bytes():
                    found.append(path.name)
            except FileNotFoundError:
                pass  # Removed while we looked.
    return found


async def until_none(text: str, folders: Sequence[Path], within_s: float) -> None:
    """Wait until no file has the text."""
    found: list[str] = []

    async def gone() -> bool:
        found[:] = await asyncio.to_thread(files_with, text, folders)
        return not found

    await until(gone, "disks without the text", within_s, every_s=0.5, about=lambda: f"in {found}")


def save_snapshots(servers: Sequence[LocalRedis]) -> None:
    """Have each server write a snapshot now, and wait for it."""
    for server in servers:
        with server.client() as client:
            client.save()


@pytest.mark.timeout(180)
async def test_a_query_is_on_no_disk_after_its_release(own_kafka: LocalKafka):
    """It was found in Redis's append-only file after its epoch had ended, while the README says
    that raw data is deleted."""
    marker = f"marker {secrets.token_hex(8)}"
    with LocalRedis(options=READABLE) as redis:
        async with epoch_service(
            own_kafka.url, redis.url, partitions=1, **SHORT, topics__segment_s="1"
        ) as made:
            made.start_worker()
            made.start_jobs()
            state = await made.until_stage(0, Stage.COLLECTING, timeout_s=90)
            await asyncio.sleep(max(0.0, state.parameters.window_start_ms / 1000 - time.time()))
            made.send_optin(state, 400, np.random.default_rng(5))
            who = EpochKeys.derive(MASTER, 0).partition_of(b"0123456789abcdef", 1)
            entry = OptinEntry(b"0123456789abcdef", 0, marker.encode(), b"https://one.example/")
            made.send_raw(
                InputStream.OPTIN_RECORDS, who, encode_optin_records(0, [entry], log_position=1)
            )
            in_kafka, in_redis = [own_kafka.folder], [redis.folder]
            await made.until(lambda: files_with(marker, in_redis), what="the count")
            save_snapshots([redis])
            assert files_with(marker, in_kafka)
            names = files_with(marker, in_redis)
            assert any("aof" in name for name in names)
            assert "dump.rdb" in names

            await made.until_stage(0, Stage.REPORTING, Stage.PUBLISHED, timeout_s=60)
            await until_none(marker, [*in_kafka, *in_redis], within_s=60)


@pytest.fixture(params=["replica", "sentinel", "cluster"])
def replicated(request: pytest.FixtureRequest) -> Iterator[tuple[str, list[RedisNode]]]:
    """A URL and the nodes behind it."""
    if request.param == "cluster":
        with LocalRedisCluster(options=READABLE) as cluster:
            yield cluster.url, cluster.nodes
        return
    with LocalSentinels(options=READABLE) as servers:
        yield servers.url if request.param == "sentinel" else servers.nodes[0].url, servers.nodes


@pytest.mark.more
@pytest.mark.timeout(180)
async def test_no_replica_keeps_a_query_on_its_disk_after_the_release(
    kafka: LocalKafka, replicated: tuple[str, list[RedisNode]]
):
    """A replica has the same commands in its own files, and the snapshot that it began with."""
    url, nodes = replicated
    marker, clock = f"marker {secrets.token_hex(8)}", Clock()
    folders = [node.folder for node in nodes]
    async with epoch_service(kafka.url, url, partitions=1) as made, bench(made, clock) as jobs:
        await jobs.keep()
        records = some_records(0, np.random.default_rng(5))
        records[OptinSubgroup.S][f"{marker}\thttps://one.example/".encode()] = 1
        await count_records(made, 0, records)
        save_snapshots(nodes)
        await made.until(lambda: len(files_with(marker, folders)) >= 4, what="copies")
        clock.now_ms = (await made.log_state()).epochs[0].parameters.records_sealable_at_ms
        await jobs.keep()
        assert files_with(marker, folders)
        assert await jobs.run(Kind.HEAD_LISTS)
        await jobs.keep()
        await until_none(marker, folders, within_s=60)
