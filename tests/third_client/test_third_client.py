"""A client written from docs/device-protocol.md alone passes every vector: the page suffices."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLIENT = ("perl", "tests/third_client/client.pl")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_client_written_from_the_page_passes_every_vector() -> None:
    """It shares no line, language or Unicode library with the other two."""
    ended = subprocess.run(
        [sys.executable, "tests/vectors/device/play.py", "--", *CLIENT],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout[-5_000:] + ended.stderr[-5_000:]
    passed, played = ended.stdout.split(" vectors")[0].split()[-3::2]
    assert int(passed) == int(played) > 2_000
