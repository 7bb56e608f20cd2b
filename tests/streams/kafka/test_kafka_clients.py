"""Tests of how Kafka's responses are interpreted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from blendstream.agents.local.ports import free_port
from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.releases.retention import LogTrimmer
from blendstream.streams.settings import Settings
from tests.service.settings import service_values


class Answers:
    """librdkafka's consumer. While a killed broker comes back: no error, and -1001."""

    def __init__(self, offset: int, by_time: int | None = None) -> None:
        self._offset = offset
        self._by_time = offset if by_time is None else by_time

    def offsets_for_times(self, wanted: Sequence[TopicPartition], **_: Any) -> list[TopicPartition]:
        return [
            TopicPartition(of.topic, of.partition, self._offset if of.offset < 0 else self._by_time)
            for of in wanted
        ]


async def test_an_answer_without_an_offset_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken for the release log's end, it made an epoch unknown that was there, and its frames were
    refused for good; taken for a seal, it would have made a whole epoch late.
    """
    settings = Settings.from_values(service_values())
    log = KafkaInspector(settings.kafka)
    monkeypatch.setitem(log._readers, "read_uncommitted", Answers(-1001))
    with pytest.raises(StoreUnavailable):
        await log.ends("releases", [0])
    with pytest.raises(StoreUnavailable):
        await log.bounds("releases", 0)


async def test_nothing_is_removed_on_an_answer_without_an_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Taken for "no record is that young", it would have removed records that were not counted."""
    settings = Settings.from_values(service_values())
    trimmer = LogTrimmer(settings.kafka)
    monkeypatch.setitem(trimmer._readers, "read_uncommitted", Answers(-1001))
    with pytest.raises(StoreUnavailable):
        await trimmer.bounds_before("records", 1_000, at_most=[7])
    monkeypatch.setitem(trimmer._readers, "read_uncommitted", Answers(9, by_time=-1))
    assert await trimmer.bounds_before("records", 1_000, at_most=[7]) == [7]
    monkeypatch.setitem(trimmer._readers, "read_uncommitted", Answers(9, by_time=5))
    assert await trimmer.bounds_before("records", 1_000, at_most=[7]) == [5]


async def test_nothing_is_removed_when_the_time_itself_comes_back_for_an_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """librdkafka keeps both in one field. Taken for an offset, it lies beyond every record."""
    settings = Settings.from_values(service_values())
    trimmer = LogTrimmer(settings.kafka)
    monkeypatch.setitem(trimmer._readers, "read_uncommitted", Answers(9, by_time=1_000))
    with pytest.raises(StoreUnavailable):
        await trimmer.bounds_before("records", 1_000, at_most=[7])


async def test_nothing_is_removed_that_the_answering_broker_does_not_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Isolated at offset 4, the broker reports that no record is that young; later ones exist."""
    settings = Settings.from_values(service_values())
    trimmer = LogTrimmer(settings.kafka)
    monkeypatch.setitem(trimmer._readers, "read_uncommitted", Answers(4, by_time=-1))
    assert await trimmer.bounds_before("records", 1_000, at_most=[7]) == [4]


async def test_after_a_failure_a_new_client_looks_the_leaders_up() -> None:
    """librdkafka's goes on asking a leader that is gone: counting stopped until it came back."""
    values = service_values(f"kafka://127.0.0.1:{free_port()}", "redis://127.0.0.1:1/0", "t", 1)
    settings = Settings.from_values({**values, "kafka.request_timeout_s": "0.3"})
    log = KafkaInspector(settings.kafka)
    asked = log._reader("read_uncommitted")
    with pytest.raises(StoreUnavailable):
        await log.ends("t", [0])
    assert log._reader("read_uncommitted") is not asked
