"""The command `localclient`, as someone would try it by hand."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from blendstream.localclient.cli import main
from tests.localclient.publications import over_time, publication
from tests.localclient.support import Gateway, head_list

LIMITS = ["--epsilon", "4", "--delta", "1e-5", "--period-epsilon", "8", "--period-delta", "1e-4"]


def test_a_search_is_kept_reported_and_forgotten(
    gateway: Gateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the real clock and the real dice."""
    folder = ["--folder", str(tmp_path / "device")]
    assert main(["record", "weather", "https://weather.example/", *folder]) == 0
    assert "Kept on this device: 1 search in" in capsys.readouterr().out

    now_s = int(time.time())
    gateway.show(
        head_list(
            window_start_s=now_s - 3_600, window_end_s=now_s + 1, reports_until_s=now_s + 7_200
        )
    )
    report = ["report", "--server", gateway.url, *LIMITS, *folder]
    assert main(report) == 0
    assert "Waiting (epoch 7)" in capsys.readouterr().out
    assert main(["status", *folder]) == 0
    assert "Will report at" in capsys.readouterr().out
    assert main([*report, "--now"]) == 0
    said = capsys.readouterr().out
    assert "Sent (epoch 7): accepted." in said
    assert "Spent in 28 days: epsilon 4, delta 1e-05." in said
    assert len(gateway.posted) == 1

    assert main(["status", *folder]) == 0
    said = capsys.readouterr().out
    assert "Searches kept          0" in said
    assert "Last epoch answered    7" in said
    assert "epsilon 4" in said

    assert main(["record", "news", "https://news.example/", *folder]) == 0
    assert main(["forget", *folder]) == 0
    assert "What was spent stays spent" in capsys.readouterr().out


def test_a_refusal_is_one_clear_line(
    gateway: Gateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.show(head_list())
    folder = ["--folder", str(tmp_path)]
    small = ["--epsilon", "1", "--period-epsilon", "1"]
    assert main(["report", "--server", gateway.url, *small, *folder]) == 2
    said = capsys.readouterr().err
    assert said.startswith(
        "refused: a head list must stay within this device's epsilon_per_report=1.0"
    )
    assert said.count("\n") == 1
    assert main(["search", "weather", "--result", str(tmp_path / "missing.json")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_search_and_trends_print_what_is_published(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "estimates.json"
    path.write_bytes(publication().to_bytes())
    assert main(["search", "Weather", "--result", str(path), "--limit", "1"]) == 0
    own = "Epoch 12 by itself (blend).\n"
    assert capsys.readouterr().out == own + "  0.25000  [0.24000, 0.26000]  https://sun.example/\n"
    assert main(["trends", "--result", str(path), "-n", "1"]) == 0
    rest = "At least: results that are not known are not in a query's share.\n"
    shown = "  0.35000  [0.34000, 0.36000]  weather\n"
    assert capsys.readouterr().out == own + shown + rest
    path.write_bytes(publication(queries_at_least=False).to_bytes())
    assert main(["trends", "--result", str(path), "-n", "1"]) == 0
    assert capsys.readouterr().out == own + shown, "what is complete needs no remark"
    path.write_bytes(publication().to_bytes())
    assert main(["search", "nobody asked", "--result", str(path)]) == 1


def test_search_says_which_estimate_it_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "estimates.json"
    path.write_bytes(over_time(disputed="https://sun.example/").to_bytes())
    assert main(["search", "weather", "--result", str(path)]) == 0
    first, disputed, rain, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("Epoch 12, filtered: the best guess from all epochs")
    assert disputed.endswith("sun.example/  (disputed: the two groups differ here far more than "
                             "elsewhere; this epoch by itself)")  # fmt: skip
    assert rain == "  0.22000  [0.21000, 0.23000]  https://rain.example/"
    assert main(["search", "weather", "--result", str(path), "--one-epoch", "--limit", "1"]) == 0
    assert capsys.readouterr().out.startswith("Epoch 12 by itself (blend).\n  0.25000")


@pytest.mark.parametrize("command", ["record", "status", "report", "search", "trends", "forget"])
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    assert "usage: localclient" in capsys.readouterr().out


def test_it_runs_as_a_module() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "blendstream.localclient", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Keep searches on this device" in ran.stdout
