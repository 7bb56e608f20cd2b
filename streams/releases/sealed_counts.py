"""Consistent reads of an epoch's counts up to its seal, however Redis fails during the read.

After a seal no entry at or beyond the bound belongs to the epoch. So a partition counted up to its
bound has its final counts for the epoch, and they do not change until the epoch is released.

A worker that has not read the seal yet decides by append time alone, with the same result. For the
bound is the offset of a marker, which a broker appended after the allowed skew had passed, by its
own clock, since frames became late.

Three things can still change the counts during a read:

    Redis loses its tail, or everything   before reading, the job stores a random token with each
                                          partition's counts, which must still exist afterwards.
                                          Redis loses its history from the end only, so if the token
                                          survived, so did the counts written before it
    an operator runs `rebuild`            that changes the partition's rebuild mark, which must be
                                          unchanged afterwards
    another job releases the epoch,       the keeper first closes the epoch to further counts; a
    and the keeper deletes its counts     read that finished before that is complete

Promises: complete counts, or `CountsMoved`, which is safe to retry, or `StoreMismatch` where the
counts of a released epoch are requested.
Assumes: no broker's clock is behind another's by more than the allowed skew. Otherwise entries in
time by its clock could follow the bound, and be counted by a worker during a read.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from blendstream.blender.values.arrays import IntArray
from blendstream.blender.values.interfaces import OptinCounts
from blendstream.blender.values.record import Record
from blendstream.streams.errors import StoreMismatch, StoreUnavailable
from blendstream.streams.names import OptinSubgroup
from blendstream.streams.tables.client_reports import ClientReportTable
from blendstream.streams.tables.optin_records import OptinRecordTable
from blendstream.streams.tables.record_rows import PackedRecords, RecordSums
from blendstream.streams.tables.stage_tables import StageTable

__all__ = ["CountsMoved", "GraphRead", "OptinRead", "ReportsRead", "SealedCounts"]

#: Time to live of a token: long enough to read a hundred million counts. A token that a crash left
#: behind expires after it.
_TOKEN_S = 3600


class CountsMoved(StoreUnavailable):
    """Redis lost a partition's counts or does not have them up to its bound, or `rebuild` ran."""


@dataclass(frozen=True, slots=True)
class OptinRead:
    """One epoch's opt-in counts of S and T, for the head list."""

    counts: OptinCounts
    lost: bool


@dataclass(frozen=True, slots=True)
class GraphRead:
    """One epoch's opt-in counts of the graph subgroup."""

    clicks: dict[Record, int]
    users: int
    lost: bool


@dataclass(frozen=True, slots=True)
class ReportsRead:
    """One epoch's reports by cell, and the number of devices that sent them."""

    cells: IntArray
    reports: int
    lost: bool


class SealedCounts:
    """Reads one topic's counts for one kind of job, whose name is `reader`."""

    def __init__(self, tables: StageTable, partitions: int, reader: str) -> None:
        self._tables = tables
        self._reader = reader
        self.partitions = partitions

    async def positions(self) -> list[int | None]:
        """Return the offset up to which each partition is counted."""
        return [
            (await self._tables.stored_state(partition)).offset
            for partition in range(self.partitions)
        ]

    async def read_optin(self, epoch: int, bounds: Sequence[int], *, complete: bool) -> OptinRead:
        """Read the counts of S and T; `complete`: every partition must be counted to its bound."""
        (records, (s, t)), totals = await self._read_records(
            epoch, bounds, [OptinSubgroup.S, OptinSubgroup.T], complete
        )
        counts = OptinCounts(
            records, s, t, _users(totals, OptinSubgroup.S), _users(totals, OptinSubgroup.T)
        )
        return OptinRead(counts, _lost(totals))

    async def read_graph(self, epoch: int, bounds: Sequence[int], *, complete: bool) -> GraphRead:
        """Read the counts of the graph subgroup."""
        (records, (counts,)), totals = await self._read_records(
            epoch, bounds, [OptinSubgroup.GRAPH], complete
        )
        clicks = dict(sorted((records[i], n) for i, n in enumerate(counts.tolist())))
        return GraphRead(clicks, _users(totals, OptinSubgroup.GRAPH), _lost(totals))

    async def _read_records(
        self, epoch: int, bounds: Sequence[int], subgroups: Sequence[OptinSubgroup], complete: bool
    ) -> tuple[tuple[PackedRecords, list[IntArray]], list[dict[str, int]]]:
        """Read the records of some subgroups with a column of counts for each, and all totals."""
        assert isinstance(self._tables, OptinRecordTable)
        partitions = range(len(bounds))
        sums = RecordSums(columns=len(subgroups))
        async with self._unchanged(epoch, bounds, complete):
            for column, subgroup in enumerate(subgroups):
                async for rows in self._tables.record_rows(epoch, subgroup, partitions):
                    # Use a thread: millions of rows take seconds, and leases need renewal.
                    await asyncio.to_thread(sums.add, rows, column)
            totals = [await self._tables.totals(partition, epoch) for partition in partitions]
        return await asyncio.to_thread(sums.finish), totals

    async def read_reports(
        self, epoch: int, bounds: Sequence[int], cells: int, *, complete: bool
    ) -> ReportsRead:
        """Read the report counts of `cells` cells."""
        assert isinstance(self._tables, ClientReportTable)
        partitions = range(len(bounds))
        async with self._unchanged(epoch, bounds, complete):
            counts = await self._tables.cell_counts(epoch, partitions, cells)
            totals = [await self._tables.totals(partition, epoch) for partition in partitions]
        return ReportsRead(
            counts,
            sum(t.get("counted", 0) for t in totals),
            _lost(totals),
        )

    @asynccontextmanager
    async def _unchanged(
        self, epoch: int, bounds: Sequence[int], complete: bool
    ) -> AsyncIterator[None]:
        """Guard a read: raise `CountsMoved` if Redis lost or replaced counts during it."""
        token = secrets.token_hex(8)
        try:
            rebuilt = await self._begin(token, bounds, complete)
            yield
            await self._end(token, rebuilt, epoch)
        except (CountsMoved, StoreMismatch):
            # The job retries, after `CountsMoved` many times per minute: leave no tokens behind.
            await self._drop(token, len(bounds))
            raise
        await self._drop(token, len(bounds))

    async def _drop(self, token: str, partitions: int) -> None:
        for partition in range(partitions):
            await self._tables.drop_token(partition, self._name(token))

    async def _begin(
        self, token: str, bounds: Sequence[int], complete: bool
    ) -> Sequence[str | None]:
        """Store our token in each partition, and return the mark of each one's last rebuild."""
        rebuilt = []
        for partition in range(len(bounds)):
            rebuilt.append(await self._tables.rebuilt(partition))
            await self._tables.put_token(partition, self._name(token), token, _TOKEN_S)
        if complete:
            for partition, bound in enumerate(bounds):
                offset = (await self._tables.stored_state(partition)).offset
                if bound > 0 and (offset is None or offset < bound):
                    raise CountsMoved(
                        f"partition {partition} must be counted up to {bound}, found {offset}: "
                        "Redis lost its tail; the worker recounts from Kafka"
                    )
        return rebuilt

    async def _end(self, token: str, marks: Sequence[str | None], epoch: int) -> None:
        """Check that our token still exists and that each partition's rebuild mark is unchanged."""
        for partition, rebuilt in enumerate(marks):
            # The keeper closes an epoch before it removes the counts: if it is not closed yet, the
            # read is complete.
            if (await self._tables.stored_state(partition)).released_through >= epoch:
                # Redis did not lose its newest writes: a retry helps only if this is a race.
                raise StoreMismatch(
                    f"epoch {epoch} must be unreleased while its counts are read, but partition "
                    f"{partition} has it as released: another job was first, or this Redis is "
                    "newer than the release log; see `blendstream epochs`"
                )
            if await self._tables.token(partition, self._name(token)) != token:
                raise CountsMoved(
                    f"partition {partition} changed during the read: Redis lost its tail; the "
                    "worker recounts from Kafka"
                )
            if await self._tables.rebuilt(partition) != rebuilt:
                raise CountsMoved(
                    f"partition {partition} changed during the read: `blendstream rebuild` has "
                    "it recounted from Kafka"
                )

    def _name(self, token: str) -> str:
        # Unique per read: concurrent jobs must not mistake each other's token for their own.
        return f"{self._reader}-{token}"


def _users(totals: Sequence[dict[str, int]], subgroup: OptinSubgroup) -> int:
    """Count a subgroup's people: not the sum of its counts, as one may send several records."""
    return sum(t.get(f"users:{subgroup}", 0) for t in totals)


def _lost(totals: Sequence[dict[str, int]]) -> bool:
    return any(t.get("incomplete", 0) for t in totals)
