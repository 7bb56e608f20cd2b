"""A head list from millions of distinct records: read from Redis, add noise, select and rank.

    python -m bench head_list_records                10 000 to 10 000 000 records, 8 partitions
    python -m bench.head_list_records --sizes 100000                              one size only

Redis contains an epoch as workers store it: rows of one user each, a tenth of the users in T, and
200 popular records. A separate process then runs the head-list job's steps between the seal and the
commit; its memory is compared with that of a process with 1 000 records. The baselines, on as many
records, are a dictionary of texts and then objects (up to a million), and numpy's float noise.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from bench._measured import Measured, measure
from bench._page import Table
from blendstream.agents.local import LocalRedis
from blendstream.blender.noise.exact_noise import ExactNoise
from blendstream.blender.profiles import build_head_list
from blendstream.blender.values.interfaces import OptinCounts
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.blender.values.record import Record
from blendstream.streams.names import OptinSubgroup
from blendstream.streams.releases.sealed_counts import SealedCounts
from blendstream.streams.settings.fields import Url
from blendstream.streams.settings.sections import RedisSettings
from blendstream.streams.tables.batch_verdict import BatchVerdict
from blendstream.streams.tables.count_table import PartitionState, SeenContributors
from blendstream.streams.tables.optin_records import OptinRecordTable
from blendstream.streams.tables.record_rows import row_texts
from blendstream.streams.tables.redis import connect_redis

TITLE = "Head list from many records"
TEXT = """
The work of the head-list job between the seal and the commit: rows read from Redis, added up,
noised, selected, ranked and estimated. There are 8 partitions, and 55 bytes of text per record.
*Bytes per record* is the additional memory, compared with a process that has 1 000 records. The
baselines, on as many records, are a version with one Python object per record, and numpy's float
noise alone.

In each row one second is for loading SciPy and for the estimates of 200 listed records. Of the
remaining time, the job spends four fifths on adding up rows. Hashing the text takes two fifths of
it, sorting a fifth.
"""

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
PLAIN_UP_TO = 1_000_000
FEW = 1_000
PARTITIONS, BATCH, POPULAR, HOLDERS = 8, 16_384, 200, 100
TOPIC = "optin-records.v1"


async def _tables(url: str, size: int) -> OptinRecordTable:
    client = await connect_redis(RedisSettings(Url(url), timeout_s=60))
    return OptinRecordTable(client, TOPIC, prefix=f"bench-{size}")


async def _fill(url: str, size: int) -> None:
    """Store batches as a worker does."""
    tables = await _tables(url, size)
    states = []
    for partition in range(PARTITIONS):
        stored = await tables.stored_state(partition)
        await tables.open(
            partition, stored, offset=0, topic_id="t", released_through=-1, lost=0, unreleased=[]
        )
        states.append(PartitionState(partition, "t", 0, {1: SeenContributors()}))
    for number, start in enumerate(range(0, size, BATCH)):
        verdict = BatchVerdict()
        tally = verdict.tally(1)
        for n in range(start, min(start + BATCH, size)):
            share = OptinSubgroup.T if n % 10 == 9 else OptinSubgroup.S
            text = b"query number %d\thttps://site-%d.example/path" % (n, n)
            tally.records.setdefault(share, Counter())[text] += 1
            tally.users[share] += 1
        if number == 0:
            for n in range(POPULAR):
                tally.records[OptinSubgroup.S][b"popular %d\thttps://popular.example/" % n] = (
                    HOLDERS
                )
            tally.users[OptinSubgroup.S] += POPULAR * HOLDERS
        state = states[number % PARTITIONS]
        await tables.add_once(state, verdict, state.offset + 1)
    await tables.close()


def released(url: str, size: int) -> Callable[[], float]:
    """As the job does it."""

    async def read() -> OptinCounts:
        tables = await _tables(url, size)
        found = await SealedCounts(tables, PARTITIONS, "bench").read_optin(
            1, [0] * PARTITIONS, complete=True
        )
        await tables.close()
        return found.counts

    return lambda: _head_list(asyncio.run(read()))


def plain(url: str, size: int) -> Callable[[], float]:
    """The plain way: every record an object."""

    async def read() -> OptinCounts:
        tables = await _tables(url, size)
        shares: list[dict[bytes, int]] = [{}, {}]
        for held, share in zip(shares, (OptinSubgroup.S, OptinSubgroup.T), strict=True):
            async for rows in tables.record_rows(1, share, range(PARTITIONS)):
                for text, n in row_texts(rows):
                    held[text] = held.get(text, 0) + n
        await tables.close()
        s, t = shares
        texts = sorted(s.keys() | t.keys())
        columns = [np.array([held.get(text, 0) for text in texts], np.int64) for held in shares]
        records = [Record(*text.decode().split("\t")) for text in texts]
        return OptinCounts(records, *columns, sum(s.values()), sum(t.values()))

    return lambda: _head_list(asyncio.run(read()))


def _head_list(counts: OptinCounts) -> float:
    parameters = PrivacyParameters(head_list_cells=500, selection_share=0.9)
    release = build_head_list("sharp", counts, parameters, ExactNoise())
    return len(release.head_list.records)


def floats(size: int) -> Callable[[], float]:
    """numpy's float noise on as many counts."""
    counts, rng = np.ones(size), np.random.default_rng(2)
    return lambda: float((counts + rng.laplace(scale=0.5, size=size) > 7).sum())


def main(words: Sequence[str] = ()) -> list[Table]:
    """Every size, and how time and memory grow between them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    sizes = parser.parse_args(words).sizes
    table = Table(["distinct records", "way", "wall clock", "processor", "bytes per record",
                   "listed", "growth"])  # fmt: skip
    with LocalRedis() as redis:
        asyncio.run(_fill(redis.url, FEW))
        few = measure(released, redis.url, FEW)
        last: tuple[int, Measured] | None = None
        for size in sizes:
            asyncio.run(_fill(redis.url, size))
            found = measure(released, redis.url, size)
            grown = ""
            if last is not None:
                ratio = math.log(found.cpu_seconds / last[1].cpu_seconds)
                grown = f"n^{ratio / math.log(size / last[0]):.2f}"
            _show(table, size, "as the job", found, few, grown)
            if size <= PLAIN_UP_TO:
                _show(table, size, "plain objects", measure(plain, redis.url, size), few)
            noise = measure(floats, size)
            times = f"{noise.seconds:.3f} s", f"{noise.cpu_seconds:.3f} s"
            table.add(f"{size:,}", "float noise alone", *times, "", "", "")
            last = size, found
    return [table]


def _show(
    table: Table, size: int, way: str, found: Measured, few: Measured, grown: str = ""
) -> None:
    each = (found.peak_mib - few.peak_mib) * 1024**2 / size
    table.add(
        f"{size:,}", way, f"{found.seconds:.2f} s", f"{found.cpu_seconds:.2f} s", f"{each:.0f}",
        f"{found.result:.0f}", grown,
    )  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
