"""What is unknown to a gateway is unknown to everyone, also when its own broker lags behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from blendstream.agents.gateway.state.publications import Publications
from blendstream.agents.gateway.state.release_follower import ReleaseFold, ReleaseFollower
from blendstream.streams.epoch_keys import KeyRing
from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.kafka.topics import Topics
from blendstream.streams.releases import entries
from blendstream.streams.releases.entries import Kind
from blendstream.streams.settings import Settings
from tests.listed_log import ListedLog, listed_log
from tests.service.settings import service_values

__all__ = ["listed_log"]

SETTINGS = Settings.from_values(service_values())


class TwoBrokers(KafkaInspector):
    """The gateway's own broker, cut off at 5, and another one that knows more."""

    furthest = 9

    async def ends(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        return dict.fromkeys(partitions, 5)

    async def max_end_offset(self, topic: str, partition: int) -> int:
        return self.furthest


def follower(kafka: KafkaInspector) -> ReleaseFollower:
    fold = ReleaseFold(Publications(), keys=KeyRing({}), topics=Topics(SETTINGS), history_epochs=1)
    return ReleaseFollower(SETTINGS.kafka, fold, kafka, "x.releases", patience_s=0.5)


@contextlib.asynccontextmanager
async def following(built: ReleaseFollower) -> AsyncIterator[None]:
    task = asyncio.create_task(built.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_head_list_is_unknown_only_when_no_broker_has_more_of_the_log(
    listed_log: ListedLog,
) -> None:
    """A device is told "refused" once, and has spent its budget: it never sends the report again.

    So the sender is asked to come again until the log was read to the furthest end.
    """
    for number in range(9):
        listed_log.append(entries.fence(f"{number}", Kind.KEEPER))
    # One consumer looks where to start; the next is cut off, and later ones are not.
    listed_log.shown = [5, 5]
    built = follower(TwoBrokers(SETTINGS.kafka))
    async with following(built):
        assert await built.read_to_end(), "to its own broker's end, for the metric"
        assert not await built.read_to_end(furthest=True)
        assert await built.read_to_end(furthest=True), "another consumer found another broker"
    assert listed_log.opened == 3


async def test_those_who_ask_at_the_same_time_share_one_question(listed_log: ListedLog) -> None:
    """Strangers who invent head-list ids must not make a gateway ask every broker each time."""
    asked = 0

    class Counting(TwoBrokers):
        furthest = 5

        async def max_end_offset(self, topic: str, partition: int) -> int:
            nonlocal asked
            asked += 1
            await asyncio.sleep(0.01)
            return self.furthest

    for number in range(5):
        listed_log.append(entries.fence(f"{number}", Kind.KEEPER))
    built = follower(Counting(SETTINGS.kafka))
    async with following(built):
        results = await asyncio.gather(*(built.read_to_end(furthest=True) for _ in range(50)))

    assert all(results)
    assert asked == 1
