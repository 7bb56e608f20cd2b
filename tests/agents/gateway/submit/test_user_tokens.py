"""A device without a secret: its token is good for one user, one space and a short time."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from blendstream.agents.tokens import ApplicationTokens, add_token, remove_tokens
from blendstream.blender.values.errors import ParameterError
from blendstream.streams.settings.sections import GatewaySettings
from blendstream.streams.user_tokens import UserToken, mint_user_token
from tests.agents.gateway.doubles import TestGateway, make_gateway
from tests.agents.gateway.submit.user_accounts import START_MS, Service, record

NOW_S = START_MS // 1000 + 1
HOUR = 3_600
VECTORS = json.loads((Path(__file__).parents[3] / "vectors/user_tokens.json").read_text())


class Signing(Service):
    """Gateways, and the keys of applications whose devices send by themselves."""

    def __init__(self, folder: Path, **applications: str | None) -> None:
        super().__init__(folder, **applications)
        self.keys = {
            name: add_token(self.path, name, user_ids, for_users=True)
            for name, user_ids in applications.items()
        }
        self.restart()
        self.open(8, START_MS)

    def restart(self, limits: GatewaySettings | None = None, **options: Any) -> None:
        self.gateway: TestGateway = make_gateway(
            tokens=ApplicationTokens(self.path, clock=lambda: 0.0, **options), limits=limits
        )
        self.gateway.publications.optin_targets = self.log.publications.optin_targets
        self.at(START_MS + 1000)

    def mint(self, name: str, user_id: str, lasts_s: int = HOUR) -> str:
        return mint_user_token(self.keys[name], user_id, expires_s=NOW_S + lasts_s)

    async def post(self, token: str, *ids: str) -> tuple[int, list[str]]:
        """The status, and of each record whether it was accepted or why not."""
        body = [record(user_id, epoch=8) for user_id in ids]
        header = {"authorization": f"Bearer {token}"}
        reply = await self.gateway.ask("POST", "/v1/optin-records", body, header)
        said = [v.get("reason", v["status"]) for v in reply.json().get("verdicts", [])]
        self.detail = reply.json().get("detail", "")
        return reply.status, said

    @property
    def sent(self) -> int:
        return sum(len(frame.entries()) for frame in self.gateway.producer.frames())


async def test_a_users_token_sends_that_users_records_and_no_others(tmp_path):
    """Without this, one token taken from one device would silence or speak for every user."""
    service = Signing(tmp_path, news=None)
    token = service.mint("news", "ada")

    assert await service.post(token, "ada") == (202, ["accepted"])
    assert await service.post(token, "bob") == (422, ["other_user"])
    assert await service.post(token, "bob", "ada", "ada ", "Ada", "") == (
        202,
        ["other_user", "accepted", "other_user", "other_user", "malformed"],
    )
    assert service.sent == 2


async def test_it_counts_as_the_same_account_as_through_the_backend(tmp_path):
    """Who changes from one way to the other must not have a second key."""
    service = Signing(tmp_path, news=None, maps="news")
    await service.send("news", "ada")
    await service.post(service.mint("news", "ada"), "ada")
    await service.post(service.mint("maps", "ada"), "ada")

    assert len(set(service.contributors(8))) == 1
    assert service.counted() == (1, 2)


@pytest.mark.parametrize("late_s", [0, 1, 10**6])
async def test_an_expired_token_is_refused(tmp_path, late_s):
    service = Signing(tmp_path, news=None)

    assert await service.post(service.mint("news", "ada", -late_s), "ada") == (401, [])
    assert "get a new one" in service.detail
    assert service.sent == 0


async def test_a_token_that_would_last_too_long_is_refused(tmp_path):
    """A backend's mistake must not put a token for years on every device."""
    service = Signing(tmp_path, news=None)
    service.restart(user_token_s=HOUR)

    assert await service.post(service.mint("news", "ada", HOUR), "ada") == (202, ["accepted"])
    assert await service.post(service.mint("news", "ada", HOUR + 2), "ada") == (401, [])
    assert "user_token_s" in service.detail


def changed(token: str, place: int, value: str) -> str:
    parts = token.split(".")
    parts[place] = value
    return ".".join(parts)


async def test_a_forged_token_is_refused_and_learns_nothing(tmp_path):
    """Every part is signed. One sentence for all, so that no name or user can be asked for."""
    service = Signing(tmp_path, news=None, maps=None)
    token = service.mint("news", "ada")
    bob = service.mint("news", "bob").split(".")
    expired = service.mint("news", "ada", -1)
    flipped = "A" if token[-2] != "A" else "B"
    forged = [
        changed(token, 0, "maps"),
        changed(token, 0, "nobody"),
        changed(token, 1, str(NOW_S + 2 * HOUR)),
        changed(token, 2, bob[2]),
        changed(token, 3, bob[3]),
        changed(expired, 1, str(NOW_S + HOUR)),
        changed(expired, 3, bob[3]),
        token[:-2] + flipped + token[-1],
        token[:-1],
        token + "A",
        token + ".",
        "." + token,
        token.replace(".", "..", 1),
        service.keys["news"],
        service.keys["news"].replace("/", "."),
        mint_user_token(f"news/news/{'A' * 43}", "ada", expires_s=NOW_S + HOUR),
        # Signed by the right key for another space, as before the application was moved.
        mint_user_token(
            service.keys["news"].replace("/news/", "/maps/"), "ada", expires_s=NOW_S + HOUR
        ),
    ]
    details = set()
    for text in forged:
        assert await service.post(text, "ada") == (401, []), text
        details.add(service.detail)
    assert len(details) == 1
    assert service.sent == 0


async def test_an_application_that_was_taken_away_takes_its_users_tokens_along(tmp_path):
    service = Signing(tmp_path, news=None, maps=None)
    token, other = service.mint("news", "ada"), service.mint("maps", "ada")
    remove_tokens(service.path, "news")
    service.restart()

    assert await service.post(token, "ada") == (401, [])
    assert await service.post(other, "ada") == (202, ["accepted"])


async def test_a_key_that_was_replaced_signs_no_more_and_two_may_hold_meanwhile(tmp_path):
    service = Signing(tmp_path, news=None)
    old = service.mint("news", "ada")
    first = service.path.read_text().splitlines()[-1]
    service.keys["news"] = add_token(service.path, "news", for_users=True)
    service.restart()
    assert await service.post(old, "ada") == (202, ["accepted"])
    assert await service.post(service.mint("news", "ada"), "ada") == (202, ["accepted"])

    service.path.write_text(service.path.read_text().replace(first + "\n", ""))
    service.restart()
    assert await service.post(old, "ada") == (401, [])
    assert await service.post(service.mint("news", "ada"), "ada") == (202, ["accepted"])


async def test_users_devices_cannot_use_up_the_rate_of_the_backend(tmp_path):
    """One person's device could otherwise keep all others' records out."""
    service = Signing(tmp_path, news=None)
    service.restart(GatewaySettings(optin_records_per_s=3.0, batch_entries=3))
    token = service.mint("news", "ada")
    while (await service.post(token, "ada"))[0] != 429:
        pass

    await service.send("news", "bob")


async def test_neither_the_user_nor_the_token_is_written_anywhere(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    service = Signing(tmp_path, news=None)
    token = service.mint("news", "ada-lovelace")
    for text in (token, changed(token, 0, "maps"), service.mint("news", "ada-lovelace", -1)):
        await service.post(text, "ada-lovelace")
        await service.post(text, "bob-lovelace")
        assert "lovelace" not in service.detail
    said = caplog.text + repr(UserToken.read(token)) + service.path.read_text()
    for secret in ("lovelace", *token.split(".")[2:], service.keys["news"].rpartition("/")[2]):
        assert secret not in said


@pytest.mark.parametrize("vector", VECTORS["minted"], ids=lambda v: v["token"][:30])
def test_other_languages_mint_the_same_tokens(vector):
    assert vector["token"] == mint_user_token(
        vector["key"], vector["user_id"], expires_s=vector["expires_s"]
    )
    token = UserToken.read(vector["token"])
    assert token is not None
    assert token.is_signed(vector["space"], bytes.fromhex(vector["public_key"]))
    assert token.is_for(vector["user_id"].encode())


@pytest.mark.parametrize("user_id", ["", "x" * 257, "\ud800"])
def test_what_is_no_user_id_gets_no_token(user_id):
    with pytest.raises(ParameterError, match="user_id must be text"):
        mint_user_token(VECTORS["minted"][0]["key"], user_id, expires_s=NOW_S)


@pytest.mark.parametrize("key", ["", "news.secret", "news/news/short", "News/news/" + "A" * 43])
def test_what_is_no_key_signs_nothing_and_is_not_quoted(key):
    with pytest.raises(ParameterError, match="NAME/SPACE/SECRET") as refused:
        mint_user_token(key, "ada", expires_s=NOW_S)
    assert not key or key not in str(refused.value)
