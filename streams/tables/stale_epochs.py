"""Search for epochs that have counts in Redis, including those that only Redis knows.

Checkpoints of the release log omit old epochs, and the settings name one version of the topics. A
Redis that was restored from an older copy, or used before a move to other topics, may have counts
of other epochs and versions. So callers that remove or display epochs search for them in Redis.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from blendstream.streams.tables.redis import Client, answered, text_of

__all__ = ["StoredEpoch", "stored_epochs"]

#: Keys per SCAN call, which blocks Redis for some milliseconds.
_KEYS_AT_ONCE = 1000


@dataclass(frozen=True, slots=True, order=True)
class StoredEpoch:
    """An epoch that has keys in a partition of a topic."""

    topic: str
    partition: int
    epoch: int


async def stored_epochs(client: Client, prefix: str, topic: str) -> list[StoredEpoch]:
    """List every epoch that has counts of this topic, in any version of it."""
    # Keys as in `streams.tables.count_table`; on a cluster the scan includes every node.
    any_version = topic.rpartition(".v")[0] + ".v"
    form = re.compile(
        rf"{re.escape(prefix)}:\{{({re.escape(any_version)}\d+)/(\d+)\}}:(\d+):", re.ASCII
    )

    async def scanned() -> set[StoredEpoch]:
        keys = client.scan_iter(match=f"{prefix}:{{{any_version}*}}:*", count=_KEYS_AT_ONCE)
        matches = [form.match(text_of(key)) async for key in keys]
        return {StoredEpoch(m[1], int(m[2]), int(m[3])) for m in matches if m is not None}

    return sorted(await answered(scanned()))
