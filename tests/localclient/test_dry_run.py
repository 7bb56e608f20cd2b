"""A dry run shows what a report would send; it sends, spends and changes nothing."""

from __future__ import annotations

import json
import re
import shlex
import time
from pathlib import Path

import pytest

from blendstream.localclient import HeadListRefused, LimitReached, OptIn, ResultCode, dry_run
from blendstream.localclient.cli import main
from blendstream.localclient.local_client import _Parts
from tests.localclient.collecting_epochs import collecting
from tests.localclient.support import (
    DAY,
    HOUR,
    LISTED,
    START,
    Gateway,
    ManualClock,
    SeededDice,
    device,
    head_list,
    limits,
)
from tests.localclient.test_reporting import searching

ROOT = Path(__file__).parents[2]


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file with its bytes and the time of its last change."""
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.iterdir()}


def test_the_report_is_shown_and_not_made(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """What an integrator looks at before anything is spent has the form of the real report."""
    document = gateway.show(head_list())
    client = device(gateway, tmp_path, clock)
    searching(client, clock, LISTED[0], LISTED[1])
    before = contents(tmp_path)

    run = dry_run(gateway.url, tmp_path, limits(), _parts=_Parts(clock, SeededDice(1)))

    assert contents(tmp_path) == before
    assert gateway.posted == []
    assert run.outcome is None
    assert run.asked == ("/v1/head-lists/current", f"/v1/head-lists/{document.id}")
    assert (run.path, run.epoch, run.searches) == ("/v1/reports", document.epoch, 2)
    assert run.epsilon == document.head_list.randomizer.epsilon
    assert client.status().epsilon_spent == 0
    assert client.report_now().code is ResultCode.SENT
    ((_, body, _),) = gateway.posted
    assert len(run.body.encode()) == len(body)
    assert json.loads(run.body).keys() == json.loads(body).keys()


def test_bytes_that_wait_are_shown_as_they_will_be_sent(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """They were paid for when they were written."""
    gateway.show(head_list())
    client = device(gateway, tmp_path, clock)
    gateway.answers["/v1/reports"] = 503, {}, b""
    assert client.report_now().code is ResultCode.TRY_LATER

    run = dry_run(gateway.url, tmp_path, limits(), _parts=_Parts(clock, SeededDice(2)))

    assert run.body.encode() == gateway.bodies[0]
    assert (run.asked, run.epsilon) == ((), 0.0)
    assert len(gateway.posted) == 1


def test_opt_in_records_are_shown_and_the_token_is_not(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    gateway.collecting = collecting()
    clock.now_s = START + HOUR
    device(gateway, tmp_path, clock).record(*LISTED[0])

    who = OptIn("sonja@example", "application-token")
    parts = _Parts(clock, SeededDice(3))
    run = dry_run(gateway.url, tmp_path, limits(), opt_in=who, _parts=parts)

    assert gateway.posted == []
    assert [entry["query"] for entry in json.loads(run.body)] == [LISTED[0].query]
    assert "application-token" not in repr(run) + run.body
    assert LISTED[0].query not in repr(run)


def test_what_a_report_would_refuse_a_dry_run_refuses(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    gateway.show(head_list())
    parts = _Parts(clock, SeededDice(4))
    with pytest.raises(HeadListRefused, match="epsilon"):
        dry_run(gateway.url, tmp_path, limits(epsilon_per_report=1.0), _parts=parts)
    client = device(gateway, tmp_path, clock)
    assert client.report_now().code is ResultCode.SENT
    clock.now_s += DAY
    gateway.show(
        head_list(
            epoch=8,
            window_start_s=START + DAY,
            window_end_s=START + 2 * DAY,
            reports_until_s=START + 3 * DAY,
        )
    )
    with pytest.raises(LimitReached):
        dry_run(gateway.url, tmp_path, limits(epsilon_per_period=4.0), _parts=parts)


def test_a_device_that_does_not_exist_yet_is_not_made(
    gateway: Gateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "nobody"
    command = ["report", "--dry-run", "--server", gateway.url, "--folder", str(folder)]

    assert main([*command, "--epsilon", "4", "--period-epsilon", "4"]) == 0

    said = capsys.readouterr().out
    assert "Dry run: nothing is sent or spent" in said
    assert "would end with nothing new: no head list has been published yet." in said
    assert not folder.exists()


def test_the_pages_command_and_code_show_what_would_be_sent(
    gateway: Gateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As docs/integrating.md prints them, with the real clock and generator."""
    now_s = int(time.time())
    window = {"window_start_s": now_s - 7_200, "window_end_s": now_s - 60}
    gateway.show(head_list(**window, reports_until_s=now_s + 7_200))
    page = (ROOT / "docs" / "integrating.md").read_text()
    command, shown = re.findall(r"```(?:sh)?\n(.*?)```", page, re.DOTALL)[:2]
    words = shlex.split(command.replace("$GATEWAY", gateway.url).replace("\\\n", ""))
    assert words.pop(0) == "localclient"

    assert main([*words, "--folder", str(tmp_path / "device")]) == 0
    said = capsys.readouterr().out.splitlines()
    begin = [re.match(r'  {"answers"|[^/0-9]+', line) for line in shown.splitlines()]
    assert all(start and line.startswith(start[0]) for start, line in zip(begin, said, strict=True))

    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(code.replace("https://gateway.example", gateway.url))
    assert "/v1/reports" in capsys.readouterr().out
    assert gateway.posted == []
