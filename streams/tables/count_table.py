"""Windowed counts in Redis: adds each batch of a partition exactly once, completely or not at all.

The base class of the tables of opt-in records (`optin_records`) and of reports (`client_reports`).
Redis stores the counts; they can be rebuilt from Kafka. Each partition's keys share a hash tag of
topic and partition, so that one script may access all of them on a cluster too
(docs/decisions/0064-windowed-counts-without-fausts-table.md: why these are not Faust's tables):

    blender:{topic/7}:state              hash    offset, topic_id, released_through (and applying)
    blender:{topic/7}:totals             hash    received, counted, refused:<reason>, of all time;
                                                 none: of the counted, those without a record
    blender:{topic/7}:late               hash    entries of released epochs: received, and no more
    blender:{topic/7}:41:totals          hash    these totals for epoch 41, chunks, incomplete
    blender:{topic/7}:41:seen:0, :1, …   string  fingerprints, 8 bytes each, up to 16 MiB per string
    blender:{topic/7}:token:<name>       string  a random token of a job: see `put_token`
    blender:{topic/7}:unknown:totals     hash    entries that belong to no known epoch

Window: an epoch. No key with counts has a time to live. `release_epoch` removes all keys of an
epoch when its release is committed; state, totals, late and unknown contain numbers only and stay.

Tokens: a reader removes its token after the read; if a crash prevents that, the token expires after
an hour. The tokens of the keeper and of a rebuild stay.

Memory: 8 bytes per contributor (per slot and per record if users may send several), and the space
that Redis reserves beyond a string's end. That space is at most the string's size if the string is
smaller than 1 MiB, otherwise at most 1 MiB.

Scripts: `open_partition.lua`, `count_batch.lua`, `close_epochs.lua`, `forget_partition.lua`.

Promises: a batch is added only to the state against which it was validated (same offset, same topic
id); a script that fails half-way leaves `applying` set, and no batch is added after that.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np

from blendstream.streams.tables.batch_verdict import BatchVerdict, Tally
from blendstream.streams.tables.fingerprints import FingerprintTable
from blendstream.streams.tables.redis import Client, Script, answered, text_of

__all__ = [
    "Applied",
    "Closed",
    "CountTable",
    "HalfApplied",
    "PartitionState",
    "SeenContributors",
    "Stale",
    "StoredState",
]

#: A Redis string may have 512 MB; reading and removing smaller chunks does not block Redis.
CHUNK_BYTES: Final = 16 * 1024 * 1024
#: Maximum entries per script. If lower, a script's fixed cost weighs more; if higher, a script
#: blocks Redis for longer than the 3 ms that these take.
MAX_ENTRIES_PER_SCRIPT: Final = 131_072
_REBUILT: Final = "rebuilt"
_SEEN: Final = "seen"


@dataclass(frozen=True, slots=True)
class StoredState:
    """A partition's state in Redis."""

    offset: int | None = None
    topic_id: str | None = None
    released_through: int = -1
    applying: int | None = None


@dataclass(frozen=True, slots=True)
class _End:
    """End of a series of strings: the number of the last one, and its length."""

    chunk: int = 0
    size: int = 0


@dataclass(slots=True)
class SeenContributors:
    """The contributors of one partition and epoch, and the ends of its strings, by name."""

    table: FingerprintTable = field(default_factory=FingerprintTable)
    ends: dict[str, _End] = field(default_factory=dict)


@dataclass(slots=True)
class PartitionState:
    """The worker's copy of a partition's state: valid as long as Redis has the same offset."""

    partition: int
    topic_id: str
    offset: int
    seen: dict[int, SeenContributors] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Applied:
    """The batch is stored."""


@dataclass(frozen=True, slots=True)
class Stale:
    """Redis has another offset or topic id: the caller must read the partition's state again."""

    offset: int | None


@dataclass(frozen=True, slots=True)
class Closed:
    """An epoch of the batch was released: read the release log and validate the batch again."""


@dataclass(frozen=True, slots=True)
class HalfApplied:
    """An earlier script failed half-way: the partition's counts must be rebuilt."""

    offset: int


Outcome = Applied | Stale | Closed | HalfApplied


class CountTable:
    """The counts of one topic."""

    #: Names of an epoch's series of strings, except the fingerprints.
    _series: ClassVar[tuple[str, ...]] = ()
    #: Names of an epoch's other keys, except its totals.
    _single: ClassVar[tuple[str, ...]] = ()

    def __init__(self, client: Client, topic: str, *, prefix: str = "blender") -> None:
        self._client = client
        self._topic = topic
        self._prefix = prefix
        self._count = Script("count_batch.lua")
        self._open = Script("open_partition.lua")
        self._close = Script("close_epochs.lua")
        self._forget = Script("forget_partition.lua")

    async def close(self) -> None:
        """Close the connections to Redis."""
        await self._client.aclose()

    def key(self, partition: int, *parts: object) -> str:
        """Return a key of a partition, as listed at the top of this module and of each table's."""
        tail = ":".join(str(part) for part in parts)
        return f"{self._prefix}:{{{self._topic}/{partition}}}:{tail}"

    def _chunk_key(self, partition: int, epoch: int, name: str, chunk: int) -> str:
        numbered = chunk > 0 or name == _SEEN
        return self.key(partition, epoch, name, *([chunk] if numbered else []))

    async def _chunk_keys(self, partition: int, epoch: int) -> dict[str, list[str]]:
        """Return the keys of an epoch's series of strings, by name."""
        names = [_SEEN, *self._series]
        fields = [_chunks_field(name) for name in names]
        chunks = await answered(self._client.hmget(self.key(partition, epoch, "totals"), fields))
        # A series of records always has its first key, even if nothing is stored there yet.
        least = [0, *(1 for _ in self._series)]
        return {
            name: [self._chunk_key(partition, epoch, name, n) for n in range(max(few, int(m or 0)))]
            for name, few, m in zip(names, least, chunks, strict=True)
        }

    # --- resuming a partition -------------------------------------------------------------------

    async def stored_state(self, partition: int) -> StoredState:
        """Read a partition's state."""
        fields = await answered(
            self._client.hmget(
                self.key(partition, "state"), ["offset", "topic_id", "released_through", "applying"]
            )
        )
        offset, topic_id, released, applying = fields
        return StoredState(
            None if offset is None else int(offset),
            None if topic_id is None else text_of(topic_id),
            -1 if released is None else int(released),
            None if applying is None else int(applying),
        )

    async def open(
        self,
        partition: int,
        read: StoredState,
        *,
        offset: int,
        topic_id: str,
        released_through: int,
        lost: int,
        unreleased: Iterable[int],
    ) -> bool:
        """Store the offset to resume at; return False if the state is no longer the one `read`."""
        opening = {
            "read_offset": "" if read.offset is None else str(read.offset),
            "read_topic_id": read.topic_id or "",
            "offset": str(offset),
            "topic_id": topic_id,
            "released_through": released_through,
            "lost": lost,
        }
        keys = [self.key(partition, "state")]
        keys += [self.key(partition, epoch, "totals") for epoch in unreleased]
        answer = await self._open.run(self._client, keys, opening)
        return text_of(answer[0]) == "opened"

    async def load_seen(self, partition: int, epoch: int) -> SeenContributors:
        """Load a partition's fingerprints of one epoch, and where each series of strings ends.

        The caller must have read the partition's offset before. If another worker writes after
        that, the offset in Redis differs, and `add_once` returns `Stale`.
        """
        seen = SeenContributors()
        for name, keys in (await self._chunk_keys(partition, epoch)).items():
            if name != _SEEN:
                size = await answered(self._client.strlen(keys[-1]))
                seen.ends[name] = _End(len(keys) - 1, size)
                continue
            sizes = [await answered(self._client.strlen(key)) for key in keys]
            seen.table.reserve(sum(sizes) // 8)
            for chunk, key in enumerate(keys):
                data = await answered(self._client.get(key)) or b""
                packed = np.frombuffer(data, "<u8")
                # Load in pieces, so that heartbeats and other partitions can run in between.
                for start in range(0, len(packed), 1 << 18):
                    seen.table.add(packed[start : start + (1 << 18)])
                    await asyncio.sleep(0)
                seen.ends[name] = _End(chunk, len(data))
        return seen

    # --- counting -------------------------------------------------------------------------------

    async def add_once(
        self, state: PartitionState, verdict: BatchVerdict, next_offset: int, *, again: bool = False
    ) -> Outcome:
        """Add a verdict and move the offset, in one script.

        `again`: an earlier attempt received no response. If Redis has the offset that this batch
        sets, that attempt was applied: any other worker would have stored the same verdicts.
        """
        keys, arguments, advance = self._batch(state, verdict, next_offset)
        answer = await self._count.run(self._client, keys, *arguments)
        status = text_of(answer[0])
        if status == "half":
            return HalfApplied(int(answer[1]))
        if status == "closed":
            return Closed()
        if status == "stale":
            stored = int(answer[1]) if answer[1] else None
            if not (again and stored == next_offset and text_of(answer[2]) == state.topic_id):
                return Stale(stored)
        state.offset = next_offset
        for seen, name, end in advance:
            seen.ends[name] = end
        return Applied()

    def _batch(
        self, state: PartitionState, verdict: BatchVerdict, next_offset: int
    ) -> tuple[list[str], list[Any], list[tuple[SeenContributors, str, _End]]]:
        """Make the script's keys and arguments, and the ends of strings after it."""
        partition = state.partition
        keys = [self.key(partition, part) for part in ("state", "totals", "late")]

        def number(key: str) -> int:
            keys.append(key)
            return len(keys)

        totals: dict[str, int] = {}
        tallies = []
        blobs: list[bytes] = []
        advance: list[tuple[SeenContributors, str, _End]] = []

        def appended(epoch: int, name: str, data: bytes) -> dict[str, Any]:
            seen = state.seen[epoch]
            end = seen.ends.get(name, _End())
            if end.size + len(data) > CHUNK_BYTES:
                end = _End(end.chunk + 1, 0)
            advance.append((seen, name, _End(end.chunk, end.size + len(data))))
            blobs.append(data)
            return {
                "key": number(self._chunk_key(partition, epoch, name, end.chunk)),
                "bytes": end.size,
                "data": len(blobs) + 1,
                "field": _chunks_field(name),
                "chunks": end.chunk + 1,
            }

        for epoch, tally in verdict.epochs.items():
            fields = _fields(tally)
            _add(totals, fields)
            name = "unknown" if epoch is None else epoch
            fields |= {f"users:{subgroup}": n for subgroup, n in tally.users.items() if n}
            packed: dict[str, Any] = {
                "totals": number(self.key(partition, name, "totals")),
                "fields": fields,
                "appended": [],
            }
            if epoch is not None:
                packed["epoch"] = epoch
                strings = {_SEEN: b"".join(f.tobytes() for f in tally.fingerprints)}
                strings |= self._strings(tally)
                packed["appended"] = [
                    appended(epoch, s, data) for s, data in strings.items() if data
                ]
            packed |= self._values(tally, partial(self.key, partition, name), number)
            tallies.append(packed)
        late = {"received": verdict.late} if verdict.late else {}
        if verdict.late:
            _add(totals, {"received": verdict.late, "refused:late": verdict.late})
        batch = {
            "expected": str(state.offset),
            "next": str(next_offset),
            "topic_id": state.topic_id,
            "chunk_limit": CHUNK_BYTES,
            "totals": totals,
            "late": late,
            "tallies": tallies,
        }
        return keys, [batch, *blobs], advance

    def _strings(self, tally: Tally) -> dict[str, bytes]:
        """Return the bytes to append to each of `_series`."""
        return {}

    def _values(
        self, tally: Tally, key: Callable[[str], str], number: Callable[[str], int]
    ) -> dict[str, Any]:
        """Return the script's arguments for `_single`; `number` adds a key, returns its index."""
        return {}

    # --- for jobs, metrics and operators --------------------------------------------------------

    async def totals(self, partition: int, epoch: int | str | None = None) -> dict[str, int]:
        """Read the totals: of all time, of one epoch, or `"unknown"` or `"late"`."""
        parts: tuple[object, ...] = (epoch, "totals")
        if epoch is None:
            parts = ("totals",)
        elif epoch == "late":
            parts = ("late",)
        totals = await answered(self._client.hgetall(self.key(partition, *parts)))
        return {text_of(name): int(n) for name, n in totals.items()}

    async def put_token(self, partition: int, name: str, token: str, seconds: int | None) -> None:
        """Store a token with a partition's counts: as long as it exists, no earlier count is lost.

        Redis loses its newest writes first, so if a token still exists, so does everything written
        before it.
        """
        key = self.key(partition, "token", name)
        await answered(self._client.set(key, token, ex=seconds))

    async def drop_token(self, partition: int, name: str) -> None:
        """Remove a token that is no longer needed."""
        await answered(self._client.delete(self.key(partition, "token", name)))

    async def token(self, partition: int, name: str) -> str | None:
        """Read the token that `put_token` stored; `None` if Redis lost it."""
        token = await answered(self._client.get(self.key(partition, "token", name)))
        return None if token is None else text_of(token)

    async def close_epochs(self, partition: int, through: int) -> None:
        """Prevent further batches from adding to this epoch or earlier ones."""
        await self._close.run(self._client, [self.key(partition, "state")], through)

    async def release_epoch(self, partition: int, epoch: int) -> None:
        """Prevent further batches from adding to this epoch or earlier ones, then delete its keys.

        Idempotent. The keeper repeats it at every start: a Redis that lost its newest writes has
        the keys again.
        """
        await self.close_epochs(partition, epoch)
        for key in await self._epoch_keys(partition, epoch):
            await answered(self._client.unlink(key))

    async def _epoch_keys(self, partition: int, epoch: int) -> list[str]:
        """Return all keys of an epoch; the totals last: they contain the numbers of strings."""
        series = (await self._chunk_keys(partition, epoch)).values()
        keys = [key for keys in series for key in keys]
        return [*keys, *(self.key(partition, epoch, name) for name in (*self._single, "totals"))]

    async def forget_partition(self, partition: int, epochs: Iterable[int]) -> bool:
        """Remove counts and offset in one step, so that workers recount the partition from Kafka.

        Return False if a batch was counted concurrently: call again.
        """
        state = await self.stored_state(partition)
        names: list[tuple[object, ...]] = [("state",), ("token", _REBUILT)]
        names += [("totals",), ("late",), ("unknown", "totals")]
        keys = [self.key(partition, *name) for name in names]
        for epoch in epochs:
            keys += await self._epoch_keys(partition, epoch)
        offset = "" if state.offset is None else str(state.offset)
        return bool(await self._forget.run(self._client, keys, offset, secrets.token_hex(8)))

    async def rebuilt(self, partition: int) -> str | None:
        """Read the token that changes whenever `forget_partition` succeeds."""
        return await self.token(partition, _REBUILT)


def _chunks_field(name: str) -> str:
    """Return the field of an epoch's totals with the number of a series' strings."""
    return "chunks" if name == _SEEN else f"chunks:{name}"


def _fields(tally: Tally) -> dict[str, int]:
    fields = {"received": tally.received, "counted": tally.counted, "none": tally.none}
    fields |= {f"refused:{reason}": n for reason, n in tally.refused.items()}
    return {name: n for name, n in fields.items() if n}


def _add(into: dict[str, int], fields: Mapping[str, int]) -> None:
    for name, n in fields.items():
        into[name] = into.get(name, 0) + n
