"""The table of opt-in records: how many people of each share hold each record of an epoch.

    blender:{topic/7}:41:S, :S:1, …      string  rows of records and counts (`record_rows`), up to
                                                 16 MiB a string; :T and :graph likewise, one for
                                                 each share of opt-in users
    blender:{topic/7}:41:totals          hash    besides: users:<share>, chunks:<share>

and the keys that both tables have (`count_table`): a fingerprint for each contributor and slot.

Window: the records of one epoch. Counted from its opening until it is sealed; removed, as raw text
must be, when its head list is committed. Memory: the text and about 4 bytes for each different
record of a batch, and 8 bytes a contributor.

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

#: Bytes of opt-in frames of one script: well below `CHUNK_BYTES`, which its rows must fit into.
#: They are shorter than the frames.
MAX_RECORD_BYTES_PER_SCRIPT: Final = 4 * 1024 * 1024


class OptinRecordTable(CountTable):
    """Records by share."""

    _series = tuple(OptinSubgroup)

    def _strings(self, tally: Tally) -> dict[str, bytes]:
        return {share: pack_rows(counts) for share, counts in tally.records.items()}

    async def record_rows(
        self, epoch: int, share: OptinSubgroup, partitions: Sequence[int]
    ) -> AsyncIterator[bytes]:
        """Opt-in records of an epoch and share, as `record_rows` packs them, a string at a time."""
        for partition in partitions:
            for key in (await self._chunk_keys(partition, epoch))[share]:
                if data := await answered(self._client.get(key)):
                    yield data
