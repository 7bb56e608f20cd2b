"""Epochs that collect opt-in records, and a device that has opted in."""

from __future__ import annotations

from pathlib import Path

from blendstream.localclient import LocalClient, OptIn
from tests.localclient.support import (
    END,
    HOUR,
    START,
    Gateway,
    ManualClock,
    device,
)

WHO = OptIn("sonja@example", "application-token")


def collecting(**changes: int) -> dict[str, int]:
    return {
        "epoch": 8,
        "window_start_s": START,
        "window_end_s": END,
        "optin_until_s": END + HOUR,
        "records_per_user": 2,
        **changes,
    }


def opted_in(gateway: Gateway, folder: Path, clock: ManualClock, seed: int = 1) -> LocalClient:
    return device(gateway, folder, clock, seed=seed, opt_in=WHO)
