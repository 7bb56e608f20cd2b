"""`blendstream run`: three processes in one terminal, which end together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from blendstream.agents.local.ports import free_port
from blendstream.agents.process import address_of

ROOT = Path(__file__).parents[3]


def test_when_one_ends_by_itself_the_others_are_stopped_and_it_is_named(
    setting_values, tmp_path: Path
) -> None:
    """A service that lacks one of the three does nothing, and looks as if it ran."""
    given = {**setting_values, "kafka.request_timeout_s": 1}
    given |= {"kafka.url": f"kafka://127.0.0.1:{free_port()}"}
    given["keys.master_secrets"] = "test=" + "00" * 32
    environment = {
        f"BLENDSTREAM_{name.replace('.', '_').upper()}": str(value) for name, value in given.items()
    }

    ended = subprocess.run(
        [sys.executable, "-m", "blendstream.agents.cli", "run"],
        cwd=tmp_path, env={**environment, "PYTHONPATH": f"{ROOT}/src:{ROOT}"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert ended.returncode == 1
    assert "exited with status 1; stopping the others" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_wrong_settings_are_told_once_and_nothing_is_started(tmp_path: Path) -> None:
    file = tmp_path / "none.toml"
    ended = subprocess.run(
        [sys.executable, "-m", "blendstream.agents.cli", "run", "--settings", str(file)],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert ended.returncode == 1
    assert ended.stderr.count("the settings file must be readable") == 1


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", "http://127.0.0.1:8080/"), ("::1", "http://[::1]:8080/")],
)
def test_an_address_is_one_that_a_browser_takes(host: str, address: str) -> None:
    assert address_of(host, 8080, "/") == address
