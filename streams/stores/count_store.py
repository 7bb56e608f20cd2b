"""Windowed counts in Redis: every batch of a partition is added once, whole, or not at all.

Redis stores the counts; they can be rebuilt from Kafka. Each partition's keys share a hash tag,
topic and partition, so that one script may touch them all on a cluster too:

    blender:{topic/7}:state              hash    offset, topic_id, released_through (and applying)
    blender:{topic/7}:totals             hash    received, counted, refused:<reason>, of all time;
                                                 none: of the counted, those without a record
    blender:{topic/7}:late               hash    entries of released epochs: received, and no more
    blender:{topic/7}:41:totals          hash    the same for epoch 41, users:<share>, chunks,
                                                 incomplete
    blender:{topic/7}:41:cells           string  one big-endian 64-bit count for each cell
    blender:{topic/7}:41:S, :T, :graph   hash    record → count, for each share of opt-in users
    blender:{topic/7}:41:seen:0, :1, …   string  fingerprints, 8 bytes each, up to 16 MiB a string
    blender:{topic/7}:token:<name>       string  a mark of a job: see `put_token`
    blender:{topic/7}:unknown:totals     hash    entries that belong to no epoch that is known

Expiry: no key that holds counts has a time to live. `release_epoch` removes all keys of an epoch at
once, when its release is committed; state, totals, late and unknown hold numbers only and stay. Of
the tokens, a reader's is removed after the reading, or expires after an hour where a crash left it;
the keeper's and a rebuild's stay. Memory: 8 bytes a contributor (a slot, and a record where users
may send several), and what Redis reserves beyond a string's end: at most as much again below 1 MiB,
1 MiB above it.

Promises: a batch is added only to the state it was judged against (same offset, same topic id);
a script that fails half-way leaves `applying` set, and nothing is added after that.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from streams.stems import Share
from streams.stores.batch_verdict import BatchVerdict, Tally
from streams.stores.fingerprints import FingerprintTable
from streams.stores.redis import Client, Script, answered, text_of

__all__ = [
    "Applied",
    "Closed",
    "CountTables",
    "HalfApplied",
    "PartitionState",
    "Seen",
    "Stale",
    "StoredState",
]

#: A Redis string holds 512 MB; smaller chunks are read, and removed, without blocking Redis.
CHUNK_BYTES: Final = 16 * 1024 * 1024
#: Reports of one script. With fewer, a script's fixed cost weighs more; more would block Redis for
#: longer than the 3 ms that these take.
MAX_REPORTS_PER_SCRIPT: Final = 131_072
#: Opt-in records of one script: each may be a hash's field of its own, and these take 30 to 50 ms.
MAX_RECORDS_PER_SCRIPT: Final = 16_384
_REBUILT: Final = "rebuilt"
#: Fields of one reading script: some 10 ms during which Redis does nothing else.
_READ_FIELDS: Final = 10_000


@dataclass(frozen=True, slots=True)
class StoredState:
    """A partition's state in Redis."""

    offset: int | None = None
    topic_id: str | None = None
    released_through: int = -1
    applying: int | None = None


@dataclass(slots=True)
class Seen:
    """The contributors of one partition and epoch, and where their fingerprints are stored."""

    table: FingerprintTable = field(default_factory=FingerprintTable)
    chunk: int = 0
    chunk_bytes: int = 0


@dataclass(slots=True)
class PartitionState:
    """The worker's copy of a partition's state: valid as long as Redis has the same offset."""

    partition: int
    topic_id: str
    offset: int
    seen: dict[int, Seen] = field(default_factory=dict)


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


class CountTables:
    """The tables of one topic."""

    def __init__(self, client: Client, topic: str, *, prefix: str = "blender") -> None:
        self._client = client
        self._topic = topic
        self._prefix = prefix
        self._count = Script("count_batch.lua")
        self._open = Script("open_partition.lua")
        self._close = Script("close_epochs.lua")
        self._forget = Script("forget_partition.lua")
        self._read = Script("read_records.lua")

    async def close(self) -> None:
        await self._client.aclose()

    def key(self, partition: int, *parts: object) -> str:
        """A key of a partition, as drawn at the top of this module."""
        tail = ":".join(str(part) for part in parts)
        return f"{self._prefix}:{{{self._topic}/{partition}}}:{tail}"

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

    async def load_seen(self, partition: int, epoch: int) -> Seen:
        """An epoch's fingerprints. Read the offset first: a later write then shows as stale."""
        seen = Seen()
        chunks = await answered(self._client.hget(self.key(partition, epoch, "totals"), "chunks"))
        for chunk in range(int(chunks or 0)):
            data = await answered(self._client.get(self.key(partition, epoch, "seen", chunk)))
            packed = np.frombuffer(data or b"", "<u8")
            # In pieces, so that heartbeats and other partitions get their turn in between.
            for start in range(0, len(packed), 1 << 18):
                seen.table.add(packed[start : start + (1 << 18)])
                await asyncio.sleep(0)
            seen.chunk, seen.chunk_bytes = chunk, len(data or b"")
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
        for seen, chunk, size in advance:
            seen.chunk, seen.chunk_bytes = chunk, size
        return Applied()

    def _batch(
        self, state: PartitionState, verdict: BatchVerdict, next_offset: int
    ) -> tuple[list[str], list[Any], list[tuple[Seen, int, int]]]:
        """The script's keys and arguments, and where fingerprints end if it is applied."""
        partition = state.partition
        keys = [self.key(partition, part) for part in ("state", "totals", "late")]

        def number(*parts: object) -> int:
            keys.append(self.key(partition, *parts))
            return len(keys)

        totals: dict[str, int] = {}
        tallies = []
        blobs: list[bytes] = []
        advance: list[tuple[Seen, int, int]] = []
        for epoch, tally in verdict.epochs.items():
            fields = _fields(tally)
            _add(totals, fields)
            name = "unknown" if epoch is None else epoch
            fields |= {f"users:{share}": n for share, n in tally.users.items() if n}
            packed: dict[str, Any] = {"totals": number(name, "totals"), "fields": fields}
            packed["records"] = {
                number(name, share): [x for text, n in counts.items() for x in (text.decode(), n)]
                for share, counts in tally.records.items()
            }
            if epoch is not None:
                packed["epoch"] = epoch
            if tally.cells is not None and tally.cells.any():
                cells = np.flatnonzero(tally.cells)
                packed["cells"] = number(name, "cells")
                packed["cells_bytes"] = 8 * len(tally.cells)
                packed["cell_numbers"] = cells.tolist()
                packed["cell_counts"] = tally.cells[cells].tolist()
            fingerprints = b"".join(f.tobytes() for f in tally.fingerprints)
            if fingerprints and epoch is not None:
                seen = state.seen[epoch]
                chunk, size = seen.chunk, seen.chunk_bytes
                if size + len(fingerprints) > CHUNK_BYTES:
                    chunk, size = chunk + 1, 0
                packed["seen"] = number(name, "seen", chunk)
                packed["seen_bytes"] = size
                packed["chunks"] = chunk + 1
                blobs.append(fingerprints)
                packed["fingerprints"] = len(blobs) + 1
                advance.append((seen, chunk, size + len(fingerprints)))
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

    async def cell_counts(
        self, epoch: int, partitions: Sequence[int], cells: int
    ) -> NDArray[np.int64]:
        """Reports of an epoch by cell, over all partitions."""
        counts = np.zeros(cells, dtype=np.int64)
        for partition in partitions:
            data = await answered(self._client.get(self.key(partition, epoch, "cells")))
            if data:
                counts += np.frombuffer(data, ">i8")
        return counts

    async def record_counts(
        self, epoch: int, share: Share, partitions: Sequence[int]
    ) -> dict[bytes, int]:
        """Opt-in records of an epoch and share: `query TAB url` → how many users."""
        counts: dict[bytes, int] = {}
        for partition in partitions:
            cursor, key = 0, self.key(partition, epoch, share)
            seen: dict[str, int] = {}
            while True:
                after, packed = await self._read.run(self._client, [key], cursor, _READ_FIELDS)
                pairs = msgspec.msgpack.decode(packed, type=list[str])
                # A field may come twice while a hash is rehashed; it counts once.
                seen |= zip(pairs[::2], map(int, pairs[1::2]), strict=True)
                cursor = int(after)
                if not cursor:
                    break
            for word, n in seen.items():
                text = word.encode()
                counts[text] = counts.get(text, 0) + n
        return counts

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
        chunks = await answered(self._client.hget(self.key(partition, epoch, "totals"), "chunks"))
        names: list[tuple[object, ...]] = [("cells",), *((share,) for share in Share)]
        names += [("seen", chunk) for chunk in range(int(chunks or 0))]
        for name in (*names, ("totals",)):  # Totals last: they say how many chunks there are.
            await answered(self._client.unlink(self.key(partition, epoch, *name)))

    async def forget_partition(self, partition: int, epochs: Iterable[int]) -> bool:
        """Remove counts and offset at once; workers then count the partition again from the log.

        False when something was counted meanwhile: call again.
        """
        state = await self.stored_state(partition)
        names: list[tuple[object, ...]] = [("state",), ("token", _REBUILT)]
        names += [("totals",), ("late",), ("unknown", "totals")]
        for epoch in epochs:
            chunks = await answered(
                self._client.hget(self.key(partition, epoch, "totals"), "chunks")
            )
            names += [(epoch, "totals"), (epoch, "cells"), *((epoch, share) for share in Share)]
            names += [(epoch, "seen", chunk) for chunk in range(int(chunks or 0))]
        keys = [self.key(partition, *name) for name in names]
        offset = "" if state.offset is None else str(state.offset)
        return bool(await self._forget.run(self._client, keys, offset, secrets.token_hex(8)))

    async def rebuilt(self, partition: int) -> str | None:
        """A token that changes whenever `forget_partition` succeeds."""
        return await self.token(partition, _REBUILT)


def _fields(tally: Tally) -> dict[str, int]:
    fields = {"received": tally.received, "counted": tally.counted, "none": tally.none}
    fields |= {f"refused:{reason}": n for reason, n in tally.refused.items()}
    return {name: n for name, n in fields.items() if n}


def _add(into: dict[str, int], fields: Mapping[str, int]) -> None:
    for name, n in fields.items():
        into[name] = into.get(name, 0) + n
