"""Verbs that need no servers: keys, results, completion."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from agents.cli import VERBS, main


def test_a_new_key_is_a_line_for_the_secrets_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "new", "2026-b"]) == 0
    first = capsys.readouterr().out
    assert re.fullmatch(r"2026-b=[0-9a-f]{64}\n", first)
    main(["keys", "new", "2026-b"])
    assert capsys.readouterr().out != first


def test_a_key_id_that_no_setting_takes_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "new", "Two Words"]) == 1
    assert "must have 1 to 64 of the characters" in capsys.readouterr().err


def figure(p: float) -> dict[str, float]:
    return {"probability": p, "variance": 1e-6, "low": p - 0.01, "high": p + 0.01}


DOCUMENT = {
    "epoch": 41,
    "outcome": "complete",
    "reasons": [],
    "mechanisms": {"profile": "sharp"},
    "participants": {"selection": 900, "estimation": 100, "clients": 12_000},
    "agreement": {"statistic": 9.0, "p_value": 0.001, "agree": False, "prefer": "client"},
    "records": [
        {"query": "tea", "url": "https://t.example/", "blend": figure(0.2), "client": figure(0.3)},
        {"query": "tea", "url": "https://u.example/", "blend": figure(0.1), "client": figure(0.1)},
        {"query": None, "url": None, "blend": figure(0.7), "client": figure(0.6)},
    ],
}


@pytest.fixture
def gateway() -> Iterator[str]:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = {"/v1/estimates/latest", "/v1/estimates/41"}
            csv = self.headers["accept"] == "text/csv"
            self.send_response(200 if self.path in known else 404)
            self.end_headers()
            self.wfile.write(b"query,url\r\n" if csv else json.dumps(DOCUMENT).encode())

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
    assert "the groups disagree" in shown
    assert "… and 1 more" in shown


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
    assert all(verb.name in script for verb in VERBS)
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
