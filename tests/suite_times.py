"""The time that each part of the project's tests took, beside what it may take in `make test`.

Parts are given by file, since a part has tests in several folders. Two processes run at once, so
the seconds of all tests add up to more than the run took; the minutes that a part may take are
minutes of the run, and it took as large a part of them as of all seconds.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from fnmatch import fnmatch

import pytest

#: What a part may take in minutes, and its files; the first that fits decides.
PARTS: dict[str, tuple[float, tuple[str, ...]]] = {
    "evaluation": (1, ("evaluation/*",)),
    "counting": (
        4,
        (
            "faults/test_counting*",
            "integration/test_counting*",
            "integration/test_log_follower*",
            "integration/test_one_request*",
            "integration/test_sealed*",
            "streams/*",
            "agents/worker/*",
        ),
    ),
    "epochs": (
        5.5,
        (
            "faults/test_raw_data*",
            "faults/test_release*",
            "faults/test_epoch*",
            "faults/test_restored*",
            "faults/test_seals*",
            "faults/test_text_on_disk*",
            "integration/test_epochs*",
            "integration/test_leases*",
            "integration/test_operator*",
            "integration/test_redis_files*",
            "integration/test_release*",
            "model/*",
            "agents/jobs/*",
        ),
    ),
    "edge": (2.5, ("edge/*", "*/gateway/*", "*/test_gateway*", "localclient/*")),
    "machines lost": (
        4,
        (
            "faults/test_broker*",
            "faults/test_finding*",
            "faults/test_local_cluster*",
            "faults/test_machine*",
        ),
    ),
    "core and sharper": (4.5, ("blender/*", "statistical/*", "properties/*")),
    "ground": (
        2,
        (
            "package/*",
            "integration/test_first*",
            "integration/test_fixtures*",
            "integration/test_secured*",
            "integration/test_stack*",
            "agents/test_*",
            "agents/commands/*",
        ),
    ),
    "the rest": (1.5, ("*",)),
}

_seconds: dict[str, float] = defaultdict(float)
_tests: dict[str, int] = defaultdict(int)
_began_s = time.monotonic()


def part_of(nodeid: str) -> str:
    """The part that a test belongs to."""
    file = nodeid.partition("::")[0].removeprefix("tests/")
    return next(p for p, (_, files) in PARTS.items() if any(fnmatch(file, f) for f in files))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up set-up, call and tear-down. Runs in the process that reports."""
    part = part_of(report.nodeid)
    _seconds[part] += report.duration
    _tests[part] += report.when == "call"


def show_times(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the time of each part, longest first."""
    terminalreporter.section("time of each part")
    for line in table(_seconds, _tests, time.monotonic() - _began_s):
        terminalreporter.write_line(line)


def table(seconds: Mapping[str, float], tests: Mapping[str, int], run_s: float) -> list[str]:
    """A line for each part; one that took more of the run than its share says so."""
    lines, whole_s = [], sum(seconds.values())
    for part in sorted(seconds, key=lambda name: -seconds[name]):
        minutes = PARTS[part][0]
        of_run_s = seconds[part] * min(1.0, run_s / whole_s)
        over_s = of_run_s - 60 * minutes
        over = f"  OVER BY {over_s:.0f} s" if over_s > 0 else ""
        lines.append(
            f"{seconds[part]:8.1f} s  {tests[part]:5d} tests  {part}: "
            f"{of_run_s / 60:.1f} of {minutes} min of the run{over}"
        )
    return [*lines, f"{whole_s:8.1f} s in all, {run_s / 60:.1f} of 25 min of the run"]
