"""Replay a search log through a service: its users search at the logged times, at a chosen speed.

Each user is an opt-in user or a device for the whole replay. In each epoch every user has one
record, drawn at random from the user's clicks in the epoch's window of the log, or none. So the
truth of an epoch is known: the proportion of the users who have each record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np

from blendstream.agents.local.demo.people import NO_RECORD, Window
from blendstream.agents.local.demo.population import SimulatedPeople
from blendstream.blender.values.arrays import FloatArray, IntArray
from blendstream.blender.values.cells import Cells
from blendstream.blender.values.record import Record

__all__ = ["LogClicks", "LogReplay", "LogWindow", "WindowRecords"]

_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class LogClicks:
    """All clicks of the users who take part, in order of time: row i is one click."""

    time_s: FloatArray
    user: IntArray
    number: IntArray
    #: The records' texts, by number.
    records: list[Record]
    users: int


@dataclass(frozen=True, slots=True)
class WindowRecords:
    """The distinct records of one window; a record's number in the window is its index here."""

    records: list[Record]

    def cell_of_number(self, cells: Cells) -> IntArray:
        """Return the cell of each record; the last entry, for `NO_RECORD`, is ⟨⋆,⋆⟩."""
        everything: list[Record | None] = [*self.records, None]
        return np.array([cells.number(record) for record in everything], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class LogWindow:
    """The part of the log that one epoch replays."""

    start_s: float
    end_s: float
    searchers: int


class LogReplay(SimulatedPeople):
    """The users of a search log, as opt-in users and devices of one service."""

    def __init__(
        self, http: httpx.AsyncClient, token: str, clicks: LogClicks, *, optin_share: float,
        speed: float | None, seed: int,
    ) -> None:  # fmt: skip
        """Take `speed`, the seconds of the log per second; `None`: a day of the log per epoch."""
        super().__init__(http, token)
        self._clicks = clicks
        self._speed = speed
        self._rng = np.random.default_rng(seed)
        order = self._rng.permutation(clicks.users)
        optin = round(clicks.users * optin_share)
        #: The users' numbers in the log, in the order in which the service gets them.
        self._optin, self._devices = order[:optin], order[optin:]
        self._origin_s: float | None = None
        #: The part of the log that each epoch replayed.
        self.replayed: dict[int, LogWindow] = {}

    def _next_window(self, collecting: Mapping[str, Any]) -> tuple[WindowRecords, Window] | None:
        """Draw each user's record for this epoch; None when the log has ended."""
        start_s, end_s = self._log_times(collecting)
        clicks = self._clicks
        if not len(clicks.time_s) or start_s > clicks.time_s[-1]:
            self.finished = True
            return None
        first, last = np.searchsorted(clicks.time_s, [start_s, end_s]).tolist()
        # The first of a user's clicks in a random order is a uniform draw from them.
        rows = first + self._rng.permutation(last - first)
        users, place = np.unique(clicks.user[rows], return_index=True)
        kept, number = np.unique(clicks.number[rows[place]], return_inverse=True)
        held = np.full(clicks.users, NO_RECORD, dtype=np.int64)
        held[users] = number
        records = [clicks.records[i] for i in kept.tolist()]
        counts = Counter(number.tolist())
        truth = {record: counts[i] / clicks.users for i, record in enumerate(records)}
        self.replayed[collecting["epoch"]] = LogWindow(start_s, end_s, len(users))
        return WindowRecords(records), Window(held[self._optin], held[self._devices], truth)

    def _log_times(self, collecting: Mapping[str, Any]) -> tuple[float, float]:
        """Return the beginning and the end of the epoch's window in the log's time."""
        window_start_s, window_end_s = collecting["window_start_s"], collecting["window_end_s"]
        if self._speed is None:
            self._speed = _DAY_S / (window_end_s - window_start_s)
        if self._origin_s is None:
            self._origin_s = window_start_s
        begins_s = float(self._clicks.time_s[0]) if len(self._clicks.time_s) else 0.0

        def in_log(time_s: float) -> float:
            return begins_s + (time_s - (self._origin_s or 0.0)) * (self._speed or 1.0)

        return in_log(window_start_s), in_log(window_end_s)
