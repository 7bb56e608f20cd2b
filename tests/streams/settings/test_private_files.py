"""A secret that everybody on the machine can read, or replace, stops the start."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from blendstream.agents.cli import main
from blendstream.agents.tokens import ApplicationTokens, Sender, TokenFileError, add_token
from blendstream.streams.errors import SettingsError
from blendstream.streams.settings import Settings, load_settings
from tests.service.settings import variables_of

REFUSED = (0o644, 0o604, 0o602, 0o660, 0o620, 0o666)
TAKEN = (0o600, 0o400, 0o640, 0o440)


def complaint(file: Path, environment: dict[str, str]) -> str:
    """Return the problems that stop the start with this settings file and environment."""
    with pytest.raises(SettingsError) as refused:
        load_settings(file, environment)
    (problem,) = refused.value.problems
    return problem


@pytest.fixture
def environment(setting_values: dict[str, object]) -> dict[str, str]:
    return variables_of(setting_values)


@pytest.fixture
def settings_file(tmp_path: Path) -> Path:
    file = tmp_path / "settings.toml"
    file.write_text("")
    return file


@pytest.mark.parametrize("mode", REFUSED)
def test_master_secrets_that_others_can_read_or_write_are_refused(
    mode: int, environment: dict[str, str], settings_file: Path, tmp_path: Path
) -> None:
    """With them and an epoch's raw log anybody can test whether a known person took part."""
    masters = tmp_path / "master-secrets.txt"
    masters.write_text(f"test={'aa' * 32}\n")
    masters.chmod(mode)
    del environment["BLENDSTREAM_KEYS_MASTER_SECRETS"]
    environment["BLENDSTREAM_KEYS_MASTER_SECRETS_FILE"] = str(masters)

    said = complaint(settings_file, environment)

    assert said.startswith(
        "the file of keys.master_secrets must be readable by its owner and group"
    )
    assert f"got mode {mode:04o} for {masters}" in said
    assert "aa" * 32 not in said
    # What it says to run is enough.
    (command,) = re.findall(r"run: (chmod \S+ \S+)", said)
    subprocess.run(command.split(), check=True)
    load_settings(settings_file, environment)


@pytest.mark.parametrize("mode", TAKEN)
def test_master_secrets_of_the_owner_or_the_group_are_taken(
    mode: int, environment: dict[str, str], settings_file: Path, tmp_path: Path
) -> None:
    """Kubernetes hands secrets to a group (fsGroup), systemd to the service's own user."""
    masters = tmp_path / "master-secrets.txt"
    masters.write_text(f"test={'aa' * 32}\n")
    masters.chmod(mode)
    del environment["BLENDSTREAM_KEYS_MASTER_SECRETS"]
    settings_file.write_text('[keys]\nmaster_secrets_file = "master-secrets.txt"\n')

    assert load_settings(settings_file, environment).settings.keys.masters()["test"]


@pytest.mark.parametrize(
    "text",
    [
        f'[keys.master_secrets]\ntest = "{"aa" * 32}"\n',
        '[kafka]\nsasl_password = "hunter2"\nsasl_user = "me"\nsasl_mechanism = "SCRAM-SHA-512"\n',
        '[redis]\nurl = "redis://me:hunter2@127.0.0.1:6379/0"\n',
    ],
    ids=["master secrets", "password", "password in a URL"],
)
def test_a_settings_file_that_holds_a_secret_is_one(
    text: str, environment: dict[str, str], settings_file: Path
) -> None:
    """The same secret, one file further."""
    for name in ("KEYS_MASTER_SECRETS", "REDIS_URL"):
        if name.partition("_")[2].lower() in text:
            del environment[f"BLENDSTREAM_{name}"]
    settings_file.write_text(text)
    settings_file.chmod(0o644)

    said = complaint(settings_file, environment)

    assert "got mode 0644" in said
    assert "hunter2" not in said
    settings_file.chmod(0o640)
    load_settings(settings_file, environment)


def test_a_settings_file_without_secrets_may_be_read_by_all(
    environment: dict[str, str], settings_file: Path
) -> None:
    """It is the same for all processes, and no secret: a ConfigMap in Kubernetes."""
    settings_file.write_text('[redis]\nurl = "redis://127.0.0.1:6379/0"\n')
    settings_file.chmod(0o644)

    load_settings(settings_file, environment)


@pytest.mark.parametrize("mode", REFUSED)
def test_a_token_file_that_others_can_read_or_write_is_refused(
    mode: int, setting_values: dict[str, object], tmp_path: Path
) -> None:
    """A writer of the file can grant access; a reader learns which applications send."""
    tokens = tmp_path / "tokens.txt"
    add_token(tokens, "news-app")
    tokens.chmod(mode)

    with pytest.raises(SettingsError, match=r"gateway\.token_file must be readable by"):
        Settings.from_values(setting_values | {"gateway.token_file": str(tokens)})
    # A gateway that is handed the file in another way refuses it too.
    with pytest.raises(TokenFileError, match=f"got mode {mode:04o}"):
        ApplicationTokens(tokens, clock=lambda: 0.0)


def sends(tokens: ApplicationTokens, token: str) -> bool:
    return isinstance(tokens.sender(f"Bearer {token}".encode(), now_s=0), Sender)


def test_a_token_file_that_is_opened_to_all_while_a_gateway_runs_is_not_read(
    tmp_path: Path,
) -> None:
    """A concurrent change by someone else must not grant access."""
    tokens, now = tmp_path / "tokens.txt", [0.0]
    first = add_token(tokens, "news-app")
    read = ApplicationTokens(tokens, clock=lambda: now[0])
    second = add_token(tokens, "maps")
    tokens.chmod(0o666)
    now[0] = 2.0

    assert sends(read, second) is False
    assert sends(read, first)
    assert read.stale, "TokensStale tells the operator"
    tokens.chmod(0o600)
    now[0] = 4.0
    assert sends(read, second)


def test_the_key_of_a_certificate_is_a_secret_too(
    setting_values: dict[str, object], tmp_path: Path
) -> None:
    key = tmp_path / "key.pem"
    key.write_text("a key")
    key.chmod(0o644)
    given = {"kafka.tls_key_file": str(key), "kafka.tls_certificate_file": __file__}
    given |= {"kafka.url": "kafka+ssl://127.0.0.1:9092"}

    with pytest.raises(SettingsError, match=r"kafka\.tls_key_file must be readable by its"):
        Settings.from_values(setting_values | given)
    key.chmod(0o600)
    Settings.from_values(setting_values | given)


@pytest.mark.parametrize(
    "words",
    [
        ["keys", "new", "2026-b", "--file"],
        ["tokens", "add", "maps", "--file"],
        ["tokens", "remove", "news-app", "--file"],
        ["tokens", "list", "--file"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_verbs_write_no_secret_into_a_file_that_is_open_to_all(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The service would not start with it; better to hear it now."""
    file = tmp_path / "file"
    if words[0] == "tokens":
        add_token(file, "news-app")
    else:
        file.write_text(f"2026-a={'aa' * 32}\n")
    file.chmod(0o644)
    before = file.read_bytes()

    assert main([*words, str(file)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "got mode 0644" in line
    assert f"run: chmod g-w,o= {file}" in line
    assert file.read_bytes() == before


def test_the_doctor_says_how_to_fix_it(
    setting_values: dict[str, object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tokens = tmp_path / "tokens.txt"
    add_token(tokens, "news-app")
    tokens.chmod(0o644)
    for name, value in variables_of(setting_values).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("BLENDSTREAM_GATEWAY_TOKEN_FILE", str(tokens))

    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert said.startswith("  FIX   settings:     gateway.token_file must be readable by its owner")
    assert f"run: chmod g-w,o= {tokens}" in said
