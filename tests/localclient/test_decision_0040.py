"""What docs/decisions/0040 claims of a device, sentence by sentence, each with its tests.

`CLAIMS` quotes the decision and names what shows it. Sentences that no other file tests are
tested here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from blendstream.blender.values.random_source import SystemRandomSource
from blendstream.localclient import ClockWrong, HeadListRefused, ResultCode
from blendstream.localclient.local_client import _REAL
from tests.localclient import (
    test_bodies,
    test_hostile_answers,
    test_lengths,
    test_opting_in,
    test_randomizer_check,
    test_refusals,
    test_reporting,
    test_silence,
)
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
    spec,
    state_of,
)
from tests.properties import test_device_budget, test_device_silence

DECISION = Path(__file__).parents[2] / "docs/decisions/0040-a-device-that-trusts-nobody.md"


def test_three_reports_at_a_tenth_fit_a_limit_of_three_tenths(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """0.1 + 0.1 + 0.1 exceeds 0.3 where numbers are binary."""
    own = limits(epsilon_per_report=0.1, epsilon_per_period=0.3)
    client = device(gateway, tmp_path, clock, own=own)
    for day in range(3):
        gateway.show(head_list(7 + day, shift_s=day * DAY, randomizer=spec(epsilon=0.1)))
        clock.now_s = END + HOUR + day * DAY
        assert client.report_now().code is ResultCode.SENT


def test_the_reporting_time_is_drawn_from_the_operating_system() -> None:
    assert isinstance(_REAL.dice, SystemRandomSource)


def test_a_talk_carries_nothing_of_the_last_one(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """Neither cookie nor tag nor connection."""
    document = gateway.show(head_list())
    marks = {
        "set-cookie": "who=17",
        "etag": '"17"',
        "last-modified": "Mon, 01 Jan 2024 00:00:00 GMT",
    }
    for name in ("current", document.id):
        gateway.answers[f"/v1/head-lists/{name}"] = (200, marks, document.to_bytes())
    client = device(gateway, tmp_path, clock)
    clock.now_s = client.maybe_report().next_call_at_s
    assert client.maybe_report().code is ResultCode.SENT
    clock.now_s += 2 * HOUR
    client.maybe_report()

    first, second, third = (paths_of(talk) for talk in talks(gateway))
    assert first == third == ["/v1/head-lists/current"]
    assert second == [f"/v1/head-lists/{document.id}", "/v1/reports"]
    for _, headers in gateway.asked + [(path, headers) for path, _, headers in gateway.posted]:
        told = {name.lower() for name in headers}
        assert not told & {"cookie", "if-none-match", "if-modified-since", "authorization"}


def talks(gateway: Gateway) -> list[list[tuple[int, str]]]:
    """The requests of each connection, in the order in which the connections were made."""
    by_connection: dict[int, list[tuple[int, str]]] = {}
    for connection, path in gateway.connections:
        by_connection.setdefault(connection, []).append((connection, path))
    return list(by_connection.values())


def paths_of(talk: list[tuple[int, str]]) -> list[str]:
    return [path for _, path in talk]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, status: int
) -> None:
    gateway.show(head_list())
    gateway.answers["/v1/head-lists/current"] = (status, {"location": "/elsewhere"}, b"")
    assert device(gateway, tmp_path, clock).report_now().code is ResultCode.TRY_LATER
    assert [path for path, _ in gateway.asked] == ["/v1/head-lists/current"]


@pytest.mark.parametrize("status", [400, 404, 409, 410, 413, 422])
def test_a_refusal_counts_only_in_the_gateways_own_form(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, status: int
) -> None:
    gateway.show(head_list())
    client = device(gateway, tmp_path, clock)
    for kind, came_to in (
        ("text/html", ResultCode.TRY_LATER),
        ("application/json", ResultCode.TRY_LATER),
        ("application/problem+json", ResultCode.REFUSED_BY_SERVER),
    ):
        gateway.answers["/v1/reports"] = (status, {"content-type": kind}, b"{}")
        assert client.report_now().code is came_to
    assert len(set(gateway.bodies)) == 1


def test_a_list_is_downloaded_twice_for_a_report_and_about_hourly_while_nothing_is_new(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    gateway.show(head_list())
    client = device(gateway, tmp_path, clock)
    clock.now_s = client.maybe_report().next_call_at_s
    assert client.maybe_report().code is ResultCode.SENT
    assert len(gateway.asked) == 2

    gateway.asked.clear()
    for _ in range(24 * 60):
        clock.now_s += 60
        client.maybe_report()
    assert 23 <= len(gateway.asked) <= 48


def test_a_wrong_list_that_is_shown_first_costs_the_device_that_window_only(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    gateway.show(head_list(records=LISTED[:1]))
    client = device(gateway, tmp_path, clock)
    assert client.report_now().code is ResultCode.SENT
    gateway.show(head_list())
    with pytest.raises(HeadListRefused, match="windows must not overlap"):
        client.report_now()
    gateway.show(head_list(8, shift_s=DAY))
    clock.now_s += DAY
    assert client.report_now().code is ResultCode.SENT


def test_a_device_whose_clock_was_ahead_is_silent_until_time_has_caught_up(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    clock.now_s += 100 * DAY
    gateway.show(head_list(107, shift_s=100 * DAY))
    client = device(gateway, tmp_path, clock)
    assert client.report_now().code is ResultCode.SENT
    for day in (1, 50, 101):
        gateway.show(head_list(7 + day, shift_s=day * DAY))
        clock.now_s = END + HOUR + day * DAY
        if day < 100:
            with pytest.raises((ClockWrong, HeadListRefused)):
                client.report_now()
        else:
            assert client.report_now().code is ResultCode.SENT


def test_after_a_change_of_r_a_turn_may_come_sooner(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """A window after its last, where R = 3 would have it wait for three."""
    soon = 0
    for seed in range(1_000, 1_020):
        clock.now_s = END + HOUR
        gateway.show(head_list(7, cohorts=3))
        client = device(gateway, tmp_path / str(seed), clock, seed=seed, files=UnsyncedFiles)
        if client.report_now().code is ResultCode.SENT:
            clock.now_s += DAY
            gateway.show(head_list(8, shift_s=DAY, cohorts=2))
            soon += client.report_now().code is ResultCode.SENT
    assert soon


def test_a_place_among_the_cohorts_is_worth_at_most_eight_and_a_half_bits() -> None:
    assert math.log2(limits().max_cohorts) < 8.52


def test_the_second_look_is_by_id_and_at_the_drawn_time(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    document = gateway.show(head_list())
    client = device(gateway, tmp_path, clock)
    waiting = client.maybe_report()
    kept = state_of(tmp_path).scheduled_send
    assert kept is not None
    assert (kept.subject, kept.send_at_s) == (
        document.id,
        waiting.next_call_at_s,
    )
    clock.now_s = waiting.next_call_at_s - 1
    assert client.maybe_report().code is ResultCode.WAITING
    clock.now_s += 1
    client.maybe_report()
    assert [path for path, _ in gateway.asked] == [
        "/v1/head-lists/current",
        f"/v1/head-lists/{document.id}",
    ]


def test_a_service_that_once_had_very_short_windows_is_refused_by_its_numbers(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """The devices' `min_window_s` must be the shortest window that the service ever had."""
    gateway.show(head_list(START // 60))
    with pytest.raises(HeadListRefused, match="windows of min_window_s=3600 since 1970"):
        device(gateway, tmp_path / "hours", clock).report_now()
    own = limits(min_window_s=60)
    assert (
        device(gateway, tmp_path / "minutes", clock, own=own).report_now().code is ResultCode.SENT
    )


Test = Callable[..., Any]

#: Words of the decision → what shows that they are true.
CLAIMS: dict[str, tuple[Test, ...]] = {
    "have no defaults": (test_refusals.test_limits_must_be_chosen,),
    "a list that exceeds them is refused": (
        test_refusals.test_a_hostile_list_is_refused_and_costs_nothing,
    ),
    "Budgets add up by basic composition": (
        test_refusals.test_the_limit_of_the_period_holds_and_says_when_it_frees,
        test_device_budget.test_a_device_that_spends_a_little_too_much_would_be_caught,
    ),
    "three reports at 0.1 fit a limit of 0.3": (
        test_three_reports_at_a_tenth_fit_a_limit_of_three_tenths,
    ),
    "A window is answered once, in one mode": (
        test_refusals.test_a_window_answered_once_is_not_answered_again_under_another_name,
        test_opting_in.test_a_window_sent_is_not_reported_on,
        test_opting_in.test_a_window_reported_on_is_not_sent,
    ),
    "The number of an epoch may not exceed": (
        test_silence.test_a_first_epoch_beyond_what_time_allows_is_refused,
        test_silence.test_a_collecting_epoch_beyond_what_time_allows_is_refused,
        test_silence.test_an_epoch_that_no_number_can_hold_is_malformed,
    ),
    "decides only which cohort takes part": (
        test_silence.test_the_number_of_an_answered_epoch_rules_out_no_other,
    ),
    "A device waits at most `max_wait_s`": (
        test_silence.test_a_long_reporting_window_does_not_make_a_device_wait_long,
        test_silence.test_no_server_can_raise_how_long_a_device_waits,
        test_silence.test_a_device_that_was_off_at_its_time_reports_when_it_is_called_again,
    ),
    "abandons a submission that it cannot deliver for as long": (
        test_silence.test_bytes_that_nobody_takes_are_given_up,
        test_silence.test_a_device_that_was_off_after_writing_still_sends_once,
    ),
    "In opt-in mode it draws its time once the window is near": (
        test_silence.test_a_long_collecting_window_does_not_make_a_device_wait_long,
    ),
    "records a window as answered up to the second": (
        test_silence.test_records_sent_early_in_a_long_window_rule_out_no_later_window,
        test_silence.test_a_server_that_is_slow_to_begin_cannot_have_a_window_answered_twice,
    ),
    "a device answers every honest window that begins at least 2 · `max_wait_s` after the last": (
        test_device_silence.test_a_device_answers_an_honest_server_soon_after_any_lies,
    ),
    "after `period_s` the device may spend it again": (
        test_silence.test_a_spent_budget_silences_a_device_for_no_longer_than_its_period,
    ),
    "stores its id with a reporting time": (
        test_the_second_look_is_by_id_and_at_the_drawn_time,
        test_reporting.test_a_restart_keeps_the_drawn_time,
    ),
    "drawn from the operating system": (
        test_the_reporting_time_is_drawn_from_the_operating_system,
    ),
    "before it reads any record": (
        test_reporting.test_a_device_without_records_does_exactly_what_one_with_records_does,
    ),
    "checks its hash": (test_refusals.test_a_list_swapped_while_the_device_waits_is_refused,),
    "Another list for an answered window is refused": (
        test_refusals.test_two_lists_for_one_epoch_get_one_report,
    ),
    "from the list's shape and ε": (
        test_randomizer_check.test_every_registered_randomizer_passes,
        test_randomizer_check.test_a_randomizer_built_for_another_list_is_caught,
    ),
    "over all outputs if there are at most 512": (
        test_randomizer_check.test_a_broken_randomizer_is_caught,
    ),
    "over sampled outputs otherwise": (
        test_randomizer_check.test_a_broken_randomizer_over_many_cells_is_caught_by_drawing,
    ),
    "there is no `If-None-Match`": (test_a_talk_carries_nothing_of_the_last_one,),
    "Redirects are not followed": (test_redirects_are_not_followed,),
    "draws a new place when R changes": (
        test_reporting.test_a_place_among_cohorts_is_kept_until_their_number_changes_and_then_drawn_anew,
    ),
    "refuses R above its own `max_cohorts`": (
        test_refusals.test_a_hostile_list_is_refused_and_costs_nothing,
    ),
    "Changing R buys no reports": (
        test_refusals.test_changing_the_number_of_cohorts_buys_a_server_nothing_beyond_the_limit,
    ),
    "a window that was skipped stays skipped": (
        test_reporting.test_a_window_of_another_cohort_is_skipped_permanently,
    ),
    "too long": (
        test_bodies.test_of_what_is_too_long_nothing_is_kept,
        test_bodies.test_a_bomb_fills_neither_memory_nor_disk,
    ),
    "sent byte by byte": (test_hostile_answers.test_a_server_that_drips_does_not_hold_the_device,),
    "wrong in any part or header": (
        test_hostile_answers.test_a_head_list_wrong_in_any_part_is_refused_or_answered_and_nothing_between,
        test_hostile_answers.test_epochs_wrong_in_any_part_are_refused_or_answered_and_nothing_between,
        test_hostile_answers.test_headers_that_make_no_sense_are_no_reason_to_crash,
    ),
    "its error message never quotes the response": (
        test_refusals.test_no_refusal_quotes_a_record_or_the_server,
    ),
    "It skips a list that asks about no record": (
        test_reporting.test_a_list_that_asks_about_no_record_is_passed_over,
    ),
    "A 4xx counts if it is `application/problem+json`": (
        test_a_refusal_counts_only_in_the_gateways_own_form,
        test_reporting.test_a_refusal_by_the_gateway_ends_it_and_stays_spent,
    ),
    "a hotel's login page": (test_reporting.test_a_retry_sends_the_same_bytes,),
    "Spaces after the JSON pad short numbers": (
        test_lengths.test_every_answer_to_a_small_list_has_one_length,
        test_lengths.test_requests_of_one_head_list_are_alike_but_for_the_body_itself,
    ),
    "The list is downloaded twice per report": (
        test_a_list_is_downloaded_twice_for_a_report_and_about_hourly_while_nothing_is_new,
    ),
    "the device cannot answer the right list of that epoch": (
        test_a_wrong_list_that_is_shown_first_costs_the_device_that_window_only,
    ),
    "stays silent until time has caught up": (
        test_a_device_whose_clock_was_ahead_is_silent_until_time_has_caught_up,
    ),
    "turn may come sooner": (test_after_a_change_of_r_a_turn_may_come_sooner,),
    "come within two days of a device's first look": (
        test_silence.test_a_long_reporting_window_does_not_make_a_device_wait_long,
    ),
    "Devices refuse a service whose windows were once so short": (
        test_a_service_that_once_had_very_short_windows_is_refused_by_its_numbers,
    ),
    "at most 8.5 bits with 366 of them": (
        test_a_place_among_the_cohorts_is_worth_at_most_eight_and_a_half_bits,
    ),
}


def test_every_part_of_the_decision_is_claimed_and_every_claim_is_in_it() -> None:
    """A decision that is changed without its tests, or the other way round, is noticed here."""
    text = DECISION.read_text()
    words = " ".join(text.split())
    assert [claim for claim in CLAIMS if claim not in words] == []

    choice = text.split("## Choice")[1].split("## What we gave up")[0]
    parts = [" ".join(part.split()) for part in re.split(r"^- ", choice, flags=re.MULTILINE)[1:]]
    assert len(parts) >= 10
    assert [part for part in parts if not any(claim in part for claim in CLAIMS)] == []
