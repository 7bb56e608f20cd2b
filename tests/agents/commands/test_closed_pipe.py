"""`blendstream VERB | head -1`: the reader goes, and the verb ends as Unix tools do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SIGPIPE = 128 + 13  # As the shell reports a tool that the signal ended.


def into_closed_pipe(*command: str, errors_too: bool = False) -> subprocess.CompletedProcess[str]:
    """Run Python with a standard output that nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(
            [sys.executable, *command],
            stdout=writer,
            stderr=writer if errors_too else subprocess.PIPE,
            text=True,
            check=False,
            cwd=ROOT,
            env={"PATH": os.environ["PATH"]},
        )
    finally:
        os.close(writer)


@pytest.mark.parametrize(
    "words",
    [["--help"], ["epochs", "--help"], ["keys", "new", "2026-a"], ["completion", "bash"], []],
    ids=" ".join,
)
def test_a_verb_whose_reader_has_gone_ends_without_a_traceback(words):
    """It showed BrokenPipeError, or "Exception ignored in", for a page that was read."""
    ended = into_closed_pipe("-m", "blendstream.agents.cli", *words)

    assert (ended.returncode, ended.stderr) == (SIGPIPE, "")


def test_so_does_one_that_has_an_error_to_tell():
    ended = into_closed_pipe("-m", "blendstream.agents.cli", "settings", errors_too=True)

    assert ended.returncode == SIGPIPE


def test_a_broken_connection_is_not_taken_for_a_reader_that_has_gone():
    """It has the same name, and somebody must hear of it."""
    code = (
        "import sys; from blendstream.agents import cli\n"
        "def broken(arguments): raise BrokenPipeError('a server went away')\n"
        "import blendstream.agents.commands.completion as verb; verb.run = broken\n"
        "sys.exit(cli.main(['completion', 'bash']))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )

    assert ended.returncode == 1
    assert "a server went away" in ended.stderr


def test_work_that_was_begun_is_done_to_the_end(tmp_path):
    """Half of `rebuild` or `epochs restored` must not depend on who reads what it says."""
    code = (
        "import sys, pathlib; from blendstream.agents.output import say\n"
        "say('the first step is done')\n"
        "say('the second step is done')\n"
        "pathlib.Path(sys.argv[1]).touch()"
    )
    ended = into_closed_pipe("-c", code, str(tmp_path / "done"))

    assert (ended.returncode, ended.stderr) == (0, "")
    assert (tmp_path / "done").exists()
