"""Whatever a server did, a device answers an honest one soon after.

A server lies for a while: any numbers, windows, times, answers and modes that a device can be
shown. Then it is honest, with windows of a day. Every window that begins `BOUND_S` after the
last lie must be answered; if the lies used the budget up, a period later. Not a failure: windows
missed before that, and devices whose own clock is wrong.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blendstream.localclient import ClientRefused, LocalClient, OptIn, ResultCode
from blendstream.localclient.local_client import _Parts
from blendstream.localclient.state import Mode
from tests.localclient.support import (
    DAY,
    HOUR,
    ManualClock,
    SeededDice,
    UnsyncedFiles,
    head_list,
    limits,
    spec,
    state_of,
)

RICH = limits(epsilon_per_period=1e6, delta_per_period=0.9)
TIGHT = replace(RICH, epsilon_per_period=9.0, period_s=5 * DAY)
#: How often the application calls, but for the time that the device drew.
EVERY_S = 3 * HOUR
#: One wait for the scheduled time, one for the delivery, and until the next call after each.
BOUND_S = 2 * (RICH.max_wait_s + EVERY_S)

Lie = Callable[["World"], None]


class World:
    """One device and its server, which lies until it is told not to."""

    def __init__(self, folder: str, seed: int, own: Any) -> None:
        self.clock, self.dice, self.own = ManualClock(100 * DAY), SeededDice(seed), own
        self.folder = folder
        self.opt_in: OptIn | None = None
        self.answers: dict[str, bytes] = {}
        self.status = 503
        self.honest_from: int | None = None
        self.stubborn = False
        self.start()

    def start(self) -> None:
        self.client = LocalClient(
            "https://gateway.example",
            self.folder,
            self.own,
            opt_in=self.opt_in,
            http=lambda: httpx.Client(transport=httpx.MockTransport(self.answer), verify=False),
            _parts=_Parts(self.clock, self.dice, UnsyncedFiles),
        )

    def call(self, *, at_once: bool = False) -> int:
        """When to call again."""
        with suppress(ClientRefused):
            outcome = self.client.report_now() if at_once else self.client.maybe_report()
            if outcome.code is ResultCode.WAITING:
                return outcome.next_call_at_s
        return int(self.clock.now_s) + EVERY_S

    def answer(self, request: httpx.Request) -> httpx.Response:
        if self.honest_from is not None:
            return self.honest(request, self.honest_from)
        if request.method == "POST":
            return replied(self.status, **{"retry-after": "999999999"})
        found = self.answers.get(request.url.path)
        return replied(404) if found is None else replied(200, found)

    def honest(self, request: httpx.Request, first: int) -> httpx.Response:
        """A service of daily windows whose numbers began with `first` on day 0."""
        now_s, path = int(self.clock.now_s), request.url.path
        day = (now_s - HOUR) // DAY
        lists = {
            (shown := daily(first, d)).id: shown.to_bytes() for d in (day - 3, day - 2, day - 1)
        }
        if request.method == "POST":
            body = json.loads(request.content)
            known = body["head_list"] in lists if isinstance(body, dict) else self.mine(body, first)
            if known:
                return replied(202)
            # Unknown to it. A final answer would settle it; one that is none must not hold it.
            problem = {"content-type": "application/problem+json"}
            return replied(503) if self.stubborn else replied(422, **problem)
        if path == "/v1/epochs":
            return replied(200, self.collecting(first))
        name = path.rsplit("/", 1)[1]
        found = daily(first, day - 1).to_bytes() if name == "current" else lists.get(name)
        return replied(404) if found is None else replied(200, found)

    def mine(self, body: list[dict[str, Any]], first: int) -> bool:
        return body[0]["epoch"] - first in (self.clock.now_s // DAY, self.clock.now_s // DAY - 1)

    def collecting(self, first: int) -> bytes:
        day = int(self.clock.now_s) // DAY
        epoch = {"epoch": first + day, "window_start_s": day * DAY, "records_per_user": 1}
        times = {"window_end_s": (day + 1) * DAY, "optin_until_s": (day + 1) * DAY + HOUR}
        return json.dumps({"collecting": {**epoch, **times}}).encode()


def replied(status: int, body: bytes = b"", **headers: str) -> httpx.Response:
    return httpx.Response(status, headers=headers, content=iter([body]))


def daily(first: int, day: int) -> Any:
    return head_list(
        first + day,
        window_start_s=day * DAY,
        window_end_s=(day + 1) * DAY,
        reports_until_s=(day + 2) * DAY,
        randomizer=spec(epsilon=1.0),
    )


# Windows of an hour to a month that end about now, with up to four more to report in.
hours = st.sampled_from([1, 24, 31 * 24, 31 * 24])
epochs = st.sampled_from([0, 1, 90, 2_399, 2_400, 2_401])


@st.composite
def shown_lists(draw: st.DrawFn) -> Lie:
    epoch, length_h = draw(epochs), draw(hours)
    end_s = draw(st.sampled_from([-5, -1, 0])) * HOUR + draw(st.sampled_from([0, 800]))
    reporting_s = draw(st.sampled_from([1, 4])) * length_h * HOUR
    cohorts, epsilon = draw(st.sampled_from([1, 1, 1, 366])), draw(st.sampled_from([0.5, 4.0]))
    empty, at_once = draw(st.integers(0, 5)) == 0, draw(st.booleans())

    def show(world: World) -> None:
        mode(opt_in=False)(world)
        now_s = int(world.clock.now_s)
        document = head_list(
            epoch,
            window_start_s=now_s + end_s - length_h * HOUR,
            window_end_s=now_s + end_s,
            reports_until_s=now_s + end_s + reporting_s,
            cohorts=cohorts,
            randomizer=spec(epsilon=epsilon),
            **({"records": ()} if empty else {}),
        )
        world.answers["/v1/head-lists/current"] = document.to_bytes()
        world.answers[f"/v1/head-lists/{document.id}"] = document.to_bytes()
        world.call(at_once=at_once)

    return show


@st.composite
def collecting_epochs(draw: st.DrawFn) -> Lie:
    epoch, length_h = draw(epochs), draw(hours)
    began, at_once = draw(st.sampled_from([-0.9, -0.5, 0.0])), draw(st.booleans())

    def collect(world: World) -> None:
        mode(opt_in=True)(world)
        search(world)
        start_s = int(world.clock.now_s + began * length_h * HOUR)
        end_s = start_s + length_h * HOUR
        times = {"window_start_s": start_s, "window_end_s": end_s}
        shown = {"epoch": epoch, "records_per_user": 3, "optin_until_s": 2 * end_s - start_s}
        world.answers["/v1/epochs"] = json.dumps({"collecting": {**shown, **times}}).encode()
        world.call(at_once=at_once)

    return collect


def passing(hours: int) -> Lie:
    def wait(world: World) -> None:
        world.clock.now_s += hours * HOUR
        world.call()

    return wait


def mode(opt_in: bool) -> Lie:
    def switch(world: World) -> None:
        world.opt_in = OptIn("sonja", "token") if opt_in else None
        world.start()

    return switch


def posts_are_answered(status: int) -> Lie:
    return lambda world: setattr(world, "status", status)


def search(world: World) -> None:
    world.client.record("weather", "https://weather.example/")


lies = st.lists(
    st.one_of(
        shown_lists(),
        collecting_epochs(),
        st.sampled_from([1, 5, 30]).map(passing),
        st.sampled_from([202, 503]).map(posts_are_answered),
    ),
    max_size=5,
)


@pytest.mark.more
@pytest.mark.parametrize(("own", "bound_s"), [(RICH, BOUND_S), (TIGHT, BOUND_S + TIGHT.period_s)])
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    told=lies,
    last=shown_lists() | collecting_epochs(),
    seed=st.integers(0, 2**32),
    first=st.sampled_from([-95, 0, 2_000]),
    stubborn=st.booleans(),
)
def test_a_device_answers_an_honest_server_soon_after_any_lies(
    own: Any, bound_s: int, told: list[Lie], last: Lie, seed: int, first: int, stubborn: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(folder, seed, own)
        for lie in (*told, last):
            lie(world)
        last_lie_s = world.clock.now_s

        world.honest_from, world.stubborn = first, stubborn
        first_day = int(-(-(last_lie_s + bound_s) // DAY))
        while world.clock.now_s < (first_day + 4) * DAY:
            search(world)
            world.clock.now_s = world.call()

        wanted = Mode.OPT_IN if world.opt_in else Mode.REPORT
        budget_entries = state_of(Path(folder)).budget_entries
        answered = {entry.window_start_s // DAY for entry in budget_entries if entry.mode is wanted}
        assert {first_day, first_day + 1} <= answered
