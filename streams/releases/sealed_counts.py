"""Reads what was counted up to a seal, whole and unmoved, however Redis behaves meanwhile.

After a seal no entry at or beyond the bound belongs to the epoch, so a partition counted up to its
bound holds its final counts for the epoch, and they do not change until the epoch is released. A
worker that has not read the seal yet judges by append time alone, to the same end: the bound is a
marker that a broker appended when, by its own clock, the allowed skew had passed since frames
became late.
What could still go wrong is Redis losing its tail, or everything, while we read. So before reading
a random token is stored with each partition's counts, and after reading it must still be there:
Redis loses its history from the end only, so a token that survived proves that everything written
before it, the counts, was there throughout. Or an operator has them counted again meanwhile
(`blendstream rebuild`): that changes the partition's mark, which must be the same as before. Or
another job has released the epoch and its counts are being removed: they are barred first, so what
was read before the bar is whole.

Promises: complete counts, or `CountsMoved`, which is safe to retry, or `StoreMismatch` where the
counts of a released epoch are asked for.
Assumes: no broker's clock is behind another's by more than the allowed skew. Were one, entries in
time by its clock could come behind the bound, and be counted by a worker while counts are read.
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

#: Long enough to read a hundred million counts; a token left behind by a crash then expires.
_TOKEN_S = 3600


class CountsMoved(StoreUnavailable):
    """Redis lost counts while they were read, or has not counted up to the seal any more."""


@dataclass(frozen=True, slots=True)
class OptinRead:
    """One epoch's opt-in counts of S and T, for the head list."""

    counts: OptinCounts
    lost: bool


@dataclass(frozen=True, slots=True)
class GraphRead:
    """One epoch's opt-in counts of the click graph's own share."""

    clicks: dict[Record, int]
    users: int
    lost: bool


@dataclass(frozen=True, slots=True)
class ReportsRead:
    """One epoch's reports by cell, and how many devices sent them."""

    cells: IntArray
    reports: int
    lost: bool


class SealedCounts:
    """Counts of one topic, for one kind of job, whose name is `reader`."""

    def __init__(self, tables: StageTable, partitions: int, reader: str) -> None:
        self._tables = tables
        self._reader = reader
        self.partitions = partitions

    async def positions(self) -> list[int | None]:
        """How far each partition is counted."""
        return [
            (await self._tables.stored_state(partition)).offset
            for partition in range(self.partitions)
        ]

    async def read_optin(self, epoch: int, bounds: Sequence[int], *, complete: bool) -> OptinRead:
        """Counts of S and T; `complete` insists that every partition is counted up to its bound."""
        (records, (s, t)), totals = await self._read_records(
            epoch, bounds, [OptinSubgroup.S, OptinSubgroup.T], complete
        )
        counts = OptinCounts(
            records, s, t, _users(totals, OptinSubgroup.S), _users(totals, OptinSubgroup.T)
        )
        return OptinRead(counts, _lost(totals))

    async def read_graph(self, epoch: int, bounds: Sequence[int], *, complete: bool) -> GraphRead:
        """Counts of the click graph's share."""
        (records, (counts,)), totals = await self._read_records(
            epoch, bounds, [OptinSubgroup.GRAPH], complete
        )
        clicks = dict(sorted((records[i], n) for i, n in enumerate(counts.tolist())))
        return GraphRead(clicks, _users(totals, OptinSubgroup.GRAPH), _lost(totals))

    async def _read_records(
        self, epoch: int, bounds: Sequence[int], shares: Sequence[OptinSubgroup], complete: bool
    ) -> tuple[tuple[PackedRecords, list[IntArray]], list[dict[str, int]]]:
        """The records of some shares with a column of counts for each, and all totals."""
        assert isinstance(self._tables, OptinRecordTable)
        partitions = range(len(bounds))
        sums = RecordSums(columns=len(shares))
        async with self._unchanged(epoch, bounds, complete):
            for column, share in enumerate(shares):
                async for rows in self._tables.record_rows(epoch, share, partitions):
                    # In a thread: millions of rows take seconds, and leases are renewed meanwhile.
                    await asyncio.to_thread(sums.add, rows, column)
            totals = [await self._tables.totals(partition, epoch) for partition in partitions]
        return await asyncio.to_thread(sums.finish), totals

    async def read_reports(
        self, epoch: int, bounds: Sequence[int], cells: int, *, complete: bool
    ) -> ReportsRead:
        """Report counts over `cells` cells."""
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
        """Around a reading: raise `CountsMoved` if Redis lost or replaced counts meanwhile."""
        token = secrets.token_hex(8)
        try:
            rebuilt = await self._begin(token, bounds, complete)
            yield
            await self._end(token, rebuilt, epoch)
        except (CountsMoved, StoreMismatch):
            # Readings are repeated, the first kind many times a minute until the counts are whole.
            await self._drop(token, len(bounds))
            raise
        await self._drop(token, len(bounds))

    async def _drop(self, token: str, partitions: int) -> None:
        for partition in range(partitions):
            await self._tables.drop_token(partition, self._name(token))

    async def _begin(
        self, token: str, bounds: Sequence[int], complete: bool
    ) -> Sequence[str | None]:
        """Mark each partition with our token, and return the mark of its last rebuild."""
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
                        "Redis lost its tail; the counts come again from Kafka"
                    )
        return rebuilt

    async def _end(self, token: str, marks: Sequence[str | None], epoch: int) -> None:
        """Look whether our token and each partition's mark are still there."""
        for partition, rebuilt in enumerate(marks):
            # Counts are barred before they are removed: not barred yet, so what was read is whole.
            if (await self._tables.stored_state(partition)).released_through >= epoch:
                # Not a lost tail: where this is no race, waiting would never end it.
                raise StoreMismatch(
                    f"epoch {epoch} must be unreleased while its counts are read, but partition "
                    f"{partition} has it as released: another job was first, or this Redis is "
                    "newer than the release log; see `blendstream epochs`"
                )
            if await self._tables.token(partition, self._name(token)) != token:
                raise CountsMoved(
                    f"partition {partition} changed under the reader: Redis lost its tail; the "
                    "counts come again from Kafka"
                )
            if await self._tables.rebuilt(partition) != rebuilt:
                raise CountsMoved(
                    f"partition {partition} changed under the reader: it is counted again from "
                    "Kafka, as `blendstream rebuild` asked"
                )

    def _name(self, token: str) -> str:
        # Of this one reading: two jobs that race must not see each other's mark for their own.
        return f"{self._reader}-{token}"


def _users(totals: Sequence[dict[str, int]], share: OptinSubgroup) -> int:
    """People in a share. Not the sum of its counts: someone may have sent several records, and
    how many is theirs alone to know."""
    return sum(t.get(f"users:{share}", 0) for t in totals)


def _lost(totals: Sequence[dict[str, int]]) -> bool:
    return any(t.get("incomplete", 0) for t in totals)
