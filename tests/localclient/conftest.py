"""Fixtures of the device's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.localclient.support import Gateway, ManualClock, serving


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    """A real HTTP server that keeps what it is sent."""
    with serving() as running:
        yield running


@pytest.fixture
def clock() -> ManualClock:
    """An hour into the reporting window of epoch 7."""
    return ManualClock()
