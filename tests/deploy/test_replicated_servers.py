"""Three brokers and a replicated Redis as an operator copies them: set up as `doctor` demands."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from blendstream.agents.local.local_cluster import LocalCluster
from blendstream.agents.local.local_redis import find_redis_server
from blendstream.agents.local.ports import free_port
from blendstream.agents.operations.fencing_checks import transactions, verification
from blendstream.agents.operations.findings import Finding, Grade
from blendstream.agents.operations.installation_checks import elections, replication
from blendstream.streams.settings import Settings, load_settings
from tests.service.waiting import wait_for

pytestmark = pytest.mark.long

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE = DEPLOY / "container" / "compose-replicated.yaml"
SERVERS = DEPLOY / "kubernetes" / "servers"
SCRIPTS = DEPLOY / "redis"


def compose() -> dict[str, Any]:
    return dict(yaml.safe_load(COMPOSE.read_text()))


def stateful_set(name: str) -> dict[str, Any]:
    documents = yaml.safe_load_all((SERVERS / f"{name}.yaml").read_text())
    return next(d["spec"] for d in documents if d["kind"] == "StatefulSet")


def brokers_of_compose() -> list[Mapping[str, str]]:
    services = compose()["services"]
    return [s["environment"] for name, s in services.items() if name.startswith("kafka-")]


def brokers_of_kubernetes() -> list[Mapping[str, str]]:
    spec = stateful_set("kafka")
    (container,) = spec["template"]["spec"]["containers"]
    return [{v["name"]: v["value"] for v in container["env"]}] * int(spec["replicas"])


def settings(file: str) -> Settings:
    secrets = {
        "BLENDSTREAM_KEYS_MASTER_SECRETS": ",".join(
            f"{name}={'00' * 32}" for name in ("first", "2026-a")
        )
    }
    return load_settings(DEPLOY / file, environment=secrets).settings


WAYS = pytest.mark.parametrize(
    ("brokers", "file"),
    [
        (brokers_of_compose, "container/settings-replicated.toml"),
        (brokers_of_kubernetes, "settings/replicated.toml"),
    ],
    ids=["compose", "kubernetes"],
)


def value(broker: Mapping[str, Any], name: str) -> str:
    return str(broker["KAFKA_" + name.upper().replace(".", "_")])


@WAYS
def test_doctor_finds_nothing_to_fix_in_brokers_that_are_set_up_so(brokers, file):
    found, wanted = brokers(), settings(file).topics
    log = "transaction.state.log"
    findings: list[Finding] = [
        replication(wanted, len(found), {}),
        elections({n: value(b, "unclean.leader.election.enable") for n, b in enumerate(found)}),
        transactions(
            wanted,
            "will be created with",
            min(int(value(b, f"{log}.replication.factor")) for b in found),
            min(int(value(b, f"{log}.min.isr")) for b in found),
        ),
        verification([value(b, "transaction.partition.verification.enable") for b in found]),
    ]
    assert [finding for finding in findings if finding.grade is not Grade.OK] == []
    assert (wanted.replication, wanted.min_insync_replicas, wanted.allow_single_broker) == (
        3,
        2,
        False,
    )


@WAYS
def test_brokers_are_replicated_as_those_that_the_faults_were_tried_on(brokers, file):
    """What random faults have shown holds for what was running then."""
    names = (
        "default.replication.factor", "min.insync.replicas", "unclean.leader.election.enable",
        "offsets.topic.replication.factor", "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr", "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
    )  # fmt: skip
    tried = replicated_properties()
    for broker in brokers():
        assert {name: value(broker, name) for name in names} == {n: tried[n] for n in names}


def replicated_properties() -> dict[str, str]:
    """The settings of a node of the local cluster, which is not started for this."""
    cluster = LocalCluster.__new__(LocalCluster)
    cluster.ports = {n: _Ports() for n in (1, 2, 3)}  # type: ignore[assignment, misc]
    cluster._options = {}
    return cluster._properties(1)


class _Ports:
    clients = peers = controller = 1


def test_brokers_have_one_cluster_numbers_of_their_own_and_know_each_other():
    found = brokers_of_compose()
    voters = {value(broker, "controller.quorum.voters") for broker in found}
    assert voters == {"1@kafka-1:9093,2@kafka-2:9093,3@kafka-3:9093"}
    assert sorted(int(value(broker, "node.id")) for broker in found) == [1, 2, 3]
    assert len({broker["CLUSTER_ID"] for broker in found}) == 1
    pod = stateful_set("kafka")
    (voters_there,) = {value(b, "controller.quorum.voters") for b in brokers_of_kubernetes()}
    assert voters_there == ",".join(f"{n + 1}@kafka-{n}.kafka.kafka:9093" for n in range(3))
    # A pod's number counts from 0, a node's from 1.
    assert (
        "KAFKA_NODE_ID=$(( ${HOSTNAME##*-} + 1 ))"
        in pod["template"]["spec"]["containers"][0]["args"][0]
    )


@pytest.mark.parametrize("name", ["kafka", "valkey"])
def test_each_zone_has_one_node_and_only_one_is_taken_away_at_a_time(name):
    """Two nodes in one zone would go with it, and with them all that is accepted."""
    documents = list(yaml.safe_load_all((SERVERS / f"{name}.yaml").read_text()))
    by_kind = {document["kind"]: document["spec"] for document in documents}
    (spread,) = by_kind["StatefulSet"]["template"]["spec"]["topologySpreadConstraints"]
    assert spread["topologyKey"] == "topology.kubernetes.io/zone"
    assert (spread["maxSkew"], spread["whenUnsatisfiable"]) == (1, "DoNotSchedule")
    assert by_kind["PodDisruptionBudget"]["maxUnavailable"] == 1
    assert by_kind["StatefulSet"]["replicas"] == 3
    assert by_kind["Service"]["publishNotReadyAddresses"] is True


def test_the_settings_name_the_servers_that_the_files_start():
    services = compose()["services"]
    own = settings("container/settings-replicated.toml")
    sentinels = [f"sentinel-{n}:26379" for n in (1, 2, 3)]
    assert own.kafka.bootstrap == "kafka-1:9092,kafka-2:9092,kafka-3:9092"
    assert own.redis.url.reveal() == f"redis+sentinel://{','.join(sentinels)}/blendstream/0"
    assert {name.partition(":")[0] for name in sentinels} <= services.keys()
    there = settings("settings/replicated.toml")
    pods = [f"valkey-{n}.valkey.redis:26379" for n in range(3)]
    assert there.redis.url.reveal() == f"redis+sentinel://{','.join(pods)}/blendstream/0"
    assert there.kafka.bootstrap == ",".join(f"kafka-{n}.kafka.kafka:9092" for n in range(3))
    for container in stateful_set("valkey")["template"]["spec"]["containers"]:
        given = {variable["name"]: variable["value"] for variable in container["env"]}
        assert given["SENTINELS"].split() == pods
        assert given["FIRST_PRIMARY"] == "valkey-0.valkey.redis:6379"


def test_both_compose_files_run_the_same_images():
    alone = yaml.safe_load((COMPOSE.parent / "compose.yaml").read_text())["services"]
    images = {s["image"] for s in compose()["services"].values() if "image" in s}
    assert images == {alone[name]["image"] for name in ("edge", "gateway", "kafka", "valkey")}


# --- the scripts, on real servers -----------------------------------------------------------------

#: What the image has under this name; the wheel that tests run on brings the server alone.
CLI = """\
import sys, redis
host, port, *words = [w for w in sys.argv[1:] if w not in ("-h", "-p", "--raw")]
server = redis.Redis(host, int(port), decode_responses=True, socket_timeout=1)
print(*(server.execute_command(*words) or ()), sep="\\n")
"""


class Nodes:
    """The two scripts as processes, on ports of this machine."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        programs = folder / "bin"
        programs.mkdir()
        (programs / "valkey-server").symlink_to(find_redis_server())
        cli = programs / "valkey-cli"
        (folder / "cli.py").write_text(CLI)
        cli.write_text(f'#!/bin/sh\nexec {sys.executable} {folder / "cli.py"} "$@"\n')
        cli.chmod(0o755)
        self.ports = [free_port() for _ in range(2)]
        self.sentinel_ports = [free_port() for _ in range(3)]
        self._environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "FIRST_PRIMARY": f"127.0.0.1:{self.ports[0]}",
            "SENTINELS": " ".join(f"127.0.0.1:{port}" for port in self.sentinel_ports),
            "NODE_HOST": "127.0.0.1",
            "SENTINEL_HOST": "127.0.0.1",
            "SILENCE_MS": "1000",
        }

    def start(self, script: str, port: int) -> subprocess.Popen[bytes]:
        place = self._folder / str(port)
        place.mkdir(exist_ok=True)
        own = {"NODE_PORT": str(port), "SENTINEL_PORT": str(port), "DATA_DIR": str(place)}
        with (place / "log").open("ab") as log:
            process = subprocess.Popen(
                ["sh", str(SCRIPTS / script)], env=self._environment | own, stdout=log, stderr=log
            )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def client(self, port: int) -> redis.Redis:
        return redis.Redis(port=port, socket_timeout=1, decode_responses=True)

    def role(self, port: int) -> str:
        try:
            return str(self.client(port).execute_command("ROLE")[0])
        except redis.RedisError:
            return "away"

    def primaries(self) -> set[int]:
        """The primary's port, by the word of each Sentinel."""
        told = (
            self.client(port).execute_command("SENTINEL GET-MASTER-ADDR-BY-NAME", "blendstream")
            for port in self.sentinel_ports
        )
        return {int(port) for _, port in told}

    def know_each_other(self) -> bool:
        try:
            states = [
                self.client(port).execute_command("SENTINEL MASTER", "blendstream")
                for port in self.sentinel_ports
            ]
        except redis.RedisError:
            return False
        return all((int(s["num-other-sentinels"]), int(s["num-slaves"])) == (2, 1) for s in states)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with ExitStack() as stack:
        yield Nodes(tmp_path, stack)


@pytest.mark.more
def test_a_lost_primary_is_replaced_and_follows_when_it_returns(nodes):
    """The scripts as they are mounted, with names and ports of this machine."""
    first, second = nodes.ports
    primary = nodes.start("node.sh", first)
    wait_for(lambda: nodes.role(first) == "master", "a primary")
    nodes.start("node.sh", second)
    for port in nodes.sentinel_ports:
        nodes.start("sentinel.sh", port)
    wait_for(nodes.know_each_other, "Sentinels that know each other")
    assert nodes.primaries() == {first}
    nodes.client(first).set("kept", "1")
    wait_for(
        lambda: nodes.role(second) == "slave" and nodes.client(second).get("kept") == "1",
        "a replica with the key",
    )
    told = nodes.client(first).config_get("*")
    assert (told["appendonly"], told["maxmemory-policy"]) == ("yes", "noeviction")
    primary.kill()
    primary.wait()
    wait_for(
        lambda: nodes.role(second) == "master" and nodes.primaries() == {second},
        "another primary, known to all",
    )
    assert nodes.client(second).get("kept") == "1"
    # It asks the Sentinels, and does not come back as a second primary.
    nodes.start("node.sh", first)
    wait_for(lambda: nodes.role(first) == "slave", "the old primary as a replica")
    nodes.client(second).set("after", "2")
    wait_for(lambda: nodes.client(first).get("after") == "2", "the new key")
