"""What jobs read of a sealed epoch, judged and stored by the counters' own code on a real Redis."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import numpy as np
import pytest
import redis.asyncio

from blendstream.agents.worker.entry_checks import _subgroups, judge_optin_records
from blendstream.streams.epoch_keys import EpochKeys
from blendstream.streams.errors import StoreMismatch
from blendstream.streams.names import OptinSubgroup
from blendstream.streams.releases.sealed_counts import CountsMoved, SealedCounts
from blendstream.streams.tables.batch_verdict import Delivery
from blendstream.streams.tables.client_reports import ClientReportTable
from blendstream.streams.tables.count_table import PartitionState, SeenContributors
from blendstream.streams.tables.optin_records import OptinRecordTable
from blendstream.streams.wire.frames import OptinEntry, decode, encode_optin_records
from tests.release_entries import log_state_of, opened_entry
from tests.service.settings import MASTER

RECORDS_PER_USER = 3
KEYS = EpochKeys.derive(MASTER, 1)
LOG_STATE = log_state_of(
    opened_entry(
        1, window_start_ms=0, window_end_ms=10**13, grace_ms=0, skew_ms=0,
        records_per_user=RECORDS_PER_USER, shares_ppm=(500_000, 300_000, 200_000),
        optin_partitions=1, report_partitions=1,
    )
)  # fmt: skip


async def counted(tables: OptinRecordTable, entries: list[OptinEntry], *, frames: int) -> None:
    """Judge and store as a worker does, in so many frames."""
    stored = await tables.stored_state(0)
    assert await tables.open(
        0, stored, offset=0, topic_id="t", released_through=-1, lost=0, unreleased=[]
    )
    state = PartitionState(0, "t", 0, {1: SeenContributors()})
    for number, part in enumerate(np.array_split(np.arange(len(entries)), frames)):
        value = encode_optin_records(1, [entries[i] for i in part], log_position=1)
        delivery = Delivery(number, 1, decode(value), len(value))  # type: ignore[arg-type]
        seen = {1: state.seen[1].table}
        verdict = judge_optin_records(0, [delivery], LOG_STATE, {1: KEYS}, seen)
        outcome = await tables.add_once(state, verdict, number + 1)
        assert type(outcome).__name__ == "Applied"


async def test_participants_are_people_however_many_records_they_sent(redis_client, name_prefix):
    """With m_O = 3 the sum of counts would publish, without noise, how many records people hold."""
    rng = np.random.default_rng(1)
    people = [rng.bytes(16) for _ in range(300)]
    shares = _subgroups(
        LOG_STATE.epochs[1], KEYS, np.array([np.frombuffer(p, "<u8") for p in people])
    )
    entries = []
    for number, person in enumerate(people):
        # One, two or three records, some of them the same one twice, some sent a second time.
        held = 1 + number % RECORDS_PER_USER
        for slot in range(held):
            text = b"query %d" % (7 if number % 5 == 0 else number + slot)
            entries += [OptinEntry(person, slot, text, b"https://site.example/")] * (1 + slot % 2)
    order = rng.permutation(len(entries))
    tables = OptinRecordTable(redis_client, "t", prefix=name_prefix)
    await counted(tables, [entries[i] for i in order], frames=4)

    read = await SealedCounts(tables, 1, "test").read_optin(1, [4], complete=True)
    people_in = {share: int((shares == n).sum()) for n, share in enumerate(OptinSubgroup)}
    assert read.counts.selection_users == people_in[OptinSubgroup.S]
    assert read.counts.estimation_users == people_in[OptinSubgroup.T]
    graph = await SealedCounts(tables, 1, "test").read_graph(1, [4], complete=True)
    assert graph.users == people_in[OptinSubgroup.GRAPH]
    assert read.counts.selection.sum() > people_in[OptinSubgroup.S], (
        "several records each were counted"
    )


async def test_records_of_many_strings_are_all_read(redis_client, name_prefix, monkeypatch):
    """A string is followed by another when it is full; a worker that resumes finds its end."""
    monkeypatch.setattr("blendstream.streams.tables.count_table.CHUNK_BYTES", 1000)
    rng = np.random.default_rng(2)
    entries = [
        OptinEntry(rng.bytes(16), 0, b"query %d" % (n % 40), b"https://site.example/")
        for n in range(400)
    ]
    tables = OptinRecordTable(redis_client, "t", prefix=name_prefix)
    await counted(tables, entries, frames=20)
    assert (await tables.totals(0, 1))["chunks:S"] > 2

    read = await SealedCounts(tables, 1, "test").read_optin(1, [20], complete=True)
    graph = await SealedCounts(tables, 1, "test").read_graph(1, [20], complete=True)
    assert len(read.counts.table) == 40
    assert read.counts.selection.sum() == read.counts.selection_users
    held = read.counts.selection.sum() + read.counts.estimation.sum() + sum(graph.clicks.values())
    assert held == 400
    ends = (await tables.load_seen(0, 1)).ends
    assert ends["S"].size == len(
        [rows async for rows in tables.record_rows(1, OptinSubgroup.S, [0])][-1]
    )
    await tables.release_epoch(0, 1)
    assert not [key async for key in redis_client.scan_iter(f"{name_prefix}:*:1:*")]


async def test_records_of_an_older_release_are_refused_and_not_passed_over(
    redis_client, name_prefix
):
    """They were hashes. Read as nothing, an upgrade would have published an epoch without them."""
    tables = OptinRecordTable(redis_client, "t", prefix=name_prefix)
    await counted(tables, [OptinEntry(bytes(16), 0, b"q", b"u")], frames=1)
    for share in OptinSubgroup:
        await redis_client.unlink(tables.key(0, 1, share))
        await redis_client.hset(tables.key(0, 1, share), "q\tu", 1)
    counts = SealedCounts(tables, 1, "test")
    for read in (counts.read_optin, counts.read_graph):
        with pytest.raises(StoreMismatch, match="WRONGTYPE"):
            await read(1, [1], complete=True)
    with pytest.raises(StoreMismatch, match="WRONGTYPE"):
        await tables.load_seen(0, 1)
    assert await tables.forget_partition(0, [1])
    assert not [key async for key in redis_client.scan_iter(f"{name_prefix}:*:1:*")]


async def test_a_script_that_fails_leaves_no_string_that_nothing_removes(
    redis_server, redis_client, name_prefix
):
    """Text that was appended before its number was noted would outlive the release, and a rebuild
    would count it again."""
    await redis_client.execute_command(
        "ACL SETUSER", name_prefix, "on", "nopass", "~*", "&*", "+@all", "-append"
    )
    limited = redis.asyncio.Redis.from_url(redis_server.url, username=name_prefix, password="x")
    tables = OptinRecordTable(limited, "t", prefix=name_prefix)
    with pytest.raises(StoreMismatch):
        await counted(tables, [OptinEntry(bytes(16), 0, b"q", b"u")], frames=1)
    await limited.aclose()
    await redis_client.execute_command("ACL DELUSER", name_prefix)
    noted = await redis_client.hgetall(tables.key(0, 1, "totals"))
    assert [name for name in noted if name.startswith(b"chunks")], "before anything is appended"


async def test_counts_that_are_not_there_up_to_the_seal_are_not_read(redis_client, name_prefix):
    """A Redis that lost its tail would make a smaller epoch look whole."""
    tables = OptinRecordTable(redis_client, "t", prefix=name_prefix)
    await counted(tables, [OptinEntry(bytes(16), 0, b"q", b"u")], frames=1)
    with pytest.raises(CountsMoved, match="must be counted up to 2, found 1"):
        await SealedCounts(tables, 1, "test").read_optin(1, [2], complete=True)


class Interrupted(OptinRecordTable):
    """Something happens to the partition after its records were read and before its totals."""

    async def totals(self, partition: int, epoch: int | str | None = None) -> dict[str, int]:
        await self.happens()
        return await super().totals(partition, epoch)

    happens: Callable[[], Awaitable[None]]


async def test_counts_that_are_forgotten_while_they_are_read_are_not_taken_for_none(
    redis_client, name_prefix
):
    """Somebody may run `rebuild` while a job reads: its release would be of half the epoch and
    called complete, even if the workers were through again before the job looked."""
    entries = [OptinEntry(bytes(16), 0, b"q", b"u")]
    tables = Interrupted(redis_client, "t", prefix=name_prefix)
    await counted(tables, entries, frames=1)
    counts = SealedCounts(tables, 1, "test")

    async def forgotten() -> None:
        assert await tables.forget_partition(0, [1])

    async def counted_again() -> None:
        await forgotten()
        await counted(tables, entries, frames=1)

    for happens in (counted_again, forgotten):
        tables.happens = happens
        with pytest.raises(CountsMoved, match="`blendstream rebuild` has it recounted from Kafka"):
            await counts.read_optin(1, [1], complete=True)


async def test_counts_that_redis_loses_while_they_are_read_are_not_taken_for_whole(
    redis_client, name_prefix
):
    """A Redis that comes back from its last snapshot has lost the reader's token too."""
    tables = Interrupted(redis_client, "t", prefix=name_prefix)
    await counted(tables, [OptinEntry(bytes(16), 0, b"q", b"u")], frames=1)
    keys = [key async for key in redis_client.scan_iter(f"{name_prefix}:*")]
    snapshot = {key: await redis_client.dump(key) for key in keys}

    async def rolled_back() -> None:
        now = [key async for key in redis_client.scan_iter(f"{name_prefix}:*")]
        await redis_client.delete(*now)
        for key, value in snapshot.items():
            await redis_client.restore(key, 0, value)

    tables.happens = rolled_back
    with pytest.raises(CountsMoved, match="Redis lost its tail"):
        await SealedCounts(tables, 1, "test").read_optin(1, [1], complete=True)


async def test_closing_an_epoch_bars_it_and_only_its_release_removes_the_counts(
    redis_client, name_prefix
):
    """Raw text must go with the release; a page said that the script which closes removes it."""
    tables = OptinRecordTable(redis_client, "t", prefix=name_prefix)
    await counted(tables, [OptinEntry(bytes(16), 0, b"query", b"https://site.example/")], frames=1)
    key = tables.key(0, 1, "totals")

    await tables.close_epochs(0, 1)
    assert await redis_client.exists(key)
    await tables.release_epoch(0, 1)
    assert not [key async for key in redis_client.scan_iter(f"{name_prefix}:*:1:*")]


@pytest.mark.parametrize("complete", [True, False])
async def test_counts_of_a_released_epoch_are_an_error_and_not_an_empty_epoch(
    redis_client, name_prefix, complete: bool
):
    """A job that read an old copy of the log found counts that another had released and removed:
    it would have published the epoch as empty, and ended it."""
    tables = OptinRecordTable(redis_client, "t", prefix=name_prefix)
    people = [bytes([number]) * 16 for number in range(30)]
    await counted(
        tables, [OptinEntry(p, 0, b"query", b"https://site.example/") for p in people], frames=1
    )
    await tables.close_epochs(0, 1)
    await tables.release_epoch(0, 1)

    reports = ClientReportTable(redis_client, "t", prefix=name_prefix)
    with pytest.raises(StoreMismatch, match="epoch 1 must be unreleased"):
        await SealedCounts(tables, 1, "test").read_optin(1, [1], complete=complete)
    with pytest.raises(StoreMismatch, match="epoch 1 must be unreleased"):
        await SealedCounts(reports, 1, "test").read_reports(1, [1], 3, complete=complete)


@pytest.mark.parametrize("how", ["whole", "behind the seal", "moved", "released"])
async def test_a_reader_leaves_no_token_behind_however_its_reading_ends(
    redis_client, name_prefix, how: str
):
    """Readings are repeated many times a minute: thousands of tokens were there until they expired
    an hour later."""
    tables = Interrupted(redis_client, "t", prefix=name_prefix)
    await counted(tables, [OptinEntry(bytes(16), 0, b"q", b"u")], frames=1)
    during: list[bytes] = []

    async def look() -> None:
        during.extend(
            [key async for key in redis_client.scan_iter(f"{name_prefix}:*:token:test-*")]
        )
        if how == "moved":
            assert await tables.forget_partition(0, [1])

    tables.happens = look
    if how == "released":
        await tables.close_epochs(0, 1)
        await tables.release_epoch(0, 1)
    read = SealedCounts(tables, 1, "test").read_optin(
        1, [2 if how == "behind the seal" else 1], complete=True
    )
    if how == "whole":
        await read
    else:
        with pytest.raises(StoreMismatch if how == "released" else CountsMoved):
            await read
    assert bool(during) == (how != "behind the seal"), "it was there during the reading"
    assert not [key async for key in redis_client.scan_iter(f"{name_prefix}:*:token:test-*")]
