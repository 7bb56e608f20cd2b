"""How long the event loop looks at nothing new, in processor time."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import time
from collections.abc import AsyncIterator, Iterator


class LongestStretch:
    """The most processor time between two looks of the loop at its sockets and timers."""

    def __init__(self) -> None:
        self.seconds = 0.0


@contextlib.contextmanager
def longest_stretch() -> Iterator[LongestStretch]:
    """Time every round of asyncio's own loop, with all the callbacks in it.

    Processor time of this thread: a busy machine makes tests wait, and that is no callback's doing.
    Nor is the work of a tracer that measures coverage: it is put aside meanwhile.
    """
    longest = LongestStretch()
    run_once = asyncio.BaseEventLoop._run_once  # type: ignore[attr-defined]

    def timed(loop: asyncio.BaseEventLoop) -> None:
        began = time.thread_time()
        run_once(loop)
        longest.seconds = max(longest.seconds, time.thread_time() - began)

    asyncio.BaseEventLoop._run_once = timed  # type: ignore[attr-defined]
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield longest
    finally:
        sys.settrace(tracer)
        asyncio.BaseEventLoop._run_once = run_once  # type: ignore[attr-defined]


@contextlib.contextmanager
def garbage_as_in_a_gateway() -> Iterator[None]:
    """Collect garbage as seldom as `run_gateway` does, and put aside what is here already.

    Otherwise what other tests left behind would be looked through on the gateway's time.
    """
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


@contextlib.asynccontextmanager
async def longest_pause() -> AsyncIterator[LongestStretch]:
    """The most processor time, of all threads, between two rings of a timer of a millisecond.

    A thread that keeps the interpreter's lock keeps the loop as well.
    """
    longest = LongestStretch()

    async def ring() -> None:
        last = time.process_time()
        while True:
            await asyncio.sleep(0.001)
            now = time.process_time()
            longest.seconds = max(longest.seconds, now - last)
            last = now

    ringing = asyncio.create_task(ring())
    await asyncio.sleep(0.002)
    try:
        yield longest
        await asyncio.sleep(0.002)
    finally:
        ringing.cancel()
