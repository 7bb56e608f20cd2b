"""The conversations of conversations.json, one function each; its name is the entry."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from blendstream.blender.randomizers.subset_or_none import best_named_size
from blendstream.blender.values.rational import exp_rounded_down
from blendstream.blender.values.record import Record
from tests.vectors.device.conversations import (
    ACCEPTED,
    DAY,
    END,
    HOUR,
    START,
    UNTIL,
    USER,
    Talker,
    answer,
    collecting,
    date,
    day,
    problem,
    shown,
)
from tests.vectors.device.documents import LISTED

New = Callable[..., Talker]
Scene = Callable[[New], Talker]
NOW = END + HOUR
SENT = answer(202, ACCEPTED)


def searched(talker: Talker) -> None:
    """Searches before, in and after the window of day 100."""
    talker.record(START - 1, "too early", "https://x.example/")
    talker.record(START, *LISTED[0])
    talker.record(START + HOUR, "  WEATHER ", "https://rain.example/ ")
    talker.record(END - 1, "unlisted", "https://x.example/")
    talker.record(END, *LISTED[2])


def a_report_from_the_first_look_to_accepted(new: New) -> Talker:
    talker = new()
    searched(talker)
    talker.record(START, "", "https://x.example/")
    talker.record(START, "a\x00b", "https://x.example/")
    document = day(100)
    assert talker.report(NOW, shown(document, **date(NOW - 900))) == "waiting"
    assert talker.report(NOW + 1) == "waiting"
    drawn_s = talker.steps[-1]["outcome"]["next_call_at_s"]
    assert talker.report(drawn_s - 1) == "waiting"
    assert talker.report(drawn_s, shown(document), SENT) == "sent"
    assert talker.report(drawn_s + 1) == "sent"
    assert talker.report(drawn_s + 4 * HOUR, shown(document)) == "nothing new"
    return talker


def with_every_randomizer(name: str, dice: tuple[int, int], **changes: Any) -> Scene:
    def scene(new: New) -> Talker:
        talker = new(dice=dice)
        searched(talker)
        document = day(100, name=name, **changes)
        assert talker.report(NOW, shown(document), shown(document), SENT, at_once=True) == "sent"
        return talker

    scene.__name__ = f"a report by {name}, dice at {dice[0]}/{dice[1]}"
    return scene


def a_device_without_searches_reports_alike(new: New) -> Talker:
    talker = new(dice=(7, 8))
    document = day(100)
    assert talker.report(NOW, shown(document), shown(document), SENT, at_once=True) == "sent"
    return talker


def nothing_published_and_servers_that_do_not_answer(new: New) -> Talker:
    talker = new(dice=(1, 3))
    assert talker.report(NOW, answer(404)) == "nothing new"
    talker.restart()
    now_s = NOW
    answers = [None, answer(500), answer(503, retry_after="30"), answer(503, retry_after="9999")]
    more = [answer(302, location="https://other.example/"), answer(429, retry_after="soon"), None]
    for said in [*answers, *more]:
        assert talker.report(now_s, said) == "try later"
        now_s = talker.steps[-1]["outcome"]["next_call_at_s"]
    assert talker.report(now_s, answer(404)) == "nothing new"
    return talker


def the_device_refuses(what: str, /, **changes: Any) -> Scene:
    own = changes.pop("own", {})
    now_s = changes.pop("now_s", NOW)

    def scene(new: New) -> Talker:
        talker = new(limits=own)
        assert talker.report(now_s, shown(day(100, **changes))) == "head list refused"
        assert talker.report(now_s + 1) == "head list refused"
        return talker

    scene.__name__ = f"the device refuses {what}"
    return scene


REFUSED = [
    the_device_refuses("an epsilon above its own", epsilon=4.000000000000001),
    the_device_refuses("a delta above its own", delta=1.1e-5),
    the_device_refuses("more answers than its own limit", answers=5),
    the_device_refuses("more cells than its own limit", max_cells_per_answer=1025),
    the_device_refuses("more cohorts than its own limit", cohorts=367),
    the_device_refuses("an epoch's number too high for the time since 1970", epoch=NOW // HOUR + 1),
    the_device_refuses("a window too short", window_start_s=END - HOUR + 1),
    the_device_refuses("a window too long", window_start_s=END - 31 * DAY - 1),
    the_device_refuses("reports asked for beyond four windows", reports_until_s=END + 4 * DAY + 1),
    the_device_refuses("a window that has not ended", now_s=END - 901),
    the_device_refuses("a normalisation it does not know", normalisation=3),
    the_device_refuses("an older normalisation", normalisation=1),
    the_device_refuses("a randomizer it does not know", name="newer"),
    the_device_refuses("stages without wildcards", name="two-stage"),
    the_device_refuses("whole records with wildcards", query_wildcards=True),
    the_device_refuses(
        "an epsilon that carries no signal in stages",
        name="two-stage",
        query_wildcards=True,
        epsilon=2.0**-32,
    ),
]


#: Sixty records at a low epsilon: an answer names several, how many depends on the share.
MANY = tuple(Record(f"query {i}", "https://many.example/") for i in range(60))
WIDTHS = {share: best_named_size(60, exp_rounded_down(Fraction(1)), 32, share) for share in (4, 48)}


def many(share: int, width: int) -> dict[str, Any]:
    stated = {"listed_64ths": share, "cells_per_answer": width}
    return {"records": MANY, "listed": 60, "epsilon": 1.0, **stated}


def a_list_that_states_its_width(share: int) -> Scene:
    def scene(new: New) -> Talker:
        talker = new(dice=(2, 5))
        talker.record(START, *MANY[7])
        document = day(100, **many(share, WIDTHS[share]))
        assert talker.report(NOW, shown(document), shown(document), SENT, at_once=True) == "sent"
        body = json.loads(talker.steps[-1]["exchanges"][-1]["request"]["body"])
        assert [len(answer) for answer in body["answers"]] == [WIDTHS[share]]
        return talker

    scene.__name__ = f"a list that states its width, {share}/64 listed"
    return scene


assert WIDTHS[4] != WIDTHS[48]
REFUSED += [
    the_device_refuses("a width above what follows", **many(4, WIDTHS[4] + 1)),
    the_device_refuses("a width below what follows", **many(4, WIDTHS[4] - 1)),
    the_device_refuses("the width of another share", **many(48, WIDTHS[4])),
    the_device_refuses("a width for one cell", cells_per_answer=2),
    the_device_refuses(
        "a width for stages", name="two-stage", query_wildcards=True, cells_per_answer=2
    ),
]


def the_limits_themselves_are_allowed(new: New) -> Talker:
    talker = new()
    most = {"answers": 4, "max_cells_per_answer": 1024, "cohorts": 366, "delta": 1e-5}
    document = day(100, **most, epoch=183 + 366, reports_until_s=END + 4 * DAY)
    assert talker.report(END - 900, shown(document)) == "waiting"
    return talker


def malformed_and_too_large(new: New) -> Talker:
    talker = new(limits={"max_head_list_bytes": 2_000})
    assert talker.report(NOW, answer(200, b"{}")) == "head list refused"
    talker.restart()
    large = answer(200)
    object.__setattr__(large, "too_large", True)
    assert talker.report(NOW, large) == "head list refused"
    return talker


def a_wrong_clock(new: New) -> Talker:
    talker = new()
    assert talker.report(NOW, shown(day(100), **date(NOW + 901))) == "clock wrong"
    assert talker.report(NOW + 1) == "clock wrong"
    talker.restart()
    assert talker.report(NOW, shown(day(100), **date(NOW - 901))) == "clock wrong"
    talker.restart()
    assert talker.report(NOW, shown(day(100), date="sometime")) == "waiting"
    document = day(100)
    said = shown(document, **date(NOW + 901))
    assert talker.report(NOW, said, at_once=True) == "clock wrong"
    return talker


def a_list_that_was_exchanged(new: New) -> Talker:
    talker = new()
    searched(talker)
    assert talker.report(NOW, shown(day(100))) == "waiting"
    other = day(100, listed=2)
    assert talker.report(NOW, shown(other), at_once=True) == "head list refused"
    assert talker.report(NOW, shown(day(100)), SENT, at_once=True) == "sent"
    later_s = NOW + 4 * HOUR
    assert talker.report(later_s, shown(other)) == "head list refused"
    return talker


def rotation_of_cohorts(new: New) -> Talker:
    talker = new()
    searched(talker)
    other, own = day(100, cohorts=4), day(101, cohorts=4, epoch=10)
    assert talker.report(NOW, shown(other)) == "nothing new"
    now_s = NOW + DAY
    talker.record(END + HOUR, *LISTED[1])
    assert talker.report(now_s, shown(own), shown(own), SENT, at_once=True) == "sent"
    return talker


def a_window_passed_over_is_not_asked_about_again(new: New) -> Talker:
    talker = new()
    searched(talker)
    assert talker.report(NOW, shown(day(100, cohorts=4))) == "nothing new"
    talker.restart()
    assert talker.report(NOW, shown(day(100))) == "nothing new"
    return talker


def a_list_that_asks_about_nothing(new: New) -> Talker:
    talker = new()
    assert talker.report(NOW, shown(day(100, listed=0))) == "nothing new"
    return talker


def the_same_bytes_again_until_they_are_taken(new: New) -> Talker:
    talker = new(dice=(2, 3))
    searched(talker)
    document = day(100)
    first = (shown(document), shown(document), None)
    assert talker.report(NOW, *first, at_once=True) == "try later"
    now_s = NOW
    kept: list[Any] = [
        answer(503, b"{}", retry_after="5", content_type="application/problem+json"),
        answer(403, "<html>"),
        answer(422, "<html>"),
        answer(200, "<html>"),
        answer(302),
        answer(200, '{"verdicts":[{"status":"retry"}]}'),
        answer(401, b"{}", content_type="application/problem+json"),
        answer(202, '{"verdicts":[{"status":"accepted"},{"status":"retry"}]}'),
    ]
    for said in kept:
        now_s = talker.steps[-1]["outcome"]["next_call_at_s"]
        assert talker.report(now_s, said) == "try later"
    talker.restart()
    assert talker.report(now_s + 1, SENT) == "sent"
    return talker


def what_settles_it(name: str, said: Any, what: str) -> Scene:
    def scene(new: New) -> Talker:
        talker = new()
        document = day(100)
        assert talker.report(NOW, shown(document), shown(document), said, at_once=True) == what
        assert talker.report(NOW + 1, shown(document), at_once=True) == "nothing new"
        return talker

    scene.__name__ = f"settled by {name}"
    return scene


SETTLED = [
    *(
        what_settles_it(f"the gateway's {status}", problem(status), "refused by server")
        for status in (400, 404, 409, 410, 413, 422)
    ),
    what_settles_it(
        "a refusal", answer(200, '{"verdicts":[{"status":"refused","reason":"late"}]}'),
        "refused by server",
    ),
    what_settles_it(
        "202 with one accepted and one refused", answer(
            202, '{"verdicts":[{"status":"refused","reason":"late"},{"status":"accepted"}]}'
        ), "sent",
    ),
    what_settles_it(
        "two refusals, one of them for the turn", answer(
            200, '{"verdicts":[{"status":"refused","reason":"other_cohort"},'
            '{"status":"refused","reason":"late"}]}'
        ), "refused by server",
    ),
    what_settles_it("202 and nothing to read", answer(202, "thank you"), "sent"),
    what_settles_it(
        "202 and a verdict that cannot be read",
        answer(202, '{"verdicts":[{"status":"refused","reason":"Not A Code"}]}'), "sent",
    ),
    what_settles_it(
        "200 and accepted",
        answer(200, '{"verdicts":[{"status":"accepted","detail":"kept"}],"more":1}'), "sent",
    ),
    what_settles_it(
        "a problem with parameters", answer(
            422, "{}", content_type="application/problem+json; charset=utf-8"
        ), "refused by server",
    ),
]  # fmt: skip


def time_runs_out(new: New) -> Talker:
    talker = new()
    document = day(100)
    assert talker.report(NOW, shown(document), shown(document), None, at_once=True) == "try later"
    assert talker.report(UNTIL) == "expired"
    assert talker.report(UNTIL + 2 * HOUR, shown(document)) == "nothing new"
    return talker


def given_up_after_max_wait(new: New) -> Talker:
    talker = new(limits={"max_wait_s": 2 * HOUR})
    document = day(100)
    assert talker.report(NOW, shown(document), shown(document), None, at_once=True) == "try later"
    assert talker.report(NOW + 2 * HOUR - 1, None) == "try later"
    talker.restart()
    assert talker.report(NOW + 2 * HOUR, None) == "expired"
    return talker


def a_long_reporting_window_is_not_waited_for(new: New) -> Talker:
    talker = new(limits={"max_wait_s": HOUR}, dice=(999, 1000))
    document = day(100)
    assert talker.report(NOW, shown(document)) == "waiting"
    # Not called in time: the drawn second is kept, and it has passed.
    assert talker.report(NOW + 2 * HOUR, shown(document), shown(document), SENT) == "sent"
    return talker


def its_reporting_window_has_ended(new: New) -> Talker:
    talker = new()
    assert talker.report(UNTIL, shown(day(100))) == "nothing new"
    return talker


def the_periods_budget_is_used_up(new: New) -> Talker:
    talker = new()
    for number in (100, 101):
        document = day(number)
        now_s = (number + 1) * DAY + HOUR
        said = (shown(document), shown(document), SENT)
        assert talker.report(now_s, *said, at_once=True) == "sent"
    now_s = 103 * DAY + HOUR
    assert talker.report(now_s, shown(day(102))) == "limit reached"
    assert talker.report(now_s + 1) == "limit reached"
    free_s = talker.steps[-1]["outcome"]["free_at_s"]
    document = day(130)
    assert 131 * DAY <= free_s < 132 * DAY
    assert talker.report(free_s - 1, shown(document)) == "limit reached"
    talker.restart()
    said = (shown(document), shown(document), SENT)
    assert talker.report(free_s, *said, at_once=True) == "sent"
    return talker


def a_clock_that_was_set_back(new: New) -> Talker:
    talker = new()
    document = day(100)
    assert talker.report(NOW, shown(document), shown(document), SENT, at_once=True) == "sent"
    assert talker.report(END + 1, shown(day(99, epoch=9)), at_once=True) == "clock wrong"
    return talker


def windows_that_overlap_or_go_back(new: New) -> Talker:
    talker = new()
    document = day(100)
    assert talker.report(NOW, shown(document), shown(document), SENT, at_once=True) == "sent"
    for other in (day(100, noisy_counts=(3, 2, 1)), day(99), day(101, window_start_s=END - 1)):
        assert talker.report(NOW + DAY, shown(other), at_once=True) == "head list refused"
    following = day(101, epoch=3)
    said = (shown(following), shown(following), SENT)
    assert talker.report(NOW + DAY, *said, at_once=True) == "sent"
    return talker


def opted_in(talker: Talker) -> None:
    for at_s, query in ((START, "first"), (START + 1, "twice"), (START + 2, "twice")):
        talker.record(at_s, query, "https://x.example/?ü=\"'\\")
    talker.record(START + 3, "fourth", "https://x.example/")


def opting_in_late_in_the_window(new: New) -> Talker:
    talker = new(opt_in=USER)
    opted_in(talker)
    assert talker.report(START + HOUR, collecting(100)) == "waiting"
    drawn_s = talker.steps[-1]["outcome"]["next_call_at_s"]
    assert END - DAY // 4 <= drawn_s < END
    talker.record(drawn_s, "late", "https://x.example/")
    assert talker.report(drawn_s, None) == "try later"
    assert talker.report(drawn_s + HOUR, SENT) == "sent"
    assert talker.report(drawn_s + 3 * HOUR, collecting(100)) == "nothing new"
    return talker


def opting_in_with_other_dice(new: New) -> Talker:
    talker = new(opt_in=USER, dice=(0, 1))
    opted_in(talker)
    assert talker.report(START + HOUR, collecting(100, 3), SENT, at_once=True) == "sent"
    return talker


def opting_in_for_a_long_window_waits_until_it_is_near(new: New) -> Talker:
    talker = new(opt_in=USER, limits={"max_wait_s": HOUR})
    opted_in(talker)
    assert talker.report(START + HOUR, collecting(100)) == "nothing new"
    talker.restart(USER)
    assert talker.report(END - DAY // 4, collecting(100)) == "waiting"
    return talker


def opting_in_by_cohort(new: New) -> Talker:
    talker = new(opt_in=USER)
    opted_in(talker)
    turn = b'{"verdicts":[{"status":"refused","reason":"other_cohort"}]}'
    said = (collecting(100), answer(200, turn))
    assert talker.report(START + HOUR, *said, at_once=True) == "nothing new"
    return talker


def opting_in_without_searches_says_so(new: New) -> Talker:
    talker = new(opt_in=USER)
    assert talker.report(START + HOUR, collecting(100, 3), None, at_once=True) == "try later"
    assert talker.report(START + HOUR, SENT, at_once=True) == "sent"
    assert talker.report(START + HOUR, collecting(100, 3), at_once=True) == "nothing new"
    return talker


def opting_in_is_refused(name: str, said: Any) -> Scene:
    def scene(new: New) -> Talker:
        talker = new(opt_in=USER)
        assert talker.report(START + HOUR, said) == "head list refused"
        return talker

    scene.__name__ = f"opting in is refused: {name}"
    return scene


OPT_IN_REFUSED = [
    opting_in_is_refused("too many records", collecting(100, 11)),
    opting_in_is_refused("no record", collecting(100, 0)),
    opting_in_is_refused("records taken for too long", collecting(100, optin_until_s=UNTIL + 1)),
    opting_in_is_refused("not yet collecting", collecting(101)),
    opting_in_is_refused("no longer collecting", collecting(98)),
    opting_in_is_refused("a window too short", collecting(100, window_start_s=END - 60)),
    opting_in_is_refused("a number too high", collecting(100, epoch=2**52)),
    opting_in_is_refused("an epoch below 0", collecting(100, epoch=-1)),
    opting_in_is_refused("times out of order", collecting(100, window_end_s=START)),
    opting_in_is_refused("text for a number", collecting(100, epoch="7")),
    opting_in_is_refused("malformed", answer(200, "[]")),
    opting_in_is_refused("not JSON", answer(200, "<html>")),
]


def opting_in_when_no_epoch_collects(new: New) -> Talker:
    talker = new(opt_in=USER)
    assert talker.report(START, answer(200, '{"collecting":null}')) == "nothing new"
    talker.restart(USER)
    assert talker.report(START, answer(503, retry_after="60")) == "try later"
    return talker


def consent_that_was_withdrawn(new: New) -> Talker:
    talker = new(opt_in=USER)
    opted_in(talker)
    assert talker.report(START + HOUR, collecting(100), None, at_once=True) == "try later"
    talker.restart()
    document = day(100)
    assert talker.report(NOW, shown(document)) == "nothing new"
    return talker


def forgetting_drops_what_was_to_be_sent(new: New) -> Talker:
    talker = new(opt_in=USER)
    opted_in(talker)
    assert talker.report(START + HOUR, collecting(100), None, at_once=True) == "try later"
    talker.forget(START + HOUR)
    assert talker.report(START + 2 * HOUR, collecting(100), at_once=True) == "nothing new"
    return talker


def forgetting_keeps_a_report_that_was_paid_for(new: New) -> Talker:
    talker = new()
    searched(talker)
    document = day(100)
    assert talker.report(NOW, shown(document), shown(document), None, at_once=True) == "try later"
    talker.forget(NOW)
    assert talker.report(NOW + HOUR, SENT) == "sent"
    return talker


def a_window_opted_in_for_is_not_reported_on(new: New) -> Talker:
    talker = new(opt_in=USER)
    opted_in(talker)
    assert talker.report(END - HOUR, collecting(100), SENT, at_once=True) == "sent"
    talker.restart()
    assert talker.report(NOW, shown(day(100))) == "nothing new"
    following = day(101)
    said = (shown(following), shown(following), SENT)
    assert talker.report(NOW + DAY, *said, at_once=True) == "sent"
    return talker


def a_lost_state_starts_no_second_budget(new: New) -> Talker:
    talker = new()
    searched(talker)
    document = day(100)
    assert talker.report(NOW, shown(document), shown(document), SENT, at_once=True) == "sent"
    talker.restart(state="lost")
    assert talker.report(NOW + DAY) == "state unreadable"
    talker.restart()
    assert talker.report(NOW + DAY, at_once=True) == "state unreadable"
    assert talker.status(NOW + DAY)["code"] == "state unreadable"
    return talker


def a_state_lost_before_the_first_report_is_missed_too(new: New) -> Talker:
    talker = new()
    assert talker.report(NOW, answer(404)) == "nothing new"
    talker.restart(state="lost")
    assert talker.report(NOW + DAY) == "state unreadable"
    return talker


def a_damaged_state_stops_all_spending(new: New) -> Talker:
    talker = new()
    document = day(100)
    assert talker.report(NOW, shown(document), shown(document), None, at_once=True) == "try later"
    talker.restart(state="damaged")
    assert talker.report(NOW + HOUR) == "state unreadable"
    return talker


def forgetting_leaves_a_state_unreadable(state: str) -> Scene:
    def scene(new: New) -> Talker:
        talker = new(opt_in=USER)
        opted_in(talker)
        assert talker.report(START + HOUR, collecting(100), None, at_once=True) == "try later"
        talker.restart(USER, state=state)
        talker.forget(START + HOUR)
        assert talker.report(START + 2 * HOUR) == "state unreadable"
        talker.restart(USER)
        assert talker.report(START + 3 * HOUR) == "state unreadable"
        return talker

    scene.__name__ = f"forgetting a {state} state leaves it unreadable"
    return scene


def a_cohort_is_kept_across_restarts(new: New) -> Talker:
    talker = new()
    assert talker.report(NOW, shown(day(100, cohorts=4))) == "nothing new"
    talker.restart(dice=(0, 1))
    own = day(101, cohorts=4, epoch=10)
    assert talker.report(NOW + DAY, shown(own), shown(own), SENT, at_once=True) == "sent"
    talker.restart(dice=(3, 4))
    # 10 mod 4 is 2, the place drawn first; 12 mod 4 is 0, and 15 mod 4 is 3.
    for number, epoch in ((102, 12), (103, 15)):
        now_s = (number + 1) * DAY + HOUR
        assert talker.report(now_s, shown(day(number, cohorts=4, epoch=epoch))) == "nothing new"
    other = day(104, cohorts=8, epoch=16 + 6)
    now_s = 105 * DAY + HOUR
    assert talker.report(now_s, shown(other), shown(other), SENT, at_once=True) == "sent"
    return talker


def a_scheduled_send_is_kept_across_restarts(new: New) -> Talker:
    talker = new()
    document = day(100)
    assert talker.report(NOW, shown(document)) == "waiting"
    drawn_s = talker.steps[-1]["outcome"]["next_call_at_s"]
    talker.restart(dice=(0, 1))
    assert talker.report(NOW + 1) == "waiting"
    assert talker.steps[-1]["outcome"]["next_call_at_s"] == drawn_s
    talker.restart(dice=(3, 4))
    assert talker.report(drawn_s, shown(document), SENT) == "sent"
    return talker


def a_missed_scheduled_send_is_not_drawn_again_after_a_restart(new: New) -> Talker:
    talker = new(limits={"max_wait_s": HOUR}, dice=(999, 1000))
    document = day(100)
    assert talker.report(NOW, shown(document)) == "waiting"
    talker.restart(dice=(1, 2))
    assert talker.report(NOW + 2 * HOUR, shown(document), shown(document), SENT) == "sent"
    return talker


def a_scheduled_opt_in_is_kept_across_restarts(new: New) -> Talker:
    talker = new(opt_in=USER)
    opted_in(talker)
    assert talker.report(START + HOUR, collecting(100)) == "waiting"
    drawn_s = talker.steps[-1]["outcome"]["next_call_at_s"]
    talker.restart(USER, dice=(0, 1))
    assert talker.report(START + 2 * HOUR) == "waiting"
    assert talker.steps[-1]["outcome"]["next_call_at_s"] == drawn_s
    assert talker.report(drawn_s, SENT) == "sent"
    return talker


def reported_records_are_forgotten(new: New) -> Talker:
    talker = new()
    searched(talker)
    assert talker.status(NOW)["records_held"] == 5
    document = day(100)
    assert talker.report(NOW, shown(document), shown(document), None, at_once=True) == "try later"
    # Before it is accepted: the bytes are fixed. What was searched after the window stays.
    assert talker.status(NOW)["records_held"] == 1
    assert talker.report(NOW + HOUR, SENT) == "sent"
    status = talker.status(NOW + HOUR)
    assert (status["records_held"], status["epsilon_spent"]) == (1, 4.0)
    return talker


def records_of_windows_passed_over_are_forgotten(new: New) -> Talker:
    talker = new()
    searched(talker)
    assert talker.report(NOW, shown(day(100, cohorts=4))) == "nothing new"
    assert talker.status(NOW)["records_held"] == 1
    talker.record(NOW, *LISTED[0])
    nothing = day(101, cohorts=4, epoch=10, listed=0)
    assert talker.report(NOW + DAY, shown(nothing)) == "nothing new"
    status = talker.status(NOW + DAY)
    assert (status["records_held"], status["epsilon_spent"]) == (0, 0.0)
    return talker


def records_sent_by_opting_in_are_forgotten_and_later_ones_stay(new: New) -> Talker:
    talker = new(opt_in=USER)
    opted_in(talker)
    talker.record(START + HOUR, "now", "https://x.example/")
    talker.record(START + HOUR + 1, "a second later", "https://x.example/")
    assert talker.report(START + HOUR, collecting(100), SENT, at_once=True) == "sent"
    status = talker.status(START + HOUR)
    assert (status["records_held"], status["windows_answered"]) == (1, 1)
    return talker


def records_that_nobody_asks_about_are_forgotten(new: New) -> Talker:
    talker = new(limits={"keep_records_s": 31 * DAY})
    searched(talker)
    assert talker.report(START + 31 * DAY, answer(404)) == "nothing new"
    assert talker.status(START + 31 * DAY)["records_held"] == 4
    assert talker.report(END + 31 * DAY + 1, None) == "try later"
    assert talker.status(END + 31 * DAY + 1)["records_held"] == 0
    return talker


def forgetting_removes_records_and_keeps_what_was_spent(new: New) -> Talker:
    talker = new()
    document = day(100)
    assert talker.report(NOW, shown(document), shown(document), SENT, at_once=True) == "sent"
    searched(talker)
    talker.forget(NOW)
    assert talker.status(NOW)["records_held"] == 0
    assert talker.status(NOW)["epsilon_spent"] == 4.0
    talker.restart()
    assert talker.report(NOW, shown(document)) == "nothing new"
    return talker


def opting_in_with_a_wrong_clock(new: New) -> Talker:
    talker = new(opt_in=USER)
    for off_s in (901, -901):
        said = collecting(100)
        said.headers.update(date(START + HOUR + off_s))  # type: ignore[attr-defined]
        assert talker.report(START + HOUR, said) == "clock wrong"
        talker.restart(USER)
    said = collecting(100)
    said.headers.update(date(START + HOUR - 900))  # type: ignore[attr-defined]
    assert talker.report(START + HOUR, said) == "waiting"
    return talker


def the_same_bytes_after_a_restart_whatever_would_be_drawn(new: New) -> Talker:
    talker = new()
    searched(talker)
    document = day(100)
    assert talker.report(NOW, shown(document), shown(document), None, at_once=True) == "try later"
    talker.restart(dice=(7, 8))
    assert talker.report(NOW + HOUR, None) == "try later"
    talker.restart(dice=(0, 1))
    assert talker.report(NOW + 2 * HOUR, SENT) == "sent"
    return talker


def a_server_that_is_away_has_a_short_pause_again_after_a_restart(new: New) -> Talker:
    talker = new(dice=(0, 1))
    pauses = []
    for _ in range(2):
        now_s = NOW
        for _ in range(3):
            assert talker.report(now_s, None) == "try later"
            pauses.append(talker.steps[-1]["outcome"]["next_call_at_s"] - now_s)
            now_s += pauses[-1]
        talker.restart()
    assert pauses == [30, 60, 120] * 2
    return talker


def the_last_attempt_at_the_deadline_may_be_accepted(new: New) -> Talker:
    talker = new(limits={"max_wait_s": 2 * HOUR})
    document = day(100)
    assert talker.report(NOW, shown(document), shown(document), None, at_once=True) == "try later"
    assert talker.report(NOW + 3 * HOUR, SENT) == "sent"
    return talker


def an_application_that_lengthens_its_period_spends_no_more(new: New) -> Talker:
    talker = new(limits={"epsilon_per_period": 4.0, "period_s": DAY})
    for number in (100, 102):
        document = day(number)
        said = (shown(document), shown(document), SENT)
        assert talker.report((number + 1) * DAY + HOUR, *said, at_once=True) == "sent"
    talker.restart(limits={"epsilon_per_period": 8.0})
    now_s = 105 * DAY + HOUR
    assert talker.report(now_s, shown(day(104))) == "limit reached"
    assert talker.status(now_s)["epsilon_spent"] == 8.0
    return talker


def what_retry_after_may_say(new: New) -> Talker:
    talker = new(dice=(0, 1))
    pauses = {
        "000000120": 120,
        "3601": 3600,
        **dict.fromkeys(("Sun, 12 Apr 1970 09:00:00 GMT", "-500", "1e3", "500.5", "+500"), 30),
        "5000000000": 30,
    }
    for said, pause_s in pauses.items():
        assert talker.report(NOW, answer(503, retry_after=said)) == "try later"
        assert talker.steps[-1]["outcome"]["next_call_at_s"] == NOW + pause_s, said
        talker.restart()
    return talker


def a_date_in_another_form_is_no_date(new: New) -> Talker:
    talker = new()
    document = day(100)
    for said in (
        "1990-01-01T00:00:00Z",
        "Mon, 01 Jan 1990 00:00:00 +0000",
        "Monday, 01-Jan-90 00:00:00 GMT",
        "Mon Jan  1 00:00:00 1990",
        "631152000",
        "Mon, 99 Jan 1990 00:00:00 GMT",
    ):
        # It read the list; and this one was exchanged for another.
        first = (shown(document),) if not talker.steps else ()
        other = shown(day(100, listed=2), date=said)
        assert talker.report(NOW, *first, other, at_once=True) == "head list refused"
    told = shown(document, date="Mon, 01 Jan 1990 00:00:00 GMT")
    assert talker.report(NOW, told, at_once=True) == "clock wrong"
    return talker


def the_order_of_checks(new: New) -> Talker:
    talker = new()
    document = day(100)
    assert talker.report(NOW, answer(200, "{", **date(NOW + 901))) == "clock wrong"
    talker.restart()
    assert talker.report(NOW, answer(404, "{", **date(NOW + 901))) == "nothing new"
    talker.restart()
    assert talker.report(NOW, answer(500, "{", **date(NOW + 901))) == "try later"
    talker.restart()
    # Another's turn is found before an unknown randomizer, and after an unknown normalisation.
    other = day(100, cohorts=4, normalisation=3)
    assert talker.report(NOW, shown(other)) == "head list refused"
    talker.restart()
    other = day(99, cohorts=4, name="newer", reports_until_s=END)
    assert talker.report(NOW, shown(other)) == "nothing new"
    talker.restart()
    said = (shown(document), shown(document), SENT)
    assert talker.report(NOW, *said, at_once=True) == "sent"
    # Answered before the limits: this device's are lower now.
    talker.restart(limits={"epsilon_per_report": 1.0})
    assert talker.report(NOW, shown(document)) == "nothing new"
    talker.restart()
    # A clock that went back is found before the list's limits.
    assert talker.report(NOW - 1, shown(day(101, answers=5))) == "clock wrong"
    return talker


def the_order_of_checks_when_the_budget_is_used_up(new: New) -> Talker:
    talker = new(limits={"epsilon_per_period": 4.0})
    document = day(100)
    assert talker.report(NOW, shown(document), shown(document), SENT, at_once=True) == "sent"
    # Another's turn, and a reporting window that has ended, come before the budget.
    assert talker.report(NOW + DAY, shown(day(101, listed=0))) == "nothing new"
    talker.restart()
    ended = day(101, reports_until_s=NOW + DAY)
    assert talker.report(NOW + DAY, shown(ended)) == "nothing new"
    talker.restart()
    # The budget comes before a window that was passed over, and before the randomizer.
    assert talker.report(NOW + DAY, shown(day(101))) == "limit reached"
    talker.restart()
    assert talker.report(NOW + 2 * DAY, shown(day(102, name="newer"))) == "limit reached"
    return talker


def opting_in_while_clocks_are_apart(new: New) -> Talker:
    talker = new(opt_in=USER)
    assert talker.report(START - 901, collecting(100)) == "head list refused"
    talker.restart(USER)
    assert talker.report(START - 900, collecting(100)) == "waiting"
    return talker


def opting_in_at_the_very_end(new: New) -> Talker:
    talker = new(opt_in=USER)
    opted_in(talker)
    assert talker.report(END + HOUR, collecting(100)) == "head list refused"
    talker.restart(USER)
    # After the window, while records are still taken: at once.
    assert talker.report(END + HOUR - 1, collecting(100), SENT) == "sent"
    return talker


def opting_in_after_the_window_covers_only_the_window(new: New) -> Talker:
    talker = new(opt_in=USER)
    assert talker.report(END + 60, collecting(100), SENT, at_once=True) == "sent"
    # The next window begins where the entry ends, not a minute later.
    said = collecting(101, optin_until_s=END + DAY)
    assert talker.report(END + 120, said, SENT, at_once=True) == "sent"
    return talker


def waiting_neither_counts_nor_forgets_a_failure(new: New) -> Talker:
    talker = new()
    document = day(100)
    assert talker.report(NOW, None) == "try later"
    assert talker.report(NOW + 30, shown(document)) == "waiting"
    now_s = talker.steps[-1]["outcome"]["next_call_at_s"]
    assert talker.report(now_s, shown(document), None) == "try later"
    assert talker.steps[-1]["outcome"]["next_call_at_s"] == now_s + 45
    return talker


def a_missed_send_has_a_new_end(new: New) -> Talker:
    """Found by the list's id, and not by another look, while it lasts."""
    talker = new(dice=(999, 1_000), limits={"max_wait_s": HOUR})
    document = day(100)
    assert talker.report(NOW, shown(document)) == "waiting"
    assert talker.report(NOW + 2 * HOUR, shown(document), None) == "try later"
    assert talker.report(NOW + 3 * HOUR - 1, shown(document), SENT) == "sent"
    return talker


def the_last_quarter_of_a_window_is_rounded_down(new: New) -> Talker:
    talker = new(opt_in=USER, dice=(0, 1))
    said = collecting(100, window_end_s=END + 3)
    assert talker.report(START + HOUR, said) == "waiting"
    assert talker.steps[-1]["outcome"]["next_call_at_s"] == END + 3 - 86_403 // 4
    return talker


def a_record_of_a_listed_query_counts_for_the_query(new: New) -> Talker:
    talker = new(dice=(0, 1))
    talker.record(START, "weather", "https://unlisted.example/")
    document = day(100, name="two-stage", query_wildcards=True)
    assert talker.report(NOW, shown(document), shown(document), SENT, at_once=True) == "sent"
    assert '"answers":[[3]]' in talker.steps[-1]["exchanges"][-1]["request"]["body"]
    return talker


def a_list_that_is_not_found_by_its_id(new: New) -> Talker:
    talker = new()
    assert talker.report(NOW, shown(day(100))) == "waiting"
    assert talker.report(NOW, answer(404), at_once=True) == "try later"
    assert talker.report(NOW, shown(day(100)), SENT, at_once=True) == "sent"
    return talker


def opting_in_covers_up_to_now(new: New) -> Talker:
    talker = new(opt_in=USER)
    opted_in(talker)
    assert talker.report(START + HOUR, collecting(100), SENT, at_once=True) == "sent"
    # A server that calls its window a month long rules out no honest window after it.
    then = {"window_start_s": START + HOUR + 1, "window_end_s": END + HOUR, "epoch": 8}
    said = collecting(100, **then)
    assert talker.report(START + 2 * HOUR, said, SENT, at_once=True) == "sent"
    return talker


SCENES: list[Scene] = [
    a_report_from_the_first_look_to_accepted,
    *(
        with_every_randomizer(name, dice, **changes)
        for dice in ((0, 1), (1, 2), (63, 64))
        for name, changes in (
            ("subset-or-none", {"answers": 2}),
            ("subset-selection", {"answers": 3}),
            ("randomized-response", {}),
            ("two-stage", {"query_wildcards": True, "delta": 1e-5, "answers": 2}),
        )
    ),
    *(a_list_that_states_its_width(share) for share in WIDTHS),
    a_device_without_searches_reports_alike,
    nothing_published_and_servers_that_do_not_answer,
    *REFUSED,
    the_limits_themselves_are_allowed,
    malformed_and_too_large,
    a_wrong_clock,
    a_list_that_was_exchanged,
    rotation_of_cohorts,
    a_window_passed_over_is_not_asked_about_again,
    a_list_that_asks_about_nothing,
    the_same_bytes_again_until_they_are_taken,
    *SETTLED,
    time_runs_out,
    given_up_after_max_wait,
    a_long_reporting_window_is_not_waited_for,
    its_reporting_window_has_ended,
    the_periods_budget_is_used_up,
    a_clock_that_was_set_back,
    windows_that_overlap_or_go_back,
    opting_in_late_in_the_window,
    opting_in_with_other_dice,
    opting_in_for_a_long_window_waits_until_it_is_near,
    opting_in_by_cohort,
    opting_in_without_searches_says_so,
    *OPT_IN_REFUSED,
    opting_in_when_no_epoch_collects,
    consent_that_was_withdrawn,
    forgetting_drops_what_was_to_be_sent,
    forgetting_keeps_a_report_that_was_paid_for,
    a_window_opted_in_for_is_not_reported_on,
    a_lost_state_starts_no_second_budget,
    a_state_lost_before_the_first_report_is_missed_too,
    a_damaged_state_stops_all_spending,
    *(forgetting_leaves_a_state_unreadable(state) for state in ("lost", "damaged")),
    a_cohort_is_kept_across_restarts,
    a_scheduled_send_is_kept_across_restarts,
    a_missed_scheduled_send_is_not_drawn_again_after_a_restart,
    a_scheduled_opt_in_is_kept_across_restarts,
    reported_records_are_forgotten,
    records_of_windows_passed_over_are_forgotten,
    records_sent_by_opting_in_are_forgotten_and_later_ones_stay,
    records_that_nobody_asks_about_are_forgotten,
    forgetting_removes_records_and_keeps_what_was_spent,
    opting_in_with_a_wrong_clock,
    the_same_bytes_after_a_restart_whatever_would_be_drawn,
    a_server_that_is_away_has_a_short_pause_again_after_a_restart,
    the_last_attempt_at_the_deadline_may_be_accepted,
    an_application_that_lengthens_its_period_spends_no_more,
    what_retry_after_may_say,
    a_date_in_another_form_is_no_date,
    the_order_of_checks,
    the_order_of_checks_when_the_budget_is_used_up,
    opting_in_while_clocks_are_apart,
    opting_in_at_the_very_end,
    the_last_quarter_of_a_window_is_rounded_down,
    a_record_of_a_listed_query_counts_for_the_query,
    a_list_that_is_not_found_by_its_id,
    opting_in_covers_up_to_now,
    opting_in_after_the_window_covers_only_the_window,
    waiting_neither_counts_nor_forgets_a_failure,
    a_missed_send_has_a_new_end,
]
