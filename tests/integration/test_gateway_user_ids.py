"""Two applications with the same user ids, from HTTP to Redis, across the change of rule."""

# ruff: noqa: ASYNC212 - a test has the event loop to itself, and may wait.

from __future__ import annotations

import time

import httpx
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from blendstream.agents.tokens import add_token
from blendstream.streams.names import InputStream
from tests.service.builder import Service
from tests.service.builder import service as built
from tests.service.written_log import opened, plan

pytestmark = pytest.mark.integration

USERS = 25


@pytest.fixture
async def service(kafka, redis_server, name_prefix):
    async with built(kafka.url, redis_server.url, name_prefix) as made:
        yield made


async def test_same_user_ids_of_two_applications_are_counted_for_both(service):
    """What the gateway accepts must be counted: the second application's records were refused
    as duplicates after they had been accepted. An epoch opened before the rule changed keeps the
    old one, so that no user has two keys in it; applications that share accounts share users."""
    tokens = {
        "news-app": add_token(service.tokens, "news-app"),
        "maps-app": add_token(service.tokens, "maps-app", "family-accounts"),
        "lite-app": add_token(service.tokens, "lite-app", "family-accounts"),
    }
    ended_s = int(time.time()) - 5
    before = opened(7, (ended_s - 3600) * 1000, plan(partitions=service.partitions))
    del before["user_id_spaces"]
    service.releases.commit(before)
    service.releases.open_epoch(8, start_ms=ended_s * 1000)
    gateway = service.start_gateway().wait_ready()
    service.start_worker()
    with httpx.Client(base_url=gateway.url, timeout=30) as client:
        for token in tokens.values():
            for epoch in (7, 8):
                body = [
                    {
                        "user_id": f"{1_000_000 + n}",
                        "slot": 0,
                        "epoch": epoch,
                        "query": "weather",
                        "url": "https://w.example/",
                    }
                    for n in range(USERS)
                ]
                answer = client.post(
                    "/v1/optin-records", json=body, headers={"authorization": f"Bearer {token}"}
                )
                assert answer.json() == {"verdicts": [{"status": "accepted"}] * USERS}

    for epoch, users in ((7, USERS), (8, 2 * USERS)):
        tables = await service.until_total(InputStream.OPTIN_RECORDS, epoch, 3 * USERS, "received")
        totals = [await tables.totals(p, epoch) for p in range(service.partitions)]
        assert sum(t.get("counted", 0) for t in totals) == users
        assert sum(t.get("refused:duplicate", 0) for t in totals) == 3 * USERS - users
        await tables.close()
    _named_nowhere(service, [*tokens, "family-accounts", "1000000", str(1_000_000 + USERS - 1)])


def _named_nowhere(service: Service, names: list[str]) -> None:
    """Neither in Kafka nor in what the gateway logs and measures."""
    written = [
        service.of_kind("gateway")[0].output().encode(),
        service.of_kind("gateway")[0].metrics().encode(),
    ]
    written += _messages(service)
    for name in names:
        assert not any(name.encode() in text for text in written), f"{name} was written down"


def _messages(service: Service) -> list[bytes]:
    """Keys and values of every topic of the installation."""
    reader = Consumer(
        {
            "bootstrap.servers": service.settings.kafka.bootstrap,
            "group.id": "test",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    places = [
        TopicPartition(name, partition, OFFSET_BEGINNING)
        for name, about in reader.list_topics(timeout=20).topics.items()
        if name.startswith(service.settings.topics.prefix)
        for partition in about.partitions
    ]
    reader.assign(places)
    found, ended = [], 0
    try:
        while ended < len(places):
            message = reader.poll(20)
            assert message is not None, "not every topic could be read to its end"
            if message.error() is None:
                found += [message.key() or b"", message.value() or b""]
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF
                ended += 1
    finally:
        reader.close()
    assert any(b"weather" in text for text in found), "the records themselves were looked at"
    return found
