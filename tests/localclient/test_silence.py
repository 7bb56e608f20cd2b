"""No server can silence a device for long: not by numbers, not by windows, not by scheduled sends.

A server that lied, once or for a while, is followed here by an honest one; what must hold is that
the honest one's windows are answered soon. Nothing protects against a server that keeps lying.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from blendstream.localclient import HeadListRefused, LimitReached, LocalClient, ResultCode
from blendstream.localclient.state import Mode
from tests.localclient.collecting_epochs import collecting, opted_in
from tests.localclient.support import (
    DAY,
    END,
    HOUR,
    LISTED,
    START,
    Gateway,
    ManualClock,
    UnsyncedFiles,
    device,
    head_list,
    limits,
    state_of,
)

#: As many windows of an hour as have passed since 1970 when these tests begin.
HIGHEST = (END + HOUR) // HOUR
MOST_S = limits().max_wait_s


def answers_the_next_day(
    gateway: Gateway, client: LocalClient, clock: ManualClock, epoch: int, days: int = 1
) -> None:
    """An honest server shows the list of a window that begins now; the device answers it."""
    day_s = -(-int(clock.now_s) // DAY) * DAY
    shift_s = day_s - START + (days - 1) * DAY
    gateway.show(head_list(epoch, shift_s=shift_s))
    clock.now_s = END + shift_s + HOUR
    assert client.report_now().code is ResultCode.SENT
    assert state_of(client._context.store._files.folder).budget_entries[-1].epoch == epoch


@pytest.mark.parametrize("epoch", [HIGHEST + 1, 10**9, 2**53 - 1])
def test_a_first_epoch_beyond_what_time_allows_is_refused(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, epoch: int
) -> None:
    """Epoch 2^61 was answered once, and every honest epoch refused from then on."""
    client = device(gateway, tmp_path, clock)
    gateway.show(head_list(epoch))
    with pytest.raises(
        HeadListRefused, match=f"at most {HIGHEST} windows.*since 1970, got {epoch}"
    ):
        client.report_now()
    assert (state_of(tmp_path).budget_entries, gateway.posted) == ((), [])

    gateway.show(head_list(7))
    assert device(gateway, tmp_path, clock).report_now().code is ResultCode.SENT


def test_an_epoch_that_no_number_can_hold_is_malformed(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    gateway.current = head_list().to_bytes().replace(b'"epoch":7', b'"epoch":%d' % 2**61)
    with pytest.raises(HeadListRefused, match="malformed"):
        device(gateway, tmp_path, clock).report_now()
    assert state_of(tmp_path).budget_entries == ()


@pytest.mark.parametrize("lie", [0, HIGHEST])
@pytest.mark.parametrize("honest", [0, 1, 7, HIGHEST])
def test_the_number_of_an_answered_epoch_rules_out_no_other(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, lie: int, honest: int
) -> None:
    """Numbers begin at 0 with each service; one lie, high or low, once made the rest impossible."""
    client = device(gateway, tmp_path, clock)
    gateway.show(head_list(lie))
    assert client.report_now().code is ResultCode.SENT
    answers_the_next_day(gateway, client, clock, honest)


@pytest.mark.parametrize("epoch", [HIGHEST + 1, 2**53 - 1])
def test_a_collecting_epoch_beyond_what_time_allows_is_refused(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, epoch: int
) -> None:
    gateway.collecting = collecting(epoch=epoch)
    clock.now_s = END - HOUR
    client = opted_in(gateway, tmp_path, clock)
    client.record(*LISTED[0])
    with pytest.raises(HeadListRefused, match="since 1970"):
        client.report_now()
    assert (state_of(tmp_path).budget_entries, gateway.posted) == ((), [])


def test_a_long_reporting_window_does_not_make_a_device_wait_long(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """A window of 31 days with four more to report in once left devices deaf for 111 days."""
    long = {"window_start_s": END - 31 * DAY, "reports_until_s": END + 4 * 31 * DAY}
    for seed in range(10):
        folder = tmp_path / str(seed)
        clock.now_s = END + HOUR
        gateway.show(head_list(**long))
        client = device(gateway, folder, clock, seed=seed, files=UnsyncedFiles)
        waiting = client.maybe_report()
        assert waiting.code is ResultCode.WAITING
        assert waiting.next_call_at_s < clock.now_s + MOST_S

        # The liar is gone, and nobody has its list: the next honest window is answered.
        gateway.lists.clear()
        clock.now_s += MOST_S
        answers_the_next_day(gateway, client, clock, 9)


def test_a_device_that_was_off_at_its_time_reports_when_it_is_called_again(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """It looks anew after so long, and must not draw another time for ever."""
    week = {"window_start_s": END - 7 * DAY, "reports_until_s": END + 14 * DAY}
    gateway.show(head_list(**week))
    drawn = device(gateway, tmp_path, clock).maybe_report().next_call_at_s
    clock.now_s += 5 * DAY
    client = device(gateway, tmp_path, clock, seed=2)
    assert client.maybe_report().code is ResultCode.SENT
    assert drawn < clock.now_s


def test_bytes_that_nobody_takes_are_given_up(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """A device with bytes to send does nothing else: a liar that never answers must not hold it."""
    long = {"window_start_s": END - 31 * DAY, "reports_until_s": END + 4 * 31 * DAY}
    gateway.show(head_list(**long))
    gateway.answers["/v1/reports"] = (503, {"retry-after": "999999999"}, b"")
    client = device(gateway, tmp_path, clock)
    made_s = clock.now_s
    assert client.report_now().code is ResultCode.TRY_LATER
    clock.now_s = made_s + MOST_S - 1
    assert client.report_now().code is ResultCode.TRY_LATER
    clock.now_s = made_s + MOST_S
    assert client.report_now().code is ResultCode.EXPIRED
    state = state_of(tmp_path)
    assert (state.pending, len(state.budget_entries)) == (None, 1)
    assert len(set(gateway.bodies)) == 1

    gateway.answers.clear()
    answers_the_next_day(gateway, client, clock, 8)


def test_a_device_that_was_off_after_writing_still_sends_once(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """What was paid for is tried once more, however long it lay, while the server may take it."""
    week = {"window_start_s": END - 7 * DAY, "reports_until_s": END + 14 * DAY}
    gateway.show(head_list(**week))
    gateway.answers["/v1/reports"] = (503, {}, b"")
    assert device(gateway, tmp_path, clock).report_now().code is ResultCode.TRY_LATER
    gateway.answers.clear()
    clock.now_s += 10 * DAY
    assert device(gateway, tmp_path, clock).maybe_report().code is ResultCode.SENT


def test_a_long_collecting_window_does_not_make_a_device_wait_long(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """Records of a month are sent in its last quarter; until then the device keeps looking."""
    clock.now_s = START
    month = {"window_end_s": START + 31 * DAY, "optin_until_s": START + 31 * DAY + HOUR}
    gateway.collecting = collecting(**month)
    client = opted_in(gateway, tmp_path, clock)
    client.record(*LISTED[0])
    early = client.maybe_report()
    assert early.code is ResultCode.NOTHING_NEW
    assert early.next_call_at_s <= clock.now_s + HOUR
    assert state_of(tmp_path).scheduled_send is None

    # An honest server of daily windows is heard at once.
    gateway.collecting = collecting()
    clock.now_s = early.next_call_at_s
    assert client.maybe_report().code is ResultCode.WAITING

    late_s = START + 31 * DAY - 31 * DAY // 4
    gateway.collecting = collecting(**month)
    for seed in range(20):
        clock.now_s = late_s
        waiting = opted_in(gateway, tmp_path / str(seed), clock, seed=seed).maybe_report()
        assert waiting.code is ResultCode.WAITING
        assert clock.now_s <= waiting.next_call_at_s < clock.now_s + MOST_S


def test_records_sent_early_in_a_long_window_rule_out_no_later_window(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """What was sent is of the past; a window that begins after it holds none of it."""
    clock.now_s = START + HOUR
    month = {"window_end_s": START + 31 * DAY, "optin_until_s": START + 31 * DAY + HOUR}
    gateway.collecting = collecting(**month)
    client = opted_in(gateway, tmp_path, clock)
    client.record(*LISTED[0])
    assert client.report_now().code is ResultCode.SENT
    (entry,) = state_of(tmp_path).budget_entries
    assert entry.window_end_s == clock.now_s + 1

    # The same window again is not answered, in either mode and under no other name.
    clock.now_s = END + HOUR
    client.record(*LISTED[1])
    assert client.report_now().code is ResultCode.NOTHING_NEW
    gateway.collecting = collecting(epoch=9, **month)
    with pytest.raises(HeadListRefused, match="windows must not overlap"):
        opted_in(gateway, tmp_path, clock).report_now()
    gateway.show(head_list(8))
    reporting = device(gateway, tmp_path, clock)
    assert reporting.report_now().code is ResultCode.NOTHING_NEW
    assert len(gateway.posted) == 1

    answers_the_next_day(gateway, reporting, clock, 9)
    assert [entry.mode for entry in state_of(tmp_path).budget_entries] == [Mode.OPT_IN, Mode.REPORT]


def test_a_server_that_is_slow_to_begin_cannot_have_a_window_answered_twice(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """Clocks may differ by some minutes, so a window may be answered before it begins."""
    clock.now_s = START - 600
    gateway.collecting = collecting()
    client = opted_in(gateway, tmp_path, clock)
    client.record(*LISTED[0])
    client.report_now()
    clock.now_s = START + HOUR
    client.record(*LISTED[1])
    gateway.collecting = collecting(epoch=9)
    with pytest.raises(HeadListRefused, match="windows must not overlap"):
        client.report_now()


def test_a_spent_budget_silences_a_device_for_no_longer_than_its_period(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """The one silence that a liar can buy: it is the price of the promise."""
    own = limits(epsilon_per_period=8.0, period_s=10 * DAY)
    client = device(gateway, tmp_path, clock, own=own)
    for hour in range(2):
        lie = {"window_start_s": END - (2 - hour) * HOUR, "window_end_s": END - (1 - hour) * HOUR}
        gateway.show(head_list(7 + hour, **lie, reports_until_s=END + 2 * HOUR))
        assert client.report_now().code is ResultCode.SENT
    spent_s = clock.now_s
    gateway.show(head_list(9, shift_s=5 * DAY))
    clock.now_s += 5 * DAY
    with pytest.raises(LimitReached) as refused:
        client.report_now()
    assert refused.value.free_at_s == spent_s + 10 * DAY
    clock.now_s = spent_s + 9 * DAY
    answers_the_next_day(gateway, client, clock, 10)


def test_no_server_can_raise_how_long_a_device_waits(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    gateway.show(head_list(reports_until_s=END + 4 * DAY))
    client = device(gateway, tmp_path, clock, own=limits(max_wait_s=HOUR))
    assert client.maybe_report().next_call_at_s < clock.now_s + HOUR
    scheduled_send = state_of(tmp_path).scheduled_send
    assert scheduled_send is not None
    assert scheduled_send.until_s == clock.now_s + HOUR
