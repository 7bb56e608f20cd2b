"""Opt-in records as the worker counted them, one by one; jobs add up whole rows instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from blendstream.streams.names import OptinSubgroup
from blendstream.streams.tables.optin_records import OptinRecordTable
from blendstream.streams.tables.record_rows import row_texts

__all__ = ["record_counts"]


async def record_counts(
    tables: OptinRecordTable, epoch: int, share: OptinSubgroup, partitions: Sequence[int]
) -> dict[bytes, int]:
    """`query TAB url` → how many users."""
    counts: Counter[bytes] = Counter()
    async for rows in tables.record_rows(epoch, share, partitions):
        for text, n in row_texts(rows):
            counts[text] += n
    return dict(counts)
