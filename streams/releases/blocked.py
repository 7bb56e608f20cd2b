"""Whether an open transaction blocks the release log.

    offset      0 … 247 │ 248 …      readers of committed records stop at the last stable offset,
                        │            before the first record of an open transaction; they see no
                 stable │ open       later record either, committed or not

A transaction is open for a moment while a job commits, and Kafka ends one that outlives its timeout
(`jobs.transaction_timeout_s`). One that *hangs* it never ends, because no coordinator knows of it:
readers stop there for ever, and nothing new is released. docs/runbook.md (ReleaseLogBlocked) says
how it is ended.

Promises: needs no memory of earlier looks. How long a transaction has been open is the age of the
record at the last stable offset, by the broker's append time.

Decision: docs/decisions/0053-a-transaction-that-hangs.md

Decision: docs/decisions/0151-hanging-transactions-end-by-kafkas-tool.md
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from blendstream.streams.kafka.kafka_clients import KafkaInspector

__all__ = ["OpenTransaction", "find_blocked", "find_open"]

#: How long after its timeout Kafka may still take to end a transaction: it looks every 10 s.
_CLEAN_UP_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The first transaction that keeps readers of committed records from the log's end."""

    topic: str
    last_stable_offset: int
    end: int
    open_s: float
    #: How long Kafka lets any transaction of this service be open.
    limit_s: float

    @property
    def blocks(self) -> bool:
        """True if it is more than a release that is being committed."""
        return self.open_s > self.limit_s

    def sentence(self) -> str:
        """One sentence for operators: both offsets, how long, what to do."""
        return (
            f"readers of {self.topic} stop at offset {self.last_stable_offset}, and it ends at "
            f"{self.end}: a transaction has been open there for {self.open_s:.0f} s, and Kafka "
            f"ends those of this service within {self.limit_s:g} s; see ReleaseLogBlocked in "
            "docs/runbook.md"
        )


async def find_open(
    log: KafkaInspector, topic: str, transaction_timeout_s: float
) -> OpenTransaction | None:
    """The transaction that readers wait for now; `None` when they reach the log's end."""
    # In this order: what is written between two questions is not taken for something open.
    end = (await log.ends(topic, [0]))[0]
    stable = await log.last_stable_offset(topic, 0)
    begun_ms = None if stable >= end else await log.append_ms(topic, 0, stable)
    if begun_ms is None:
        return None
    open_s = time.time() - begun_ms / 1000
    return OpenTransaction(topic, stable, end, open_s, transaction_timeout_s + _CLEAN_UP_S)


async def find_blocked(
    log: KafkaInspector, topic: str, transaction_timeout_s: float
) -> OpenTransaction | None:
    """The transaction that blocks the log; `None` when none is open, or one is being committed."""
    found = await find_open(log, topic, transaction_timeout_s)
    return found if found is not None and found.blocks else None
