"""The doctor names what is broken and how to fix it, on real servers that really are broken."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from confluent_kafka.admin import AdminClient

from blendstream.agents.cli import main
from blendstream.agents.local import LocalRedis
from blendstream.agents.local.ports import free_port
from blendstream.agents.operations.installation_checks import (
    Finding,
    Grade,
    edge_needed,
    elections,
    examine,
    replication,
    versions,
)
from blendstream.agents.operations.server_wait import wait_for_servers
from blendstream.agents.tokens import add_token
from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.kafka.topics import Topics, ensure_topics
from blendstream.streams.settings import Settings
from tests.kafka_topics import create_topic
from tests.service.waiting import wait_for

pytestmark = pytest.mark.integration

MakeSettings = Callable[..., Settings]


async def findings(settings: Settings, clock: Callable[[], float] = time.time) -> list[Finding]:
    return [finding async for finding in examine(settings, clock)]


def to_fix(found: list[Finding], what: str) -> str:
    return " ".join(f.found for f in found if f.what == what and f.grade is Grade.FIX)


def graded(found: list[Finding], what: str) -> tuple[Grade, str]:
    (one,) = [(f.grade, f.found) for f in found if f.what == what]
    return one


@pytest.fixture
def healthy(kafka, redis_server, make_settings: MakeSettings, tmp_path: Path) -> Settings:
    add_token(tmp_path / "tokens.txt", "news-app")
    return make_settings(
        {
            "kafka.url": kafka.url,
            "redis.url": redis_server.url,
            "gateway.token_file": str(tmp_path / "tokens.txt"),
        }
    )


async def test_a_healthy_set_up_needs_no_mending(healthy: Settings) -> None:
    """Otherwise nobody would believe the doctor when something is wrong."""
    await ensure_topics(healthy, KafkaInspector(healthy.kafka))
    found = await findings(healthy)
    assert [f for f in found if f.grade is Grade.FIX] == []
    assert graded(found, "elections") == (Grade.OK, "unclean elections are off on 1 broker")
    looked_at = {f.what for f in found}
    assert looked_at >= {
        "versions", "tokens", "kafka", "replication", "elections", "transactions",
        "verification", "leaders",
        "topics", "release log", "clock", "redis", "eviction", "persistence",
        "raw text",
    }  # fmt: skip


async def test_without_tokens_it_says_that_nothing_would_ever_be_published(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    """A gateway without them runs, looks healthy, and refuses every opt-in record."""
    file = tmp_path / "tokens.txt"
    nobody = {
        "kafka.url": f"kafka://127.0.0.1:{free_port()}",
        "redis.url": f"redis://127.0.0.1:{free_port()}/0",
        "kafka.request_timeout_s": 0.2,
    }

    async def tokens(**given: Path) -> tuple[Grade, str]:
        values = {f"gateway.{name}": str(value) for name, value in given.items()}
        async for finding in examine(make_settings(nobody | values)):
            if finding.what == "tokens":
                return finding.grade, finding.found
        raise AssertionError("tokens were not looked at")

    grade, found = await tokens()
    assert grade is Grade.FIX
    assert "refuses every opt-in record" in found
    assert "blendstream tokens add APPLICATION --file FILE" in found
    file.touch(mode=0o600)
    for text, complaint in (("", "names no application"), ("news-app plain\n", "line 1 of")):
        file.write_text(text)
        grade, found = await tokens(token_file=file)
        assert grade is Grade.FIX
        assert complaint in found
    file.write_bytes(b"\xff\xfe")
    assert (await tokens(token_file=file))[0] is Grade.FIX
    file.unlink()
    add_token(file, "news-app")
    assert await tokens(token_file=file) == (
        Grade.OK,
        "1 application may send opt-in records",
    )


async def test_before_the_first_start_it_only_notes_that_topics_will_be_made(
    healthy: Settings,
) -> None:
    found = await findings(healthy)
    (topics,) = [f for f in found if f.what == "topics"]
    assert topics.grade is Grade.NOTE
    assert "creates them" in topics.found


@pytest.mark.parametrize(("off_s", "grade"), [(0.0, Grade.OK), (-60.0, Grade.FIX)])
async def test_before_the_first_start_clocks_are_compared_and_no_topic_is_left(
    healthy: Settings, kafka, off_s: float, grade: Grade
) -> None:
    """A wrong clock is found before any record goes to a wrong epoch; looking leaves nothing."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    found = await findings(healthy, lambda: time.time() + off_s)

    assert graded(found, "clock")[0] is grade
    mine = [t for t in admin.list_topics(timeout=10).topics if healthy.topics.prefix in t]
    assert mine == []


async def test_fewer_brokers_than_copies_are_to_be_mended(
    healthy: Settings, make_settings: MakeSettings
) -> None:
    """The first start would fail to make the topics; better told before."""
    three = make_settings(
        {
            "kafka.url": healthy.kafka.url.reveal(),
            "redis.url": healthy.redis.url.reveal(),
            "topics.replication": 3,
            "topics.min_insync_replicas": 2,
            "topics.allow_single_broker": False,
        }
    )
    found = await findings(three)
    assert "topics.replication is 3, found 1 broker;" in to_fix(found, "replication")
    assert {"elections", "topics", "clock", "persistence"} <= {f.what for f in found}, "it looks on"


def test_topics_with_fewer_copies_than_asked_for_are_to_be_mended(
    make_settings: MakeSettings,
) -> None:
    """Raising the setting changes no topic that is there: three brokers are not three copies."""
    three = {
        "topics.replication": 3,
        "topics.min_insync_replicas": 2,
        "topics.allow_single_broker": False,
    }
    wanted = make_settings(three).topics
    names = ("blender.releases", "blender.clock")
    assert replication(wanted, 3, dict.fromkeys(names, 3)).grade is Grade.OK
    assert replication(wanted, 3, {}).grade is Grade.OK, "before the first start"
    few = replication(wanted, 3, {"blender.releases": 1, "blender.clock": 3})
    assert few.grade is Grade.FIX
    assert "found fewer of 1 topic (blender.releases)" in few.found
    assert replication(make_settings().topics, 1, dict.fromkeys(names, 1)).grade is Grade.NOTE


def test_a_library_that_is_too_old_is_to_be_mended() -> None:
    """Somebody upgraded the service and not what it stands on."""
    assert versions().grade is Grade.OK
    old = versions(lambda name: "0.15.2" if name == "faust-streaming" else "99.0.rc1")
    assert old.grade is Grade.FIX
    assert old.found.startswith("faust-streaming 0.15.2 is older than 0.15.3; install")


def test_one_broker_of_three_that_elects_uncleanly_is_to_be_mended() -> None:
    """Whichever broker leads the partition decides; the first one's word is not enough."""
    assert elections({1: "false", 2: "false"}).grade is Grade.OK
    some = elections({1: "false", 2: "true", 3: None})
    assert some.grade is Grade.FIX
    assert "is true on broker 2:" in some.found


def test_a_broker_that_does_not_tell_is_noted_and_not_called_healthy() -> None:
    """A user who may not read the brokers' configuration is told nothing, not that all is well."""
    unknown = elections({1: "false", 2: None})
    assert unknown.grade is Grade.NOTE
    assert "broker 2 did not report" in unknown.found


async def test_a_kafka_that_is_away_is_named_with_what_to_do(
    redis_server, make_settings: MakeSettings
) -> None:
    nobody = f"kafka://127.0.0.1:{free_port()}"
    settings = make_settings(
        {"kafka.url": nobody, "redis.url": redis_server.url, "kafka.request_timeout_s": 2.0}
    )
    found = await findings(settings)
    assert "start Kafka, or correct kafka.url" in to_fix(found, "kafka")
    assert any(f.what == "redis" and f.grade is Grade.OK for f in found), "it looks on"


async def test_a_redis_that_is_away_is_named_with_what_to_do(
    kafka, make_settings: MakeSettings
) -> None:
    nobody = f"redis://127.0.0.1:{free_port()}/0"
    found = await findings(make_settings({"kafka.url": kafka.url, "redis.url": nobody}))
    assert "start Redis, or correct redis.url" in to_fix(found, "redis")


async def test_a_redis_that_drops_counts_or_forgets_is_to_be_mended(
    kafka, own_redis, make_settings: MakeSettings
) -> None:
    """Eviction loses counts for good; without persistence every restart counts again."""
    servers = {"kafka.url": kafka.url, "redis.url": own_redis.url}
    copies = {True: {}, False: {"topics.replication": 3, "topics.min_insync_replicas": 2}}
    with redis.Redis.from_url(own_redis.url) as client:
        client.config_set("appendonly", "no")
        for allow_single_broker, grade in ((True, Grade.NOTE), (False, Grade.FIX)):
            settings = make_settings(
                {
                    **servers,
                    "topics.allow_single_broker": allow_single_broker,
                    **copies[allow_single_broker],
                }
            )
            found = graded(await findings(settings), "persistence")
            assert found[0] is grade
            assert "set `appendonly yes`" in found[1]
        client.config_set("maxmemory-policy", "allkeys-lru")
    found = await findings(settings)
    assert "must have maxmemory-policy noeviction, found allkeys-lru" in to_fix(found, "eviction")
    assert to_fix(found, "persistence"), "it looks on"


def refuse_writes(client: redis.Redis, why: str) -> None:
    """Make a real server answer every read and refuse every write."""
    if why == "OOM":
        client.config_set("maxmemory", 1)
        return
    # A snapshot that cannot be saved, as on a full disk: a folder has the file's name.
    told = client.config_get("dir") | client.config_get("dbfilename")
    Path(told["dir"], told["dbfilename"]).mkdir()
    client.config_set("save", "3600 1")
    client.set("a", "b")
    client.bgsave()
    wait_for(
        lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err",
        "a snapshot that fails",
        20,
    )


@pytest.mark.parametrize(
    ("why", "advice"), [("OOM", "raise maxmemory"), ("MISCONF", "free space there")]
)
async def test_a_redis_that_refuses_writes_is_to_be_mended_although_it_answers(
    kafka, own_redis, make_settings: MakeSettings, why: str, advice: str
) -> None:
    """With a full disk, or at maxmemory, PING answers: `doctor` once found nothing wrong."""
    settings = make_settings({"kafka.url": kafka.url, "redis.url": own_redis.url})
    with redis.Redis.from_url(own_redis.url) as client:
        refuse_writes(client, why)
        found = await findings(settings)
    assert any(f.what == "redis" and f.grade is Grade.OK for f in found)
    assert f"Redis refuses every write ({why}), because" in to_fix(found, "writes")
    assert advice in to_fix(found, "writes")


async def test_a_cluster_is_asked_node_by_node(
    kafka, own_cluster_redis, make_settings: MakeSettings
) -> None:
    """INFO goes to one node of a cluster unless told otherwise."""
    settings = make_settings({"kafka.url": kafka.url, "redis.url": own_cluster_redis.url})
    found = await findings(settings)
    assert graded(found, "redis")[0] is Grade.OK
    assert "1 node" in graded(found, "redis")[1]
    assert {graded(found, what)[0] for what in ("eviction", "persistence")} == {Grade.OK}


async def test_a_topic_of_another_shape_is_to_be_mended(
    healthy: Settings, make_settings: MakeSettings
) -> None:
    await ensure_topics(healthy, KafkaInspector(healthy.kafka))
    more = make_settings(
        {
            "kafka.url": healthy.kafka.url.reveal(),
            "redis.url": healthy.redis.url.reveal(),
            "topics.partitions": Topics(healthy).optin_records.partitions + 1,
        }
    )
    assert "partitions, found" in to_fix(await findings(more), "topics")


@pytest.mark.parametrize("off_s", [-60.0, 60.0])
async def test_a_clock_that_is_off_is_to_be_mended(healthy: Settings, off_s: float) -> None:
    """A gateway with such a clock would send records to the wrong epoch."""
    await ensure_topics(healthy, KafkaInspector(healthy.kafka))
    found = await findings(healthy, lambda: time.time() + off_s)
    assert "run NTP" in to_fix(found, "clock")


async def test_a_clock_topic_that_refuses_records_is_named(healthy: Settings, kafka) -> None:
    """Kafka answers everything else: an operator who looks there finds nothing to fix."""
    name = Topics(healthy).clock.name
    config = {"max.message.bytes": "1", "retention.ms": "3600000"}
    config |= {"message.timestamp.type": "LogAppendTime", "min.insync.replicas": "1"}
    create_topic(kafka.bootstrap, name, config=config)
    found = await findings(healthy)
    assert f"Kafka must accept a record for topic {name}, got MSG_SIZE_TOO_LARGE" in to_fix(
        found, "clock"
    )
    assert graded(found, "kafka")[0] is Grade.OK


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
    assert all(line.startswith("  FIX   settings:") for line in lines)


async def test_it_can_wait_for_servers_that_are_still_starting(
    kafka, make_settings: MakeSettings
) -> None:
    """Step 4 of a first service, typed before step 2 says that it is ready."""
    port = free_port()
    url = f"redis://127.0.0.1:{port}/0"
    settings = make_settings({"kafka.url": kafka.url, "redis.url": url})
    said: asyncio.Queue[str] = asyncio.Queue()

    waiting = asyncio.create_task(wait_for_servers(settings, 30, said.put_nowait))
    assert await said.get() == "waiting up to 30 s until Kafka and Redis respond ..."
    assert not waiting.done()
    with await asyncio.to_thread(LocalRedis, port=port):
        assert await waiting
    assert said.empty()


@pytest.mark.parametrize("away", ["kafka", "redis"])
async def test_it_waits_no_longer_than_it_was_told(
    away, kafka, redis_server, make_settings: MakeSettings
) -> None:
    """The check then says what does not answer."""
    urls = {"kafka.url": kafka.url, "redis.url": redis_server.url}
    urls |= {f"{away}.url": f"{away}://127.0.0.1:{free_port()}"}
    began = time.monotonic()

    assert not await wait_for_servers(make_settings(urls), 1)
    assert time.monotonic() - began < 15


@pytest.mark.parametrize(
    ("changes", "grade"),
    [
        ({"gateway.unix_socket": "/run/blendstream/gateway-1.sock"}, Grade.OK),
        ({"gateway.host": "127.0.0.1"}, Grade.OK),
        ({"gateway.host": "::1"}, Grade.OK),
        ({"gateway.host": "0.0.0.0"}, Grade.NOTE),
        ({"gateway.host": "10.0.0.1"}, Grade.NOTE),
    ],
)
def test_a_gateway_that_others_reach_past_the_edge_is_noted(make_settings, changes, grade):
    """A slow sender would need no more than its address."""
    found = edge_needed(make_settings(changes).gateway)

    assert (found.what, found.grade) == ("edge", grade)
    if grade is Grade.NOTE:
        assert "set gateway.unix_socket behind nginx" in found.found
