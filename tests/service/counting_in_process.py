"""A counting agent in the test's own process, batch by batch, on real Kafka and Redis."""

from __future__ import annotations

import numpy as np
from confluent_kafka import Consumer, TopicPartition

from blendstream.agents.worker.entry_checks import judge_reports
from blendstream.agents.worker.frame_batches import Message
from blendstream.agents.worker.topic_counter import TopicCounter
from blendstream.streams.epoch_keys import KeyRing
from blendstream.streams.names import InputStream
from blendstream.streams.releases.reader import LogFollower
from blendstream.streams.tables.count_table import CountTable
from tests.service.counting import Installation, contributors
from tests.service.settings import MASTER

REPORTS = InputStream.CLIENT_REPORTS


class Bench:
    """A counter for client reports whose consumer is the test."""

    #: How far brokers' clocks may be apart.
    skew_s = 0.2

    def __init__(self, made: Installation, tables: CountTable) -> None:
        self.made = made
        self.tables = tables
        self.sought: list[tuple[int, int]] = []
        self.counter = self.new_counter()

    def new_counter(self) -> TopicCounter:
        """Return a counter in the state of a new worker."""
        made = self.made

        async def seek(partition: int, offset: int) -> None:
            self.sought.append((partition, offset))

        release_log = LogFollower(
            made.settings.kafka, made.kafka, made.topics.releases.name, skew_s=self.skew_s
        )
        counter = TopicCounter(
            REPORTS, made.topics.client_reports, judge=judge_reports, tables=self.tables,
            release_log=release_log, kafka=made.kafka, keys=KeyRing({"k1": MASTER}), seek=seek,
        )  # fmt: skip
        counter.assign(range(made.partitions))
        return counter

    def log(self, partition: int = 0, start: int = 0) -> list[Message]:
        """Every record the broker has from an offset on."""
        reader = Consumer(
            {
                "bootstrap.servers": self.made.settings.kafka.bootstrap,
                "group.id": "bench",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        reader.assign([TopicPartition(self.made.topics.client_reports.name, partition, start)])
        found: list[Message] = []
        try:
            while True:
                message = reader.poll(10)
                assert message is not None
                if message.error() is not None:
                    return found
                found.append(Message(message.offset(), message.timestamp()[1], message.value()))
        finally:
            reader.close()

    async def count(self, messages: list[Message], partition: int = 0) -> None:
        await self.counter.count({partition: messages})

    async def stored(self, partition: int = 0) -> int | None:
        return (await self.tables.stored_state(partition)).offset


def send(made: Installation, frames: int = 5, partition: int = 0, seed: int = 1) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(frames):
        made.send_reports(1, partition, contributors(rng, 20), rng)
        made.flush()
