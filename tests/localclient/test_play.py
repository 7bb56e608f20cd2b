"""play.py plays the vectors against any client, and says what a wrong one does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.__main__ import CLIENTS

ROOT = Path(__file__).parents[2]
PLAY = (sys.executable, "tests/vectors/device/play.py")


def play(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PLAY, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=900
    )


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("client", CLIENTS.values(), ids=lambda command: command[-1])
def test_every_client_passes_every_vector(client: tuple[str, ...]) -> None:
    """One of them shares no line with the client that made the vectors."""
    ended = play("--", *client)

    assert ended.returncode == 0, ended.stdout[-5_000:] + ended.stderr[-5_000:]
    passed, played = ended.stdout.split(" vectors")[0].split()[-3::2]
    assert int(passed) == int(played) > 2_000


@pytest.mark.long
@pytest.mark.parametrize("client", CLIENTS.values(), ids=lambda command: command[-1])
def test_every_client_shows_the_same_log_of_what_was_sent(client: tuple[str, ...]) -> None:
    """A person who changes the application reads the same page."""
    ended = play("sent", "--", *client)

    assert ended.returncode == 0, ended.stdout[-5_000:] + ended.stderr[-5_000:]
    assert ended.stdout == "16 of 16 vectors passed\n"


WRONG = """
import json
for line in iter(input, ""):
    print(json.dumps({"result": %s}), flush=True)
"""


def test_a_wrong_client_is_told_what_must_come() -> None:
    vector = "conversations: a report from the first look to accepted"
    ended = play(vector, "--", sys.executable, "-c", WRONG % "'kept'")

    assert ended.returncode == 1
    assert ended.stdout == (
        f"FAILED {vector}\n  in step 5, record 8640000: the outcome must be\n"
        '    "text refused"\n  and is\n    "kept"\n0 of 1 vectors passed\n'
    )


def test_a_request_that_does_not_come_is_missed() -> None:
    vector = "conversations: its reporting window has ended"
    ended = play(vector, "--", sys.executable, "-c", WRONG % "'kept'")

    assert (
        "the number of requests that did not come must be\n    0\n  and is\n    1" in ended.stdout
    )


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print('hello')", "the client must write a JSON object, got 'hello"),
        ("print('[]')", "a line must have one of the keys below, request, result"),
        ("import sys; sys.exit(3)", "the client must write a JSON object, got ''"),
        (
            'print(\'{"request": {"path": "/v1/epochs"}}\')',
            "nothing is to be requested here",
        ),
    ],
)
def test_a_client_that_breaks_off_or_babbles_fails_and_ends_nothing_else(
    code: str, said: str
) -> None:
    ended = play("budget: the first", "budget: four do not", "--", sys.executable, "-c", code)

    assert ended.returncode == 1
    # A program that ended earlier than the next vector began cannot be asked.
    found = ended.stdout.count(said) + ended.stdout.count("the client has ended")
    assert said in ended.stdout
    assert found == 2, ended.stdout


def test_without_a_command_it_explains_itself() -> None:
    ended = play("budget")

    assert ended.returncode == 2
    assert "python tests/vectors/device/play.py -- COMMAND" in ended.stderr


def test_the_names_it_lists_are_those_it_plays() -> None:
    """Somebody who writes a client goes through conversations one by one."""
    listed = play("list", "budget").stdout.splitlines()

    assert "budget: the first" in listed
    wrong = play(*listed[:2], "--", sys.executable, "-c", "print('hello')").stdout
    assert [line for line in wrong.splitlines() if line.startswith("FAILED")] == [
        f"FAILED {name}" for name in listed[:2]
    ]


def test_vectors_that_do_not_exist_are_no_success() -> None:
    assert play("budget: no such", "--", "true").returncode == 1
