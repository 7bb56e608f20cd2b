"""The folder on the device: its state, and the raw records of windows not yet answered.

    state         budget entries and the pending submission (`localclient.state`)
    begun         exists from the first state on: distinguishes a lost state from a new device
    records       one JSON line [seconds, query, URL] per search; leaves the device unchanged only
                  by opting in
    lock          locked while the client reads a file in order to change it

Promises: a saved state survives a crash at any moment; if the state is missing or damaged, the
device spends no more. The client deletes raw records once their window is answered, also from files
that a crash left half-written (a program cannot know whether the disk's firmware keeps a copy).

Decision: docs/decisions/0041-what-a-device-writes-down.md
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from blendstream.blender.values.random_source import RandomSource
from blendstream.blender.values.record import Record
from blendstream.localclient.errors import StateUnreadable
from blendstream.localclient.files import Files
from blendstream.localclient.sent_log import DROPPED, finish_last, without_answers
from blendstream.localclient.state import Mode, State

__all__ = ["Store", "TimedRecord", "draw_for_answers", "shuffled"]


@dataclass(frozen=True, slots=True)
class TimedRecord:
    """A record and the second of its search."""

    at_s: int
    record: Record

    def __repr__(self) -> str:
        """Leave out the record: representations end up in logs."""
        return f"TimedRecord(at_s={self.at_s}, …)"


class Store:
    """Reads and writes the folder. Hold `locked()` around reading what is then changed."""

    def __init__(self, files: Files, max_record_bytes: int) -> None:
        self._files = files
        self._max_record_bytes = max_record_bytes

    @contextmanager
    def locked(self) -> Iterator[State]:
        """Yield the state; lock other processes out until the block ends."""
        with self._files.locked():
            yield self._load()

    def save(self, state: State) -> None:
        """Replace the stored state durably and atomically."""
        self._files.replace("state", state.to_bytes())

    def keep(self, at_s: int, record: Record) -> None:
        """Store one raw record until its window is answered."""
        line = json.dumps([at_s, *record], separators=(",", ":")).encode() + b"\n"
        with self._files.locked():
            if self._files.size("records") + len(line) > self._max_record_bytes:
                lines = (self._files.read("records") or b"").splitlines(keepends=True)
                self._files.replace("records", b"".join(lines[len(lines) // 2 :]))
            self._files.append("records", line)

    def records(self, start_s: int, end_s: int) -> list[Record]:
        """Return the raw records of searches in [start_s, end_s)."""
        return [timed.record for timed in self._records() if start_s <= timed.at_s < end_s]

    def count_records(self) -> int:
        """Return the number of raw records on the device."""
        return len(self._records())

    def forget(self, before_s: int) -> None:
        """Delete the raw records from before `before_s`, and unreadable lines."""
        data = self._files.read("records")
        if not data:
            return
        recent = [timed for timed in self._records() if timed.at_s >= before_s]
        if len(recent) < data.count(b"\n") or not data.endswith(b"\n"):
            lines = (json.dumps([t.at_s, *t.record], separators=(",", ":")) + "\n" for t in recent)
            self._files.replace("records", "".join(lines).encode())

    def forget_all(self) -> None:
        """Delete every raw record, opt-in records not yet sent, and the text of answers sent.

        An unreadable state may contain such records: this empties it, and it stays unreadable.
        """
        with self._files.locked():
            if self._files.read("records"):
                self._files.replace("records", b"")
            try:
                state = self._load()
            except StateUnreadable:
                if self._files.read("state"):
                    self._files.replace("state", b"")
            else:
                kept = without_answers(state)
                if state.pending and state.pending.mode is Mode.OPT_IN:
                    kept = replace(finish_last(kept, DROPPED, None), pending=None)
                if kept != state:
                    self.save(kept)

    def _records(self) -> list[TimedRecord]:
        records = []
        for line in (self._files.read("records") or b"").splitlines():
            try:
                at_s, query, url = json.loads(line)
            except ValueError:
                continue  # half a line, from a process that was killed while it wrote
            records.append(TimedRecord(int(at_s), Record(query, url)))
        return records

    def _load(self) -> State:
        data, begun = self._files.read("state"), self._files.read("begun") is not None
        if data is None and begun:
            raise StateUnreadable(
                "the file that remembers what this device has spent must exist, but it is missing; "
                "nothing is reported without it. Restore the file, or delete the whole folder once "
                "a full budget period has passed since the last report."
            )
        if data is None:
            state = State()
            self.save(state)
        else:
            state = State.from_bytes(data)
        if not begun:
            # Sync the folders before writing the marker: a loss of power may remove the folder only
            # while it contains no entry.
            self._files.sync_parents()
            self._files.replace("begun", b"")
        return state


def draw_for_answers(
    records: Sequence[Record], answers: int, dice: RandomSource
) -> list[Record | None]:
    """Draw one record for each answer, with replacement; `None` for each if there are none.

    With replacement, each answer is about a record drawn from the whole window, as an opt-in user's
    slot 0 is. Without replacement, one search would count as a third of a person in three answers.
    """
    if not records:
        return [None] * answers
    return [records[dice.below(len(records))] for _ in range(answers)]


def shuffled(records: Sequence[Record], dice: RandomSource) -> list[Record]:
    """Return the records in random order, each order equally likely."""
    pool = list(records)
    for place in range(len(pool)):
        other = place + dice.below(len(pool) - place)
        pool[place], pool[other] = pool[other], pool[place]
    return pool
