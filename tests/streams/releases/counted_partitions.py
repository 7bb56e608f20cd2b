"""Counts of partitions in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from blendstream.streams.names import OptinSubgroup
from blendstream.streams.tables.batch_verdict import Tally
from blendstream.streams.tables.count_table import StoredState
from blendstream.streams.tables.optin_records import OptinRecordTable
from blendstream.streams.tables.record_rows import pack_rows


class Counted(OptinRecordTable):
    """Tables that hold one tally; what Redis itself does is tested on a real one."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._tokens: dict[str, str] = {}

    async def rebuilt(self, partition: int) -> None:
        return None

    async def put_token(self, partition: int, name: str, token: str, seconds: int) -> None:
        self._tokens[name] = token

    async def token(self, partition: int, name: str) -> str:
        return self._tokens[name]

    async def drop_token(self, partition: int, name: str) -> None:
        del self._tokens[name]

    async def stored_state(self, partition: int) -> StoredState:
        return StoredState(offset=1)

    async def record_rows(
        self, epoch: int, share: OptinSubgroup, partitions: Sequence[int]
    ) -> AsyncIterator[bytes]:
        yield pack_rows(self._tally.records.get(share, {}))

    async def totals(self, partition: int, epoch: int) -> dict[str, int]:
        return {f"users:{share}": n for share, n in self._tally.users.items()}
