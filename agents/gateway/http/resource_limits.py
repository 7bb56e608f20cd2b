"""Limits on one gateway's memory and work: entries per second, bytes, and slices of batches.

Promises: no limit stores an address or a person; a rate belongs to an application or to the whole
gateway. A limit refuses immediately, so a refusal costs almost nothing.
Assumes: callers pass `now`, a monotonic clock in seconds.

Decision: docs/decisions/0074-slices-not-threads.md
"""

from __future__ import annotations

import asyncio

__all__ = ["ByteBudget", "SliceScheduler", "TokenBucket"]


class TokenBucket:
    """At most `rate_per_s` entries per second on average, with bursts of `burst` entries.

    >>> bucket = TokenBucket(rate_per_s=10, burst=5)
    >>> bucket.take(5, now=0.0), round(bucket.take(5, now=0.1), 3), bucket.take(1, now=0.1)
    (0.0, 0.4, 0.0)
    """

    __slots__ = ("_at", "_left", "burst", "rate_per_s")

    def __init__(self, *, rate_per_s: float, burst: float) -> None:
        """Start with a full bucket. No request of more than `burst` entries is ever admitted."""
        self.rate_per_s = rate_per_s
        self.burst = burst
        self._left = burst
        self._at = 0.0

    def take(self, entries: int, *, now: float) -> float:
        """Take `entries` and return 0; or take none and return the seconds until they fit."""
        self._left = min(self.burst, self._left + (now - self._at) * self.rate_per_s)
        self._at = now
        if self._left >= entries:
            self._left -= entries
            return 0.0
        return (entries - self._left) / self.rate_per_s

    def give_back(self, entries: int) -> None:
        """Put back entries that were taken and not used."""
        self._left = min(self.burst, self._left + entries)


class ByteBudget:
    """A limit on the bytes that are in memory at one time.

    >>> budget = ByteBudget(100)
    >>> budget.take(60), budget.take(60), budget.used
    (True, False, 60)
    """

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def take(self, size: int) -> bool:
        """Reserve `size` bytes and return True, or change nothing and return False."""
        if self.used + size > self.limit:
            return False
        self.used += size
        return True

    def give_back(self, size: int) -> None:
        """Release `size` reserved bytes."""
        self.used -= size


class SliceScheduler:
    """Serves large requests one slice at a time, and lets other requests run in between.

    Without it, each of a hundred large requests would process a slice before the event loop serves
    anything else. Callers of `next` proceed in order of arrival, one per iteration of the loop.
    """

    __slots__ = ("_one",)

    def __init__(self) -> None:
        self._one = asyncio.Lock()

    async def next(self) -> None:
        """Wait until this request may process one slice."""
        async with self._one:
            await asyncio.sleep(0)
