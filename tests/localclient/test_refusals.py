"""Hostile, changed or wrong head lists and clocks: refused clearly, nothing spent, nothing sent."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from blendstream.blender.values.cells import HeadList
from blendstream.blender.values.errors import ParameterError
from blendstream.localclient import (
    ClientRefused,
    ClockWrong,
    HeadListRefused,
    LimitReached,
    Limits,
    LocalClient,
    ResultCode,
)
from blendstream.localclient.search import PublishedResult
from blendstream.streams.wire.head_list_document import HeadListDocument
from tests.localclient.support import (
    DAY,
    END,
    HOUR,
    LISTED,
    UNTIL,
    Gateway,
    ManualClock,
    device,
    head_list,
    limits,
    spec,
    state_of,
)


def whole_records(name: str = "two-stage") -> HeadListDocument:
    heads = HeadList(LISTED, 3, spec(name=name, cells_per_answer=1), query_wildcards=False)
    return head_list(head_list=heads)


HOSTILE: dict[str, tuple[Callable[[], HeadListDocument], str]] = {
    "epsilon": (
        lambda: head_list(randomizer=spec(epsilon=4.1)),
        "within this device's epsilon_per_report=4.0, got 4.1",
    ),
    "delta": (
        lambda: head_list(randomizer=spec(delta=1e-4)),
        "within this device's delta_per_report=",
    ),
    "answers": (
        lambda: head_list(randomizer=spec(answers=5)),
        "within this device's max_answers=4, got 5",
    ),
    "width": (
        lambda: head_list(randomizer=spec(max_cells_per_answer=5000)),
        "within this device's max_cells_per_answer=1024, got 5000",
    ),
    "turns": (lambda: head_list(cohorts=367), "within this device's max_cohorts=366, got 367"),
    "newer text rules": (lambda: head_list(normalisation=3), "normalisation 2, which this client"),
    "older text rules": (lambda: head_list(normalisation=1), "normalisation 2, which this client"),
    "short window": (lambda: head_list(window_start_s=END - 60), "window of min_window_s=3600 to"),
    "long window": (
        lambda: head_list(window_start_s=END - 32 * DAY),
        "to max_window_s=2678400 seconds",
    ),
    "endless reporting": (lambda: head_list(reports_until_s=END + 5 * DAY), "within 4 windows"),
    "from the future": (
        lambda: head_list(shift_s=DAY),
        "a window that has ended, by clocks within max_clock_skew_s=900",
    ),
    "epoch": (lambda: head_list(epoch=1 << 40), "windows of min_window_s=3600 since 1970"),
    "unknown randomizer": (lambda: whole_records("tell-the-truth"), "must be one of"),
    "unfit randomizer": (whole_records, "needs cells with query wildcards"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_list_is_refused_and_costs_nothing(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, name: str
) -> None:
    make, wording = HOSTILE[name]
    gateway.show(make())
    client = device(gateway, tmp_path, clock)
    client.record(*LISTED[0])
    with pytest.raises(HeadListRefused, match=wording) as refused:
        client.report_now()
    assert gateway.posted == []
    assert state_of(tmp_path).budget_entries == ()
    assert client.status().records_held == 1
    assert "weather" not in str(refused.value)
    assert "tell-the-truth" not in str(refused.value)

    gateway.show(head_list())
    assert device(gateway, tmp_path, clock).report_now().code is ResultCode.SENT


def test_text_without_end_is_refused_at_once(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """A page may hand a device any text; composing this one would take minutes."""
    endless = "\u0315\u0300" * (1 << 17)
    began = time.process_time()
    recorded = device(gateway, tmp_path, clock).record(endless, "https://example.org/")
    assert recorded.code is ResultCode.TEXT_REFUSED
    assert "query must be at most 1024 bytes" in recorded.detail
    assert PublishedResult(1, "blend", {}, ()).search(endless) == []
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>log in to the hotel</html>",
        b"[" * 100_000,
        head_list().to_bytes() + b" ",
        head_list().to_bytes().replace(b'"epsilon":4.0', b'"epsilon":1e999'),
        head_list().to_bytes().replace(b'"epsilon":4.0', b'"epsilon":0.0'),
        head_list().to_bytes().replace(b'"delta":1e-05', b'"delta":-1e-05'),
        head_list().to_bytes().replace(b'"answers":1', b'"answers":0'),
        head_list().to_bytes().replace(b'_share":0.85', b'_share":1.5'),
    ],
)
def test_bytes_that_are_no_head_list_are_refused(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, body: bytes
) -> None:
    gateway.current = body
    with pytest.raises(HeadListRefused, match="malformed"):
        device(gateway, tmp_path, clock).report_now()
    assert state_of(tmp_path).budget_entries == ()


def test_two_lists_for_one_epoch_get_one_report(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """A server that shows each device a second list would double what it learns."""
    gateway.show(head_list())
    device(gateway, tmp_path, clock).report_now()
    gateway.show(head_list(records=LISTED[:2]))
    with pytest.raises(HeadListRefused, match="windows must not overlap"):
        device(gateway, tmp_path, clock).report_now()
    assert len(gateway.posted) == 1


def test_a_list_swapped_while_the_device_waits_is_refused(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    first = gateway.show(head_list())
    client = device(gateway, tmp_path, clock)
    clock.now_s = client.maybe_report().next_call_at_s
    gateway.lists[first.id] = gateway.show(head_list(records=LISTED[:1])).to_bytes()
    with pytest.raises(HeadListRefused, match="another hash"):
        client.maybe_report()
    assert gateway.posted == []
    assert state_of(tmp_path).budget_entries == ()


@pytest.mark.parametrize(
    ("document", "wording"),
    [
        (head_list(6, shift_s=-DAY, reports_until_s=UNTIL + DAY), "windows must not overlap"),
        (head_list(8, shift_s=DAY - 1), "windows must not overlap"),
        (head_list(8, reports_until_s=UNTIL + DAY), "windows must not overlap"),
        (head_list(10**15, shift_s=DAY), "at most 2449 windows"),
    ],
)
def test_a_window_answered_once_is_not_answered_again_under_another_name(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, document: HeadListDocument, wording: str
) -> None:
    gateway.show(head_list())
    client = device(gateway, tmp_path, clock)
    client.report_now()
    clock.now_s += DAY
    gateway.show(document)
    with pytest.raises(HeadListRefused, match=wording):
        client.report_now()
    assert len(gateway.posted) == 1


def test_the_limit_of_the_period_holds_and_says_when_it_frees(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    own = limits(epsilon_per_period=8.0, period_s=10 * DAY)
    client = device(gateway, tmp_path, clock, own=own)
    first_s = clock.now_s
    for day in range(2):
        gateway.show(head_list(7 + day, shift_s=day * DAY))
        clock.now_s = first_s + day * DAY
        assert client.report_now().code is ResultCode.SENT
    gateway.show(head_list(9, shift_s=2 * DAY))
    clock.now_s = first_s + 2 * DAY
    with pytest.raises(LimitReached, match=r"would make it epsilon=12\.0") as refused:
        client.report_now()
    assert refused.value.free_at_s == first_s + 10 * DAY
    assert client.status().epsilon_spent == 8.0

    gateway.show(head_list(16, shift_s=10 * DAY))
    clock.now_s = first_s + 10 * DAY
    assert client.report_now().code is ResultCode.SENT


def test_a_period_shortened_and_lengthened_again_still_finds_what_was_spent(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """An update of the application must not be a new budget."""
    first_s = clock.now_s
    for day, period_s in ((0, 30 * DAY), (2, DAY)):
        gateway.show(head_list(7 + day, shift_s=day * DAY))
        clock.now_s = first_s + day * DAY
        own = limits(epsilon_per_period=4.0, period_s=period_s)
        assert device(gateway, tmp_path, clock, own=own).report_now().code is ResultCode.SENT
    gateway.show(head_list(11, shift_s=4 * DAY))
    clock.now_s = first_s + 4 * DAY
    own = limits(epsilon_per_period=11.0, period_s=30 * DAY)
    with pytest.raises(LimitReached, match=r"would make it epsilon=12\.0"):
        device(gateway, tmp_path, clock, own=own).report_now()


def test_changing_the_number_of_cohorts_buys_a_server_nothing_beyond_the_limit(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """It gets one report a window at most, as it could with R = 1, and meets the budget."""
    own = limits(epsilon_per_period=12.0, period_s=365 * DAY)
    client = device(gateway, tmp_path, clock, own=own)
    first_s = clock.now_s
    limited = 0
    for day in range(20):
        clock.now_s = first_s + day * DAY
        before = len(gateway.posted)
        for cohorts in (2, 3, 2, 3, 2, 3):
            gateway.show(head_list(7 + day, shift_s=day * DAY, cohorts=cohorts))
            try:
                client.report_now()
            except LimitReached:
                limited += 1
            except HeadListRefused:  # the epoch was answered, and this is another list for it
                assert len(gateway.posted) == before + 1
        assert len(gateway.posted) - before <= 1
    assert len(gateway.posted) == 3
    assert limited


@pytest.mark.parametrize("off_s", [-DAY, -901, 901, 400 * DAY])
def test_a_clock_that_disagrees_with_the_servers_is_refused(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, off_s: int
) -> None:
    gateway.show(head_list())
    gateway.date_s = clock.now_s - off_s
    with pytest.raises(ClockWrong, match="must be within 900 s of the server's"):
        device(gateway, tmp_path, clock).report_now()
    assert gateway.posted == []
    assert state_of(tmp_path).budget_entries == ()

    gateway.date_s = clock.now_s
    assert device(gateway, tmp_path, clock).report_now().code is ResultCode.SENT


def test_a_clock_set_back_is_refused(gateway: Gateway, tmp_path: Path, clock: ManualClock) -> None:
    """A period that could be run through twice would be a budget that could be spent twice."""
    gateway.show(head_list())
    client = device(gateway, tmp_path, clock)
    client.report_now()
    gateway.show(
        head_list(8, window_start_s=END, window_end_s=END + HOUR, reports_until_s=END + 4 * HOUR)
    )
    clock.now_s = END + HOUR - 600
    with pytest.raises(ClockWrong, match="must not run backwards"):
        client.report_now()


def test_a_list_whose_time_is_over_is_left_alone(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    gateway.show(head_list())
    clock.now_s = UNTIL
    outcome = device(gateway, tmp_path, clock).report_now()
    assert outcome.code is ResultCode.NOTHING_NEW
    assert gateway.posted == []


@pytest.mark.parametrize(
    "server",
    [
        "http://gateway.example",
        "ftp://gateway.example",
        "gateway.example",
        "https://",
        "https://a/?b",
    ],
)
def test_only_encrypted_connections_leave_the_machine(tmp_path: Path, server: str) -> None:
    with pytest.raises(ParameterError, match="must be an https"):
        LocalClient(server, tmp_path, limits())


def test_limits_must_be_chosen() -> None:
    """A default budget would be nobody's decision."""
    with pytest.raises(TypeError, match="epsilon_per_period"):
        Limits(epsilon_per_report=4.0, delta_per_report=0.0)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon_per_report": 0.0},
        {"epsilon_per_report": float("inf")},
        {"epsilon_per_period": float("nan")},
        {"epsilon_per_period": 3.9},
        {"delta_per_report": 1.0},
        {"delta_per_period": -1e-9},
        {"delta_per_period": 1e-6},
        {"period_s": 0},
        {"max_answers": 1.5},
        {"min_window_s": 10**9},
    ],
)
def test_limits_that_limit_nothing_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(ParameterError):
        limits(**change)


def test_no_refusal_quotes_a_record_or_the_server(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Errors and logs leave the device in crash reports."""
    caplog.set_level(0)
    secret = "zq-secret"
    said = []
    client = device(gateway, tmp_path, clock)
    client.record(secret, f"https://{secret}.example/")
    for record in ((secret, ""), ("", secret), (secret * 90, secret), (secret + "\x00", secret)):
        recorded = client.record(*record)
        assert recorded.code is ResultCode.TEXT_REFUSED
        said.append(repr(recorded))
    body = json.loads(head_list().to_bytes())
    for broken in (
        {**body, "schema": secret},
        {**body, "randomizer": {**body["randomizer"], "name": secret}},
        {**body, "records": [[secret, secret], [secret, secret]]},
        {**body, secret: secret},
        {**body, "epoch": secret},
    ):
        text = json.dumps(broken, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        gateway.current = text.encode()
        with pytest.raises(ClientRefused) as hostile:
            device(gateway, tmp_path / "other", clock).report_now()
        said.append(repr(hostile.value))
    said += [repr(client), str(client.status()), repr(client.report_now)]
    assert secret not in " ".join(said)
    assert secret not in caplog.text
