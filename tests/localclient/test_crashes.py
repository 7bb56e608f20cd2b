"""A device killed at every step of a report spends once and sends the same bytes.

Devices are real processes on a real disk and a real HTTP server; they die by SIGKILL. What is not
a failure: the server getting the same bytes twice (it counts them once), and a record lost because
the device died while it was being kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from blendstream.localclient.state import Mode
from tests.localclient.device_process import Devices
from tests.localclient.support import DAY, END, HOUR, START, UNTIL, Gateway, head_list, state_of

pytestmark = pytest.mark.faults

SEARCHES = [START + HOUR, START + 2 * HOUR, END + 1]
CALLS = [END + HOUR, UNTIL - 1]


@pytest.fixture
def devices() -> Iterator[Devices]:
    running = Devices.start()
    yield running
    running.stop()


def held_at(folder: Path) -> list[int]:
    """When the raw records still on the device were made."""
    kept = folder / "records"
    return [json.loads(x)[0] for x in kept.read_text().splitlines()] if kept.exists() else []


def test_a_device_killed_at_every_step_spends_once_and_sends_the_same_bytes(
    devices: Devices, gateway: Gateway, tmp_path: Path
) -> None:
    document = gateway.show(head_list())
    life = {"search_at": SEARCHES, "call_at": CALLS}
    sent_before: dict[int, list[bytes]] = {}
    step = 0
    while True:
        gateway.posted.clear()
        folder = tmp_path / str(step)
        ended = devices.live(server=gateway.url, folder=str(folder), die_at=step, **life)
        sent_before[step] = gateway.bodies[:]
        unsent = (folder / "state").exists() and state_of(folder).pending

        # Its next life, undisturbed; it does not search again.
        assert (
            devices.live(server=gateway.url, folder=str(folder), search_at=[], call_at=CALLS) == 0
        )

        assert len(set(gateway.bodies)) == 1, f"step {step} sent different bytes"
        assert set(sent_before[step]) <= set(gateway.bodies)
        assert json.loads(gateway.bodies[0])["head_list"] == document.id
        if unsent:
            assert gateway.bodies[-1] == unsent.body.encode()
        state = state_of(folder)
        assert [(c.mode, c.epoch, c.epsilon) for c in state.budget_entries] == [
            (Mode.REPORT, 7, 4.0)
        ]
        assert state.pending is None
        (sent,) = (entry.submission for entry in state.budget_entries)
        assert sent is not None
        assert sent.result == "sent"
        cells = [[cell for cell, _, _ in answer] for answer in sent.answers or ()]
        assert cells == json.loads(gateway.bodies[0])["answers"], f"step {step} shows others"
        assert all(at_s >= END for at_s in held_at(folder)), f"step {step} left raw records"
        if ended == 0:
            break
        assert ended == -9
        step += 1
    # Fewer would mean that some step is no longer one at which the test can kill.
    assert step > 30
    # The steps before the bytes were kept, between keeping and sending, and after sending were hit.
    assert {len(sent) for sent in sent_before.values()} == {0, 1}


def test_a_device_that_sends_before_it_writes_would_be_caught(
    devices: Devices, gateway: Gateway, tmp_path: Path
) -> None:
    """The tests here must be able to fail: this broken device sends two different reports."""
    gateway.show(head_list())
    for _ in range(2):
        life = {"server": gateway.url, "folder": str(tmp_path), "forgetful": True}
        assert devices.live(**life, search_at=[START + HOUR], call_at=CALLS) == 0
    assert len(set(gateway.bodies)) == 2


def test_a_device_that_keeps_dying_still_spends_once(
    devices: Devices, gateway: Gateway, tmp_path: Path
) -> None:
    """Killed at every step in turn, in one folder: each life gets a little further."""
    gateway.show(head_list())
    life = {"search_at": [START + HOUR], "call_at": CALLS}
    for step in range(60):
        ended = devices.live(server=gateway.url, folder=str(tmp_path), die_at=step, **life)
        assert ended in (0, -9)
    assert len(gateway.bodies) >= 1
    assert len(set(gateway.bodies)) == 1
    assert len(state_of(tmp_path).budget_entries) == 1


def test_an_opt_in_device_killed_at_every_step_sends_the_same_records_in_the_same_slots(
    devices: Devices, gateway: Gateway, tmp_path: Path
) -> None:
    gateway.collecting = {
        "epoch": 8,
        "window_start_s": START,
        "window_end_s": END,
        "optin_until_s": END + HOUR,
        "records_per_user": 2,
    }
    calls = [START + DAY // 2, END - 1]
    step = 0
    while True:
        gateway.posted.clear()
        folder = tmp_path / str(step)
        life = {"server": gateway.url, "folder": str(folder), "opt_in": True}
        ended = devices.live(**life, die_at=step, search_at=SEARCHES[:2], call_at=calls)
        assert devices.live(**life, search_at=[], call_at=calls) == 0
        assert len(set(gateway.bodies)) <= 1, f"step {step} sent different bytes"
        assert [c.mode for c in state_of(folder).budget_entries] == [Mode.OPT_IN]
        if ended == 0:
            break
        step += 1
    assert len(gateway.bodies) == 1
    assert step > 30


def test_a_window_is_never_answered_in_both_modes_whenever_the_mode_is_switched(
    devices: Devices, gateway: Gateway, tmp_path: Path, thorough: bool
) -> None:
    """Killed while opting in, then restarted as a device that reports.

    At every other step of those that the tests above take one by one; at each in `make chaos`.
    """
    gateway.show(head_list(8))
    gateway.collecting = {
        "epoch": 8,
        "window_start_s": START,
        "window_end_s": END,
        "optin_until_s": END + HOUR,
        "records_per_user": 1,
    }
    step, both = 0, 0
    while True:
        gateway.posted.clear()
        life = {"server": gateway.url, "folder": str(tmp_path / str(step))}
        ended = devices.live(
            **life,
            die_at=step,
            opt_in=True,
            search_at=SEARCHES[:2],
            call_at=[START + DAY // 2, END - 1],
        )
        before = len(gateway.posted)
        assert devices.live(**life, search_at=[], call_at=CALLS) == 0
        paths = {path for path, _, _ in gateway.posted}
        assert len(paths) <= 1, f"step {step} answered one window in both modes"
        # Once the person no longer opts in, nothing more goes out unrandomised.
        assert {path for path, _, _ in gateway.posted[before:]} <= {"/v1/reports"}
        both |= 1 if "/v1/reports" in paths else 2
        if ended == 0:
            break
        step += 1 if thorough else 2
    assert both == 3


def test_nothing_is_left_of_a_search_once_it_is_forgotten_wherever_the_device_was_killed(
    devices: Devices, gateway: Gateway, tmp_path: Path, thorough: bool
) -> None:
    """Killed while opting in, then opened by a person who no longer does and forgets all.

    A `state.new` that was written and not yet renamed once kept the search for good. At every
    other step; at each in `make chaos`.
    """
    gateway.collecting = {
        "epoch": 8,
        "window_start_s": START,
        "window_end_s": END,
        "optin_until_s": END + HOUR,
        "records_per_user": 1,
    }
    gateway.answers["/v1/optin-records"] = (503, {}, b"")
    step, unfinished = 0, 0
    while True:
        folder = tmp_path / str(step)
        life = {"server": gateway.url, "folder": str(folder)}
        calls = [START + DAY // 2, END - 1]
        ended = devices.live(
            **life, die_at=step, opt_in=True, search_at=SEARCHES[:2], call_at=calls
        )
        unfinished += any(b"weather" in path.read_bytes() for path in folder.glob("*.new"))
        assert devices.live(**life, search_at=[], call_at=[], forget=True) == 0
        found = [path.name for path in folder.iterdir() if b"weather" in path.read_bytes()]
        assert found == [], f"step {step} left a search"
        if ended == 0:
            break
        step += 1 if thorough else 2
    assert unfinished
