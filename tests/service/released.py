"""Check a service's releases: in the log, and the same bytes everywhere."""

from __future__ import annotations

from collections import Counter

from confluent_kafka import Consumer, KafkaError, TopicPartition

from blendstream.streams.releases import entries
from blendstream.streams.releases.epoch_state import Stage
from tests.service.epochs import EpochService

STEPS = ("before_drawing", "drawn", "sent", "committed", "published")
RELEASES = ("click_graph_released", "head_list_released", "estimate_released")


def all_entries(made: EpochService) -> list[dict]:
    """Every committed entry of the log, by a reader of the test's own."""
    reader = Consumer(
        {
            "bootstrap.servers": made.settings.kafka.bootstrap,
            "group.id": "test",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    reader.assign([TopicPartition(made.topics.releases.name, 0, 0)])
    found = []
    while True:
        message = reader.poll(10)
        assert message is not None, "the log could not be read"
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF
            reader.close()
            return found
        if message.key() == entries.ENTRY_KEY:
            found += entries.decode(message.value())


def releases(made: EpochService, name: str) -> Counter[int]:
    return Counter(e["epoch"] for e in all_entries(made) if e["entry"] == name)


async def same_bytes_everywhere(made: EpochService, epochs: range) -> None:
    """Check that the topics contain the bytes that the log committed, for each of these epochs."""
    log_state = await made.log_state()
    heads = await made.published(made.topics.head_lists.name)
    estimates = await made.published(made.topics.estimates.name)
    graphs = await made.published(made.topics.click_graphs.name)
    for epoch in epochs:
        state = log_state.epochs[epoch]
        assert state.stage in (Stage.REPORTING, Stage.REPORTS_SEALED, Stage.PUBLISHED)
        if state.head_list is not None:
            assert heads[epoch] == await made.document(state.head_list.head_list)
        if state.estimates is not None:
            assert estimates[epoch] == await made.document(state.estimates.document)
        assert (state.click_graph is None) == (epoch not in graphs)
        if state.click_graph is not None:
            assert graphs[epoch] == await made.document(state.click_graph.document)
