"""What is unknown to a gateway is unknown to everyone, also when its own broker lags behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from agents.gateway.read.publications import Publications
from agents.gateway.read.release_follower import ReleaseFold, ReleaseReader
from streams.settings import Settings
from streams.stores.epoch_keys import KeyRing
from streams.stores.kafka import KafkaLog
from streams.topics import Topics
from tests.counting import settings_values

SETTINGS = Settings.from_values(settings_values("kafka://127.0.0.1:1", "redis://host", "x", 1))


class TwoBrokers(KafkaLog):
    """The gateway's own broker, cut off at 5, and another one that knows more."""

    furthest = 9

    async def ends(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        return dict.fromkeys(partitions, 5)

    async def furthest_end(self, topic: str, partition: int) -> int:
        return self.furthest


def reader(kafka: KafkaLog) -> ReleaseReader:
    fold = ReleaseFold(Publications(), keys=KeyRing({}), topics=Topics(SETTINGS), history_epochs=1)
    built = ReleaseReader(
        lambda: pytest.fail("nothing is read here"), fold, kafka, "x.releases", patience_s=0.05
    )
    built._position = 5
    return built


async def test_a_head_list_is_unknown_only_when_no_broker_has_more_of_the_log():
    """A device is told "refused" once, and has spent its budget: it never sends the report again.

    So the sender is asked to come again until the log was read to the furthest end.
    """
    kafka = TwoBrokers(SETTINGS.kafka)
    built = reader(kafka)

    assert await built.read_to_end(), "to its own broker's end, for the metric"
    assert not await built._fold.publications.read_to_end()
    assert built._reopen, "another consumer may find another broker"

    kafka.furthest = 5
    assert await built._fold.publications.read_to_end()


async def test_those_who_ask_at_the_same_time_share_one_question():
    """Strangers who invent head-list ids must not make a gateway ask every broker each time."""
    asked = 0

    class Counting(TwoBrokers):
        furthest = 5

        async def furthest_end(self, topic: str, partition: int) -> int:
            nonlocal asked
            asked += 1
            await asyncio.sleep(0.01)
            return self.furthest

    built = reader(Counting(SETTINGS.kafka))
    results = await asyncio.gather(*(built.read_to_end(furthest=True) for _ in range(50)))

    assert all(results)
    assert asked == 1
