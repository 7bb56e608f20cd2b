"""The conversations of sent.json: what a device shows its owner of what it sent."""

from __future__ import annotations

import json
from typing import Any

from blendstream.blender.values.record import Record
from tests.vectors.device.conversations import (
    ACCEPTED,
    DAY,
    END,
    HOUR,
    START,
    USER,
    Talker,
    answer,
    collecting,
    day,
    problem,
    run,
    shown,
)
from tests.vectors.device.documents import LISTED
from tests.vectors.device.scenes import NOW, New, Scene, opted_in, searched

SENT = answer(202, ACCEPTED)
OTHER_COHORT = b'{"verdicts":[{"status":"refused","reason":"other_cohort"}]}'


def before_anything_was_sent(new: New) -> Talker:
    talker = new()
    log = talker.sent(NOW)
    assert (log["sent"], log["next"]) == ([], None)
    assert (log["left"]["epsilon"], log["next_fit_s"]) == (8.0, NOW)
    talker.report(NOW, shown(day(100, answers=2)))
    log = talker.sent(NOW)
    assert (log["next"]["epsilon"], log["next"]["listed"]) == (4.0, len(LISTED))
    return talker


def answers_of(name: str, **changes: Any) -> Scene:
    def scene(new: New) -> Talker:
        talker = new(dice=(1, 2))
        searched(talker)
        said = shown(day(100, name=name, **changes))
        talker.report(NOW, said, said, None, at_once=True)
        (entry,) = talker.sent(NOW)["sent"]
        assert (entry["result"], entry["finished_at_s"]) == ("pending", None)
        talker.restart()
        talker.report(NOW + HOUR, SENT)
        (entry,) = talker.sent(NOW + HOUR)["sent"]
        assert (entry["result"], entry["finished_at_s"]) == ("sent", NOW + HOUR)
        assert (entry["odds"], entry["randomizer"]) == (54.6, name)
        assert len(entry["answers"]) == changes.get("answers", 1)
        body = json.loads(talker.steps[-2]["exchanges"][-1]["request"]["body"])
        assert [[c["cell"] for c in one] for one in entry["answers"]] == body["answers"]
        return talker

    scene.__name__ = f"an answer by {name}"
    return scene


def a_name_beyond_ascii(new: New) -> Talker:
    talker = new(dice=(0, 1))
    record = Record("strasse 🚲 \u202e.", "https://é.example/")
    talker.record(START, *record)
    said = shown(day(100, name="randomized-response", records=(record,), listed=1))
    talker.report(NOW, said, said, SENT, at_once=True)
    assert talker.sent(NOW)["sent"][0]["answers"][0][0]["query"] == record.query
    return talker


def what_became_of_it(name: str, said: Any, result: str) -> Scene:
    def scene(new: New) -> Talker:
        talker = new()
        document = shown(day(100))
        talker.report(NOW, document, document, said, at_once=True)
        assert talker.sent(NOW)["sent"][0]["result"] == result
        return talker

    scene.__name__ = f"a report that is {name}"
    return scene


def a_report_that_time_ran_out_for(new: New) -> Talker:
    talker = new()
    document = shown(day(100))
    talker.report(NOW, document, document, None, at_once=True)
    talker.report(END + DAY)
    assert talker.sent(END + DAY)["sent"][0]["result"] == "expired"
    return talker


def the_budget_that_is_left(new: New) -> Talker:
    own = {"epsilon_per_period": 8.3, "epsilon_per_report": 4.1, "period_s": 3 * DAY}
    talker = new(limits={**own, "delta_per_period": 2.5e-5})
    for number in (100, 101):
        document = shown(day(number, epsilon=4.1))
        now_s = (number + 1) * DAY + HOUR
        assert talker.report(now_s, document, document, SENT, at_once=True) == "sent"
    log = talker.sent(END + DAY + HOUR)
    assert (log["spent"]["epsilon"], log["left"]["epsilon"]) == (8.2, 0.1)
    assert log["next_fit_s"] == NOW + 3 * DAY
    assert talker.sent(NOW + 3 * DAY)["left"]["epsilon"] == 4.2
    return talker


def of_opt_in_records_their_number_only(new: New) -> Talker:
    talker = new(opt_in=USER)
    opted_in(talker)
    talker.report(START + HOUR, collecting(100), None, at_once=True)
    talker.report(START + 2 * HOUR, SENT)
    log = talker.sent(START + 2 * HOUR)
    (entry,) = log["sent"]
    assert (entry["searches"], entry["answers"], entry["epsilon"]) == (2, None, 0.0)
    assert "weather" not in json.dumps(log)
    return talker


def opting_in_without_a_search(new: New) -> Talker:
    talker = new(opt_in=USER)
    talker.report(START + HOUR, collecting(100), answer(200, OTHER_COHORT), at_once=True)
    (entry,) = talker.sent(START + HOUR)["sent"]
    assert (entry["searches"], entry["result"]) == (0, "nothing new")
    return talker


def opt_in_records_that_were_withdrawn(new: New) -> Talker:
    talker = new(opt_in=USER)
    opted_in(talker)
    talker.report(START + HOUR, collecting(100), None, at_once=True)
    talker.restart(None)
    talker.report(START + 2 * HOUR, answer(404))
    assert talker.sent(START + 2 * HOUR)["sent"][0]["result"] == "dropped"
    return talker


def forgetting_removes_the_answers(new: New) -> Talker:
    talker = new()
    document = shown(day(100))
    talker.report(NOW, document, document, None, at_once=True)
    talker.forget(NOW)
    (entry,) = talker.sent(NOW)["sent"]
    assert (entry["answers"], entry["epsilon"], entry["result"]) == (None, 4.0, "pending")
    talker.report(NOW + HOUR, SENT)
    assert talker.sent(NOW + HOUR)["sent"][0]["result"] == "sent"
    return talker


def forgetting_drops_opt_in_records(new: New) -> Talker:
    talker = new(opt_in=USER)
    opted_in(talker)
    talker.report(START + HOUR, collecting(100), None, at_once=True)
    talker.forget(START + HOUR)
    assert talker.sent(START + HOUR)["sent"][0]["result"] == "dropped"
    return talker


def a_damaged_state_shows_nothing(new: New) -> Talker:
    talker = new()
    talker.sent(NOW)
    talker.restart(state="damaged")
    assert talker.sent(NOW) == {"code": "state unreadable"}
    return talker


SCENES: tuple[Scene, ...] = (
    before_anything_was_sent,
    answers_of("subset-or-none", answers=2),
    answers_of("subset-selection", answers=3),
    answers_of("randomized-response"),
    answers_of("two-stage", query_wildcards=True, delta=1e-5, answers=2),
    a_name_beyond_ascii,
    what_became_of_it("refused", problem(422), "refused by server"),
    what_became_of_it("accepted", SENT, "sent"),
    a_report_that_time_ran_out_for,
    the_budget_that_is_left,
    of_opt_in_records_their_number_only,
    opting_in_without_a_search,
    opt_in_records_that_were_withdrawn,
    forgetting_removes_the_answers,
    forgetting_drops_opt_in_records,
    a_damaged_state_shows_nothing,
)


def vectors() -> dict[str, object]:
    """The contents of sent.json."""
    return {
        "about": "Conversations as in conversations.json, with the step `sent`: the document "
        "blendstream/sent/1 that a device shows its owner. A client without such a page leaves "
        "this file out.",
        "conversations": [run(scene) for scene in SCENES],
    }
