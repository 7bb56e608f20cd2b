"""Simulate people who take part in every epoch of a service (the demo's, or any other).

states ──▶ a window opened?    ──▶ opt-in users search
       ──▶ a head list is out? ──▶ devices report
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import httpx
import numpy as np

from blendstream.agents.local.demo.people import Crowd, Searched, Window
from blendstream.agents.local.demo.senders import BatchSender
from blendstream.streams.wire.head_list_document import HeadListDocument

__all__ = ["Population", "SimulatedPeople", "time_to_search"]


class SimulatedPeople(ABC):
    """Base class of simulated people, who search in each window and report on each head list.

    Call `act` repeatedly: it starts the submissions that are due.
    """

    def __init__(self, http: httpx.AsyncClient, token: str) -> None:
        self._http = http
        self.sender = BatchSender(http, token)
        #: True when nobody will search any more.
        self.finished = False
        #: Searches by epoch; `None` if the epoch was discovered too late.
        self.windows: dict[int, Window | None] = {}
        self._searched: dict[int, Searched] = {}
        self._reported: set[str] = set()
        self._sending: list[asyncio.Task[None]] = []

    @abstractmethod
    def _next_window(self, collecting: Mapping[str, Any]) -> tuple[Searched, Window] | None:
        """Draw what people search for in this epoch; `None`: nobody searches any more."""

    async def act(self, states: Any, tasks: asyncio.TaskGroup) -> Window | None:
        """Start due submissions in `tasks`; return the window in which people started to search."""
        began = self._start_searching(states, tasks)
        await self._start_reporting(tasks)
        return began

    def stop(self) -> None:
        """Stop sending, which would delay the end by half a window."""
        for task in self._sending:
            task.cancel()

    def _start_searching(self, states: Any, tasks: asyncio.TaskGroup) -> Window | None:
        now = states["collecting"]
        if now is None or now["epoch"] in self.windows:
            return None
        over_s = time_to_search(now, time.time())
        if over_s is None:
            self.windows[now["epoch"]] = None
            return None
        drawn = self._next_window(now)
        if drawn is None:
            self.windows[now["epoch"]] = None
            return None
        searched, window = drawn
        self._searched[now["epoch"]], self.windows[now["epoch"]] = searched, window
        searching = self.sender.send_optin(searched, window.optin, now["epoch"], over_s)
        self._sending.append(tasks.create_task(searching))
        return window

    async def _start_reporting(self, tasks: asyncio.TaskGroup) -> None:
        answer = await self._http.get("/v1/head-lists/current")
        if answer.status_code != 200:
            return
        document = HeadListDocument.from_bytes(answer.content)
        window = self.windows.get(document.epoch)
        if document.id in self._reported or window is None:
            return
        self._reported.add(document.id)
        left = max(0.5, (document.reports_until_s - time.time()) * 0.8)
        reporting = self.sender.send_reports(
            document.head_list,
            document.id,
            self._searched[document.epoch],
            window.clients,
            left,
        )
        self._sending.append(tasks.create_task(reporting))


class Population(SimulatedPeople):
    """Opt-in users and devices, in given numbers, whose searches follow the demo's distribution."""

    def __init__(
        self, http: httpx.AsyncClient, token: str, *, people: int, optin_share: float, seed: int
    ) -> None:
        super().__init__(http, token)
        self._optin = round(people * optin_share)
        self._clients = people - self._optin
        #: Used only to draw people's searches.
        self.rng = np.random.default_rng(seed)
        self.crowd = Crowd()

    def _next_window(self, _collecting: Mapping[str, Any]) -> tuple[Crowd, Window]:
        before = sum(window is not None for window in self.windows.values())
        return self.crowd, self.crowd.window(self._optin, self._clients, self.rng, before)


def time_to_search(collecting: Mapping[str, float], now_s: float) -> float | None:
    """Return the seconds over which people search in a window; `None` if too little is left.

    On a busy machine the first epoch may open when its window has nearly ended. Most searches would
    then be late, and the first published epoch would have few people.
    """
    left = collecting["window_end_s"] - now_s
    whole = collecting["window_end_s"] - collecting["window_start_s"]
    return left * 0.8 if left >= whole / 2 else None
