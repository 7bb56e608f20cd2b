"""Whatever a server does, a device spends within its limits and answers each window once.

Random operations: search, call, restart, switch the mode, let time pass or jump back, show honest
and hostile head lists and epochs, fail requests. Not a failure: a device that refuses, waits or
falls silent; the same bytes sent twice; searches lost when a window passes.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from blendstream.blender.values.errors import BlenderError
from blendstream.localclient import LocalClient, OptIn
from blendstream.localclient.local_client import _Parts
from blendstream.streams.wire.head_list_document import HeadListDocument
from tests.localclient.support import (
    DAY,
    HOUR,
    ManualClock,
    SeededDice,
    UnsyncedFiles,
    head_list,
    limits,
    spec,
)

SECRET = "zq-secret"
#: The highest that time allows when the test begins, the next, and the highest of all.
EPOCHS = (2_400, 2_401, 2**53 - 1)
OWN = limits(epsilon_per_period=9.0, delta_per_period=4e-5, period_s=5 * DAY)


class HostileServer(RuleBasedStateMachine):
    """One device, one server that may do anything."""

    own = OWN

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.dice = SeededDice(seed)
        self.clock = ManualClock(100 * DAY)
        self.mode: OptIn | None = None
        self.answers: dict[str, bytes] = {}
        #: Window and ε of every list shown, by its id.
        self.windows: dict[str, tuple[int, int, float]] = {}
        self.day = 100
        self.status = 202
        #: When each scheduled_send was first seen on the disk.
        self.drawn_s: dict[str, float] = {}
        #: (time, path, body) of every post that reached the server.
        self.posted: list[tuple[float, str, bytes]] = []
        self.restart()

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()

    def handle(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if request.method == "POST":
            self.posted.append((self.clock.now_s, path, request.content))
            return httpx.Response(self.status, content=iter([b""]))
        if path in self.answers:
            return httpx.Response(200, content=iter([self.answers[path]]))
        return httpx.Response(404, content=iter([b""]))

    @rule()
    def restart(self) -> None:
        self.client = LocalClient(
            "https://gateway.example",
            self.folder.name,
            self.own,
            opt_in=self.mode,
            http=lambda: httpx.Client(transport=httpx.MockTransport(self.handle), verify=False),
            _parts=_Parts(self.clock, self.dice, UnsyncedFiles),
        )

    @rule(opt_in=st.booleans())
    def switch_mode(self, opt_in: bool) -> None:
        self.mode = OptIn("sonja", "token") if opt_in else None
        self.restart()

    @rule(searches=st.integers(1, 3))
    def search(self, searches: int) -> None:
        for _ in range(searches):
            self.client.record(f"{SECRET} {self.dice.below(5)}", "https://a.example/")

    @rule(hours=st.integers(1, 40))
    def let_time_pass(self, hours: int) -> None:
        self.clock.now_s += hours * HOUR

    @rule(hours=st.integers(1, 200))
    def set_the_clock_back(self, hours: int) -> None:
        self.clock.now_s -= hours * HOUR

    @rule(status=st.sampled_from([202, 202, 202, 503, 422, 401]))
    def answer_posts_with(self, status: int) -> None:
        self.status = status

    @rule(
        epoch=st.integers(0, 30) | st.sampled_from(EPOCHS),
        start_h=st.integers(-60, 0) | st.just(-31 * 24),
        length_h=st.integers(1, 48) | st.just(31 * 24),
        reporting_h=st.integers(0, 60) | st.just(4 * 31 * 24),
        epsilon=st.sampled_from([0.5, 2.0, 4.0, 4.5]),
        cohorts=st.integers(1, 3),
        answers=st.integers(1, 5),
    )
    def show_a_list(
        self,
        epoch: int,
        start_h: int,
        length_h: int,
        reporting_h: int,
        epsilon: float,
        cohorts: int,
        answers: int,
    ) -> None:
        start_s = int(self.clock.now_s) + start_h * HOUR
        document = head_list(
            epoch,
            window_start_s=start_s,
            window_end_s=start_s + length_h * HOUR,
            reports_until_s=start_s + (length_h + reporting_h) * HOUR,
            cohorts=cohorts,
            randomizer=spec(epsilon=epsilon, answers=answers),
        )
        self.show(document)

    def show(self, document: HeadListDocument) -> None:
        self.answers["/v1/head-lists/current"] = document.to_bytes()
        self.answers[f"/v1/head-lists/{document.id}"] = document.to_bytes()
        self.windows[document.id] = (
            document.window_start_s,
            document.window_end_s,
            document.head_list.randomizer.epsilon,
        )

    @rule(days=st.integers(1, 4), epsilon=st.sampled_from([2.0, 4.0]))
    def live_honest_days(self, days: int, epsilon: float) -> None:
        """Without these, nearly everything shown would be refused and nothing put to the test."""
        self.switch_mode(opt_in=False)
        for _ in range(days):
            self.day += 1
            self.clock.now_s = max(self.clock.now_s, self.day * DAY + HOUR)
            self.day = int(self.clock.now_s) // DAY
            document = head_list(
                self.day - 100,
                window_start_s=(self.day - 1) * DAY,
                window_end_s=self.day * DAY,
                reports_until_s=(self.day + 1) * DAY,
                randomizer=spec(epsilon=epsilon),
            )
            self.show(document)
            self.call(at_once=True)

    @rule(
        epoch=st.integers(0, 30) | st.sampled_from(EPOCHS),
        start_h=st.integers(-60, 0) | st.just(-31 * 24),
        length_h=st.integers(1, 48) | st.just(31 * 24),
        records=st.integers(1, 12),
    )
    def collect(self, epoch: int, start_h: int, length_h: int, records: int) -> None:
        start_s = int(self.clock.now_s) + start_h * HOUR
        collecting = {
            "epoch": epoch,
            "window_start_s": start_s,
            "window_end_s": start_s + length_h * HOUR,
            "optin_until_s": start_s + (length_h + 2) * HOUR,
            "records_per_user": records,
        }
        self.answers["/v1/epochs"] = json.dumps({"collecting": collecting}).encode()

    @rule(at_once=st.booleans())
    def call(self, at_once: bool) -> None:
        before = len(self.posted)
        try:
            self.client.report_now() if at_once else self.client.maybe_report()
        except BlenderError as refusal:
            quoted = SECRET in str(refusal)
            assert not quoted
            assert len(self.posted) == before, "a refusal must not have sent anything"

    @invariant()
    def every_list_got_one_body_and_every_entry_at_most_one(self) -> None:
        reports: dict[str, set[bytes]] = {}
        sent_as_they_are: set[bytes] = set()
        for _, path, body in getattr(self, "posted", []):
            if path == "/v1/reports":
                reports.setdefault(json.loads(body)["head_list"], set()).add(body)
            else:
                sent_as_they_are.add(body)
        assert all(len(distinct) == 1 for distinct in reports.values())
        modes = [entry["mode"] for entry in self.budget_entries()]
        assert len(reports) <= modes.count("report")
        assert len(sent_as_they_are) <= modes.count("opt-in")

    @invariant()
    def reports_stay_within_the_budget_of_every_period_and_windows_apart(self) -> None:
        first: dict[bytes, tuple[float, str]] = {}
        for at_s, path, body in getattr(self, "posted", []):
            if path == "/v1/reports":
                assert SECRET.encode() not in body
                first.setdefault(body, (at_s, json.loads(body)["head_list"]))
        reports = [(at_s, *self.windows[name]) for at_s, name in first.values()]
        for now_s, *_ in reports:
            recent = [e for at_s, _, _, e in reports if now_s - OWN.period_s < at_s <= now_s]
            assert sum(recent) <= OWN.epsilon_per_period
        ordered = sorted((start_s, end_s) for _, start_s, end_s, _ in reports)
        assert all(a[1] <= b[0] for a, b in pairwise(ordered))

    def budget_entries(self) -> list[dict[str, Any]]:
        if not hasattr(self, "folder"):
            return []
        body = (Path(self.folder.name) / "state").read_bytes().split(b"\n", 1)[1]
        budget_entries: list[dict[str, Any]] = json.loads(body)["budget_entries"]
        return budget_entries

    @invariant()
    def what_is_on_disk_says_so_too(self) -> None:
        for one, other in pairwise(self.budget_entries()):
            assert one["window_end_s"] <= other["window_start_s"], "a window was answered twice"
            assert one["at_s"] <= other["at_s"]

    @invariant()
    def no_entry_and_no_scheduled_send_reaches_far_ahead(self) -> None:
        """Each held the device for as long as a server said, which was months."""
        if not hasattr(self, "folder"):
            return
        body = (Path(self.folder.name) / "state").read_bytes().split(b"\n", 1)[1]
        state = json.loads(body)
        for entry in state["budget_entries"]:
            ahead_s = entry["window_end_s"] - entry["at_s"]
            assert ahead_s <= OWN.max_clock_skew_s + 1
        if state["scheduled_send"]:
            drawn_s = self.drawn_s.setdefault(json.dumps(state["scheduled_send"]), self.clock.now_s)
            assert state["scheduled_send"]["send_at_s"] <= drawn_s + OWN.max_wait_s


class SpendsTooMuch(HostileServer):
    """A device whose limits are not the ones it was given."""

    own = replace(OWN, epsilon_per_period=10.0)


MANY = settings(max_examples=25, stateful_step_count=40, deadline=None, derandomize=True)
HostileServer.TestCase.settings = MANY
TestHostileServer = HostileServer.TestCase


def test_a_device_that_spends_a_little_too_much_would_be_caught() -> None:
    """The machine above must be able to fail."""
    found = settings(MANY, phases=[Phase.generate], report_multiple_bugs=False, print_blob=False)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(SpendsTooMuch, settings=found)
