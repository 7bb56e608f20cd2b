"""The Kafka consumer of the release log: reads committed records from an offset.

A consumer reads from one broker. If that broker is isolated from its peers, it continues to respond
from its stale replica, without an error. So the records read here are committed but perhaps not the
newest; `streams.releases.reader` opens another consumer where it needs more.

Promises: records in the log's order, each once, only committed ones unless `isolation` differs. An
offset below the log start offset is an error, never a jump.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from blendstream.streams.budget.ledger import Ledger
from blendstream.streams.errors import StoreMismatch, StoreUnavailable
from blendstream.streams.releases import entries
from blendstream.streams.releases.commit_failures import OUTAGES, opening
from blendstream.streams.releases.documents import DocumentReference, join

__all__ = ["LogConsumer", "LogRecord"]

_DAY_MS = 86_400_000
#: Longest wait of one poll, after which the caller can check its deadline.
_POLL_S = 0.25


class LogRecord(NamedTuple):
    """One committed record."""

    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None


class LogConsumer:
    """A Kafka consumer of the one partition. Every method blocks; use it from a thread."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        timeout_s: float,
        isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
    ) -> None:
        """Connect to a broker that the client chooses; a new consumer may choose another.

        Uncommitted records are for operators who must know the contents of an open transaction.
        No state is ever folded from them.
        """
        self._topic = topic
        self._timeout_s = timeout_s
        self._consumer = Consumer(
            {
                **settings,
                "group.id": "blendstream-releases",  # Required, never joined.
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": isolation,
                "fetch.wait.max.ms": 50,
                # Documents are large, and a start reads many of them.
                "queued.max.messages.kbytes": 8192,
            }
        )
        self._start = 0
        self.closed = False

    def start_at(self, offset: int) -> None:
        """Read from this offset on; 0 means the log start offset."""
        self._start = offset
        self._consumer.assign([TopicPartition(self._topic, 0, offset or OFFSET_BEGINNING)])

    def poll(self) -> tuple[list[LogRecord], int | None]:
        """Return the next records, and the last stable offset if this reached it, else `None`."""
        records: list[LogRecord] = []
        end: int | None = None
        # `consume` alone would wait for 500 messages or its whole timeout, whichever comes first.
        first = self._consumer.poll(_POLL_S)
        if first is None:
            return records, end
        for message in [first, *self._consumer.consume(num_messages=500, timeout=0)]:
            error = message.error()
            if error is None:
                _, time_ms = message.timestamp()
                offset = message.offset() or 0
                records.append(LogRecord(offset, time_ms, message.key(), message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                end = message.offset() or 0
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                self._check_beginning()
            elif not error.retriable() and error.code() not in OUTAGES:
                raise StoreUnavailable(f"the release log could not be read ({error.name()})")
        return records, end

    def to_end(self, offset: int) -> Iterator[LogRecord]:
        """Yield all records from an offset to the last stable offset on this broker."""
        self.start_at(offset)
        last_response = time.monotonic()
        while True:
            records, end = self.poll()
            yield from records
            if end is not None:
                return
            if records:
                last_response = time.monotonic()
            elif self.closed or time.monotonic() > last_response + self._timeout_s:
                raise StoreUnavailable("Kafka did not answer a fetch of the release log in time")

    def find_start(self, now_ms: int) -> tuple[Ledger, int]:
        """Find the last checkpoint: in the last day, then in eight times as long, and so on.

        So opening a log of many years costs no more than opening one of a few days.
        """
        lookback_ms = _DAY_MS
        while True:
            since_ms = now_ms - lookback_ms
            start = self.first_since(since_ms)
            checkpoint = None if start is None else self._last_checkpoint(start)
            if checkpoint is not None:
                return checkpoint
            if start == 0:
                return Ledger(), 0
            lookback_ms *= 8

    def read_document(self, reference: DocumentReference) -> bytes:
        """Read the committed bytes of a document and verify their hash."""
        wanted = {entries.part_key(reference.id, n): n for n in range(reference.parts)}
        parts: dict[int, bytes] = {}
        deadline = time.monotonic() + 6 * self._timeout_s
        for record in self.to_end(reference.first_offset):
            if time.monotonic() > deadline:
                raise StoreUnavailable("a released document could not be read in time")
            if record.key in wanted and record.value is not None:
                parts[wanted[record.key]] = record.value
            if record.offset >= reference.entry_offset or len(parts) == reference.parts:
                break
        else:
            # Committed, so it exists: this broker lacks the log's newest records.
            raise StoreUnavailable("a released document could not be read yet")
        return join(reference, [parts[n] for n in sorted(parts)])

    def close(self) -> None:
        self.closed = True
        self._consumer.close()

    def _check_beginning(self) -> None:
        """Raise if the log starts after the offset that was to be read next.

        Otherwise it ends before that offset on this broker, whose replica is stale. It returns no
        records, and the next consumer may use another broker.
        """
        try:
            begin, _ = self._consumer.get_watermark_offsets(
                TopicPartition(self._topic, 0), timeout=self._timeout_s, cached=False
            )
        except KafkaException:
            return
        if self._start < begin:
            raise StoreMismatch(
                "the release log no longer has the records that were to be read next; it must "
                "be kept permanently. Restore it from a replica or a backup"
            )

    def first_since(self, since_ms: int) -> int | None:
        """Find the first offset appended at or after a time; `None` if no record is that young."""
        if since_ms <= 0:
            return 0
        since = TopicPartition(self._topic, 0, since_ms)
        with opening():
            (answer,) = self._consumer.offsets_for_times([since], timeout=self._timeout_s)
        return None if answer.offset < 0 else int(answer.offset)

    def _last_checkpoint(self, start: int) -> tuple[Ledger, int] | None:
        last: tuple[Ledger, int] | None = None
        for record in self.to_end(start):
            for entry in entries.of_record(record.key, record.value):
                if entry.get("entry") == "checkpoint":
                    last = Ledger.from_json(entry["ledger"]), int(entry["from_offset"])
        return last
