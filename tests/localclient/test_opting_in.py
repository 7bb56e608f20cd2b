"""Opt-in mode: m_O records as they are, in fixed slots, and never a report on the same window."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from blendstream.blender.values.errors import ParameterError
from blendstream.localclient import HeadListRefused, OptIn, ResultCode
from blendstream.localclient.state import Mode
from tests.localclient.collecting_epochs import WHO, collecting, opted_in
from tests.localclient.support import (
    DAY,
    END,
    HOUR,
    LISTED,
    START,
    Gateway,
    ManualClock,
    device,
    head_list,
    limits,
    state_of,
)


def test_records_go_out_late_in_the_window_with_the_token(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    gateway.collecting = collecting()
    clock.now_s = START + HOUR
    client = opted_in(gateway, tmp_path, clock)
    for record in LISTED:
        client.record(*record)
    waiting = client.maybe_report()
    assert waiting.code is ResultCode.WAITING
    assert END - DAY // 4 <= waiting.next_call_at_s < END

    clock.now_s = waiting.next_call_at_s
    assert client.maybe_report().code is ResultCode.SENT
    ((path, body, headers),) = gateway.posted
    entries = json.loads(body)
    assert path == "/v1/optin-records"
    assert headers["authorization"] == "Bearer application-token"
    assert [entry["slot"] for entry in entries] == [0, 1]
    assert {entry["user_id"] for entry in entries} == {"sonja@example"}
    assert {entry["epoch"] for entry in entries} == {8}
    assert {(entry["query"], entry["url"]) for entry in entries} < set(LISTED)
    assert client.status().records_held == 0


def test_each_record_is_as_likely_as_any_other_and_none_goes_twice(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """Slot 0 is a search drawn at random: searched three times, three times as likely.

    That draws are fair is shown by enumeration elsewhere; here, that slots follow the draw.
    24 devices with fixed seeds; 3/4 against 1/4, 4 standard errors: one seed in 16 000 would fail.
    """
    gateway.collecting = collecting()
    first: Counter[str] = Counter()
    for seed in range(24):
        clock.now_s = START + HOUR
        client = opted_in(gateway, tmp_path / str(seed), clock, seed)
        for record in (LISTED[0], LISTED[0], LISTED[0], LISTED[2]):
            client.record(*record)
        client.report_now()
    for body in gateway.bodies:
        entries = json.loads(body)
        assert {(entry["query"], entry["url"]) for entry in entries} == {LISTED[0], LISTED[2]}
        first[entries[0]["query"]] += 1
    assert abs(first["weather"] - 18) <= 4 * (24 * 0.75 * 0.25) ** 0.5


@pytest.mark.parametrize(("status", "body"), [(503, b""), (401, b""), (202, None)])
def test_a_retry_repeats_epoch_slots_and_bytes(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, status: int, body: bytes | None
) -> None:
    """Also when only some of a batch was accepted: the server counts a slot once."""
    gateway.collecting = collecting()
    clock.now_s = START + HOUR
    client = opted_in(gateway, tmp_path, clock)
    for record in LISTED:
        client.record(*record)
    mixed = b'{"verdicts":[{"status":"accepted"},{"status":"retry","reason":"busy"}]}'
    gateway.answers["/v1/optin-records"] = (status, {}, mixed if body is None else body)
    outcome = client.report_now()
    assert outcome.code is ResultCode.TRY_LATER
    assert ("token" in outcome.detail) == (status == 401)
    gateway.answers.clear()
    assert opted_in(gateway, tmp_path, clock, seed=9).report_now().code is ResultCode.SENT
    assert len(gateway.bodies) == 2
    assert len(set(gateway.bodies)) == 1


REFUSED = "a user's token must not have expired, and this one has; get a new one"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (REFUSED, True),
        ("your search for Weather was seen", False),
        ("the token application-token of someone", False),
        ("two\nlines", False),
        ("long" * 100, False),
        (7, False),
    ],
)
def test_the_gateways_sentence_about_a_token_is_passed_on(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, said: object, shown: bool
) -> None:
    """It says what to do; a sentence that repeats a search or the token does not reach a log."""
    gateway.collecting = collecting()
    clock.now_s = START + HOUR
    client = opted_in(gateway, tmp_path, clock)
    client.record("weather", "https://weather.example/")
    problem = {"content-type": "application/problem+json"}
    body = json.dumps({"detail": said}).encode()
    gateway.answers["/v1/optin-records"] = (401, problem, body)
    outcome = client.report_now()

    assert outcome.code is ResultCode.TRY_LATER
    assert (f'The gateway says: "{said}"' in outcome.detail) == shown
    assert "check the application's token" in outcome.detail
    gateway.answers["/v1/optin-records"] = (401, {}, body)
    clock.now_s += DAY // 2
    assert "says" not in client.report_now().detail


def test_records_of_another_cohort_leave_the_device_once_and_are_dropped(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """The server told that it wants none of them: sending them again would only expose them."""
    gateway.collecting = collecting()
    clock.now_s = START + HOUR
    client = opted_in(gateway, tmp_path, clock)
    for record in LISTED:
        client.record(*record)
    refused = b'{"verdicts":[%s]}' % b",".join(
        [b'{"status":"refused","reason":"other_cohort"}'] * 2
    )
    gateway.answers["/v1/optin-records"] = (200, {"content-type": "application/json"}, refused)
    outcome = client.report_now()
    assert outcome.code is ResultCode.NOTHING_NEW
    assert "cohort takes part in another epoch" in outcome.detail
    state = state_of(tmp_path)
    assert (len(state.budget_entries), state.pending) == (1, None)
    assert b"weather" not in b"".join(p.read_bytes() for p in tmp_path.iterdir())

    for later_s in range(4):
        clock.now_s += HOUR * later_s
        assert opted_in(gateway, tmp_path, clock).report_now().code is ResultCode.NOTHING_NEW
    assert len(gateway.posted) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"<html>log in to the hotel</html>",
        b"{}",
        b'{"verdicts":[]}',
        b'{"verdicts":[{"status":"retry"},{"status":"refused","reason":"other_cohort"}]}',
    ],
)
def test_a_200_that_settles_nothing_is_not_taken_for_an_answer(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, body: bytes
) -> None:
    """Else a hotel's login page would take a person's records for ever."""
    gateway.collecting = collecting()
    clock.now_s = START + HOUR
    client = opted_in(gateway, tmp_path, clock)
    client.record(*LISTED[0])
    gateway.answers["/v1/optin-records"] = (200, {}, body)
    assert client.report_now().code is ResultCode.TRY_LATER
    gateway.answers.clear()
    assert client.report_now().code is ResultCode.SENT
    assert len(set(gateway.bodies)) == 1


def test_a_window_sent_is_not_reported_on(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    gateway.collecting = collecting()
    clock.now_s = START + HOUR
    client = opted_in(gateway, tmp_path, clock)
    client.record(*LISTED[0])
    assert client.report_now().code is ResultCode.SENT
    client.record(*LISTED[1])  # later in the same window

    gateway.show(head_list(8))
    clock.now_s = END + HOUR
    assert device(gateway, tmp_path, clock).report_now().code is ResultCode.NOTHING_NEW
    assert len(gateway.posted) == 1

    gateway.show(head_list(9, shift_s=DAY))
    clock.now_s += DAY
    assert device(gateway, tmp_path, clock).report_now().code is ResultCode.SENT
    assert [entry.mode for entry in state_of(tmp_path).budget_entries] == [Mode.OPT_IN, Mode.REPORT]


def test_a_window_reported_on_is_not_sent(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """A server that collects the same window again, under a new number, gets nothing."""
    gateway.show(head_list())
    device(gateway, tmp_path, clock).report_now()
    gateway.collecting = collecting(optin_until_s=END + 2 * HOUR)
    with pytest.raises(HeadListRefused, match="windows must not overlap"):
        opted_in(gateway, tmp_path, clock).report_now()
    assert len(gateway.posted) == 1


def test_no_longer_opting_in_keeps_unsent_records_on_the_device(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """What a person chose to send yesterday is not sent once they chose otherwise."""
    gateway.collecting = collecting()
    clock.now_s = START + HOUR
    client = opted_in(gateway, tmp_path, clock)
    client.record(*LISTED[0])
    gateway.answers["/v1/optin-records"] = (503, {}, b"")
    client.report_now()
    gateway.answers.clear()
    gateway.posted.clear()

    device(gateway, tmp_path, clock).report_now()
    assert gateway.posted == []
    assert state_of(tmp_path).pending is None
    assert b"weather" not in b"".join(p.read_bytes() for p in tmp_path.iterdir())


def test_forgetting_takes_back_what_was_not_sent_and_not_what_was_spent(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    gateway.collecting = collecting()
    clock.now_s = START + HOUR
    client = opted_in(gateway, tmp_path, clock)
    client.record(*LISTED[0])
    gateway.answers["/v1/optin-records"] = (503, {}, b"")
    client.report_now()
    client.record(*LISTED[1])
    client.forget()
    assert client.status().records_held == 0
    assert client.status().unsent_epoch is None
    assert client.status().windows_answered == 1
    assert b"weather" not in b"".join(p.read_bytes() for p in tmp_path.iterdir())


def test_records_wait_for_a_server_no_longer_than_records_are_kept(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """A server that answers 503 for weeks would otherwise keep them on the disk for as long."""
    month = {"window_end_s": START + 31 * DAY, "optin_until_s": START + 61 * DAY}
    gateway.collecting = collecting(**month)
    clock.now_s = START + 30 * DAY
    client = opted_in(gateway, tmp_path, clock)
    client.record(*LISTED[0])
    gateway.answers["/v1/optin-records"] = (503, {}, b"")
    assert client.report_now().code is ResultCode.TRY_LATER
    clock.now_s = START + limits().keep_records_s
    assert client.report_now().code is ResultCode.EXPIRED
    assert b"weather" not in b"".join(p.read_bytes() for p in tmp_path.iterdir())


def test_a_person_without_searches_takes_part_and_says_so_once(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """Silence would tell everyone who reads the number of participants that there was none."""
    gateway.collecting = collecting()
    clock.now_s = START + HOUR
    client = opted_in(gateway, tmp_path, clock)
    gateway.answers["/v1/optin-records"] = (503, {}, b"")
    assert client.report_now().code is ResultCode.TRY_LATER
    client.record(*LISTED[0])  # After the window was answered: it stays on the device.
    gateway.answers.clear()
    assert client.report_now().code is ResultCode.SENT
    [entry] = json.loads(gateway.bodies[0])
    said = {"slot": 0, "query": None, "url": None}
    assert entry == {"user_id": "sonja@example", "epoch": 8, **said}
    assert gateway.bodies == [gateway.bodies[0]] * 2
    assert opted_in(gateway, tmp_path, clock).report_now().code is ResultCode.NOTHING_NEW


@pytest.mark.parametrize(
    ("epoch", "wording"),
    [
        (collecting(records_per_user=11), "within this device's max_optin_records=10, got 11"),
        (collecting(window_start_s=END - 60), "window of min_window_s=3600 to"),
        (
            collecting(
                window_start_s=END + DAY, window_end_s=END + 2 * DAY, optin_until_s=END + 2 * DAY
            ),
            "collecting now",
        ),
        (collecting(optin_until_s=END + DAY + 1), "at most as long as its window"),
        (collecting(window_end_s=START, optin_until_s=START), "malformed"),
    ],
)
def test_a_hostile_epoch_is_refused(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, epoch: dict[str, int], wording: str
) -> None:
    gateway.collecting = epoch
    clock.now_s = END - 30
    client = opted_in(gateway, tmp_path, clock)
    client.record(*LISTED[0])
    with pytest.raises(HeadListRefused, match=wording):
        client.report_now()
    assert gateway.posted == []
    assert client.status().records_held == 1


def test_a_token_may_be_fetched_for_each_sending(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """A device that people install holds no secret: its tokens last an hour, its records a day."""
    gateway.collecting = collecting()
    clock.now_s = START + HOUR
    minted: list[object] = [RuntimeError("the backend is away"), "", None, "first", "second"]

    def fetch() -> str:
        found = minted.pop(0)
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[return-value]

    client = device(gateway, tmp_path, clock, opt_in=OptIn("sonja", fetch))
    client.record(*LISTED[0])
    for _ in range(3):
        outcome = client.report_now()
        assert outcome.code is ResultCode.TRY_LATER
        assert "no token" in outcome.detail
    assert gateway.posted == []
    gateway.answers["/v1/optin-records"] = (401, {}, b"")
    assert client.report_now().code is ResultCode.TRY_LATER
    gateway.answers.clear()
    assert client.report_now().code is ResultCode.SENT

    sent = [headers["authorization"] for _, _, headers in gateway.posted]
    assert sent == ["Bearer first", "Bearer second"]
    assert len(set(gateway.bodies)) == 1


def test_who_opts_in_is_never_printed(tmp_path: Path) -> None:
    assert "sonja" not in repr(WHO)
    assert "token" not in repr(WHO)
    for nobody in ("", "s" * 257, "so\ud800nja"):
        with pytest.raises(ParameterError, match="user_id must be"):
            OptIn(nobody, "token")
    with pytest.raises(ParameterError, match="printable ASCII"):
        OptIn("sonja", "line\nbreak")
    assert limits().max_optin_records == 10
