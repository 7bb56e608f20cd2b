"""Let simulated people take part in a running service, until enough epochs are published."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import httpx

from blendstream.agents.local.demo.population import SimulatedPeople

__all__ = ["take_part"]

_LOOK_EVERY_S = 0.5
#: The number of windows after which to stop waiting for an epoch. It is published two windows after
#: its own has begun, or a little later when jobs are slow.
_WAITING_WINDOWS = 6


async def take_part(
    http: httpx.AsyncClient,
    people: SimulatedPeople,
    *,
    epochs: int | None,
    published: Callable[[Mapping[str, Any]], None] = lambda _document: None,
) -> None:
    """Let people search and report until `epochs` epochs have estimates, or they have finished.

    `published` is called with each published document of an epoch in which they took part.
    """
    shown: set[int] = set()
    said, with_estimates = "", 0
    async with asyncio.TaskGroup() as tasks:
        while epochs is None or with_estimates < epochs:
            try:
                states = (await http.get("/v1/epochs")).raise_for_status().json()
                await people.act(states, tasks)
                now = _now(states, people)
                async for document in _new_documents(http, states, people, shown):
                    print(_line(document), flush=True)
                    with_estimates += document["outcome"] != "empty"
                    published(document)
                if people.finished and not any(_awaited(states, people, shown)):
                    break
            except httpx.HTTPError as error:
                now = f"waiting for the gateway at {http.base_url} ({type(error).__name__}) ..."
            if now != said:
                said = now
                print(said, flush=True)
            await asyncio.sleep(_LOOK_EVERY_S)
        people.stop()


def _awaited(states: Any, people: SimulatedPeople, shown: set[int]) -> Iterator[int]:
    """Yield the epochs with these people's entries that may still be published."""
    for state in states["epochs"]:
        epoch, length_s = int(state["epoch"]), state["window_end_s"] - state["window_start_s"]
        late = time.time() > state["window_start_s"] + _WAITING_WINDOWS * length_s
        if people.windows.get(epoch) and epoch not in shown and not late:
            yield epoch


def _now(states: Any, people: SimulatedPeople) -> str:
    """Describe what happens now, without numbers that change all the time."""
    if states["paused"] is not None:
        return f"paused: {states['paused']['detail']}"
    if people.finished:
        return "everything is sent; waiting for the epochs that are not published yet"
    collecting = states["collecting"]
    if collecting is None:
        return "no epoch is open; are the jobs running?"
    epoch, window = collecting["epoch"], people.windows.get(collecting["epoch"])
    length_s = collecting["window_end_s"] - collecting["window_start_s"]
    if window is None:
        at = _clock(collecting["window_end_s"])
        return f"epoch {epoch}: too little of its window is left; people search in the next, {at}"
    due = _clock(collecting["window_end_s"] + length_s)
    return (
        f"epoch {epoch}: {len(window.optin):,} opt-in users search, {len(window.clients):,} "
        f"devices report in the next window; its results are due soon after {due}"
    )


def _clock(time_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(time_s))


async def _new_documents(
    http: httpx.AsyncClient, states: Any, people: SimulatedPeople, shown: set[int]
) -> AsyncIterator[Mapping[str, Any]]:
    """Yield what was published since the last call, of epochs in which these people took part."""
    for state in sorted(states["epochs"], key=lambda s: int(s["epoch"])):
        epoch = int(state["epoch"])
        if state["state"] != "published" or epoch in shown or not people.windows.get(epoch):
            continue
        answer = await http.get(f"/v1/estimates/{epoch}")
        if answer.status_code == 200:
            shown.add(epoch)
            yield answer.json()


def _line(document: Mapping[str, Any]) -> str:
    took_part = document["participants"]
    text = ", ".join(document["reasons"]) or (
        f"{took_part['selection'] + took_part['estimation']:,} opt-in users, "
        f"{took_part['clients']:,} devices, {len(document['records'])} cells"
    )
    return f"epoch {document['epoch']} published, {document['outcome']}: {text}"
