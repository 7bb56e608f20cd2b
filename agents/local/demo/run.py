"""Run the demo: start everything, simulate searches, print each publication, until stopped."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import deque
from pathlib import Path
from typing import Any

import httpx

from blendstream.agents.local import StackError
from blendstream.agents.local.demo.compare import other_profile, published
from blendstream.agents.local.demo.people import Window
from blendstream.agents.local.demo.population import Population
from blendstream.agents.local.demo.senders import BatchSender, RealDevices
from blendstream.agents.local.demo.service import GUEST, DemoService, EpochTimes
from blendstream.agents.local.demo.spending import by_default, shown_here
from blendstream.agents.local.demo.view import View, epoch_table

__all__ = ["Demo", "check_results", "client_steps", "extension_steps", "first_error"]

_REAL_DEVICES = 3
_EMPTY_AT_MOST = 5
_RATE_OVER_S = 5.0
#: Time that the jobs need to notice a seal, to draw and to publish.
_RELEASE_S = 1.5
#: Part of the sources, not of the installed package.
_EXTENSION = Path(__file__).resolve().parents[3] / "webclient" / "extension"


class Demo:
    """One demonstration."""

    def __init__(
        self, *, people: int, optin_share: float, window_s: int, profile: str, seed: int, view: View
    ) -> None:
        self._who: dict[str, Any] = {"people": people, "optin_share": optin_share, "seed": seed}
        self._times = EpochTimes(window_s)
        self._profile = profile
        self._view = view
        self._due_s: float | None = None
        self._shown: set[int] = set()
        self._first_shown = asyncio.Event()
        self._empty: set[int] = set()
        self._rates: dict[str, deque[tuple[float, float]]] = {}

    def run(self, epochs: int | None) -> None:
        """Start everything, run until `epochs` were published with estimates, end everything.

        None: run until stopped. Epochs that are published empty do not count; too many are an
        error.
        """
        began = time.monotonic()
        service = DemoService.start(self._times, self._profile, self._view.say)
        try:
            self._view.say(_where_to_look(service, time.monotonic() - began))
            asyncio.run(self._course(service, epochs, service.folder / "devices", began))
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        finally:
            try:
                self._view.say("stopping ...")
            finally:
                service.close()

    async def _course(
        self, service: DemoService, epochs: int | None, folder: Path, began: float
    ) -> None:
        limits = httpx.Limits(max_connections=8)
        async with httpx.AsyncClient(
            base_url=service.gateway, timeout=30, limits=limits
        ) as http, asyncio.TaskGroup() as senders:  # fmt: skip
            people = Population(http, service.token, **self._who)
            devices = RealDevices(_REAL_DEVICES, service.gateway, folder, self._times.window_s)
            background = senders.create_task(self._let_devices_report(devices))
            senders.create_task(self._compare_with_the_default())
            while epochs is None or len(self._shown) < epochs:
                service.check()
                check_results(epochs, len(self._empty))
                try:
                    states = (await http.get("/v1/epochs")).raise_for_status().json()
                    window = await people.act(states, senders)
                    if window is not None:
                        self._say_when_due(states["collecting"])
                        await devices.search(people.crowd, window, people.rng)
                    await self._show_published(http, states, people, began)
                    await self._show_state(http, service, states, people.sender, devices)
                except httpx.HTTPError as error:
                    # If it has ended, the next check reports it, with its last lines of output.
                    self._view.say(f"the gateway did not answer ({type(error).__name__})")
                await asyncio.sleep(0.5)
            people.stop()
            background.cancel()

    async def _let_devices_report(self, devices: RealDevices) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                await devices.let_report()
                await asyncio.sleep(1)

    async def _compare_with_the_default(self) -> None:
        """Print, after the first table, the figures that these people would get by default."""
        optin = round(self._who["people"] * self._who["optin_share"])
        clients = self._who["people"] - optin
        text = await asyncio.to_thread(by_default, optin, clients, self._profile)
        await self._first_shown.wait()
        self._view.say(text + "\n")

    def _say_when_due(self, collecting: Any) -> None:
        """Print once when the first results are due."""
        if self._due_s is None:
            # Devices report in the next window; both windows have their grace.
            times = self._times
            self._due_s = collecting["window_end_s"] + times.window_s + times.grace_s
            self._due_s += times.skew_s + _RELEASE_S
            self._view.say(
                f"people search in epoch {collecting['epoch']}; its results, the first, are due in "
                f"about {self._due_s - time.time():.0f} s"
            )

    async def _show_published(
        self, http: httpx.AsyncClient, states: Any, people: Population, began: float
    ) -> None:
        for state in sorted(states["epochs"], key=lambda s: int(s["epoch"])):
            epoch = int(state["epoch"])
            if state["state"] != "published" or epoch in self._shown | self._empty:
                continue
            answer = await http.get(f"/v1/estimates/{epoch}")
            if answer.status_code != 200:
                continue
            document = answer.json()
            window = people.windows.get(epoch)
            if document["outcome"] == "empty" or window is None:
                self._empty.add(epoch)
                self._view.say(f"Epoch {epoch} published empty: {_why_empty(document, window)}\n")
                continue
            self._shown.add(epoch)
            if len(self._shown) == 1:
                self._view.say(
                    f"first epoch published {time.monotonic() - began:.0f} s after the start"
                )
            took_part = document["participants"]
            # As many devices as reported in time; it does not matter which.
            window = Window(window.optin, window.clients[: took_part["clients"]], window.truth)
            other = "paper" if self._profile == "sharp" else "sharp"
            scores = [
                (self._profile, published(document, window.truth)),
                (
                    other,
                    await asyncio.to_thread(other_profile, other, people.crowd, window, document),
                ),
            ]
            took_part_text = (
                f"{took_part['selection'] + took_part['estimation']:,} opt-in users, "
                f"{took_part['clients']:,} devices; {other} computed beside it"
            )
            self._view.say(epoch_table(epoch, took_part_text, scores, window.truth) + "\n")
            self._first_shown.set()

    async def _show_state(
        self, http: httpx.AsyncClient, service: DemoService, states: Any, sender: BatchSender,
        devices: RealDevices,
    ) -> None:  # fmt: skip
        totals = await _worker_totals(http, service.metrics["worker"])
        now = time.time()
        lines = [f"results page   {service.gateway}/      API   {service.gateway}/docs"]
        if self._due_s is not None and not self._shown:
            lines.append(f"first results  due in about {max(1.0, self._due_s - now):.0f} s")
        lines.append("epochs")
        recent = sorted(states["epochs"], key=lambda s: -int(s["epoch"]))[:5]
        for state in reversed(recent):
            left = state["window_end_s"] - now
            timing = (
                f"window ends in {left:.0f} s" if left > 0 else f"window ended {-left:.0f} s ago"
            )
            lines.append(f"  {state['epoch']:>4}  {state['state']:<16}{timing}")
        lines.append(
            f"{'':<15}{'accepted':>10}{'received':>10}{'counted':>10}{'a second':>10}  refused"
        )
        figures = []
        for name, sent in (("optin_records", sender.optin), ("client_reports", sender.reports)):
            received, counted, refused = totals.get(name, (0, 0, {}))
            rate = self._rate(name, counted)
            reasons = dict(refused)
            if sent.refused:
                reasons["turned away by the gateway"] = sent.refused
            why = ", ".join(f"{reason} {n:,}" for reason, n in sorted(reasons.items()) if n)
            why = why or "none"
            lines.append(
                f"{name:<15}{sent.accepted:>10,}{received:>10,}{counted:>10,}{rate:>10,.0f}  {why}"
            )
            if received or sent.refused:
                figures.append(f"{name} {counted:,} counted, {rate:,.0f} a second, refused {why}")
        lines.append(f"real devices   {devices.sent} reports sent by {_REAL_DEVICES} LocalClients")
        begun = [s for s in reversed(recent) if s["window_start_s"] <= now]
        summary = "; ".join(f"epoch {s['epoch']} {s['state']}" for s in begun) or "no epoch yet"
        self._view.show(lines, summary=summary, figures="; ".join(figures))

    def _rate(self, name: str, counted: float) -> float:
        """Return entries counted per second, averaged because the worker counts in batches."""
        now, seen = time.monotonic(), self._rates.setdefault(name, deque())
        seen.append((now, counted))
        while len(seen) > 2 and seen[1][0] <= now - _RATE_OVER_S:
            seen.popleft()
        since_s = now - seen[0][0]
        return max(0.0, (counted - seen[0][1]) / since_s) if since_s else 0.0


def check_results(epochs: int | None, empty: int) -> None:
    """Raise `StackError` if more epochs are empty than a demo of `epochs` epochs may have."""
    if epochs is not None and empty > _EMPTY_AT_MOST:
        raise StackError(
            f"{empty} epochs were published empty, at most {_EMPTY_AT_MOST} may be; "
            "more --people, a longer --window or a less busy machine give them results"
        )


def first_error(error: BaseException) -> BaseException:
    """Return the first error of a group of tasks."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _why_empty(document: Any, window: Window | None) -> str:
    if window is None:
        return "its window had nearly ended when the service was ready; people search in the next"
    return ", ".join(document["reasons"])


async def _worker_totals(
    http: httpx.AsyncClient, address: str
) -> dict[str, tuple[int, int, dict[str, int]]]:
    """Read received, counted and refused entries (by reason) from the worker's metrics."""
    try:
        text = (await http.get(address)).text
    except httpx.HTTPError:
        return {}
    totals: dict[str, tuple[int, int, dict[str, int]]] = {}
    for name in ("optin_records", "client_reports"):
        sums = {"received": 0, "counted": 0}
        refused: dict[str, int] = {}
        for what, labels, value in re.findall(
            rf"^blender_{name}_(received|counted|refused)_total\{{([^}}]*)\}} (\S+)$", text, re.M
        ):
            if what == "refused":
                reason = re.search(r'reason="([a-z_]+)"', labels)
                if reason:
                    refused[reason[1]] = refused.get(reason[1], 0) + int(float(value))
            else:
                sums[what] += int(float(value))
        totals[name] = (sums["received"], sums["counted"], refused)
    return totals


def _where_to_look(service: DemoService, took_s: float) -> str:
    return (
        f"running after {took_s:.1f} s. Where to look:\n"
        f"  results page     {service.gateway}/\n"
        f"  API              {service.gateway}/docs\n"
        + "".join(f"  {name + ' metrics':<17}{url}\n" for name, url in service.metrics.items())
        + extension_steps(service.gateway)
        + client_steps(service.gateway, service.guest_token)
        + shown_here()
        + "It listens on this machine alone, without the edge that others' devices would need.\n"
        + "Ctrl-C ends it and leaves nothing behind.\n"
    )


def client_steps(gateway: str, token: str) -> str:
    """Return the variables that the commands of docs/localclient.md need."""
    return (
        'Or with the Python client, as docs/localclient.md says under "Try it"; the token is for\n'
        f"opt-in records of the user {GUEST}:\n"
        f"  export GATEWAY={gateway}\n"
        f"  export LOCALCLIENT_TOKEN={token}\n"
    )


def extension_steps(gateway: str, folder: Path = _EXTENSION) -> str:
    """Return how to take part with the browser extension; empty if it is not installed."""
    if not (folder / "manifest.json").exists():
        return ""
    return (
        "Take part yourself, in Chrome or Chromium (docs/extension.md):\n"
        "  1. chrome://extensions, Developer mode, Load unpacked:\n"
        f"     {folder}\n"
        f"  2. In its options: service {gateway},\n"
        "     Fill in values for a trial, Turn on. Then open its sample search page.\n"
    )
