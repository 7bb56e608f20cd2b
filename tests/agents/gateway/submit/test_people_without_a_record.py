"""Opt-in users without a record say so and take part: who searched shows in no published number.

A device, the gateway and the counters, each the real one, one after the other.
"""

from __future__ import annotations

import json
from collections import defaultdict

import httpx
import pytest

from blendstream.agents.gateway.state.submission_targets import OptinTargets
from blendstream.agents.worker.entry_checks import judge_optin_records
from blendstream.localclient import LocalClient, OptIn, ResultCode
from blendstream.localclient.local_client import _Parts
from blendstream.streams.epoch_keys import EpochKeys
from blendstream.streams.names import OptinSubgroup
from blendstream.streams.releases.sealed_counts import _users
from blendstream.streams.tables.batch_verdict import Delivery, Refusal, Tally
from blendstream.streams.tables.fingerprints import FingerprintTable
from blendstream.streams.wire.submissions import write_optin_records
from tests.agents.gateway.doubles import optin_target
from tests.agents.gateway.submit.applications import Application, record
from tests.agents.worker.judged_entries import START as OPEN_MS
from tests.agents.worker.judged_entries import opened
from tests.localclient.support import (
    DAY,
    END,
    HOUR,
    LISTED,
    START,
    ManualClock,
    SeededDice,
    UnsyncedFiles,
    limits,
)
from tests.release_entries import log_state_of
from tests.service.settings import MASTER

EPOCH = 8
NONE = {"query": None, "url": None}


def sent_by_a_device(folder, searches, *, records_per_user=1):
    """What an opted-in person's device posts in a window with these searches, and when."""
    clock, posted = ManualClock(START + HOUR), []
    times = {"window_start_s": START, "window_end_s": END, "optin_until_s": END + HOUR}
    shown = {"epoch": EPOCH, "records_per_user": records_per_user, **times}

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            posted.append((clock.now_s, request.content))
            return httpx.Response(202, content=iter([b'{"verdicts":[{"status":"accepted"}]}']))
        return httpx.Response(200, content=iter([json.dumps({"collecting": shown}).encode()]))

    client = LocalClient(
        "https://gateway.example",
        folder,
        limits(),
        opt_in=OptIn("user-1", "token"),
        http=lambda: httpx.Client(transport=httpx.MockTransport(answer), verify=False),
        _parts=_Parts(clock, SeededDice(3), UnsyncedFiles),
    )
    for search in searches:
        client.record(*search)
    waiting = client.maybe_report()
    assert waiting.code is ResultCode.WAITING
    clock.now_s = waiting.next_call_at_s
    assert client.maybe_report().code is ResultCode.SENT
    [(at_s, body)] = posted
    return at_s, body


async def counted(tmp_path, *entries, records_per_user=1) -> Tally:
    """What the counters make of bodies that the gateway accepted, in one epoch."""
    target = optin_target(EPOCH, records_per_user=records_per_user)
    app = Application(tmp_path, optin=OptinTargets([target]))
    reply = await app.post(*entries)
    assert reply.status == 202, reply.body
    deliveries = [
        Delivery(offset, OPEN_MS, frame, 0)
        for offset, frame in enumerate(app.gateway.producer.frames())
    ]
    log_state = log_state_of(opened(EPOCH, records_per_user=records_per_user))
    keys = {EPOCH: EpochKeys.derive(MASTER, EPOCH)}
    verdict = judge_optin_records(0, deliveries, log_state, keys, defaultdict(FingerprintTable))
    return verdict.epochs[EPOCH]


def participants(tally: Tally) -> tuple[int, int, int]:
    """The published numbers: those who selected, who estimated, and of the click graph."""
    totals = [{f"users:{share}": n for share, n in tally.users.items()}]
    selecting, estimating, graph = (_users(totals, share) for share in OptinSubgroup)
    return selecting, estimating, graph


@pytest.mark.parametrize("searches", [(), LISTED[:1], LISTED], ids=len)
@pytest.mark.parametrize("records_per_user", [1, 2])
async def test_participants_do_not_tell_whether_a_person_searched(
    tmp_path, searches, records_per_user
):
    """The number of participants is published as it is: it must say nothing of a person's data."""
    at_s, body = sent_by_a_device(tmp_path / "a", searches, records_per_user=records_per_user)
    usual_s, usual = sent_by_a_device(tmp_path / "b", LISTED, records_per_user=records_per_user)
    tally, other = [
        await counted(tmp_path, *json.loads(sent), records_per_user=records_per_user)
        for sent in (body, usual)
    ]

    assert END - DAY // 4 <= at_s == usual_s, "nor does the time of sending"
    assert sum(participants(tally)) == 1
    assert participants(tally) == participants(other)
    assert tally.received == tally.counted + sum(tally.refused.values())
    assert tally.none == (0 if searches else 1)


@pytest.mark.parametrize("first", [NONE, {}], ids=["none first", "record first"])
async def test_none_and_a_record_of_one_user_count_once(tmp_path, first):
    """Slot 0 was answered: what else comes for it is a duplicate, as of two records."""
    second = {} if first else NONE
    tally = await counted(
        tmp_path, record(epoch=EPOCH, **first), record(epoch=EPOCH, **second), record(epoch=EPOCH)
    )

    assert (tally.received, tally.counted) == (3, 1)
    assert tally.refused == {Refusal.DUPLICATE: 2}
    assert sum(participants(tally)) == 1
    assert (tally.none, sum(map(len, tally.records.values()))) == ((1, 0) if first else (0, 1))


async def test_people_without_a_record_fill_every_share_and_add_to_no_record(tmp_path):
    """S and T divide by all participants, so both groups estimate shares of people."""
    people = [f"user-{n}" for n in range(200)]
    with_records = await counted(tmp_path, *(record(who, epoch=EPOCH) for who in people))
    half = await counted(
        tmp_path,
        *(record(who, epoch=EPOCH, **(NONE if n % 2 else {})) for n, who in enumerate(people)),
    )

    assert participants(half) == participants(with_records)
    assert all(participants(half))
    assert (half.counted, half.none, half.refused) == (200, 100, {})
    assert sum(n for texts in half.records.values() for n in texts.values()) == 100


@pytest.mark.parametrize(
    "entry",
    [{**NONE, "slot": 1}, {"query": None}, {"url": None}, {"query": "", "url": ""}],
    ids=["slot 1", "no query", "no url", "empty text"],
)
async def test_none_is_said_with_two_nulls_in_slot_0_and_in_no_other_way(tmp_path, entry):
    """Half a record or an empty search is a mistake of the sender's, not a person without one."""
    app = Application(tmp_path, optin=OptinTargets([optin_target(EPOCH, records_per_user=2)]))

    reply = await app.post(record(epoch=EPOCH) | entry)

    assert (reply.status, reply.json()["reason"]) == (422, "malformed")
    assert app.gateway.producer.sent == []
    if "query" not in entry or entry["query"] is None:
        assert "both null in slot 0" in reply.json()["detail"]


@pytest.mark.parametrize("field", ["query", "url", "slot", "user_id"])
async def test_a_field_left_out_is_not_taken_for_none(tmp_path, field):
    app = Application(tmp_path)
    entry = {name: value for name, value in (record() | NONE).items() if name != field}

    reply = await app.post(entry)

    assert (reply.status, reply.json()["reason"]) == (422, "malformed")


async def test_the_shared_writer_says_none_as_gateways_read_it(tmp_path):
    """Without records one entry, in slot 0; the frame has its key and no text."""
    [entry] = json.loads(write_optin_records("user-1", EPOCH, []))
    app = Application(tmp_path)

    assert entry == {"user_id": "user-1", "epoch": EPOCH, "slot": 0, **NONE}
    assert (await app.post(entry)).status == 202
    [frame] = app.gateway.producer.frames()
    assert frame.without_record().tolist() == [True]
    assert b"user-1" not in app.gateway.producer.sent[0][2]
