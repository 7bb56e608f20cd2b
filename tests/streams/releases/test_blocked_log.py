"""Tests that an old open transaction is reported, and a release being committed is not."""

from __future__ import annotations

import time
from typing import cast

import pytest

from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.releases.blocked import find_blocked, find_open


class Offsets:
    """A log whose offsets, and the age of its first open record, the test sets."""

    def __init__(self, stable: int, end: int, age_s: float | None) -> None:
        self.stable, self.end, self.age_s = stable, end, age_s

    async def last_stable_offset(self, _topic: str, _partition: int) -> int:
        return self.stable

    async def ends(self, _topic: str, _partitions: list[int]) -> dict[int, int]:
        return {0: self.end}

    async def append_ms(self, _topic: str, _partition: int, offset: int) -> int | None:
        assert offset == self.stable
        return None if self.age_s is None else round(1000 * (time.time() - self.age_s))


def log(stable: int, end: int, age_s: float | None = 0.0) -> KafkaInspector:
    return cast(KafkaInspector, Offsets(stable, end, age_s))


@pytest.mark.parametrize(("age_s", "blocks"), [(1, False), (89, False), (91, True)])
async def test_only_what_outlives_its_timeout_blocks_the_log(age_s, blocks):
    """A release takes seconds to commit, and must not page anyone."""
    found = await find_open(log(248, 252, age_s), "releases", 60.0)
    assert found is not None
    assert found.blocks is blocks
    assert (await find_blocked(log(248, 252, age_s), "releases", 60.0) is not None) is blocks


@pytest.mark.parametrize("ended", [log(252, 252), log(253, 252), log(248, 252, None)])
async def test_what_has_ended_meanwhile_is_not_open(ended):
    """The check needs three requests, and a job may commit between any two of them."""
    assert await find_open(ended, "releases", 60.0) is None


async def test_the_sentence_has_both_offsets_the_time_and_the_way_out():
    found = await find_blocked(log(248, 252, 95), "releases", 60.0)
    assert found is not None
    assert found.sentence() == (
        "readers of releases stop at offset 248, and it ends at 252: a transaction has been open "
        "there for 95 s, and Kafka ends those of this service within 90 s; see ReleaseLogBlocked "
        "in docs/runbook.md"
    )
