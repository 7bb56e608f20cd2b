"""The time of a run by process and by file, printed at its end.

Processes should be busy for the same time: where one ends minutes before the other, move a folder
or a file to another lane (`LANES` in conftest.py). A file at the top of the list is where a
second look pays.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping

import pytest

FILES_SHOWN = 30

_by_process: dict[str, float] = defaultdict(float)
_by_file: dict[str, float] = defaultdict(float)
_tests: dict[str, int] = defaultdict(int)
_began_s = time.monotonic()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up set-up, call and tear-down. Runs in the process that reports."""
    file = report.nodeid.partition("::")[0]
    _by_process[getattr(report, "worker_id", "the only process")] += report.duration
    _by_file[file] += report.duration
    _tests[file] += report.when == "call"


def show_times(terminalreporter: pytest.TerminalReporter) -> None:
    """Print both tables."""
    terminalreporter.section("time by process and by file")
    for line in table(_by_process, _by_file, _tests, time.monotonic() - _began_s):
        terminalreporter.write_line(line)


def table(
    by_process: Mapping[str, float],
    by_file: Mapping[str, float],
    tests: Mapping[str, int],
    run_s: float,
) -> list[str]:
    """A line for each process, and one for each of the longest files, longest first."""
    lines = [
        f"{seconds:8.1f} s of {run_s:.0f} s  {process}"
        for process, seconds in sorted(by_process.items())
    ]
    longest = sorted(by_file.items(), key=lambda item: -item[1])
    lines += [
        f"{seconds:8.1f} s  {tests.get(file, 0):5d} tests  {file}"
        for file, seconds in longest[:FILES_SHOWN]
    ]
    rest = longest[FILES_SHOWN:]
    if rest:
        left = sum(tests.get(file, 0) for file, _ in rest)
        seconds = sum(seconds for _, seconds in rest)
        lines.append(f"{seconds:8.1f} s  {left:5d} tests  in {len(rest)} other files")
    return lines
