"""Send the submissions of the demo's opt-in users and devices over HTTP.

Most devices are simulated: they randomise in bulk with the head list's randomizer, by a NumPy
generator that the operating system seeds for each head list. A few are real `AsyncLocalClient`s
with a folder each. Entries with the verdict retry are sent again with the same bytes.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from blendstream.agents.local.demo.people import NO_RECORD, Crowd, Searched, Window
from blendstream.agents.local.process_guard import StackError
from blendstream.blender.registry import randomizer_for
from blendstream.blender.values.arrays import IntArray
from blendstream.blender.values.cells import HeadList
from blendstream.localclient import AsyncLocalClient, ClientRefused, Limits

__all__ = ["BatchSender", "RealDevices", "Sent"]

_BATCH = 500
_TRIES = 8


@dataclass(slots=True)
class Sent:
    """Numbers of entries accepted, refused and repeated so far."""

    accepted: int = 0
    refused: int = 0
    repeated: int = 0


@dataclass(slots=True)
class BatchSender:
    """Posts batches, and counts them for the live view."""

    http: httpx.AsyncClient
    token: str
    optin: Sent = field(default_factory=Sent)
    reports: Sent = field(default_factory=Sent)

    async def send_optin(
        self, searched: Searched, numbers: IntArray, epoch: int, over_s: float
    ) -> None:
        """Send every opt-in user's record of one epoch, or none, spread over `over_s` seconds."""
        entries = []
        for person, number in enumerate(numbers.tolist()):
            query, url = (None, None) if number == NO_RECORD else searched.records[number]
            who = {"epoch": epoch, "user_id": f"person-{person}", "slot": 0}
            entries.append({**who, "query": query, "url": url})
        headers = {"authorization": f"Bearer {self.token}"}
        await self._spread("/v1/optin-records", entries, over_s, self.optin, headers)

    async def send_reports(
        self,
        head_list: HeadList,
        head_list_id: str,
        searched: Searched,
        numbers: IntArray,
        over_s: float,
    ) -> None:
        """Send every device's randomised report on one head list, spread over `over_s` seconds."""
        randomizer = randomizer_for(head_list)
        # Do not use the people's generator: with a known seed, reports would reveal the records.
        rng = np.random.default_rng()
        cells = searched.cell_of_number(head_list.cells)[numbers]
        answers = [
            randomizer.answer_batch(cells, rng).tolist()
            for _ in range(head_list.randomizer.answers)
        ]
        entries = [
            {"head_list": head_list_id, "contributor": secrets.token_hex(16), "answers": list(each)}
            for each in zip(*answers, strict=True)
        ]
        await self._spread("/v1/reports", entries, over_s, self.reports, {})

    async def _spread(
        self,
        path: str,
        entries: list[dict[str, Any]],
        over_s: float,
        sent: Sent,
        headers: dict[str, str],
    ) -> None:
        batches = [entries[i : i + _BATCH] for i in range(0, len(entries), _BATCH)]
        pause = over_s / max(1, len(batches))
        async with asyncio.TaskGroup() as posts:
            for batch in batches:
                posts.create_task(self._post(path, batch, sent, headers))
                await asyncio.sleep(pause)

    async def _post(
        self, path: str, batch: list[dict[str, Any]], sent: Sent, headers: dict[str, str]
    ) -> None:
        for attempt in range(_TRIES):
            body = json.dumps(batch).encode()
            try:
                answer = await self.http.post(
                    path, content=body, headers={"content-type": "application/json", **headers}
                )
            except httpx.HTTPError:
                sent.repeated += len(batch)
                await asyncio.sleep(0.2 * 2**attempt)
                continue
            if answer.status_code in (200, 202):
                verdicts = answer.json()["verdicts"]
                sent.accepted += sum(v["status"] == "accepted" for v in verdicts)
                sent.refused += sum(v["status"] == "refused" for v in verdicts)
                batch = [e for e, v in zip(batch, verdicts, strict=True) if v["status"] == "retry"]
                if not batch:
                    return
            elif answer.status_code == 401:
                raise StackError(
                    "the gateway must know the token, and answered 401; make one with `blendstream "
                    "tokens add NAME`, on the file that the gateway's settings name"
                )
            elif answer.status_code not in (429, 503):
                sent.refused += len(batch)
                return
            sent.repeated += len(batch)
            await asyncio.sleep(0.2 * 2**attempt)
        sent.refused += len(batch)


class RealDevices:
    """A few devices that run the client library, as applications embed it."""

    def __init__(self, count: int, server: str, folder: Path, window_s: int) -> None:
        limits = Limits(
            epsilon_per_report=4.0,
            delta_per_report=1e-5,
            epsilon_per_period=1e6,  # the demo's epochs last seconds; a real device's last days
            delta_per_period=0.5,
            period_s=86_400,
            min_window_s=min(5, window_s),
        )
        self._clients = [
            AsyncLocalClient(server, folder / f"device-{i}", limits) for i in range(count)
        ]
        self._sent: set[tuple[int, int | None]] = set()

    @property
    def sent(self) -> int:
        """Reports that the gateway has accepted."""
        return len(self._sent)

    async def search(self, crowd: Crowd, window: Window, rng: np.random.Generator) -> None:
        """Store on each device the record of a randomly chosen person; people may have none."""
        others = window.clients if len(window.clients) else window.optin
        for client, number in zip(
            self._clients, rng.choice(others, len(self._clients)).tolist(), strict=True
        ):
            if number != NO_RECORD:
                await asyncio.to_thread(client.record, *crowd.records[number])

    async def let_report(self) -> None:
        """Let each device send its report if one is due."""
        for number, client in enumerate(self._clients):
            try:
                outcome = await client.maybe_report()
            except ClientRefused:
                continue
            if outcome.code == "sent":  # Repeated until the next window.
                self._sent.add((number, outcome.epoch))
