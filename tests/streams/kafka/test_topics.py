"""Tests of topics that were created a moment ago and that not every broker knows yet."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.kafka.topics import _configs, _wait_for_leaders


class LateBroker:
    """Responds as a broker that learns of a topic only after so many requests."""

    def __init__(self, unknown_for: int) -> None:
        self.unknown_for = unknown_for

    def describe_configs(self, resources: list[Any], request_timeout: float) -> dict[Any, Any]:
        self.unknown_for -= 1
        answers: dict[Any, Future[Any]] = {resource: Future() for resource in resources}
        for future in answers.values():
            if self.unknown_for >= 0:
                future.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
            else:
                future.set_result({"min.insync.replicas": SimpleNamespace(value="2")})
        return answers

    async def ends(self, topic: str, partitions: range) -> dict[int, int]:
        self.unknown_for -= 1
        if self.unknown_for >= 0:
            raise StoreUnavailable("Kafka does not have a topic that was asked for")
        return dict.fromkeys(partitions, 0)


async def test_a_broker_that_has_not_heard_of_a_new_topic_is_asked_again():
    """On three brokers the first start of a service failed because the second broker was asked."""
    configs = await _configs(LateBroker(2), ["a", "b"], timeout_s=5)  # type: ignore[arg-type]

    assert configs == {name: {"min.insync.replicas": "2"} for name in "ab"}


async def test_a_topic_that_stays_unknown_ends_in_a_sentence():
    with pytest.raises(StoreUnavailable, match=r"topics' configuration \(UNKNOWN_TOPIC_OR_PART\)"):
        await _configs(LateBroker(100), ["a"], timeout_s=0.3)  # type: ignore[arg-type]


async def test_a_broker_that_does_not_lead_a_new_topic_yet_is_asked_again() -> None:
    """On several brokers; a process that ended there would not start beside its peers."""
    broker: Any = LateBroker(unknown_for=2)
    created: Any = [SimpleNamespace(name="new", partitions=3)]

    await _wait_for_leaders(broker, created, timeout_s=5)
    assert broker.unknown_for < 0

    with pytest.raises(StoreUnavailable):
        await _wait_for_leaders(LateBroker(unknown_for=99), created, timeout_s=0.2)  # type: ignore[arg-type]
