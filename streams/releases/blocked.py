"""Detection of an open transaction that blocks readers of the release log.

    offset      0 … 247 │ 248 …      readers of committed records stop at the last stable offset,
                        │            before the first record of an open transaction; they see no
                 stable │ open       later record either, committed or not

A transaction is open for a moment while a job commits, and Kafka ends one that outlives its timeout
(`jobs.transaction_timeout_s`). A *hanging* transaction never ends, because no coordinator knows of
it: readers stop there permanently, and nothing new is released. docs/runbook.md (ReleaseLogBlocked)
has the steps by which an operator ends it.

Promises: stateless. The age of a transaction is that of the record at the last stable offset, by
the broker's append time.

Decision: docs/decisions/0053-a-transaction-that-hangs.md

Decision: docs/decisions/0151-hanging-transactions-end-by-kafkas-tool.md
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from blendstream.streams.kafka.kafka_clients import KafkaInspector

__all__ = ["OpenTransaction", "find_blocked", "find_open"]

#: Time after its timeout within which Kafka aborts a transaction: it checks every 10 s.
_CLEAN_UP_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The first open transaction, at which readers of committed records stop."""

    topic: str
    last_stable_offset: int
    end: int
    open_s: float
    #: Age after which Kafka should have ended any transaction of this service.
    limit_s: float

    @property
    def blocks(self) -> bool:
        """True if it is too old to be a release that is being committed."""
        return self.open_s > self.limit_s

    def sentence(self) -> str:
        """Describe it to operators: both offsets, its age, what to do."""
        return (
            f"readers of {self.topic} stop at offset {self.last_stable_offset}, and it ends at "
            f"{self.end}: a transaction has been open there for {self.open_s:.0f} s, and Kafka "
            f"ends those of this service within {self.limit_s:g} s; see ReleaseLogBlocked in "
            "docs/runbook.md"
        )


async def find_open(
    log: KafkaInspector, topic: str, transaction_timeout_s: float
) -> OpenTransaction | None:
    """Find the transaction that readers wait for now; `None` when they reach the log's end."""
    # In this order, records appended between the two requests do not look like an open transaction.
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
    """Find the transaction that blocks the log; `None` if none is open or one is committing."""
    found = await find_open(log, topic, transaction_timeout_s)
    return found if found is not None and found.blocks else None
