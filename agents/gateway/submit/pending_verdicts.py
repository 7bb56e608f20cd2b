"""Entries between being judged and being acknowledged by Kafka.

Promises: holds no id, no text and no report, because Kafka may take seconds: what was sent is let
go before anybody waits, and only verdicts and their places are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agents.gateway.submit.frame_writer import Delivered
from agents.gateway.submit.verdicts import ACCEPTED, Verdict

__all__ = ["QUEUED_ENTRY_BYTES", "Queued", "all_settled"]

#: What one entry takes at most while Kafka takes its time: its place, twice. Verdicts are shared.
QUEUED_ENTRY_BYTES = 64


class Judge(Protocol):
    """Says what the counters will."""

    def verdict(self, append_ms: int | None) -> Verdict:
        """Of an entry that the broker appended at this moment; `None`: not known to be in time."""
        ...


@dataclass(slots=True)
class Queued:
    """Verdicts so far, and which entries' frames are on their way."""

    verdicts: list[Verdict]
    #: The frame's fate, who judges by it, and the places of its entries among the verdicts.
    waiting: list[tuple[Delivered, Judge, Iterable[int]]] = field(default_factory=list)

    async def settled(self) -> list[Verdict]:
        """The verdicts, once Kafka has acknowledged or the deadline is over."""
        verdicts = self.verdicts
        for delivered, judge, places in self.waiting:
            verdict = judge.verdict(await delivered)
            if verdict is not ACCEPTED:
                for place in places:
                    verdicts[place] = verdict
        return verdicts


async def all_settled(slices: Sequence[Queued]) -> list[Verdict]:
    """The verdicts on all slices of a request, one after the other."""
    if len(slices) == 1:
        return await slices[0].settled()
    return [verdict for queued in slices for verdict in await queued.settled()]
