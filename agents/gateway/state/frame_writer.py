"""Pack entries into frames, one per partition, and wait for Kafka's acknowledgements.

    entry ──▶ open frame of its partition ──(full, or linger over)──▶ producer ──▶ acknowledged
                                                                         └─ deadline ─▶ not in time

Promises:
- `delivered` resolves to the broker's append time when every in-sync replica has the frame. It
  resolves to `None` if that did not happen within the deadline, or if the broker did not report the
  time: only the broker's clock decides which entries are late. It never fails and never hangs.
- Memory stays within `buffer_bytes`, counted from the first byte of an entry to the broker's
  response, however late.
- A partition with an overdue acknowledgement refuses new entries immediately; the others continue.
Assumes: aiokafka's idempotent producer retries without limit, so a frame reported as not in time
may still be appended; its entries then count once, however often their sender repeats them.
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

#: Upper bounds on a frame's header, and on an opt-in entry without its text.
_HEADER_BYTES = 64
_OPTIN_ENTRY_BYTES = CONTRIBUTOR_BYTES + 3 * 2

#: The broker's append time in milliseconds since 1970, or `None`: not known to be in time.
Delivered = asyncio.Future[int | None]


#: A topic and one of its partitions.
Place = tuple[str, int]

#: aiokafka's type of timestamps that the broker set (LogAppendTime).
_APPEND_TIME = 1

#: While a partition has at most this in flight, the producer accepts a frame without waiting.
_ACCEPTED_WITHOUT_WAIT_BYTES = MAX_FRAME_BYTES
_WARN_EVERY_S = 1.0


class Producer(Protocol):
    """Sends one message; its future resolves when all in-sync replicas have it, however late."""

    async def send(
        self, topic: str, partition: int, value: bytes
    ) -> asyncio.Future[RecordMetadata]:
        """Send; raise, here or through the future, if the message was rejected permanently."""
        ...


@dataclass(slots=True, eq=False)
class ReportFrames:
    """The kind of frames for reports on one head list: topic, epoch and widths.

    The release log contains the head list below `log_position`: workers read that far before they
    treat it as unknown.
    """

    topic: str
    epoch: int
    head_list_id: bytes
    per_entry: int
    width: int
    log_position: int
    #: Bytes of one report in a frame. Cached, because every report needs it three times.
    entry_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.entry_bytes = CONTRIBUTOR_BYTES + self.per_entry * self.width

    def encode(self, keys: bytes, cells: bytes) -> bytes:
        """Return the frame of these contributor keys and packed cells."""
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
    """The kind of frames for one epoch's opt-in records; the log opened it below `log_position`."""

    topic: str
    epoch: int
    log_position: int


@dataclass(slots=True, eq=False)
class _Frame:
    """One frame being filled or in flight; the senders of its entries share `delivered`."""

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
        """Return the frame's bytes, and free the entries."""
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
    """Return the broker's append time of a message, or None if the broker did not report it."""
    # A broker that has the frame already but no longer knows its time (aiokafka treats
    # DUPLICATE_SEQUENCE_NUMBER as success) responds without a time, and aiokafka inserts ours.
    # Our topics are LogAppendTime, so every other acknowledgement has the broker's time.
    from_broker = acknowledged.timestamp_type == _APPEND_TIME
    return acknowledged.timestamp if from_broker else None


class FrameWriter:
    """One gateway's frames, open and in flight. Used from one event loop."""

    def __init__(
        self,
        producer: Producer,
        limits: GatewaySettings,
        *,
        on_delivery: Callable[[Place, float, int | None, int, int], None] = lambda *_: None,
        on_late: Callable[[], None] = lambda: None,
    ) -> None:
        """Take callbacks per frame: `on_delivery(place, sent at, append time, bytes, entries)`,
        and `on_late()`.
        """
        self.limits = limits
        self.held_bytes = 0
        #: Called before the open frames are sent, to add entries that wait for that.
        self.before_sending: Callable[[], None] = lambda: None
        self._producer = producer
        self._on_delivery = on_delivery
        self._on_late = on_late
        self._loop = asyncio.get_running_loop()
        self._open: dict[tuple[Hashable, int], _Frame] = {}
        self._linger: asyncio.TimerHandle | None = None
        self._in_flight: set[_Frame] = set()
        self._sending: set[asyncio.Task[None]] = set()
        self._in_flight_bytes: Counter[Place] = Counter()
        self._stalled: Counter[Place] = Counter()
        self._warn_again_at = 0.0

    def has_room(self, size: int) -> bool:
        """Return True if `size` more bytes fit; callers check before they add entries."""
        return self.held_bytes + size <= self.limits.buffer_bytes

    def is_stalled(self, topic: str, partition: int) -> bool:
        """Return True if a frame of this partition is past its deadline and not acknowledged."""
        return bool(self._stalled) and (topic, partition) in self._stalled

    @property
    def stalled_partitions(self) -> int:
        """The number of partitions that refuse entries now."""
        return len(self._stalled)

    def add_reports(
        self, kind: ReportFrames, partition: int, keys: bytes, cells: bytes
    ) -> list[tuple[int, Delivered]]:
        """Pack reports of one partition; return the number in each frame, in order."""
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
        """Send the open frames in `linger_s`, unless an earlier time is already scheduled."""
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
        # One task and one timer for all frames that close together: with 64 partitions a task per
        # frame would cost more than the entries. A partition that still has much in flight gets a
        # separate task, because sending may then wait, and must not delay others.
        self._in_flight.update(frames)
        self._loop.call_later(self.limits.delivery_deadline_s, self._overdue, frames)
        without_wait: list[_Frame] = []
        groups = [without_wait]
        for frame in frames:
            self._in_flight_bytes[frame.place] += frame.size
            if self._in_flight_bytes[frame.place] <= _ACCEPTED_WITHOUT_WAIT_BYTES:
                without_wait.append(frame)
            else:
                groups.append([frame])
        for group in groups:
            if group:
                task = self._loop.create_task(self._produce(group))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)

    async def _produce(self, frames: list[_Frame]) -> None:
        for frame in frames:
            frame.sent_at = time.time()
            try:
                sent = await self._producer.send(*frame.place, frame.encode())
            except Exception as error:  # after any error the sender gets the verdict retry
                self._finish(frame, error, None)
            else:
                sent.add_done_callback(partial(self._acknowledged, frame))

    def _acknowledged(self, frame: _Frame, sent: asyncio.Future[RecordMetadata]) -> None:
        if sent.cancelled():
            self._finish(frame, asyncio.CancelledError(), None)
        elif (error := sent.exception()) is not None:
            self._finish(frame, error, None)
        else:
            self._finish(frame, None, append_time_ms(sent.result()))

    def _finish(self, frame: _Frame, error: BaseException | None, append_ms: int | None) -> None:
        """Release a frame after Kafka's response, however late, and resolve its future."""
        self._in_flight.discard(frame)
        self._in_flight_bytes[frame.place] -= frame.size
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
        # If the broker is unavailable every frame fails: the metrics count all, the log gets few.
        if self._loop.time() >= self._warn_again_at:
            self._warn_again_at = self._loop.time() + _WARN_EVERY_S
            log.warning(event, extra={"entries": frame.count}, exc_info=error)

    def _overdue(self, frames: list[_Frame]) -> None:
        for frame in frames:
            if frame in self._in_flight:
                self._stalled[frame.place] += 1
                self._on_late()
                frame.resolve(None)

    async def close(self, within_s: float) -> None:
        """Send the open frames and wait for acknowledgements, at most `within_s`."""
        self._linger_over()
        waiting = {frame.delivered for frame in self._in_flight}
        if waiting:
            await asyncio.wait(waiting, timeout=within_s)
        for task in self._sending:
            task.cancel()
