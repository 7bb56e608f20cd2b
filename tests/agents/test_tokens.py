"""Tokens name applications, are stored as hashes, and follow their file."""

from __future__ import annotations

import os

import pytest

from blendstream.agents.tokens import (
    Application,
    ApplicationTokens,
    Sender,
    TokenFileError,
    add_token,
    read_tokens,
    remove_tokens,
)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def bearer(token: str) -> bytes:
    return f"Bearer {token}".encode()


def proved(tokens: ApplicationTokens, header: bytes | None) -> Application | None:
    found = tokens.sender(header, now_s=0)
    return found.application if isinstance(found, Sender) else None


def application(tokens: ApplicationTokens, token: str) -> str | None:
    found = proved(tokens, bearer(token))
    return None if found is None else found.name


def test_a_token_names_its_application(tmp_path):
    path = tmp_path / "tokens"
    news, mail = add_token(path, "news"), add_token(path, "mail")
    tokens = ApplicationTokens(path, clock=Clock())

    assert application(tokens, news) == "news"
    assert application(tokens, mail) == "mail"
    secret = news.partition(".")[2]
    for wrong in (f"mail.{secret}", f"other.{secret}", "news.", "news", secret, f"{news}x"):
        assert proved(tokens, bearer(wrong)) is None
    assert proved(tokens, news.encode()) is None
    assert proved(tokens, None) is None
    assert proved(tokens, b"Bearer \xff\xfe.\x00") is None


def test_the_file_holds_no_secret_and_is_for_its_owner_alone(tmp_path):
    """Whoever reads a backup of it must not be able to submit."""
    path = tmp_path / "tokens"
    token = add_token(path, "news")

    assert token.partition(".")[2] not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0


def test_a_changed_file_is_in_force_within_a_second(tmp_path):
    """A withdrawn token must stop working without a restart."""
    path = tmp_path / "tokens"
    first = add_token(path, "news")
    clock = Clock()
    tokens = ApplicationTokens(path, clock=clock)
    second = add_token(path, "news")
    assert proved(tokens, bearer(second)) is None
    clock.now = 1.5
    assert application(tokens, second) == "news"
    assert application(tokens, first) == "news", "both hold while one replaces the other"

    assert remove_tokens(path, "news") == 2
    clock.now = 3.0
    assert proved(tokens, bearer(first)) is None


def test_a_broken_or_missing_file_leaves_the_last_good_one_in_force(tmp_path, caplog):
    """An editor's half-written file must not lock every application out."""
    path = tmp_path / "tokens"
    token = add_token(path, "news")
    clock = Clock()
    tokens = ApplicationTokens(path, clock=clock)

    path.write_text("not a token file\n")
    os.utime(path, (1, 1))
    clock.now = 2.0
    assert application(tokens, token) == "news"
    assert "token_file_reload_failed" in caplog.text
    assert tokens.stale, "a withdrawn token works on, which somebody must be told"
    path.unlink()
    clock.now = 4.0
    assert application(tokens, token) == "news"
    add_token(path, "mail")
    clock.now = 6.0
    assert proved(tokens, bearer(token)) is None
    assert not tokens.stale


def test_a_file_that_becomes_readable_again_is_read_though_it_did_not_change(tmp_path):
    """`chmod` mends it, and leaves its time and size as they were."""
    path = tmp_path / "tokens"
    token = add_token(path, "news")
    clock = Clock()
    tokens = ApplicationTokens(path, clock=clock)
    remove_tokens(path, "news")
    right, path_read = tokens._read, []

    def unreadable() -> dict[str, object]:
        path_read.append(clock.now)
        raise TokenFileError("not allowed")

    tokens._read = unreadable  # root may read any file, so that permissions prove nothing here
    clock.now = 2.0
    assert application(tokens, token) == "news"
    tokens._read = right
    clock.now = 4.0
    assert proved(tokens, bearer(token)) is None
    assert path_read == [2.0]


def test_who_may_read_the_file_stays_as_it_was(tmp_path):
    """A second `tokens add` must not take the file away from the gateway's user."""
    path = tmp_path / "tokens"
    add_token(path, "news")
    path.chmod(0o640)
    others = os.geteuid() == 0
    if others:
        os.chown(path, 12345, 23456)
    add_token(path, "mail")
    remove_tokens(path, "news")

    found = path.stat()
    assert found.st_mode & 0o777 == 0o640
    if others:
        assert (found.st_uid, found.st_gid) == (12345, 23456)


def test_a_file_that_would_change_hands_is_left_as_it_is(tmp_path, monkeypatch):
    """Only its owner and root can give it back to the same people."""
    path = tmp_path / "tokens"
    add_token(path, "news")
    before = path.read_bytes()

    def refuse(*_: object) -> None:
        raise PermissionError

    stat_of = os.fstat

    def of_somebody_else(file: int) -> os.stat_result:
        found = stat_of(file)
        return os.stat_result((*found[:4], 12345, 23456, *found[6:10]))

    # Only root can make a file of somebody else's: here the new one is.
    monkeypatch.setattr(os, "fstat", of_somebody_else)
    monkeypatch.setattr(os, "fchown", refuse)
    with pytest.raises(TokenFileError, match="as the file's owner or as root"):
        add_token(path, "mail")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path], "nothing is left beside it"


@pytest.mark.parametrize(
    "line", ["news", "news blake2b 00 00", "NEWS blake2b " + "00" * 16 + " " + "00" * 32, "a b c d"]
)
def test_a_bad_line_is_named_by_number_and_not_quoted(line):
    with pytest.raises(TokenFileError, match="line 2 of the token file must read") as error:
        read_tokens(f"# comment\n{line}\n")
    assert line not in str(error.value)


LINE = f"blake2b {'00' * 16} {'00' * 32}"


def test_user_ids_are_the_applications_own_unless_the_file_says_otherwise(tmp_path):
    """Files written before there were spaces have no fifth field, and keep working."""
    path = tmp_path / "tokens"
    path.write_text(f"mail {LINE}\n")
    path.chmod(0o600)
    news = add_token(path, "news", "family")

    found = read_tokens(path.read_text())
    assert {name: one.user_ids for name, one in found.items()} == {"mail": "mail", "news": "family"}
    found = proved(ApplicationTokens(path, clock=Clock()), bearer(news))
    assert found is not None
    assert (found.name, found.user_ids) == ("news", "family")


def test_replacing_a_token_keeps_the_users(tmp_path):
    """A second space would give every user a second contributor key in the same epoch."""
    path = tmp_path / "tokens"
    add_token(path, "news", "family")
    add_token(path, "news")
    add_token(path, "news", "family")
    add_token(path, "mail")
    add_token(path, "mail", "mail")
    before = path.read_text()
    for name, other in (("news", "news"), ("mail", "family")):
        with pytest.raises(TokenFileError, match="must share one space of user ids"):
            add_token(path, name, other)

    assert path.read_text() == before
    assert [line.split()[4:] for line in before.splitlines()] == [["family"]] * 3 + [[]] * 2


def test_an_application_does_not_come_into_a_space_by_chance(tmp_path):
    """Its name may be the space that others share; only the operator knows who has which users."""
    path = tmp_path / "tokens"
    add_token(path, "news", "family")
    with pytest.raises(TokenFileError, match="Pass --user-ids family if it has the same accounts"):
        add_token(path, "family")
    add_token(path, "family", "own-users")

    assert read_tokens(path.read_text())["family"].user_ids == "own-users"


def test_lines_of_one_application_that_disagree_are_refused(tmp_path):
    """Which of two spaces a user is in must not depend on the token that was shown."""
    with pytest.raises(TokenFileError, match="line 3 of the token file must have the same last"):
        read_tokens(f"news {LINE} family\nmail {LINE}\nnews {LINE}\n")


@pytest.mark.parametrize("space", ["Family", "a.b", "-a", "a" * 64, "two words", "é"])
def test_spaces_are_plain_names(tmp_path, space):
    with pytest.raises(TokenFileError, match="a space of user ids must be 1 to 63"):
        add_token(tmp_path / "tokens", "news", space)
    with pytest.raises(TokenFileError, match="line 1 of the token file must read"):
        read_tokens(f"news {LINE} {space}\n")


def test_a_gateway_does_not_start_without_its_file(tmp_path):
    with pytest.raises(TokenFileError, match="tokens add NAME"):
        ApplicationTokens(tmp_path / "none", clock=Clock())


@pytest.mark.parametrize("name", ["", "News", "a.b", "-a", "a" * 64, "a b"])
def test_names_are_plain(tmp_path, name):
    with pytest.raises(TokenFileError, match="name must be"):
        add_token(tmp_path / "tokens", name)
