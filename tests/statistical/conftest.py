"""What several statistical tests share."""

from __future__ import annotations

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
