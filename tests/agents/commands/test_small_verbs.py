"""Verbs that need no servers: keys, tokens, results, completion."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from blendstream.agents.cli import SUBCOMMANDS, main
from blendstream.agents.commands import simulate
from blendstream.streams.user_tokens import UserToken


def test_a_new_key_is_a_line_for_the_secrets_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "new", "2026-b"]) == 0
    first = capsys.readouterr().out
    assert re.fullmatch(r"2026-b=[0-9a-f]{64}\n", first)
    main(["keys", "new", "2026-b"])
    assert capsys.readouterr().out != first


def test_a_key_id_that_no_setting_takes_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "new", "Two Words"]) == 1
    assert "must have 1 to 64 of the characters" in capsys.readouterr().err


def test_a_key_is_written_for_its_owner_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A redirect would leave the secret to the umask: read by everybody, or not by the service."""
    file = tmp_path / "master-secrets.txt"
    before = os.umask(0o022)
    try:
        assert main(["keys", "new", "2026-a", "--file", str(file)]) == 0
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text(file.read_text().rstrip("\n"))  # as editors leave it
    assert main(["keys", "new", "2026-b", "--file", str(file)]) == 0
    assert re.fullmatch(r"2026-a=[0-9a-f]{64}\n2026-b=[0-9a-f]{64}\n", file.read_text())
    assert capsys.readouterr().out == ""

    kept = file.read_text()
    assert main(["keys", "new", "2026-a", "--file", str(file)]) == 1
    assert "must be new, '2026-a' is in the file already" in capsys.readouterr().err
    assert file.read_text() == kept
    assert main(["keys", "new", "2026-a", "--file", str(tmp_path / "none" / "file")]) == 1
    assert "correct the path, or let this user write there" in capsys.readouterr().err


def test_tokens_are_added_listed_and_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = ["--file", str(tmp_path / "tokens.txt")]

    def said(*words: str, status: int = 0) -> str:
        assert main(["tokens", *words, *file]) == status
        shown = capsys.readouterr()
        return shown.err if status == 1 and shown.err else shown.out

    first, second = said("add", "news-app").strip(), said("add", "news-app").strip()
    assert first != second
    assert first.startswith("news-app.")
    said("add", "maps")
    assert said("list") == "maps  1\nnews-app  2\n"
    assert first.partition(".")[2] not in (tmp_path / "tokens.txt").read_text()
    assert said("remove", "news-app") == "removed 2 tokens\n"
    assert said("remove", "news-app", status=1) == "removed 0 tokens\n"
    assert said("list") == "maps  1\n"
    assert "needs an application's NAME" in said("add", status=1)
    assert "1 to 63 lower-case letters" in said("add", "Two Words", status=1)


#: One of eight processes: adds tokens, takes some away, and adds keys.
AT_THE_SAME_TIME = """
import sys
from blendstream.agents.cli import main
number, tokens, keys = sys.argv[1:]
for turn in range(6):
    for name in (f"app-{number}-{turn}", f"gone-{number}-{turn}"):
        assert main(["tokens", "add", name, "--file", tokens]) == 0
    assert main(["tokens", "remove", f"gone-{number}-{turn}", "--file", tokens]) == 0
    assert main(["keys", "new", f"{number}-{turn}", "--file", keys]) == 0
    main(["keys", "new", f"same-{turn}", "--file", keys])
"""


def test_verbs_that_run_at_the_same_time_lose_nothing_and_undo_nothing(tmp_path: Path) -> None:
    """Eight parallel `tokens add` once left five lines, and a removal was undone by another add."""
    tokens, keys = tmp_path / "tokens", tmp_path / "keys"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", AT_THE_SAME_TIME, str(number), str(tokens), str(keys)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for number in range(8)
    ]

    assert [process.wait(timeout=120) for process in running] == [0] * 8

    made = sorted(f"{number}-{turn}" for number in range(8) for turn in range(6))
    names = sorted(line.split()[0] for line in tokens.read_text().splitlines())
    assert names == [f"app-{name}" for name in made]
    ids = sorted(line.partition("=")[0] for line in keys.read_text().splitlines())
    assert ids == [*made, *(f"same-{turn}" for turn in range(6))]


def test_a_key_for_users_is_added_and_mints_a_token_without_the_id_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = ["--file", str(tmp_path / "tokens.txt")]
    assert main(["tokens", "add", "news-app", "--for-users", *tokens]) == 0
    key = capsys.readouterr().out
    assert main(["tokens", "list", *tokens]) == 0
    assert capsys.readouterr().out == "news-app  0, signs for users\n"
    assert key.strip().rpartition("/")[2] not in (tmp_path / "tokens.txt").read_text()
    path = tmp_path / "key"
    path.write_text(key)
    path.chmod(0o600)

    monkeypatch.setattr("sys.stdin", io.StringIO("account-17\n"))
    assert main(["tokens", "mint", "--key-file", str(path), "--minutes", "5"]) == 0
    token = UserToken.read(capsys.readouterr().out.strip())
    assert token is not None
    assert token.is_for(b"account-17")
    assert 0 < token.expires_s - time.time() <= 300
    public = bytes.fromhex((tmp_path / "tokens.txt").read_text().split()[2])
    assert token.is_signed("news-app", public)

    path.chmod(0o644)
    assert main(["tokens", "mint", "--key-file", str(path)]) == 1
    assert "chmod" in capsys.readouterr().err
    assert main(["tokens", "mint"]) == 1
    assert "needs --key-file" in capsys.readouterr().err


def test_tokens_of_applications_that_share_accounts_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An operator must be able to see who shares users with whom."""
    file = ["--file", str(tmp_path / "tokens.txt")]
    for words in (["news"], ["maps", "--user-ids", "news"], ["maps"]):
        assert main(["tokens", "add", *words, *file]) == 0
    capsys.readouterr()

    assert main(["tokens", "list", *file]) == 0
    assert capsys.readouterr().out == "maps  2  user ids of news\nnews  1\n"
    assert main(["tokens", "add", "news", "--user-ids", "family", *file]) == 1
    assert "got family where news has news" in capsys.readouterr().err
    assert main(["tokens", "remove", "maps", "--user-ids", "news", *file]) == 1
    assert "must be given to `blendstream tokens add` only" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["add", "remove", "list"])
def test_a_token_file_that_cannot_be_used_is_named_in_one_line(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Never a traceback: an operator mistyped a path."""
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for path in (tmp_path, tmp_path / "bytes", tmp_path / "none" / "tokens.txt"):
        assert main(["tokens", what, "news-app", "--file", str(path)]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("blendstream: the token file must be a text file")
        assert str(path) in line
    assert main(["tokens", what, "news-app", "--settings", str(tmp_path / "none")]) == 1
    assert "the settings file must be readable" in capsys.readouterr().err


def figure(p: float) -> dict[str, float]:
    return {"probability": p, "variance": 1e-6, "low": p - 0.01, "high": p + 0.01}


def row(query: str | None, url: str | None, blend: float, client: float) -> dict[str, object]:
    said = {"blend": figure(blend), "client": figure(client), "disputed": False}
    return {"query": query, "url": url, **said}


DOCUMENT = {
    "epoch": 41,
    "window_start_s": 1_797_552_000,
    "window_end_s": 1_797_638_400,
    "outcome": "complete",
    "reasons": [],
    "mechanisms": {"profile": "sharp"},
    "participants": {"selection": 900, "estimation": 100, "clients": 12_000},
    "agreement": {"statistic": 9.0, "p_value": 0.001, "agree": False, "prefer": "client"},
    "difference": None,
    "disputed": None,
    "filtered": None,
    "records": [
        row("tea", "https://t.example/", 0.2, 0.3),
        row("tea", "https://u.example/", 0.1, 0.1),
        row("milk", "https://m.example/", 0.05, 0.2),
        row(None, None, 0.7, 0.6),
    ],
}


#: One record stands out: the groups' own values are printed below it.
DISPUTED = DOCUMENT | {
    "epoch": 42,
    "agreement": None,
    "difference": {"statement": "Opt-in users' shares differ from other people's by about 18 %."},
    "disputed": {"records": 1, "shown": "optin", "reason": "In one record the two groups differ."},
    "records": [
        {
            "query": "tea",
            "url": "https://t.example/",
            "optin": figure(0.2),
            "client": figure(0.3),
            "blend": {"probability": 0.2, "variance": 1e-6, "low": 0.19, "high": 0.31},
            "disputed": True,
        },
        {"query": "tea", "url": "https://u.example/", "blend": figure(0.1), "disputed": False},
    ],
}


@pytest.fixture
def gateway() -> Iterator[str]:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = {f"/v1/estimates/{which}" for which in ("latest", 41, 42)}
            document = DISPUTED if self.path.endswith("42") else DOCUMENT
            csv = self.headers["accept"] == "text/csv"
            self.send_response(200 if self.path in known else 404)
            self.end_headers()
            self.wfile.write(b"query,url\r\n" if csv else json.dumps(document).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_results_show_what_the_publication_says_to_read(
    gateway: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """When the groups disagree the blend would mislead."""
    assert main(["results", "--server", gateway, "--top", "1"]) == 0
    shown = capsys.readouterr().out
    assert "1,000 opt-in users, 12,000 clients" in shown
    assert "30.000%  29.000% … 31.000%    tea → https://t.example/" in shown
    assert "the groups disagree significantly (p = 0.001); shown: the clients'" in shown
    assert "epoch 41, 2026-12-18 00:00:00 to 2026-12-19 00:00:00 UTC, complete" in shown
    assert "… and 2 more" in shown


def test_results_are_in_the_order_of_what_is_shown(
    gateway: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They came in the blend's order with the clients' shares beside them: 30 %, 10 %, 20 %."""
    assert main(["results", "--server", gateway]) == 0
    shares = re.findall(r"^ +([\d.]+)%", capsys.readouterr().out, re.MULTILINE)
    assert shares == ["30.000", "20.000", "10.000"]


def test_results_for_programs_are_the_document_as_it_was_published(
    gateway: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["results", "--server", gateway, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == DOCUMENT


def test_results_mark_a_disputed_record_and_say_what_each_group_said(
    gateway: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["results", "--server", gateway, "--epoch", "42"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  Opt-in users' shares differ from other people's by about 18 %." in lines
    assert "  disputed: In one record the two groups differ." in lines
    place = lines.index("  20.000%  19.000% … 31.000%    tea → https://t.example/")
    assert lines[place + 1].strip() == "disputed: opt-in users 20.000%, clients 30.000%"
    assert not any("disputed" in line for line in lines[place + 2 :])


def test_results_as_csv_are_passed_on_as_they_are(
    gateway: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["results", "--server", gateway, "--epoch", "41", "--csv"]) == 0
    assert capsys.readouterr().out == "query,url\r\n"


def test_results_that_are_not_there_say_so(
    gateway: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["results", "--server", gateway, "--epoch", "7"]) == 1
    assert "nothing is published there yet" in capsys.readouterr().out
    assert main(["results", "--server", "http://127.0.0.1:9"]) == 1
    assert "start it, or name another with --server" in capsys.readouterr().err


def test_bash_takes_the_completion_and_it_knows_every_verb(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert all(verb.name in script for verb in SUBCOMMANDS)
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_simulate_takes_its_token_from_a_private_file_or_the_environment_never_from_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every user of a machine can read command lines; a token lets its holder invent people."""
    assert "--token-file" in (simulate.__doc__ or "")
    with pytest.raises(SystemExit):
        main(["simulate", "--token", "secret"])
    monkeypatch.delenv("TOKEN", raising=False)
    assert main(["simulate"]) == 1
    assert "export TOKEN=$(blendstream tokens add NAME)" in capsys.readouterr().err

    used: list[str] = []

    async def course(_arguments: object, token: str, _clicks: object) -> None:
        used.append(token)

    monkeypatch.setattr(simulate, "_course", course)
    file = tmp_path / "token"
    file.write_text("from-a-file\n")
    file.chmod(0o644)
    assert main(["simulate", "--token-file", str(file)]) == 1
    said = capsys.readouterr().err
    assert "must be readable by its owner and group only" in said
    assert "from-a-file" not in said
    file.chmod(0o600)
    assert main(["simulate", "--token-file", str(file)]) == 0
    monkeypatch.setenv("TOKEN", "from-the-environment")
    assert main(["simulate"]) == 0
    assert used == ["from-a-file", "from-the-environment"]
    assert main(["simulate", "--token-file", str(tmp_path / "none")]) == 1
    assert "No such file" in capsys.readouterr().err
