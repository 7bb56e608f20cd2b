"""Notices that the release log has a newer leader than the one that a consumer reads from.

A broker that is cut off from its peers, but not from us, answers a consumer from its frozen copy,
without an error and without an end; librdkafka may go on asking that one broker who leads. So while
nothing comes, every broker is asked now and then, and only an answer with a newer leader epoch is
news. The next consumer is then opened by the brokers that gave it.

Promises: what others have elected and written is read at most `LOOK_EVERY_S`, one question (5 s)
and the opening of a consumer later, as long as one of them can be reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from blendstream.streams.kafka.partition_leaders import Leadership, newest_leadership
from blendstream.streams.settings.sections import KafkaSettings

__all__ = ["LeaderWatch"]

log = logging.getLogger(__name__)

#: Without records for so long, all brokers are asked. Shorter asks a quiet log's brokers more often
#: for nothing; longer adds to the time that a cut costs.
LOOK_EVERY_S = 5.0


class LeaderWatch:
    """One consumer's leader. Every method is called on the event loop, and none waits."""

    def __init__(self, kafka: KafkaSettings, topic: str) -> None:
        self._kafka, self._topic = kafka, topic
        self._look_at = time.monotonic() + LOOK_EVERY_S
        self._looking: asyncio.Task[Leadership | None] | None = None
        #: What the consumer's brokers knew at least when it was opened; None: it is not known.
        self._epoch: int | None = None
        self._newer: Leadership | None = None

    def records_came(self) -> None:
        """The consumer's leader is alive: no need to look for a while."""
        self._look_at = time.monotonic() + LOOK_EVERY_S

    def moved(self) -> bool:
        """Call when nothing came; whether the consumer is to be replaced by one that knows more."""
        if self._looking is None:
            if time.monotonic() >= self._look_at:
                self._looking = asyncio.create_task(newest_leadership(self._kafka, self._topic))
            return False
        if not self._looking.done():
            return False
        looked, self._looking = self._looking, None
        self.records_came()
        if (error := looked.exception()) is not None:
            # Reading goes on without: it is no worse off than before.
            log.warning("release_log_leader_unknown", exc_info=error)
            return False
        if (found := looked.result()) is None:
            return False
        newer = not found.agreed if self._epoch is None else found.epoch > self._epoch
        self._epoch = found.epoch if self._epoch is None else max(found.epoch, self._epoch)
        self._newer = found if newer else None
        return newer

    def bootstrap(self) -> dict[str, str]:
        """Where the next consumer must begin, as a setting of it; empty: anywhere."""
        newer, self._newer = self._newer, None
        self._epoch = None if newer is None else newer.epoch
        return {} if newer is None else {"bootstrap.servers": newer.known_by}

    async def close(self) -> None:
        """Stop asking."""
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking
