"""Writing published documents: what confluent's client raises is told apart from our mistakes."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.releases import compacted_topics
from blendstream.streams.settings.fields import Url
from blendstream.streams.settings.sections import KafkaSettings

PUBLISHER = compacted_topics.Publisher(KafkaSettings(url=Url("kafka://127.0.0.1:1")))


def producer_that(raises: Exception) -> type:
    class Producer:
        def __init__(self, settings: dict[str, object]) -> None:
            self.settings = settings

        def produce(self, *_words: object, **_options: object) -> None:
            raise raises

    return Producer


@pytest.mark.parametrize(
    "raised",
    [
        SystemError("<method 'produce' of 'Producer' objects> returned a result with an error set"),
        BufferError("Local: Queue full"),
        KafkaException(KafkaError(KafkaError._TIMED_OUT)),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_publication_that_the_client_refuses_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, raised: Exception
) -> None:
    """confluent-kafka raised SystemError while brokers changed, and it ended the jobs."""
    monkeypatch.setattr(compacted_topics, "Producer", producer_that(raised))
    with pytest.raises(StoreUnavailable, match="did not take a publication"):
        await PUBLISHER.publish("head-lists", 1, b"a document")


async def test_a_publication_that_no_broker_acknowledged_is_tried_again() -> None:
    """confluent's own client, and its own error: comparing that one with None raises TypeError."""
    settings = KafkaSettings(url=Url("kafka://127.0.0.1:1"), request_timeout_s=1)
    with pytest.raises(StoreUnavailable, match="did not take a publication in time"):
        await compacted_topics.Publisher(settings).publish("head-lists", 1, b"a document")


async def test_a_mistake_of_ours_is_not_tried_again_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compacted_topics, "Producer", producer_that(TypeError("no such option")))
    with pytest.raises(TypeError):
        await PUBLISHER.publish("head-lists", 1, b"a document")
