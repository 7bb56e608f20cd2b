"""Measure how long the event loop is blocked.

All requests of a gateway share one thread. A timer set for every 50 ms fires late by as long as
something else occupied that thread: a request, a garbage collection, or other processes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["watch_stalls"]

#: A longer interval would miss short stalls; the cost of this one is not measurable.
_EVERY_S = 0.05


async def watch_stalls(observe: Callable[[float], None], every_s: float = _EVERY_S) -> None:
    """Pass each delay of the timer, in seconds, to `observe`, until cancelled."""
    while True:
        due = time.monotonic() + every_s
        await asyncio.sleep(every_s)
        observe(max(0.0, time.monotonic() - due))
