"""Whose user id it is: applications do not share users unless the operator says so."""

from __future__ import annotations

import pytest

from blendstream.agents.gateway.submit.record_submissions import Cohorts
from blendstream.streams.epoch_keys import EpochKeys, account
from tests.agents.gateway.doubles import optin_target
from tests.agents.gateway.submit.user_accounts import START_MS, WINDOW_MS, Service, record
from tests.service.settings import MASTER

END_MS = START_MS + WINDOW_MS


NUMBERS = [str(n) for n in range(20)]


async def test_applications_with_the_same_user_ids_do_not_refuse_each_others_users(tmp_path):
    """The first to send made the other's records duplicates: lost in silence among honest
    applications that number their users, and an attack by anyone with a token."""
    service = Service(tmp_path, news=None, maps=None)
    service.open(8, START_MS)

    await service.send("news", *NUMBERS)
    await service.send("maps", *NUMBERS)

    assert service.counted() == (40, 0)


async def test_applications_that_share_accounts_share_users(tmp_path):
    """One person with one account must count once, whichever application sends the record."""
    service = Service(tmp_path, news=None, maps="family", mail="family")
    service.open(8, START_MS)

    for application in ("maps", "mail", "news"):
        await service.send(application, *NUMBERS)

    assert service.counted() == (40, 20)


async def test_an_application_may_share_the_accounts_of_one_that_has_its_own(tmp_path):
    """So that the older one need not be moved, which would give its users second keys."""
    service = Service(tmp_path, news=None, maps="news")
    service.open(8, START_MS)

    await service.send("news", *NUMBERS)
    await service.send("maps", *NUMBERS)

    assert service.counted() == (20, 20)


async def test_an_epoch_that_is_open_when_the_rule_changes_keeps_the_old_one(tmp_path):
    """A user who sent before an upgrade and again after it must not have two keys."""
    service = Service(tmp_path, news=None, maps=None)
    service.open(8, START_MS, old=True)

    await service.send("news", *NUMBERS)
    await service.send("maps", *NUMBERS)

    keys = EpochKeys.derive(MASTER, 8)
    assert set(service.contributors(8)) == {keys.contributor_of(n.encode()) for n in NUMBERS}
    assert service.counted() == (20, 20)


async def test_the_rule_changes_at_the_boundary_and_a_retry_in_the_grace_keeps_its_key(tmp_path):
    """Both epochs take records at once; each by the rule that it was opened with."""
    service = Service(tmp_path, news=None)
    service.open(8, START_MS, old=True)
    service.open(9, END_MS)
    await service.send("news", "17", epoch=8)
    service.at(END_MS + 1000)

    await service.send("news", "17", epoch=8)
    await service.send("news", "17", epoch=9)

    before, after = EpochKeys.derive(MASTER, 8), EpochKeys.derive(MASTER, 9)
    assert service.contributors(8) == [before.contributor_of(b"17")] * 2
    assert service.contributors(9) == [after.contributor_of(b"\x04\x00news17")]


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({"x-application": "news"}, ""),
        ({"x-user-ids": "news", "user-ids": "news"}, ""),
        ({"cookie": "user-ids=news"}, "?user_ids=news&user-ids=news&application=news"),
    ],
)
@pytest.mark.parametrize(
    "user_id", ["17", "\x04\x00news17", "news17", "news/17", "news\x0017", "\x00"]
)
async def test_nothing_in_a_request_chooses_another_applications_users(
    tmp_path, headers, query, user_id
):
    """Only the operator's file says whose user ids a token speaks of."""
    service = Service(tmp_path, news=None, maps=None)
    service.open(8, START_MS)
    given = headers | {"authorization": service.bearers["maps"]}

    reply = await service.gateway.ask(
        "POST", f"/v1/optin-records{query}", record(user_id, epoch=8), given
    )

    assert reply.status == 202
    own = EpochKeys.derive(MASTER, 8).contributor_of(account("maps", user_id.encode()))
    assert service.contributors(8) == [own]
    [(_, _, value)] = service.gateway.producer.sent
    assert b"maps" not in value, "neither the application nor its space travels"


@pytest.mark.parametrize("field", ["user_ids", "user-ids", "space", "application", "contributor"])
async def test_a_record_that_names_a_space_is_refused(tmp_path, field):
    """Unknown fields are not passed over, so that no later reader takes them for something."""
    service = Service(tmp_path, news=None, maps=None)
    service.open(8, START_MS)
    body = record("17", epoch=8) | {field: "news"}

    reply = await service.gateway.ask(
        "POST", "/v1/optin-records", body, {"authorization": service.bearers["maps"]}
    )

    assert (reply.status, reply.json()["reason"]) == (422, "malformed")
    assert service.gateway.producer.sent == []


async def test_a_token_under_another_applications_name_is_none(tmp_path):
    """The name in a token is only a claim; the secret must be that name's."""
    service = Service(tmp_path, news=None, maps="family")
    service.open(8, START_MS)
    secret = service.bearers["maps"].partition(".")[2]

    for name in ("news", "family", "maps family", "maps/news"):
        header = {"authorization": f"Bearer {name}.{secret}"}
        reply = await service.gateway.ask("POST", "/v1/optin-records", record("17"), header)
        assert reply.status == 401
    assert service.gateway.producer.sent == []


def test_a_users_turn_stays_when_an_application_comes_into_another_space():
    """Another turn would admit them twice within R epochs, more than the ledger was charged for."""
    cohorts = Cohorts({"k1": MASTER}, "k1")
    before, after = (optin_target(8, cohorts=4, user_id_spaces=new) for new in (False, True))
    for user_id in (b"%d" % n for n in range(64)):
        assert cohorts.admits(user_id, before) == cohorts.admits(user_id, after)
        assert before.contributor("news", user_id) != after.contributor("news", user_id)
