"""Whether an open transaction blocks the release log, and which one it is.

    offset      0 … 247 │ 248 …           readers of committed records stop at the *committed end*,
                        │                 before the first record of an open transaction; records
              committed │ open            after it are not seen either, committed or not

Open for a moment is normal: a job is committing. A transaction that stays open longer than Kafka
lets any live (`jobs.transaction_timeout_s`) blocks the log: readers see what lies before it only,
nothing new is released, and no restart helps.

Decision: docs/decisions/0053-a-transaction-that-hangs.md
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.kafka.kafka_transactions import OpenTransaction, transaction_admin
from blendstream.streams.settings.sections import KafkaSettings

__all__ = ["BlockedLog", "LogWatch", "find_blocked", "patience_s"]

#: How long after its timeout Kafka may still take to end a transaction: it looks every 10 s.
_CLEAN_UP_S = 30.0
#: From then on it is worth asking who it is. Sooner, every larger release would be asked about.
_ASK_AFTER_S = 10.0


def patience_s(transaction_timeout_s: float) -> float:
    """How long a transaction may be open before something is wrong with it."""
    return transaction_timeout_s + _CLEAN_UP_S


@dataclass(frozen=True, slots=True)
class BlockedLog:
    """The two ends of a log that differ, and what is open between them."""

    topic: str
    committed_end: int
    end: int
    #: In the order of their offsets; empty when they could not be found out.
    transactions: tuple[OpenTransaction, ...] = ()
    #: Why it could not be found out.
    unknown: str = ""

    @property
    def hanging(self) -> tuple[OpenTransaction, ...]:
        """Those that never end by themselves."""
        return tuple(found for found in self.transactions if found.hanging)

    def lasts(self, transaction_timeout_s: float, now_ms: int | None = None) -> bool:
        """Whether it is more than a release that is being committed."""
        now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        oldest_ms = now_ms - round(1000 * patience_s(transaction_timeout_s))
        return any(found.hanging or found.last_write_ms < oldest_ms for found in self.transactions)

    def sentence(self) -> str:
        """One sentence for operators: the ends, the producer, what to do."""
        ends = (
            f"readers of {self.topic} stop at offset {self.committed_end}, and it ends at "
            f"{self.end}: "
        )
        if not self.transactions:
            return f"{ends}a transaction is open, and its producer is not known ({self.unknown})"
        first = (self.hanging or self.transactions)[0]
        who = (
            f"producer {first.producer_id}, epoch {first.producer_epoch}, has a transaction open "
            f"from offset {first.first_offset}"
        )
        if first.hanging:
            return (
                f"{ends}{who} that its coordinator knows nothing of: it hangs, and never ends by "
                "itself; stop all jobs processes and run `blendstream epochs unblock`"
            )
        if first.transactional_id is None:
            return f"{ends}{who}, and no broker names its transactional id to this user"
        return f"{ends}{who}, as {first.transactional_id}; Kafka ends it at its timeout"


async def find_blocked(kafka: KafkaSettings, log: KafkaInspector, topic: str) -> BlockedLog | None:
    """What is open in the log now; `None` when both ends are the same."""
    # In this order: what is written between two questions is not taken for something open.
    end = (await log.ends(topic, [0]))[0]
    committed_end = await log.committed_end(topic, 0)
    if committed_end >= end:
        return None
    try:
        async with transaction_admin(kafka) as admin:
            transactions = await admin.open_transactions(topic)
    except StoreUnavailable as error:
        return BlockedLog(topic, committed_end, end, unknown=str(error))
    if transactions:
        return BlockedLog(topic, committed_end, end, tuple(transactions))
    if await log.committed_end(topic, 0) >= end:
        return None  # It has ended meanwhile.
    return BlockedLog(topic, committed_end, end, unknown="the partition's leader names none")


class LogWatch:
    """How long the committed end has not moved although the log has more after it."""

    def __init__(
        self,
        kafka: KafkaSettings,
        log: KafkaInspector,
        topic: str,
        transaction_timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kafka = kafka
        self._log = log
        self._topic = topic
        self._patience_s = patience_s(transaction_timeout_s)
        self._clock = clock
        self._committed_end = -1
        self._since: float | None = None
        #: What blocks the log: a transaction that hangs, or that is open longer than any may be.
        self.blocked: BlockedLog | None = None

    @property
    def open_s(self) -> float:
        """For how long the same transaction has been seen open; 0 when none is."""
        return 0.0 if self._since is None else self._clock() - self._since

    async def look(self) -> None:
        """Ask for both ends, and who is between them if that lasts."""
        end = (await self._log.ends(self._topic, [0]))[0]
        committed_end = await self._log.committed_end(self._topic, 0)
        if committed_end >= end:
            self._since = self.blocked = None
        elif self._since is None or committed_end != self._committed_end:
            self._since, self.blocked = self._clock(), None
        elif self.open_s > _ASK_AFTER_S:
            found = await find_blocked(self._kafka, self._log, self._topic)
            lasts = found is not None and (found.hanging or self.open_s > self._patience_s)
            self.blocked = found if lasts else None
        self._committed_end = committed_end
