"""What several statistical tests share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import blendstream.blender.paper.optin
from tests.measured import MEASURED


@pytest.fixture
def without_exact_intervals(monkeypatch):
    """For tests in which T's own exact intervals play no part and would take much of the time."""
    monkeypatch.setattr(
        blendstream.blender.paper.optin,
        "noisy_count_interval",
        lambda noisy, users, **_: (np.zeros(len(noisy)), np.ones(len(noisy))),
    )


@pytest.fixture
def report(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Say what was measured: the run prints it at its end, whether or not the test passed."""
    return lambda line: record_property(MEASURED, line)
