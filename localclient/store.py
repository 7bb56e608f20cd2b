"""The folder on the device: its state, and the raw records of windows not yet answered.

    state         what was spent and what is to be sent (`localclient.state`)
    begun         exists from the first state on, so that a lost state is not taken for a new one
    records       one JSON line [seconds, query, URL] per search; never leaves the device as it is,
                  except by opting in
    lock          locked while any of them is read to be changed

Promises: a state that was saved survives a crash at any moment; if the state is missing or damaged,
nothing more is spent. Raw records are removed from the folder once their window is answered, also
those in a file that a crash left half-written (a program cannot know whether the disk's firmware
keeps a copy).

Decision: docs/decisions/0041-what-a-device-writes-down.md
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from blendstream.blender.values.dice import RandomSource
from blendstream.blender.values.record import Record
from blendstream.localclient.errors import StateUnreadable
from blendstream.localclient.files import Files
from blendstream.localclient.state import Mode, State

__all__ = ["Store", "TimedRecord", "draw_for_answers", "shuffled"]


@dataclass(frozen=True, slots=True)
class TimedRecord:
    """A record and the second it was made."""

    at_s: int
    record: Record

    def __repr__(self) -> str:
        """Quotes nothing, because representations end up in logs."""
        return f"TimedRecord(at_s={self.at_s}, …)"


class Store:
    """Reads and writes the folder. Hold `locked()` around reading what is then changed."""

    def __init__(self, files: Files, max_record_bytes: int) -> None:
        self._files = files
        self._max_record_bytes = max_record_bytes

    @contextmanager
    def locked(self) -> Iterator[State]:
        """The state; other processes are locked out until the block ends."""
        with self._files.locked():
            yield self._load()

    def save(self, state: State) -> None:
        """Durably put `state` in place of the last one, all or nothing."""
        self._files.replace("state", state.to_bytes())

    def keep(self, at_s: int, record: Record) -> None:
        """Keep one raw record until its window is answered."""
        line = json.dumps([at_s, *record], separators=(",", ":")).encode() + b"\n"
        with self._files.locked():
            if self._files.size("records") + len(line) > self._max_record_bytes:
                lines = (self._files.read("records") or b"").splitlines(keepends=True)
                self._files.replace("records", b"".join(lines[len(lines) // 2 :]))
            self._files.append("records", line)

    def records(self, start_s: int, end_s: int) -> list[Record]:
        """The raw records made in [start_s, end_s)."""
        return [timed.record for timed in self._records() if start_s <= timed.at_s < end_s]

    def held(self) -> int:
        """How many raw records are on the device."""
        return len(self._records())

    def forget(self, before_s: int) -> None:
        """Remove the raw records made before `before_s`, and lines that cannot be read."""
        data = self._files.read("records")
        if not data:
            return
        recent = [timed for timed in self._records() if timed.at_s >= before_s]
        if len(recent) < data.count(b"\n") or not data.endswith(b"\n"):
            lines = (json.dumps([t.at_s, *t.record], separators=(",", ":")) + "\n" for t in recent)
            self._files.replace("records", "".join(lines).encode())

    def forget_all(self) -> None:
        """Remove every raw record, and opt-in records not yet sent.

        A state that cannot be read may quote such records: it is emptied, and stays unreadable.
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
                if state.outgoing and state.outgoing.mode is Mode.OPT_IN:
                    self.save(replace(state, outgoing=None))

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
            # Before the marker: a loss of power may take the folder only while it holds no claim.
            self._files.sync_parents()
            self._files.replace("begun", b"")
        return state


def draw_for_answers(
    records: Sequence[Record], answers: int, dice: RandomSource
) -> list[Record | None]:
    """What each answer is about: any of the records, drawn anew each time, or `None` without any.

    With replacement: an answer is then about one record drawn from the window, as an opt-in user's
    slot 0 is. Drawn without, one search would count as a third of a person among three answers.
    """
    if not records:
        return [None] * answers
    return [records[dice.below(len(records))] for _ in range(answers)]


def shuffled(records: Sequence[Record], dice: RandomSource) -> list[Record]:
    """The records in random order, each order equally likely."""
    pool = list(records)
    for place in range(len(pool)):
        other = place + dice.below(len(pool) - place)
        pool[place], pool[other] = pool[other], pool[place]
    return pool
