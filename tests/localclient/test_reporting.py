"""A report from the first look to the server's 202: once, at a random time, in the same bytes."""

from __future__ import annotations

import json
from collections import Counter
from itertools import product
from pathlib import Path

import pytest

from blendstream.blender.values.record import Record
from blendstream.localclient import AsyncLocalClient, HeadListRefused, LocalClient, ResultCode
from blendstream.localclient.local_client import _Parts
from blendstream.localclient.state import Mode
from blendstream.localclient.store import draw_for_answers, shuffled
from tests.doubles import ScriptedDice
from tests.localclient.support import (
    DAY,
    END,
    HOUR,
    LISTED,
    START,
    UNTIL,
    Gateway,
    ManualClock,
    SeededDice,
    device,
    head_list,
    limits,
    spec,
    state_of,
)


def searching(client: LocalClient, clock: ManualClock, *records: Record) -> None:
    """Search in the middle of the window, then let it end."""
    now_s, clock.now_s = clock.now_s, START + DAY // 2
    for record in records:
        client.record(*record)
    clock.now_s = now_s


def test_a_device_waits_for_its_time_then_reports_once(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    document = gateway.show(head_list())
    client = device(gateway, tmp_path, clock)
    searching(client, clock, LISTED[0])

    waiting = client.maybe_report()
    assert waiting.code is ResultCode.WAITING
    assert clock.now_s <= waiting.next_call_at_s < UNTIL
    assert gateway.posted == []

    clock.now_s = waiting.next_call_at_s
    assert client.maybe_report().code is ResultCode.SENT
    clock.now_s += 2 * HOUR
    assert client.maybe_report().code is ResultCode.NOTHING_NEW

    ((path, body, headers),) = gateway.posted
    report = json.loads(body)
    assert path == "/v1/reports"
    assert report["head_list"] == document.id
    assert len(bytes.fromhex(report["contributor"])) == 16
    assert [len(answer) for answer in report["answers"]] == [1]
    assert "cookie" not in {name.lower() for name in headers}
    assert "authorization" not in {name.lower() for name in headers}
    (entry,) = state_of(tmp_path).budget_entries
    assert (entry.mode, entry.epoch, entry.epsilon) == (Mode.REPORT, 7, 4.0)


def test_the_raw_records_of_an_answered_window_are_gone_and_later_ones_stay(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """What was used once must not be there to be used, or found, again."""
    gateway.show(head_list())
    client = device(gateway, tmp_path, clock)
    searching(client, clock, *LISTED)
    client.record("later", "https://later.example/")

    assert client.report_now().code is ResultCode.SENT

    kept = (tmp_path / "records").read_text()
    assert "weather" not in kept
    assert "later" in kept
    assert client.status().records_held == 1


def test_a_device_without_records_does_exactly_what_one_with_records_does(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """Silence, another time or another length would tell the server who searched."""
    gateway.show(head_list(randomizer=spec(answers=3)))
    outcomes, asked = [], []
    for name, held in (("idle", ()), ("busy", LISTED * 5)):
        clock.now_s = END + HOUR
        client = device(gateway, tmp_path / name, clock)
        searching(client, clock, *held)
        waiting = client.maybe_report()
        clock.now_s = waiting.next_call_at_s
        outcomes.append((waiting, client.maybe_report().code))
        asked.append([path for path, _ in gateway.asked])
        gateway.asked.clear()

    assert outcomes[0] == outcomes[1]
    assert asked[0] == asked[1]
    idle, busy = (json.loads(body) for body in gateway.bodies)
    assert len(idle["answers"]) == len(busy["answers"]) == 3


def test_a_restart_keeps_the_drawn_time(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """A device that drew again at each start would report earlier the more it is used."""
    gateway.show(head_list())
    drawn = {
        device(gateway, tmp_path, clock, seed=s).maybe_report().next_call_at_s for s in range(5)
    }
    assert len(drawn) == 1


def test_drawn_times_cover_the_reporting_window(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    gateway.show(head_list())
    times = [
        device(gateway, tmp_path / str(s), clock, seed=s).maybe_report().next_call_at_s
        for s in range(40)
    ]
    span = UNTIL - clock.now_s
    assert min(times) < clock.now_s + span * 0.2
    assert max(times) > clock.now_s + span * 0.7


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (503, {"retry-after": "7"}),
        (500, {}),
        (429, {}),
        (302, {"location": "/elsewhere"}),
        (403, {}),
    ],
)
def test_a_retry_sends_the_same_bytes(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, status: int, headers: dict[str, str]
) -> None:
    """Randomising again would let a server average the noise away by answering 503."""
    gateway.show(head_list())
    gateway.answers["/v1/reports"] = (status, headers, b"<html>log in to the hotel</html>")
    client = device(gateway, tmp_path, clock)
    searching(client, clock, LISTED[0])
    assert client.report_now().code is ResultCode.TRY_LATER
    for attempt in range(4):
        clock.now_s = device(gateway, tmp_path, clock, seed=attempt).maybe_report().next_call_at_s
    gateway.answers.clear()

    assert device(gateway, tmp_path, clock, seed=99).maybe_report().code is ResultCode.SENT
    assert len(gateway.posted) == 6
    assert len(set(gateway.bodies)) == 1
    assert len(state_of(tmp_path).budget_entries) == 1


def test_pauses_grow_and_retry_after_is_heeded(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    gateway.show(head_list())
    gateway.answers["/v1/reports"] = (503, {"retry-after": "1800"}, b"")
    client = device(gateway, tmp_path, clock)
    assert client.report_now().next_call_at_s == clock.now_s + 1800

    gateway.answers["/v1/reports"] = (503, {}, b"")
    pauses = []
    for _ in range(12):
        outcome = client.report_now()
        pauses.append(outcome.next_call_at_s - clock.now_s)
    assert pauses[0] <= 60
    assert 1800 <= pauses[-1] <= 3600


def test_asking_often_does_not_ask_the_server_often(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """An application may call on every tick; the server must not be able to tell."""
    client = device(gateway, tmp_path, clock)
    for _ in range(50):
        assert client.maybe_report().code is ResultCode.NOTHING_NEW
    assert len(gateway.asked) == 1

    gateway.show(head_list(randomizer=spec(epsilon=9.0)))
    clock.now_s += HOUR
    for _ in range(50):
        with pytest.raises(HeadListRefused):
            client.maybe_report()
    assert len(gateway.asked) == 2


def test_a_refusal_by_the_gateway_ends_it_and_stays_spent(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    gateway.show(head_list())
    problem = {"content-type": "application/problem+json"}
    gateway.answers["/v1/reports"] = (422, problem, b"{}")
    client = device(gateway, tmp_path, clock)

    assert client.report_now().code is ResultCode.REFUSED_BY_SERVER
    state = state_of(tmp_path)
    assert (len(state.budget_entries), state.pending) == (1, None)


def test_what_could_not_be_delivered_in_time_is_dropped_and_stays_spent(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    gateway.show(head_list())
    gateway.answers["/v1/reports"] = (503, {}, b"")
    client = device(gateway, tmp_path, clock)
    client.report_now()
    clock.now_s = UNTIL

    assert client.report_now().code is ResultCode.EXPIRED
    state = state_of(tmp_path)
    assert (len(state.budget_entries), state.pending) == (1, None)
    assert len(gateway.posted) == 1


def test_nobody_listening_is_no_error(tmp_path: Path, clock: ManualClock) -> None:
    client = device(Gateway(url="http://127.0.0.1:9"), tmp_path, clock)
    assert client.maybe_report().code is ResultCode.TRY_LATER


async def test_with_asyncio_the_same_report_is_sent(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """The logic is written once; both clients must come to the very same bytes."""
    gateway.show(head_list())
    plain = device(gateway, tmp_path / "plain", clock, seed=5)
    looped = AsyncLocalClient(
        gateway.url, tmp_path / "looped", limits(), _parts=_Parts(clock, SeededDice(5))
    )
    for client in (plain, looped):
        now_s, clock.now_s = clock.now_s, START + 1
        client.record(*LISTED[0])
        clock.now_s = now_s
    assert plain.maybe_report() == await looped.maybe_report()
    assert plain.report_now().code is ResultCode.SENT
    assert (await looped.report_now()).code is ResultCode.SENT
    assert gateway.bodies[0] == gateway.bodies[1]


def test_a_device_reports_only_in_its_cohorts_epochs(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """With R cohorts a person spends R times more slowly."""
    client = device(gateway, tmp_path, clock)
    spoke = []
    for epoch in range(12):
        gateway.show(head_list(epoch, shift_s=epoch * DAY, cohorts=3))
        clock.now_s = END + HOUR + epoch * DAY
        if client.report_now().code is ResultCode.SENT:
            spoke.append(epoch)
    assert len(spoke) == 4
    assert {epoch % 3 for epoch in spoke} == {state_of(tmp_path).cohort}


def test_a_place_among_cohorts_is_kept_until_their_number_changes_and_then_drawn_anew(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """A place for every R that a server may name would be a name for the device.

    One secret taken modulo R told 24 of its bits in 24 looks at R = 2, 4, 8, …, at no budget.
    """
    days = iter(range(100))

    def place(cohorts: int) -> int:
        day = next(days)
        gateway.show(head_list(7 + day, shift_s=day * DAY, cohorts=cohorts))
        clock.now_s = END + HOUR + day * DAY
        device(gateway, tmp_path, clock, seed=day).maybe_report()
        state = state_of(tmp_path)
        assert state.cohorts == cohorts
        return state.cohort

    doubling = [2**bits for bits in range(1, 9)]
    first, second = [place(r) for r in doubling], [place(r) for r in doubling]
    assert first != second
    assert [p % 2 for p in first] != [first[0]] * len(first)
    assert len({place(256) for _ in range(5)}) == 1


def test_a_window_of_another_cohort_is_skipped_permanently(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """Its records are forgotten, so a server that then names R = 1 would be paid ε for ⋆."""
    passed = 0
    for seed in range(8):
        gateway.show(head_list(cohorts=2))
        client = device(gateway, tmp_path / str(seed), clock, seed=seed)
        searching(client, clock, *LISTED)
        if client.report_now().code is ResultCode.SENT:
            continue
        passed += 1
        gateway.show(head_list(cohorts=1))
        outcome = client.report_now()
        assert (outcome.code, outcome.detail) == (
            ResultCode.NOTHING_NEW,
            "this window was skipped before",
        )
        assert state_of(tmp_path / str(seed)).budget_entries == ()
        assert client.status().records_held == 0
    assert 0 < passed < 8


def test_a_list_that_asks_about_no_record_is_passed_over(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """Every answer could only be ⋆: the budget would be spent on nothing."""
    client = device(gateway, tmp_path, clock)
    searching(client, clock, *LISTED)
    gateway.show(head_list(records=()))
    outcome = client.report_now()
    assert (outcome.code, outcome.detail) == (
        ResultCode.NOTHING_NEW,
        "its head list asks about no record",
    )
    assert gateway.posted == []
    client.report_now()
    state = state_of(tmp_path)
    assert (state.budget_entries, state.scheduled_send) == ((), None)
    assert client.status().records_held == 0


def test_every_order_of_the_records_is_equally_likely() -> None:
    """By running through all that the dice can show, not by sampling."""
    pool = [Record(str(i), "u") for i in range(4)]
    drawn: Counter[tuple[Record, ...]] = Counter()
    for throws in product(range(4), range(3), range(2), range(1)):
        dice = ScriptedDice(*throws)
        drawn[tuple(shuffled(pool, dice))] += 1
        assert dice.bounds == [4, 3, 2, 1]
    assert len(drawn) == 24
    assert set(drawn.values()) == {1}


def test_each_answer_is_about_any_of_the_records_whatever_the_others_are_about() -> None:
    """With replacement: by running through all that the dice can show, for 0, 1 and 3 records."""
    assert draw_for_answers([], 3, ScriptedDice()) == [None] * 3
    only = Record("only", "u")
    assert draw_for_answers([only], 3, ScriptedDice(0, 0, 0)) == [only] * 3
    pool = [Record(str(i), "u") for i in range(3)]
    drawn = {
        tuple(draw_for_answers(pool, 2, ScriptedDice(first, second)))
        for first in range(3)
        for second in range(3)
    }
    assert drawn == set(product(pool, repeat=2))


def test_only_records_of_the_window_are_drawn(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """At an epsilon that all but tells the truth, a report shows what was drawn."""
    own = limits(epsilon_per_report=40.0)
    loud = spec(epsilon=40.0, delta=0.0)
    document = gateway.show(head_list(randomizer=loud))
    client = device(gateway, tmp_path, clock, own=own)
    for at_s, record in ((START - 1, LISTED[0]), (START, LISTED[2]), (END, LISTED[1])):
        clock.now_s = at_s
        client.record(*record)
    clock.now_s = END + HOUR
    client.report_now()
    cells = document.head_list.cells
    assert json.loads(gateway.bodies[0])["answers"] == [[cells.number(LISTED[2])]]
