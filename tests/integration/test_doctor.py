"""The doctor names what is broken and how to mend it, on real servers that really are broken."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from agents.cli import main
from agents.doctor import Finding, Grade, examine
from agents.stack.ports import free_port
from streams.kafka import KafkaLog
from streams.settings import Settings
from streams.topics import Topics, ensure_topics

pytestmark = pytest.mark.integration

MakeSettings = Callable[..., Settings]


async def findings(settings: Settings, clock: Callable[[], float] = time.time) -> list[Finding]:
    return [finding async for finding in examine(settings, clock)]


def to_mend(found: list[Finding], what: str) -> str:
    return " ".join(f.found for f in found if f.what == what and f.grade is Grade.MEND)


@pytest.fixture
def healthy(kafka, redis_server, make_settings: MakeSettings) -> Settings:
    return make_settings({"kafka.url": kafka.url, "redis.url": redis_server.url})


async def test_a_healthy_set_up_needs_no_mending(healthy: Settings) -> None:
    """Otherwise nobody would believe the doctor when something is wrong."""
    await ensure_topics(healthy, KafkaLog(healthy.kafka))
    found = await findings(healthy)
    assert [f for f in found if f.grade is Grade.MEND] == []
    looked_at = {f.what for f in found}
    assert looked_at >= {
        "versions", "kafka", "replication", "elections", "topics", "clock", "redis", "eviction",
        "persistence",
    }  # fmt: skip


async def test_before_the_first_start_it_only_notes_that_topics_will_be_made(
    healthy: Settings,
) -> None:
    found = await findings(healthy)
    (topics,) = [f for f in found if f.what == "topics"]
    assert topics.grade is Grade.NOTE
    assert "creates them" in topics.found


async def test_a_kafka_that_is_away_is_named_with_what_to_do(
    redis_server, make_settings: MakeSettings
) -> None:
    nobody = f"kafka://127.0.0.1:{free_port()}"
    settings = make_settings(
        {"kafka.url": nobody, "redis.url": redis_server.url, "kafka.request_timeout_s": 2.0}
    )
    found = await findings(settings)
    assert "start Kafka, or mend kafka.url" in to_mend(found, "kafka")
    assert any(f.what == "redis" and f.grade is Grade.OK for f in found), "it looks on"


async def test_a_redis_that_is_away_is_named_with_what_to_do(
    kafka, make_settings: MakeSettings
) -> None:
    nobody = f"redis://127.0.0.1:{free_port()}/0"
    found = await findings(make_settings({"kafka.url": kafka.url, "redis.url": nobody}))
    assert "start Redis, or mend redis.url" in to_mend(found, "redis")


async def test_a_redis_that_drops_counts_or_forgets_is_to_be_mended(
    kafka, own_redis, make_settings: MakeSettings
) -> None:
    """Eviction loses counts for good; without persistence every restart counts again."""
    settings = make_settings(
        {
            "kafka.url": kafka.url,
            "redis.url": own_redis.url,
            "topics.one_node": True,
        }
    )
    with redis.Redis.from_url(own_redis.url) as client:
        client.config_set("appendonly", "no")
        found = await findings(settings)
        assert any(f.what == "persistence" and "appendonly" in f.found for f in found)
        client.config_set("maxmemory-policy", "allkeys-lru")
    assert "must have maxmemory-policy noeviction" in to_mend(await findings(settings), "redis")


async def test_a_topic_of_another_shape_is_to_be_mended(
    healthy: Settings, make_settings: MakeSettings
) -> None:
    await ensure_topics(healthy, KafkaLog(healthy.kafka))
    more = make_settings(
        {
            "kafka.url": healthy.kafka.url.reveal(),
            "redis.url": healthy.redis.url.reveal(),
            "topics.partitions": Topics(healthy).optin_records.partitions + 1,
        }
    )
    assert "partitions, found" in to_mend(await findings(more), "topics")


@pytest.mark.parametrize("off_s", [-60.0, 60.0])
async def test_a_clock_that_is_off_is_to_be_mended(healthy: Settings, off_s: float) -> None:
    """A gateway with such a clock would send records to the wrong epoch."""
    await ensure_topics(healthy, KafkaLog(healthy.kafka))
    found = await findings(healthy, lambda: time.time() + off_s)
    assert "run NTP" in to_mend(found, "clock")


def test_wrong_settings_are_listed_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KAFKA_URL", "REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    empty = tmp_path / "settings.toml"
    empty.write_text("")
    assert main(["--settings", str(empty), "doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 3
    assert all(line.startswith("  MEND  settings:") for line in lines)
