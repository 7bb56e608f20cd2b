"""The time that each part of the project's tests took, beside what it may take in `make test`.

Parts are given by file, since a part has tests in several folders. Times are added up over both
processes, so the whole took a little over half of their sum.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from fnmatch import fnmatch

import pytest

#: What a part may take in minutes, and its files; the first that fits decides.
PARTS: dict[str, tuple[int, tuple[str, ...]]] = {
    "counting": (
        5,
        (
            "faults/test_counting*",
            "integration/test_counting*",
            "integration/test_directory*",
            "integration/test_one_request*",
            "integration/test_sealed*",
            "streams/*",
        ),
    ),
    "epochs": (
        4,
        (
            "faults/test_raw_data*",
            "faults/test_release*",
            "faults/test_epoch*",
            "faults/test_restored*",
            "integration/test_epochs*",
            "integration/test_leases*",
            "integration/test_operator*",
            "integration/test_release*",
            "agents/test_click*",
            "agents/test_epoch*",
            "agents/test_keeper*",
        ),
    ),
    "edge": (2, ("*/gateway/*", "*/test_gateway*", "localclient/*")),
    "core and sharper": (4, ("blender/*", "statistical/*", "properties/*")),
    "ground": (
        2,
        (
            "package/*",
            "integration/test_first*",
            "integration/test_fixtures*",
            "integration/test_secured*",
            "integration/test_stack*",
            "agents/test_*",
        ),
    ),
    "the rest": (3, ("*",)),
}

_seconds: dict[str, float] = defaultdict(float)
_tests: dict[str, int] = defaultdict(int)


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
    for line in table(_seconds, _tests):
        terminalreporter.write_line(line)


def table(seconds: Mapping[str, float], tests: Mapping[str, int]) -> list[str]:
    """A line for each part; one that took more than its share says so."""
    lines = []
    for part in sorted(seconds, key=lambda name: -seconds[name]):
        minutes = PARTS[part][0]
        over_s = seconds[part] - 60 * minutes
        over = f"  OVER BY {over_s:.0f} s" if over_s > 0 else ""
        lines.append(
            f"{seconds[part]:8.1f} s  {tests[part]:5d} tests  {part} "
            f"(of {minutes} min in make test){over}"
        )
    return [*lines, f"{sum(seconds.values()):8.1f} s in all"]
