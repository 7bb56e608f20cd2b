"""What statistical tests measured, printed at the end of a run beside the bounds they keep to."""

from __future__ import annotations

import pytest

MEASURED = "measured"


def show_measured(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests reported, of every process of the run, whether or not they passed."""
    lines = [
        str(value)
        for reports in terminalreporter.stats.values()
        for one in reports
        for name, value in getattr(one, "user_properties", ())
        if name == MEASURED and getattr(one, "when", "") == "call"
    ]
    if lines:
        terminalreporter.section("measured")
        for line in lines:
            terminalreporter.write_line(line)
