"""The app between Faust and the counters when one of them is slow or fails."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from typing import Any, cast

import pytest
from aiokafka.errors import IllegalStateError
from faust.exceptions import ProducerSendError
from faust.types import TP

from blendstream.agents.worker.dead_letters import DeadLetters
from blendstream.agents.worker.faust_app import CountingApp
from blendstream.streams.kafka.topics import Topics
from blendstream.streams.names import InputStream
from blendstream.streams.settings import Settings
from blendstream.streams.tables.batch_verdict import DeadLetter, Refusal
from tests.service.settings import service_values


def new_app(**values: str) -> CountingApp:
    given = service_values("kafka://127.0.0.1:1", "redis://host", "x", 64)
    return CountingApp(Settings.from_values(given | values), group="test")


class HangingCounter:
    """Partition 0 resumes immediately; for the others Redis never returns an offset."""

    stem = InputStream.CLIENT_REPORTS
    topic = Topics(
        Settings.from_values(service_values("kafka://h", "redis://h", "x", 64))
    ).client_reports

    def __init__(self) -> None:
        self.begun: list[int] = []

    def assign(self, partitions: Sequence[int]) -> None:
        self.assigned = partitions

    async def resume(self, partition: int) -> int:
        self.begun.append(partition)
        if partition:
            await asyncio.Event().wait()
        return 7


async def test_taking_up_has_one_deadline_however_many_partitions_there_are(
    monkeypatch: pytest.MonkeyPatch, written_logs: io.StringIO
) -> None:
    """With one for each, 128 partitions took longer than Faust waits; it then handled no assignment
    any more and fetched nothing, without a word."""
    app, counter = new_app(), HangingCounter()
    assert app._resume_s <= app.conf.broker_request_timeout / 2, "Faust seeks in the same step"
    monkeypatch.setattr(app, "_resume_s", 0.05)
    app.add_counter(cast(Any, counter))
    partitions = {TP(counter.topic.name, n) for n in range(64)}
    assert await app.resume_partitions(partitions) == {TP(counter.topic.name, 0): 7}
    # Who had no turn before the deadline gets none after it: eight at once, and one made room.
    assert counter.begun == list(range(9))
    assert written_logs.getvalue().count("partition_not_resumed") == 63


async def test_a_seek_that_meets_a_rebalance_leaves_the_agent_alone() -> None:
    """It crashed the agent. Whoever wants the records asks again."""

    class Leaving:
        def assignment(self) -> set[TP]:
            return {TP("reports", 0)}

        async def seek_wait(self, _: dict[TP, int]) -> None:
            raise IllegalStateError("Partition is not assigned")

    app = new_app()
    app.consumer = cast(Any, Leaving())
    await app.seek("reports", 0, 3)


async def test_a_letter_that_kafka_does_not_take_leaves_the_agent_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Faust has an error of its own for it; counting never waits for a letter, nor ends with it."""

    async def refuse(**_: object) -> None:
        raise ProducerSendError("Error while sending")

    letters = DeadLetters(new_app(), "reports", "dead-letters")
    monkeypatch.setattr(letters._topic, "send", refuse)
    await letters.send(0, [DeadLetter(1, None, Refusal.MALFORMED, (9,))])
