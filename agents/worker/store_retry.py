"""Whether Redis and Kafka answer; and calls that are repeated in place until they do."""

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
    """What one counter knows of its servers. Until something was asked, they do not answer."""

    def __init__(self, stem: InputStream) -> None:
        self._stem = stem
        self.answering = False
        #: When they began to answer, on the monotonic clock.
        self.since = time.monotonic()

    def answered(self) -> None:
        """Everything that was asked has been answered."""
        if not self.answering:
            self.answering, self.since = True, time.monotonic()

    def lost(self) -> None:
        """Something that was asked has not been answered."""
        self.answering = False

    async def retry_until_available(
        self, call: Callable[[], Awaitable[T]], still_wanted: Callable[[], None] = lambda: None
    ) -> T:
        """Call again and again while a server is away; `still_wanted` raises to end that."""
        attempt = 0
        while True:
            still_wanted()
            try:
                return await call()
            except StoreUnavailable as error:
                self.lost()
                metrics.RETRIES.labels(self._stem).inc()
                if attempt == 0:
                    log.warning(
                        "store_unavailable", extra={"stem": self._stem, "advice": SafeText(error)}
                    )
                await asyncio.sleep(_BACK_OFF_S[min(attempt, len(_BACK_OFF_S) - 1)])
                attempt += 1
