"""When an open transaction is more than a release that is being committed, and what is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.kafka.kafka_transactions import OpenTransaction
from blendstream.streams.releases import blocked
from blendstream.streams.releases.blocked import BlockedLog, LogWatch
from blendstream.streams.settings.sections import KafkaSettings

NOW_MS = 1_000_000_000
OPEN = OpenTransaction(
    producer_id=7, producer_epoch=3, coordinator_epoch=0, first_offset=248, last_write_ms=NOW_MS,
    transactional_id="releases.keeper", hanging=False,
)  # fmt: skip
HANGING = replace(OPEN, hanging=True)


def log_with(*transactions: OpenTransaction) -> BlockedLog:
    return BlockedLog("releases", 248, 252, transactions)


@pytest.mark.parametrize(
    ("transaction", "age_s", "lasts"),
    [(OPEN, 1, False), (OPEN, 89, False), (OPEN, 91, True), (HANGING, 0, True)],
)
def test_only_what_hangs_or_outlives_its_timeout_blocks_the_log(transaction, age_s, lasts):
    """A release takes seconds to commit, and nobody is to be woken by it."""
    found = log_with(replace(transaction, last_write_ms=NOW_MS - 1000 * age_s))
    assert found.lasts(60.0, NOW_MS) is lasts


def test_the_sentence_names_both_ends_the_producer_and_the_way_out():
    said = log_with(OPEN, replace(HANGING, producer_id=8, first_offset=250)).sentence()
    assert "stop at offset 248, and it ends at 252" in said
    assert "producer 8, epoch 3, has a transaction open from offset 250" in said, "what hangs"
    assert "`blendstream epochs unblock`" in said
    assert "Kafka ends it at its timeout" in log_with(OPEN).sentence()
    assert "no broker names its transactional id" in (
        log_with(replace(OPEN, transactional_id=None)).sentence()
    )
    unknown = BlockedLog("releases", 248, 252, unknown="these brokers cannot tell").sentence()
    assert unknown.endswith("its producer is not known (these brokers cannot tell)")


class Ends:
    """A log whose ends the test sets."""

    committed, end = 248, 252

    async def committed_end(self, _topic: str, _partition: int) -> int:
        return self.committed

    async def ends(self, _topic: str, _partitions: list[int]) -> dict[int, int]:
        return {0: self.end}


async def test_a_watch_blames_one_transaction_only_while_the_committed_end_does_not_move(
    monkeypatch,
):
    """Under load some transaction is always open; that readers move on shows that none hangs."""
    now, found = 0.0, log_with(OPEN)

    async def asked(*_: Any) -> BlockedLog:
        return found

    monkeypatch.setattr(blocked, "find_blocked", asked)
    ends = Ends()
    watch = LogWatch(
        cast(KafkaSettings, None), cast(KafkaInspector, ends), "releases", 60.0, clock=lambda: now
    )
    monkeypatch.setattr(BlockedLog, "lasts", lambda *_: False)  # The watch measures by itself.

    async def after(seconds: float) -> BlockedLog | None:
        nonlocal now
        now += seconds
        await watch.look()
        return watch.blocked

    assert await after(0) is None
    assert await after(80) is None
    ends.committed, ends.end = 249, 260
    assert await after(80) is None, "another transaction by now"
    assert await after(80) is None
    assert await after(20) is found, "open for longer than any may be"
    ends.committed = 260
    assert await after(1) is None
    assert watch.open_s == 0
    ends.end, found = 261, log_with(HANGING)
    assert await after(1) is None
    assert await after(11) is found, "what hangs is said at once"
