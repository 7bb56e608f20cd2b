"""Track the availability of Redis and Kafka, and retry calls in place until both respond."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from blendstream.agents.worker import metrics
from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.names import InputStream
from blendstream.streams.telemetry.structured_logs import SafeText

__all__ = ["StoreAvailability"]

log = logging.getLogger(__name__)
T = TypeVar("T")

_BACK_OFF_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)


class StoreAvailability:
    """Tracks whether Redis and Kafka respond to one counter. Unavailable until a first success."""

    def __init__(self, stem: InputStream) -> None:
        self._stem = stem
        self.available = False
        #: Start of the current availability, on the monotonic clock.
        self.since = time.monotonic()

    def mark_available(self) -> None:
        """Note that every request of a round succeeded."""
        if not self.available:
            self.available, self.since = True, time.monotonic()

    def mark_unavailable(self) -> None:
        """Note that a request failed because a store is unavailable."""
        self.available = False

    async def retry_until_available(
        self, call: Callable[[], Awaitable[T]], still_wanted: Callable[[], None] = lambda: None
    ) -> T:
        """Retry `call` with back-off while a store is unavailable. `still_wanted` may raise."""
        attempt = 0
        while True:
            still_wanted()
            try:
                return await call()
            except StoreUnavailable as error:
                self.mark_unavailable()
                metrics.RETRIES.labels(self._stem).inc()
                if attempt == 0:
                    log.warning(
                        "store_unavailable", extra={"stem": self._stem, "advice": SafeText(error)}
                    )
                await asyncio.sleep(_BACK_OFF_S[min(attempt, len(_BACK_OFF_S) - 1)])
                attempt += 1
