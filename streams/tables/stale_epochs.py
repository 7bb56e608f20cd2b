"""Finds the epochs that have counts in Redis, also those that are known nowhere else.

Checkpoints of the release log leave out old epochs, and the settings name one version of the
topics. A Redis restored from an older copy, or left behind by a move to other topics, may have
counts of others: so what is to be removed, or shown, is looked up in Redis itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from blendstream.streams.tables.redis import Client, answered, text_of

__all__ = ["StoredEpoch", "stored_epochs"]

#: Keys of one answer; Redis is blocked for some milliseconds meanwhile.
_KEYS_AT_ONCE = 1000


@dataclass(frozen=True, slots=True, order=True)
class StoredEpoch:
    """An epoch that has keys in a partition of a topic."""

    topic: str
    partition: int
    epoch: int


async def stored_epochs(client: Client, prefix: str, topic: str) -> list[StoredEpoch]:
    """Every epoch that has counts of this topic, in this version of it or in any other."""
    # Keys are as `streams.tables.count_table` draws them; on a cluster every node is asked.
    any_version = topic.rpartition(".v")[0] + ".v"
    form = re.compile(
        rf"{re.escape(prefix)}:\{{({re.escape(any_version)}\d+)/(\d+)\}}:(\d+):", re.ASCII
    )

    async def scanned() -> set[StoredEpoch]:
        keys = client.scan_iter(match=f"{prefix}:{{{any_version}*}}:*", count=_KEYS_AT_ONCE)
        matches = [form.match(text_of(key)) async for key in keys]
        return {StoredEpoch(m[1], int(m[2]), int(m[3])) for m in matches if m is not None}

    return sorted(await answered(scanned()))
