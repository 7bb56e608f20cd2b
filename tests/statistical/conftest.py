"""What several statistical tests share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import blender.optin


@pytest.fixture
def without_exact_intervals(monkeypatch):
    """For tests in which T's own exact intervals play no part and would take much of the time."""
    monkeypatch.setattr(
        blender.optin,
        "noisy_count_interval",
        lambda noisy, users, **_: (np.zeros(len(noisy)), np.ones(len(noisy))),
    )


@pytest.fixture
def report(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Say what was measured: the run prints it at its end, whether or not the test passed."""
    return lambda line: record_property("measured", line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests reported: coverages and widths that were reached, beside the bounds."""
    lines = [
        str(value)
        for reports in terminalreporter.stats.values()
        for one in reports
        for name, value in getattr(one, "user_properties", ())
        if name == "measured" and getattr(one, "when", "") == "call"
    ]
    if lines:
        terminalreporter.section("measured")
        for line in lines:
            terminalreporter.write_line(line)
