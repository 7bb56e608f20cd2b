"""The table of opt-in records: the number of people per epoch, subgroup and record.

    blender:{topic/7}:41:S, :S:1, …      string  rows of records and counts (`record_rows`), up to
                                                 16 MiB per string; :T and :graph likewise, one for
                                                 each subgroup of opt-in users
    blender:{topic/7}:41:totals          hash    also: users:<subgroup>, chunks:<subgroup>

and the keys that both tables have (`count_table`), with a fingerprint per contributor and slot.

Window: the records of one epoch. Counted from its opening until it is sealed; removed, as raw text
must be, when its head list is committed. Memory: the text and about 4 bytes per distinct record of
a batch, and 8 bytes per contributor.

Scripts: those of `count_table`; `count_batch.lua` appends the rows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from blendstream.streams.names import OptinSubgroup
from blendstream.streams.tables.batch_verdict import Tally
from blendstream.streams.tables.count_table import CountTable
from blendstream.streams.tables.record_rows import pack_rows
from blendstream.streams.tables.redis import answered

__all__ = ["MAX_RECORD_BYTES_PER_SCRIPT", "OptinRecordTable"]

#: Maximum bytes of opt-in frames per script. The script's rows, which are shorter than the frames,
#: must fit into `CHUNK_BYTES`, which is much larger.
MAX_RECORD_BYTES_PER_SCRIPT: Final = 4 * 1024 * 1024


class OptinRecordTable(CountTable):
    """Counts of records by subgroup."""

    _series = tuple(OptinSubgroup)

    def _strings(self, tally: Tally) -> dict[str, bytes]:
        return {subgroup: pack_rows(counts) for subgroup, counts in tally.records.items()}

    async def record_rows(
        self, epoch: int, subgroup: OptinSubgroup, partitions: Sequence[int]
    ) -> AsyncIterator[bytes]:
        """Yield the rows of an epoch's subgroup, string by string, as `record_rows` packs them."""
        for partition in partitions:
            for key in (await self._chunk_keys(partition, epoch))[subgroup]:
                if data := await answered(self._client.get(key)):
                    yield data
