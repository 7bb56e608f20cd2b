"""A release log in memory, read as from Kafka; servers that were cut off show less of it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from blendstream.streams.budget.ledger import Ledger
from blendstream.streams.releases import entries
from blendstream.streams.releases.entries import Entry
from blendstream.streams.releases.log_consumer import LogRecord


class ListedLog:
    """Records by offset, and how many of them each consumer that is opened gets to see."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records: list[LogRecord] = []
        #: Ends that the first consumers are shown; those opened later see everything.
        self.shown: list[int] = []
        self.opened = 0
        #: How long a poll takes.
        self.poll_s = 0.0
        #: Consumers that were closed in one thread while another polled them.
        self.closed_while_polled = 0
        #: Raised by the next poll.
        self.failure: Exception | None = None
        monkeypatch.setattr("blendstream.streams.releases.reader.LogConsumer", self._open)

    def append(self, *together: Entry) -> int:
        """One record of entries; its offset."""
        offset = len(self.records)
        value = entries.encode(together)
        self.records.append(LogRecord(offset, 1000 + offset, entries.ENTRY_KEY, value))
        return offset

    def _open(self, *_: Any) -> _Consumer:
        self.opened += 1
        return _Consumer(self, self.shown.pop(0) if self.shown else None)


class _Consumer:
    def __init__(self, log: ListedLog, end: int | None) -> None:
        self._log = log
        self._end = end
        self._at = 0
        self._told = -1
        self._polled = False

    def start_at(self, offset: int) -> None:
        self._at, self._told = offset, -1

    def poll(self) -> tuple[list[LogRecord], int | None]:
        self._polled = True
        try:
            time.sleep(self._log.poll_s)
            return self._poll()
        finally:
            self._polled = False

    def _poll(self) -> tuple[list[LogRecord], int | None]:
        if self._log.failure is not None:
            failure, self._log.failure = self._log.failure, None
            raise failure
        end = len(self._log.records) if self._end is None else self._end
        found = self._log.records[self._at : end]
        self._at = max(self._at, end)
        if self._told == self._at:
            time.sleep(0.005)
            return [], None
        self._told = self._at
        return found, self._at

    def find_start(self, _now_ms: int) -> tuple[Ledger, int]:
        return Ledger(), 0

    def first_since(self, _since_ms: int) -> int | None:
        return 0

    def close(self) -> None:
        self._log.closed_while_polled += self._polled


@pytest.fixture
def listed_log(monkeypatch: pytest.MonkeyPatch) -> ListedLog:
    """Every reader in the test reads this log."""
    return ListedLog(monkeypatch)
