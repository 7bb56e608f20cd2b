"""Packs accepted entries into frames, one for each partition, and gets them acknowledged by Kafka.

    entry ──▶ open frame of its partition ──(full, or linger over)──▶ producer ──▶ acknowledged
                                                                         └─ deadline ─▶ not in time

Promises: `delivered` resolves to the broker's append time when every in-sync replica has the
frame, and to `None` when that did not happen within the deadline, or when the broker did not say
when: only its own clock decides what is late. It never fails and never hangs.
What is in memory, from the first byte of an entry to the broker's answer however late, stays
within `buffer_bytes`. A partition that does not acknowledge refuses new entries at once; the
others continue.
Assumes: aiokafka's idempotent producer retries for ever, so a frame reported as not in time may
still land; its entries then count once, however often their sender repeats them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from aiokafka.structs import RecordMetadata

from blendstream.streams.settings.sections import GatewaySettings
from blendstream.streams.wire.frames import (
    CONTRIBUTOR_BYTES,
    MAX_FRAME_BYTES,
    OptinEntry,
    encode_optin_records,
    encode_packed_reports,
)

__all__ = [
    "Delivered",
    "FrameWriter",
    "OptinFrames",
    "Place",
    "ReportFrames",
    "append_time_ms",
]

log = logging.getLogger(__name__)

#: What a frame's header takes at most, and an opt-in entry beside its text.
_HEADER_BYTES = 64
_OPTIN_ENTRY_BYTES = CONTRIBUTOR_BYTES + 3 * 2

#: The broker's append time in milliseconds since 1970, or `None`: not known to be in time.
Delivered = asyncio.Future[int | None]


#: A topic and one of its partitions.
Place = tuple[str, int]

#: Timestamps are the brokers' (LogAppendTime): aiokafka says so with this type.
_APPEND_TIME = 1

#: While a partition has less than this under way, the producer takes a frame without waiting.
_HANDED_OVER_AT_ONCE = MAX_FRAME_BYTES
_WARN_EVERY_S = 1.0


class Producer(Protocol):
    """Takes one message, and answers when all in-sync replicas have it, however long that is."""

    async def send(
        self, topic: str, partition: int, value: bytes
    ) -> asyncio.Future[RecordMetadata]:
        """Raise, here or through the future, when the message was refused for good."""
        ...


@dataclass(slots=True, eq=False)
class ReportFrames:
    """How reports on one head list are packed: where they go and how wide they are.

    The release log below `log_position` has the head list: workers read that far before they call
    it unknown.
    """

    topic: str
    epoch: int
    head_list_id: bytes
    per_entry: int
    width: int
    log_position: int
    #: What one report takes in a frame. Kept, because every report asks for it three times.
    entry_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.entry_bytes = CONTRIBUTOR_BYTES + self.per_entry * self.width

    def encode(self, keys: bytes, cells: bytes) -> bytes:
        """The frame of these contributor keys and packed cells."""
        return encode_packed_reports(
            self.epoch,
            self.head_list_id,
            keys,
            cells,
            cells_per_entry=self.per_entry,
            width=self.width,
            log_position=self.log_position,
        )


@dataclass(frozen=True, slots=True, eq=False)
class OptinFrames:
    """How opt-in records of one epoch are packed, which the log opened below `log_position`."""

    topic: str
    epoch: int
    log_position: int


@dataclass(slots=True, eq=False)
class _Frame:
    """One frame being filled; `delivered` is shared by everyone whose entry is in it."""

    kind: ReportFrames | OptinFrames
    partition: int
    delivered: Delivered
    sent_at: float = 0.0
    size: int = _HEADER_BYTES
    count: int = 0
    keys: bytearray = field(default_factory=bytearray)
    cells: bytearray = field(default_factory=bytearray)
    entries: list[OptinEntry] = field(default_factory=list)

    @property
    def place(self) -> Place:
        return self.kind.topic, self.partition

    def encode(self) -> bytes:
        """The frame's bytes; what they were made of is let go."""
        if isinstance(self.kind, ReportFrames):
            value = self.kind.encode(bytes(self.keys), bytes(self.cells))
            del self.keys, self.cells
        else:
            value = encode_optin_records(
                self.kind.epoch, self.entries, log_position=self.kind.log_position
            )
            del self.entries
        return value

    def resolve(self, append_ms: int | None) -> None:
        if not self.delivered.done():
            self.delivered.set_result(append_ms)


def append_time_ms(acknowledged: RecordMetadata) -> int | None:
    """When the broker appended a message, if it said so."""
    # A broker that took the frame before, but no longer remembers when (aiokafka counts
    # DUPLICATE_SEQUENCE_NUMBER as done), answers without a time, and aiokafka puts ours in its
    # place. Our topics are LogAppendTime, so every other acknowledgement has one.
    known = acknowledged.timestamp_type == _APPEND_TIME
    return acknowledged.timestamp if known else None


class FrameWriter:
    """All open and travelling frames of one gateway. Used from one event loop."""

    def __init__(
        self,
        producer: Producer,
        limits: GatewaySettings,
        *,
        on_delivery: Callable[[Place, float, int | None, int, int], None] = lambda *_: None,
        on_late: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_delivery(place, sent at, append time, bytes, entries)`, `on_late()`: per frame."""
        self.limits = limits
        self.held_bytes = 0
        #: Adds entries that waited for the open frames to be sent.
        self.before_sending: Callable[[], None] = lambda: None
        self._producer = producer
        self._on_delivery = on_delivery
        self._on_late = on_late
        self._loop = asyncio.get_running_loop()
        self._open: dict[tuple[Hashable, int], _Frame] = {}
        self._linger: asyncio.TimerHandle | None = None
        self._travelling: set[_Frame] = set()
        self._handing_over: set[asyncio.Task[None]] = set()
        self._under_way: Counter[Place] = Counter()
        self._stalled: Counter[Place] = Counter()
        self._warn_again_at = 0.0

    def has_room(self, size: int) -> bool:
        """Whether there is room for `size` more bytes; asked before anything is added."""
        return self.held_bytes + size <= self.limits.buffer_bytes

    def is_stalled(self, topic: str, partition: int) -> bool:
        """Whether this partition still owes the acknowledgement of a frame past its deadline."""
        return bool(self._stalled) and (topic, partition) in self._stalled

    @property
    def stalled_partitions(self) -> int:
        """How many partitions refuse entries for now."""
        return len(self._stalled)

    def add_reports(
        self, kind: ReportFrames, partition: int, keys: bytes, cells: bytes
    ) -> list[tuple[int, Delivered]]:
        """Pack many reports of one partition; how many went into each frame, in their order."""
        added = []
        each, cell_bytes = kind.entry_bytes, kind.per_entry * kind.width
        done, total = 0, len(keys) // CONTRIBUTOR_BYTES
        while done < total:
            frame = self._open.get((kind, partition)) or self._begin(kind, partition)
            fit = (self.limits.frame_bytes - frame.size) // each
            fit = min(fit, self.limits.frame_entries - frame.count)
            end = min(total, done + max(1, fit))
            frame.keys += keys[done * CONTRIBUTOR_BYTES : end * CONTRIBUTOR_BYTES]
            frame.cells += cells[done * cell_bytes : end * cell_bytes]
            added.append((end - done, frame.delivered))
            self._grow(frame, end - done, (end - done) * each, each)
            done = end
        return added

    def add_optin_record(self, kind: OptinFrames, partition: int, entry: OptinEntry) -> Delivered:
        """Pack one opt-in record."""
        size = _OPTIN_ENTRY_BYTES + len(entry.query) + len(entry.url)
        frame = self._open.get((kind, partition)) or self._begin(kind, partition)
        if frame.count and frame.size + size > self.limits.frame_bytes:
            self._close(frame)
            frame = self._begin(kind, partition)
        frame.entries.append(entry)
        self._grow(frame, 1, size, _OPTIN_ENTRY_BYTES)
        return frame.delivered

    def _begin(self, kind: ReportFrames | OptinFrames, partition: int) -> _Frame:
        frame = _Frame(kind, partition, self._loop.create_future())
        self._open[kind, partition] = frame
        self.held_bytes += frame.size
        self.linger()
        return frame

    def linger(self) -> None:
        """Send the open frames after `linger_s` from now, or earlier if that is planned."""
        if self._linger is None:
            self._linger = self._loop.call_later(self.limits.linger_s, self._linger_over)

    def _grow(self, frame: _Frame, entries: int, size: int, next_size: int) -> None:
        frame.count += entries
        frame.size += size
        self.held_bytes += size
        limits = self.limits
        if frame.count >= limits.frame_entries or frame.size + next_size > limits.frame_bytes:
            self._close(frame)

    def _linger_over(self) -> None:
        self.before_sending()
        if self._linger is not None:
            self._linger.cancel()
        self._linger = None
        frames = list(self._open.values())
        self._open.clear()
        self._send(frames)

    def _close(self, frame: _Frame) -> None:
        del self._open[frame.kind, frame.partition]
        self._send([frame])

    def _send(self, frames: list[_Frame]) -> None:
        # One task and one timer for all frames that close together: with 64 partitions a task
        # for each would cost more than the entries do. A partition that still has much under way
        # gets a task of its own, because handing over may then wait, and must not hold up others.
        self._travelling.update(frames)
        self._loop.call_later(self.limits.delivery_deadline_s, self._overdue, frames)
        at_once: list[_Frame] = []
        groups = [at_once]
        for frame in frames:
            self._under_way[frame.place] += frame.size
            if self._under_way[frame.place] <= _HANDED_OVER_AT_ONCE:
                at_once.append(frame)
            else:
                groups.append([frame])
        for group in groups:
            if group:
                task = self._loop.create_task(self._hand_over(group))
                self._handing_over.add(task)
                task.add_done_callback(self._handing_over.discard)

    async def _hand_over(self, frames: list[_Frame]) -> None:
        for frame in frames:
            frame.sent_at = time.time()
            try:
                sent = await self._producer.send(*frame.place, frame.encode())
            except Exception as error:  # after any error the sender is asked to send again
                self._over(frame, error, None)
            else:
                sent.add_done_callback(partial(self._answered, frame))

    def _answered(self, frame: _Frame, sent: asyncio.Future[RecordMetadata]) -> None:
        if sent.cancelled():
            self._over(frame, asyncio.CancelledError(), None)
        elif (error := sent.exception()) is not None:
            self._over(frame, error, None)
        else:
            self._over(frame, None, append_time_ms(sent.result()))

    def _over(self, frame: _Frame, error: BaseException | None, append_ms: int | None) -> None:
        """Kafka has answered, however late."""
        self._travelling.discard(frame)
        self._under_way[frame.place] -= frame.size
        self.held_bytes -= frame.size
        self._stalled.pop(frame.place, None)
        if error is not None:
            self._warn_seldom("frame_refused", frame, error)
            frame.resolve(None)
            return
        self._on_delivery(frame.place, frame.sent_at, append_ms, frame.size, frame.count)
        if frame.delivered.done():
            self._warn_seldom("frame_acknowledged_late", frame, None)
        if append_ms is None:
            self._warn_seldom("frame_append_time_unknown", frame, None)
        frame.resolve(append_ms)

    def _warn_seldom(self, event: str, frame: _Frame, error: BaseException | None) -> None:
        # With the broker away every frame fails; the metrics count them, the log has one line.
        if self._loop.time() >= self._warn_again_at:
            self._warn_again_at = self._loop.time() + _WARN_EVERY_S
            log.warning(event, extra={"entries": frame.count}, exc_info=error)

    def _overdue(self, frames: list[_Frame]) -> None:
        for frame in frames:
            if frame in self._travelling:
                self._stalled[frame.place] += 1
                self._on_late()
                frame.resolve(None)

    async def close(self, within_s: float) -> None:
        """Send what is open and wait for the acknowledgements, but no longer than `within_s`."""
        self._linger_over()
        waiting = {frame.delivered for frame in self._travelling}
        if waiting:
            await asyncio.wait(waiting, timeout=within_s)
        for task in self._handing_over:
            task.cancel()
