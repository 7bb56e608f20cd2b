"""Windowed counts in Redis: every batch of a partition is added once, whole, or not at all.

What the table of opt-in records (`optin_records`) and that of reports (`client_reports`) have in
common. Redis stores the counts; they can be rebuilt from Kafka. Each partition's keys share a hash
tag, topic and partition, so that one script may touch them all on a cluster too
(docs/decisions/0064-windowed-counts-without-fausts-table.md says why these are not Faust's tables):

    blender:{topic/7}:state              hash    offset, topic_id, released_through (and applying)
    blender:{topic/7}:totals             hash    received, counted, refused:<reason>, of all time;
                                                 none: of the counted, those without a record
    blender:{topic/7}:late               hash    entries of released epochs: received, and no more
    blender:{topic/7}:41:totals          hash    the same for epoch 41, chunks, incomplete
    blender:{topic/7}:41:seen:0, :1, …   string  fingerprints, 8 bytes each, up to 16 MiB a string
    blender:{topic/7}:token:<name>       string  a mark of a job: see `put_token`
    blender:{topic/7}:unknown:totals     hash    entries that belong to no epoch that is known

Window: an epoch. No key that holds counts has a time to live. `release_epoch` removes all keys of
an epoch at once, when its release is committed; state, totals, late and unknown hold numbers only
and stay. Of the tokens, a reader's is removed after the reading, or expires after an hour where a
crash left it; the keeper's and a rebuild's stay. Memory: 8 bytes a contributor (a slot, and a
record where users may send several), and what Redis reserves beyond a string's end: at most as much
again below 1 MiB, 1 MiB above it.

Scripts: `open_partition.lua`, `count_batch.lua`, `close_epochs.lua`, `forget_partition.lua`.

Promises: a batch is added only to the state it was judged against (same offset, same topic id);
a script that fails half-way leaves `applying` set, and nothing is added after that.
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

#: A Redis string holds 512 MB; smaller chunks are read, and removed, without blocking Redis.
CHUNK_BYTES: Final = 16 * 1024 * 1024
#: Entries of one script. With fewer, a script's fixed cost weighs more; more would block Redis for
#: longer than the 3 ms that these take.
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
    """Where a series of strings ends: the number of the last one, and its length."""

    chunk: int = 0
    size: int = 0


@dataclass(slots=True)
class SeenContributors:
    """The contributors of one partition and epoch, and where its strings end, by name."""

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
    """Redis has another offset or topic id: read the partition's state again."""

    offset: int | None


@dataclass(frozen=True, slots=True)
class Closed:
    """An epoch of the batch was released meanwhile: read the release log and judge again."""


@dataclass(frozen=True, slots=True)
class HalfApplied:
    """An earlier script failed half-way: the partition's counts must be rebuilt."""

    offset: int


Outcome = Applied | Stale | Closed | HalfApplied


class CountTable:
    """The counts of one topic."""

    #: The series of strings that an epoch has besides its fingerprints, by name.
    _series: ClassVar[tuple[str, ...]] = ()
    #: The names of an epoch's other keys, besides its totals.
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
        await self._client.aclose()

    def key(self, partition: int, *parts: object) -> str:
        """A key of a partition, as drawn at the top of this module and of each table's."""
        tail = ":".join(str(part) for part in parts)
        return f"{self._prefix}:{{{self._topic}/{partition}}}:{tail}"

    def _chunk_key(self, partition: int, epoch: int, name: str, chunk: int) -> str:
        numbered = chunk > 0 or name == _SEEN
        return self.key(partition, epoch, name, *([chunk] if numbered else []))

    async def _chunk_keys(self, partition: int, epoch: int) -> dict[str, list[str]]:
        """The keys of an epoch's strings that come in series, by name."""
        names = [_SEEN, *self._series]
        fields = [_chunks_field(name) for name in names]
        chunks = await answered(self._client.hmget(self.key(partition, epoch, "totals"), fields))
        # A share's first key also if nothing is there: in 0.1.0 it was a hash of records, which is
        # then refused for its type and never passed over.
        least = [0, *(1 for _ in self._series)]
        return {
            name: [self._chunk_key(partition, epoch, name, n) for n in range(max(few, int(m or 0)))]
            for name, few, m in zip(names, least, chunks, strict=True)
        }

    # --- resuming a partition -------------------------------------------------------------------

    async def stored_state(self, partition: int) -> StoredState:
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
        """Store where counting resumes; False when the state is no longer the one `read`."""
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
        """An epoch's fingerprints, and where its strings end.

        Read the offset first: a later write then shows as stale.
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
                # In pieces, so that heartbeats and other partitions get their turn in between.
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

        `again`: an earlier attempt got no answer. If the offset is where this batch would put it,
        that attempt was applied: any other worker would have judged these messages the same way.
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
        """The script's keys and arguments, and where strings end if it is applied."""
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
            fields |= {f"users:{share}": n for share, n in tally.users.items() if n}
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
        """What is appended to each of `_series`."""
        return {}

    def _values(
        self, tally: Tally, key: Callable[[str], str], number: Callable[[str], int]
    ) -> dict[str, Any]:
        """The script's arguments for `_single`; `number` adds one of the epoch's keys to its own
        and returns the place."""
        return {}

    # --- what jobs, metrics and operators read --------------------------------------------------

    async def totals(self, partition: int, epoch: int | str | None = None) -> dict[str, int]:
        """Received, counted and refused: of all time, of one epoch, or `"unknown"` or `"late"`."""
        parts: tuple[object, ...] = (epoch, "totals")
        if epoch is None:
            parts = ("totals",)
        elif epoch == "late":
            parts = ("late",)
        totals = await answered(self._client.hgetall(self.key(partition, *parts)))
        return {text_of(name): int(n) for name, n in totals.items()}

    async def put_token(self, partition: int, name: str, token: str, seconds: int | None) -> None:
        """Store a token beside a partition's counts: as long as it exists, no count is lost.

        Redis loses its newest writes first, so everything written before a token that still exists
        exists too.
        """
        key = self.key(partition, "token", name)
        await answered(self._client.set(key, token, ex=seconds))

    async def drop_token(self, partition: int, name: str) -> None:
        """Remove a token that has served."""
        await answered(self._client.delete(self.key(partition, "token", name)))

    async def token(self, partition: int, name: str) -> str | None:
        """The token that `put_token` stored, if Redis still has it."""
        token = await answered(self._client.get(self.key(partition, "token", name)))
        return None if token is None else text_of(token)

    async def close_epochs(self, partition: int, through: int) -> None:
        """Let no batch add to this epoch or to earlier ones any more."""
        await self._close.run(self._client, [self.key(partition, "state")], through)

    async def release_epoch(self, partition: int, epoch: int) -> None:
        """Let no batch add to this epoch or to earlier ones any more, then remove the epoch's keys.

        Safe to repeat, and repeated at every start: a Redis that lost its newest writes has the
        keys again.
        """
        await self.close_epochs(partition, epoch)
        for key in await self._epoch_keys(partition, epoch):
            await answered(self._client.unlink(key))

    async def _epoch_keys(self, partition: int, epoch: int) -> list[str]:
        """All keys of an epoch; totals last: they say how many strings there are."""
        series = (await self._chunk_keys(partition, epoch)).values()
        keys = [key for keys in series for key in keys]
        return [*keys, *(self.key(partition, epoch, name) for name in (*self._single, "totals"))]

    async def forget_partition(self, partition: int, epochs: Iterable[int]) -> bool:
        """Remove counts and offset at once; workers then count the partition again from the log.

        False when something was counted meanwhile: call again.
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
        """A token that changes whenever `forget_partition` succeeds."""
        return await self.token(partition, _REBUILT)


def _chunks_field(name: str) -> str:
    """The field of an epoch's totals that says how many strings a series has."""
    return "chunks" if name == _SEEN else f"chunks:{name}"


def _fields(tally: Tally) -> dict[str, int]:
    fields = {"received": tally.received, "counted": tally.counted, "none": tally.none}
    fields |= {f"refused:{reason}": n for reason, n in tally.refused.items()}
    return {name: n for name, n in fields.items() if n}


def _add(into: dict[str, int], fields: Mapping[str, int]) -> None:
    for name, n in fields.items():
        into[name] = into.get(name, 0) + n
