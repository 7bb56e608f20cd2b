"""The whole service on a Kafka and a Redis that let in only whom they know, over TLS."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import redis
from confluent_kafka.admin import AdminClient

from blendstream.agents.local import GivenServer, LocalRedis, Stack
from blendstream.agents.local.demo.service import _remove_all
from blendstream.agents.local.ports import free_port
from blendstream.agents.local.process_guard import ProcessGuard, Server
from blendstream.agents.tokens import add_token
from blendstream.agents.worker.counting_process import Worker
from blendstream.blender.values.errors import BlenderError
from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.settings import Settings
from tests.kafka_topics import create_topic
from tests.secured_servers import KEY_PASSWORD, PASSWORD, USER, Authority, SecuredKafka, TlsRelay
from tests.service.settings import environment_of, service_values
from tests.service.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.more]
PATIENCE_S = 60


@dataclass
class Secured:
    """Both servers, and the settings that get in."""

    authority: Authority
    kafka: SecuredKafka
    redis_port: int
    values: dict[str, str]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder)
    certificate, key = authority.issue("service", password=KEY_PASSWORD)
    operators = {"requirepass": "of-the-operator"}
    with SecuredKafka(authority) as kafka, LocalRedis(options=operators) as server:
        with server.client() as client:
            client.acl_setuser(
                USER, enabled=True, passwords=[f"+{PASSWORD}"], keys=["*"], channels=["*"],
                categories=["+@all"],
            )  # fmt: skip
        relay = TlsRelay(*authority.issue("redis"), server.port)
        values = service_values(kafka.secured_url, prefix="secured") | {
            "kafka.tls_ca_file": str(authority.file),
            "kafka.tls_certificate_file": str(certificate),
            "kafka.tls_key_file": str(key),
            "kafka.tls_key_password": KEY_PASSWORD,
            "kafka.sasl_mechanism": "SCRAM-SHA-512",
            "kafka.sasl_user": USER,
            "kafka.sasl_password": PASSWORD,
            "redis.url": f"rediss://{USER}:{PASSWORD}@127.0.0.1:{relay.port}/0",
            "redis.tls_ca_file": str(authority.file),
        }
        yield Secured(authority, kafka, relay.port, values)
        relay.close()


def test_records_go_all_the_way_over_tls(secured: Secured, tmp_path: Path) -> None:
    """Gateway (aiokafka), worker (Faust, librdkafka) and jobs (transactions) each get in.

    Each under the limits of its systemd unit: a filter of system calls that forbids too much would
    be found in production first.
    """
    tokens = tmp_path / "tokens.txt"
    token = add_token(tokens, "app")
    ports = {name: free_port() for name in ("http", "gateway", "worker", "jobs")}
    settings = environment_of(
        secured.values
        | {"gateway.token_file": str(tokens), "gateway.port": str(ports["http"])}
        | {f"{name}.metrics_port": str(ports[name]) for name in ("gateway", "worker", "jobs")}
        | {"jobs.poll_s": "0.3", "log.form": "json"}
    )
    gateway = f"http://127.0.0.1:{ports['http']}"
    with ProcessGuard() as keeper, httpx.Client(timeout=10) as http:
        processes = [
            keeper.start(
                [sys.executable, "-m", "tests.unit_limits", verb],
                log=keeper.folder / f"{verb}.log",
                environment=settings | {"TMPDIR": str(keeper.folder)},
            )
            for verb in ("jobs", "worker", "gateway")
        ]
        come(processes, "readiness", lambda: http.get(f"{gateway}/readyz").status_code == 200)
        come(processes, "an epoch", lambda: http.get(f"{gateway}/v1/epochs").json()["collecting"])
        records = [
            {"user_id": f"user {i}", "slot": 0, "query": "weather", "url": "https://w.example/"}
            for i in range(20)
        ]
        answer = http.post(
            f"{gateway}/v1/optin-records",
            json=records,
            headers={"authorization": f"Bearer {token}"},
        )
        assert answer.status_code == 202, answer.text
        metrics = f"http://127.0.0.1:{ports['worker']}/metrics"
        come(processes, "all counted", lambda: counted(http.get(metrics).text) == len(records))
        for process in processes:
            process.stop(patience_s=20)
        for verb in ("jobs", "worker", "gateway"):
            written = (keeper.folder / f"{verb}.log").read_text()
            for secret in (PASSWORD, KEY_PASSWORD):
                assert secret not in written


def test_the_demo_leaves_nothing_on_servers_that_ask_who_comes(secured: Secured) -> None:
    """Its topics stayed on a Kafka over TLS, and nobody was told."""
    given = environment_of(secured.values)
    url = secured.values["redis.url"]
    stack = Stack(GivenServer(secured.kafka.secured_url), GivenServer(url))
    for name in ("demo-7.releases", "of-others"):
        create_topic(secured.kafka.bootstrap, name)
    said: list[str] = []
    with redis.Redis.from_url(url, ssl_ca_certs=str(secured.authority.file)) as client:
        client.mset({"demo-7:{demo-7.releases/0}:state": 1, "of others": 1})
        _remove_all(stack, given, "demo-7", said.append)
        assert client.keys("*demo-7*") == []
        assert client.get("of others") == b"1"
    topics = AdminClient({"bootstrap.servers": secured.kafka.bootstrap}).list_topics(timeout=10)
    assert [n for n in ("demo-7.releases", "of-others") if n in topics.topics] == ["of-others"]
    assert said == []

    stranger = given | {
        "BLENDSTREAM_KAFKA_REQUEST_TIMEOUT_S": "1",
        "BLENDSTREAM_KAFKA_SASL_PASSWORD": "guessed",
        "BLENDSTREAM_REDIS_URL": url.replace(PASSWORD, "guessed"),
    }
    _remove_all(stack, stranger, "demo-7", said.append)
    kafka, keys = said
    assert re.match(r"Kafka did not delete the topics demo-7\.\* \(\w+\); delete", kafka)
    assert "keys with demo-7 in their names are left in Redis" in keys
    assert PASSWORD not in kafka + keys


def come(processes: list[Server], what: str, condition: Callable[[], object]) -> None:
    """Wait for it while all of them run."""

    def words() -> str:
        return "\n".join(process.last_words() for process in processes)

    def come_while_all_run() -> object:
        assert all(process.running for process in processes), words()
        return condition()

    wait_for(come_while_all_run, what, PATIENCE_S, forgive=httpx.HTTPError, about=words)


def counted(metrics: str) -> float:
    found = re.findall(r"^blender_optin_records_counted_total\{[^}]*\} (\S+)$", metrics, re.M)
    return sum(map(float, found))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_the_other_mechanisms_get_in_too(secured: Secured, mechanism: str) -> None:
    settings = Settings.from_values(secured.values | {"kafka.sasl_mechanism": mechanism})
    found = await KafkaInspector(settings.kafka).describe(["not-there"])
    assert found == {"not-there": None}


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"kafka.sasl_password": "guessed"}, "Kafka"),
        ({"redis.url": "rediss://blender:guessed@127.0.0.1:{redis}/0"}, "Redis"),
        ({"kafka.tls_ca_file": "{other}"}, "Kafka"),
        ({"redis.tls_ca_file": "{other}"}, "Redis"),
    ],
)
async def test_who_is_not_let_in_is_told_in_one_line_without_the_secret(
    secured: Secured, tmp_path: Path, wrong: dict[str, str], named: str
) -> None:
    other = Authority(tmp_path, "stranger").file
    changed = {n: v.format(redis=secured.redis_port, other=other) for n, v in wrong.items()}
    values = secured.values | {"kafka.request_timeout_s": "3"} | changed
    with pytest.raises(BlenderError) as refused:
        await Worker.connect(Settings.from_values(values))
    message = str(refused.value)
    assert named in message
    assert "\n" not in message
    for secret in ("guessed", PASSWORD, KEY_PASSWORD):
        assert secret not in message
