"""POST /v1/optin-records: epochs, slots, cohorts, tokens, and ids that are hashed at once."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blendstream.agents.gateway.state.submission_targets import OptinTargets
from blendstream.agents.gateway.submit.record_submissions import Cohorts
from blendstream.blender.values.record import Record
from blendstream.streams.epoch_keys import EpochKeys, account
from blendstream.streams.releases.epoch_state import PauseNotice
from blendstream.streams.settings.sections import GatewaySettings
from blendstream.streams.wire import submissions
from tests.agents.gateway.doubles import optin_target
from tests.agents.gateway.submit.applications import Application, record
from tests.service.settings import MASTER

HOUR_MS = 3_600_000


@pytest.fixture
def application(tmp_path):
    return lambda **options: Application(tmp_path, **options)


def windows(*epochs: int, now_ms: int = 1_000_000_000) -> OptinTargets:
    """Contiguous windows of an hour; the middle of the first holds the test's moment."""
    start = now_ms - HOUR_MS // 2
    return OptinTargets(
        [
            optin_target(
                epoch,
                window_start_ms=start + i * HOUR_MS,
                window_end_ms=start + (i + 1) * HOUR_MS,
                early_before_ms=start + i * HOUR_MS - 5_000,
                late_from_ms=start + (i + 1) * HOUR_MS + 60_000,
            )
            for i, epoch in enumerate(epochs)
        ]
    )


async def test_an_accepted_record_travels_normalised_under_the_users_key(application):
    """The user id must not reach Kafka; the text must be what devices would count."""
    app = application()

    reply = await app.post(record("user-1", epoch=8))

    assert reply.status == 202
    assert reply.json() == {"verdicts": [{"status": "accepted"}]}
    [frame] = app.gateway.producer.frames()
    [entry] = frame.entries()
    keys = EpochKeys.derive(MASTER, 8)
    assert entry.contributor == keys.contributor_of(account("news-app", b"user-1"))
    assert (entry.slot, entry.query, entry.url) == (0, b"weather today", b"https://w.example/")
    [(topic, partition, value)] = app.gateway.producer.sent
    assert (topic, partition) == ("records", keys.partition_of(entry.contributor, 4))
    assert b"user-1" not in value


async def test_a_record_without_an_epoch_is_of_now_and_the_answer_says_which(application):
    """A retry must repeat the epoch, so the sender has to learn it."""
    app = application()

    reply = await app.post(record())

    assert reply.json() == {"verdicts": [{"status": "accepted"}], "epoch": 8}


async def test_a_503_tells_the_epoch_that_the_retry_must_state(application):
    """Otherwise a retry after the boundary would count a second time, in the next epoch."""
    app = application(
        frame_limits=GatewaySettings(
            linger_s=0.001, delivery_deadline_s=0.02, buffer_bytes=1 << 20
        ),
        optin=windows(8, 9),
    )
    app.gateway.producer.holding = True
    first = await app.post(record())
    assert (first.status, first.json()["epoch"]) == (503, 8)
    app.gateway.producer.release()
    await asyncio.sleep(0.01)

    # Ten seconds into the next epoch: the same entry, with the epoch it was told.
    app.gateway.moment_s[0] += HOUR_MS / 2000 + 10
    app.gateway.producer.append_ms = int(app.gateway.moment_s[0] * 1000)
    retried = await app.post(record(epoch=first.json()["epoch"]))

    assert retried.status == 202
    assert {frame.epoch for frame in app.gateway.producer.frames()} == {8}
    keys = {e.contributor for f in app.gateway.producer.frames() for e in f.entries()}
    assert len(keys) == 1, "the counters must see one contributor, and count the slot once"


@pytest.mark.parametrize(
    ("stated", "seconds_after_end", "fate"),
    [
        (8, -1, None),
        (8, 0, None),
        (8, 59, None),
        (8, 60, "wrong_epoch"),
        (9, -6, "wrong_epoch"),
        (9, -4, None),
        (9, 0, None),
        (10, 0, "wrong_epoch"),
        (7, 0, "wrong_epoch"),
        (None, -1, None),
        (None, 0, None),
    ],
)
async def test_an_epoch_takes_records_from_its_beginning_to_the_end_of_its_grace(
    application, stated, seconds_after_end, fate
):
    """Five seconds of skew are allowed, sixty of grace."""
    app = application(optin=windows(8, 9))
    app.gateway.moment_s[0] += HOUR_MS / 2000 + seconds_after_end
    app.gateway.producer.append_ms = int(app.gateway.moment_s[0] * 1000)
    entry = record() if stated is None else record(epoch=stated)

    [verdict] = (await app.post(entry)).json()["verdicts"]

    assert verdict.get("reason") == fate
    if fate is None:
        [frame] = app.gateway.producer.frames()
        expected = stated or (8 if seconds_after_end < 0 else 9)
        assert frame.epoch == expected


async def test_wrong_epochs_are_refused_entry_by_entry_with_what_is_open(application):
    """The sender learns what to do instead."""
    app = application(optin=windows(8, 9))
    app.gateway.producer.append_ms = 1_000_000_000

    reply = await app.post(record(epoch=3), record("user-2", epoch=8))

    refused, accepted = reply.json()["verdicts"]
    assert (refused["reason"], accepted["status"]) == ("wrong_epoch", "accepted")
    assert "epoch 8 is open" in refused["detail"]


async def test_a_record_appended_after_the_grace_is_late_not_accepted(application):
    """Accepted means counted: the counters will call it late by the same append time."""
    app = application(optin=windows(8))
    app.gateway.producer.append_ms = 1_000_000_000 + HOUR_MS // 2 + 60_000

    reply = await app.post(record(epoch=8))

    assert (reply.status, reply.json()["reason"]) == (422, "late")


async def test_a_record_appended_before_its_epoch_is_sent_again_not_accepted(application):
    """A gateway whose clock is a little ahead opens the epoch before the counters do."""
    app = application(optin=windows(8, 9))
    app.gateway.moment_s[0] += HOUR_MS / 2000 - 4
    app.gateway.producer.append_ms = 1_000_000_000 + HOUR_MS // 2 - 5_001

    reply = await app.post(record(epoch=9), record("user-2", epoch=9))

    assert (reply.status, reply.json()["reason"]) == (503, "early")
    assert {v["status"] for v in reply.json()["verdicts"]} == {"retry"}
    assert "before epoch 9 began" in reply.json()["detail"]
    app.gateway.producer.append_ms += 1
    assert (await app.post(record(epoch=9))).status == 202, "the same entry, in time"


async def test_slots_beyond_the_limit_are_refused(application):
    """m_O is the privacy guarantee of an opt-in user."""
    app = application(optin=OptinTargets([optin_target(8, records_per_user=2)]))

    reply = await app.post(record(slot=0), record(slot=1), record(slot=2))

    reasons = [v.get("reason") for v in reply.json()["verdicts"]]
    assert reasons == [None, None, "over_limit"]


@settings(max_examples=30)
@given(users=st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=20, unique=True))
def test_every_user_has_exactly_one_turn_in_every_round_of_cohorts(users):
    """Stable over epochs and key rotation, so that a person spends R times slower."""
    cohorts = Cohorts({"k1": MASTER}, "k1")
    for user in users:
        turns = [
            epoch
            for epoch in range(12)
            if cohorts.admits(user.encode(errors="replace"), optin_target(epoch, cohorts=4))
        ]
        assert len(turns) == 3
        assert {b - a for a, b in pairwise(turns)} == {4}


def test_an_epoch_keeps_the_cohorts_it_was_opened_with_whatever_the_settings_say():
    """The ledger was charged for these cohorts; a gateway started later, with another secret named
    in its settings, must not admit other people."""
    secrets = {"k1": MASTER, "k2": bytes(32)}
    target = optin_target(8, cohorts=4, cohort_id="k1")
    users = [b"user %d" % n for n in range(64)]

    admitted = [Cohorts(secrets, "k1").admits(user, target) for user in users]

    assert [Cohorts(secrets, "k2").admits(user, target) for user in users] == admitted
    assert 0 < sum(admitted) < len(users)


async def test_another_cohorts_turn_is_a_verdict_and_no_error(application):
    """Nothing is wrong with such a request, so its status says so."""
    app = application(
        cohorts=Cohorts({"k1": MASTER}, "k1"), optin=OptinTargets([optin_target(8, cohorts=1000)])
    )

    reply = await app.post(record(epoch=8))

    assert reply.status == 200
    assert reply.json()["verdicts"][0]["reason"] == "other_cohort"
    assert app.gateway.producer.sent == []


async def test_a_paused_service_refuses_with_the_reason_and_the_time(application):
    """The budget of the period is spent; the sender may as well wait until it is not."""
    app = application(optin=OptinTargets())
    app.gateway.publications.last_pause = PauseNotice(
        9, 999_999_000, 2_000_000_000_000, "the privacy budget is spent"
    )

    reply = await app.post(record())

    assert reply.status == 422
    assert (reply.json()["reason"], reply.json()["resumes_s"]) == ("paused", 2_000_000_000)
    assert "budget" in reply.json()["detail"]


@pytest.mark.parametrize(
    "change",
    [
        {"query": "x" * 300},
        {"url": "https://" + "x" * 1100},
        {"query": "   "},
        {"query": "secret\u0007bell"},
        {"user_id": "é" * 200},
        {"user_id": ""},
        {"slot": -1},
        {"epoch": -1},
        {"extra": "secret"},
    ],
)
async def test_malformed_records_are_refused_without_being_quoted(application, change):
    """Lengths and rules, never text."""
    app = application()

    reply = await app.post(record(**change))

    assert (reply.status, reply.json()["reason"]) == (422, "malformed")
    assert "secret" not in reply.body.decode()
    assert "xxx" not in reply.body.decode()


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer x", "Basic abc", "Bearer news-app.wrong"]
)
async def test_no_token_no_records(application, authorization):
    """Only applications that the operator knows may speak for opt-in users."""
    app = application()
    headers = {} if authorization is None else {"authorization": authorization}

    reply = await app.gateway.ask("POST", "/v1/optin-records", record(), headers)

    assert reply.status == 401
    assert reply.headers["www-authenticate"].startswith("Bearer")
    assert "tokens add" in reply.json()["detail"]
    assert app.gateway.producer.sent == []


async def test_each_application_has_a_rate_of_its_own(application):
    """A runaway application must not silence the others."""
    app = application(limits=GatewaySettings(optin_records_per_s=2, batch_entries=2))

    assert (await app.post(record("a"), record("b"))).status == 202
    assert (await app.post(record("c"))).status == 429


async def test_what_devices_write_is_what_gateways_read(application):
    """LocalClient writes without the gateway's types; this fails when they drift apart."""
    app = application()
    written = submissions.write_optin_records(
        "user-1", 8, [Record("weather", "https://w.example/")]
    )

    reply = await app.gateway.ask("POST", "/v1/optin-records", written, app.header)

    assert reply.status == 202
