"""Measures how long the event loop keeps requests waiting.

All requests of a gateway share one thread. A timer that should ring every 50 ms rings late by as
long as something else kept that thread: a request, a collection of garbage, or a machine with too
little processor for the process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["watch_stalls"]

#: Rarer would miss short stalls; twenty times a second costs nothing that can be measured.
_EVERY_S = 0.05


async def watch_stalls(observe: Callable[[float], None], every_s: float = _EVERY_S) -> None:
    """For ever: observe how late the timer rang, in seconds."""
    while True:
        due = time.monotonic() + every_s
        await asyncio.sleep(every_s)
        observe(max(0.0, time.monotonic() - due))
