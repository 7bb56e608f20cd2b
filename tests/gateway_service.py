"""A gateway process on a real broker, with a release log that the test writes itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import Producer

from blendstream.agents.local.ports import free_port
from blendstream.agents.tokens import add_token
from blendstream.blender.registry import randomizer_for
from blendstream.blender.values.cells import HeadList, RandomizerSpec
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.blender.values.record import Record
from blendstream.streams.budget.epoch_plan import EpochParameters, EpochPlan
from blendstream.streams.budget.ledger import Cost, EpochCharge
from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.kafka.topics import Topics, ensure_topics
from blendstream.streams.names import Stem
from blendstream.streams.releases import entries
from blendstream.streams.releases.documents import StoredDocument, split
from blendstream.streams.releases.entries import EpochOutcome
from blendstream.streams.settings import Settings
from blendstream.streams.tables.count_store import CountTables
from blendstream.streams.tables.redis import connect_redis
from blendstream.streams.wire.head_list_document import HeadListDocument

ROOT = Path(__file__).parent.parent
MASTER = bytes(range(32))

#: `blendstream gateway` on a machine whose clock is wrong.
WRONG_CLOCK = """
import sys, time
right = time.time
time.time = lambda: right() + {off_s}
from blendstream.agents.cli import main
sys.exit(main(["gateway"]))
"""


def base_values(kafka_url: str, prefix: str, partitions: int) -> dict[str, str]:
    """The settings that a gateway must have."""
    return {
        "kafka.url": kafka_url,
        "kafka.request_timeout_s": "5",
        "redis.url": "redis://127.0.0.1:1/0",
        "budget.period_s": "864000",
        "budget.period_epochs": "0",
        "budget.optin_epsilon_limit": "100",
        "budget.optin_delta_limit": "0.1",
        "budget.client_epsilon_limit": "100",
        "budget.client_delta_limit": "0.1",
        "keys.master_secrets": f"k1={MASTER.hex()}",
        "keys.current_id": "k1",
        "keys.cohort_id": "k1",
        "topics.prefix": prefix,
        "topics.partitions": str(partitions),
        "topics.replication": "1",
        "topics.min_insync_replicas": "1",
        "topics.one_node": "true",
    }


def plan(*, partitions: int = 4, window_ms: int = 3_600_000, **changes: Any) -> EpochPlan:
    """What an epoch is opened with."""
    privacy = PrivacyParameters(records_per_optin_user=changes.pop("records_per_user", 1))
    fields: dict[str, Any] = {
        "window_ms": window_ms,
        "grace_ms": 60_000,
        "skew_ms": 5_000,
        "privacy": privacy,
        "profile": "sharp",
        "cohorts": 1,
        "key_id": "k1",
        "optin_partitions": partitions,
        "report_partitions": partitions,
    }
    return EpochPlan(**fields | changes)


def opened(epoch: int, start_ms: int, of: EpochPlan) -> dict[str, Any]:
    """The entry that opens an epoch."""
    cost = Cost(4.0, 1e-5)
    charge = EpochCharge(epoch, start_ms // 1000, of.cohorts, 0, 2**40, cost, cost)
    return entries.epoch_opened(
        EpochParameters(epoch, start_ms, start_ms + of.window_ms, of, charge)
    )


def head_list_document(
    epoch: int,
    *,
    records: int = 50,
    randomizer: RandomizerSpec | None = None,
    wildcards: bool = False,
) -> HeadListDocument:
    """A head list of invented records."""
    now_s = int(time.time())
    return HeadListDocument(
        epoch=epoch,
        window_start_s=now_s - 3600,
        window_end_s=now_s,
        reports_until_s=now_s + 3600,
        head_list=HeadList(
            records=tuple(Record(f"query {i}", f"https://r{i}.example/") for i in range(records)),
            listed=records,
            randomizer=randomizer or RandomizerSpec("randomized-response", 4.0),
            query_wildcards=wildcards,
        ),
    )


class ReleaseLog:
    """Writes entries and documents as the jobs do, in one transaction each."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"test-{secrets.token_hex(8)}",
                "max.in.flight.requests.per.connection": 1,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(30)

    def commit(self, entry: Mapping[str, Any], documents: Sequence[StoredDocument] = ()) -> None:
        """The documents' parts, then the entry."""
        self._producer.begin_transaction()
        for document in documents:
            for number, part in enumerate(document.parts):
                self._write(entries.part_key(document.id, number), part)
        self._write(entries.ENTRY_KEY, entries.encode([entry]))
        self._producer.commit_transaction(30)

    def _write(self, key: bytes, value: bytes) -> None:
        self._producer.produce(self._topic, key=key, value=value, partition=0)

    def open_epoch(self, epoch: int, *, start_ms: int | None = None, **changes: Any) -> EpochPlan:
        """Open an epoch; its window began a minute ago unless told otherwise."""
        of = plan(**changes)
        began = int(time.time()) * 1000 - 60_000
        self.commit(opened(epoch, began if start_ms is None else start_ms, of))
        return of

    def seal_records(self, epoch: int, partitions: int = 4) -> None:
        """The opt-in side of the epoch is over."""
        self.commit(entries.records_sealed(epoch, [0] * partitions))

    def publish_head_list(
        self,
        document: HeadListDocument,
        *,
        cells_per_answer: int = 1,
        reports_until_ms: int | None = None,
    ) -> str:
        """Release a head list and an invented opt-in document."""
        stored = split("head_list", document.to_bytes())
        optin = split("optin", b"{}" + secrets.token_hex(8).encode())
        self.commit(
            entries.head_list_released(
                document.epoch,
                [stored, optin],
                cells=len(document.head_list.cells),
                cells_per_answer=cells_per_answer,
                answers=document.head_list.randomizer.answers,
                wildcard_alone=randomizer_for(document.head_list).wildcard_alone,
                reports_until_ms=reports_until_ms or document.reports_until_s * 1000,
                reasons=[],
            ),
            [stored, optin],
        )
        return stored.id

    def publish_estimates(
        self, epoch: int, body: bytes, outcome: EpochOutcome = EpochOutcome.COMPLETE
    ) -> None:
        """Release an estimates document."""
        stored = split("estimates", body)
        self.commit(entries.estimate_released(epoch, stored, outcome, []), [stored])


class GatewayService:
    """Topics, release log and any number of gateway processes."""

    def __init__(self, kafka_url: str, prefix: str, *, partitions: int = 4, **values: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="gateway-")
        self.tokens = Path(self._folder.name) / "tokens"
        self.token = add_token(self.tokens, "test-app")
        self.signing_key = add_token(self.tokens, "test-app", for_users=True)
        self.values = (
            base_values(kafka_url, prefix, partitions)
            | {
                "gateway.token_file": str(self.tokens),
                "gateway.delivery_deadline_s": "3",
                "gateway.stop_deadline_s": "8",
            }
            | {name.replace("__", "."): value for name, value in values.items()}
        )
        self.settings = Settings.from_values(self.values)
        self.topics = Topics(self.settings)
        self.partitions = partitions
        self.gateways: list[GatewayUnderTest] = []
        self._workers: list[subprocess.Popen[bytes]] = []
        self.log: ReleaseLog

    async def create(self) -> None:
        """Make the topics and connect to the release log."""
        kafka = KafkaInspector(self.settings.kafka)
        await ensure_topics(self.settings, kafka)
        await kafka.close()
        self.log = ReleaseLog(self.settings.kafka.bootstrap, self.topics.releases.name)

    def start(self, *, clock_off_s: float = 0.0, **more: str) -> GatewayUnderTest:
        """Start a gateway, on a clock that is off by so much; `wait_ready` waits for it."""
        gateway = GatewayUnderTest(
            self.environment(**more),
            Path(self._folder.name) / f"{len(self.gateways)}.log",
            clock_off_s,
        )
        self.gateways.append(gateway)
        return gateway

    def start_worker(self) -> subprocess.Popen[bytes]:
        """A worker that counts what the gateways accept."""
        environment = self.environment(worker__metrics_port=str(free_port()))
        with (Path(self._folder.name) / "worker.log").open("ab") as out:
            worker = subprocess.Popen(
                [sys.executable, "-m", "tests.worker_main"],
                cwd=ROOT,
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        self._workers.append(worker)
        return worker

    def worker_output(self) -> str:
        """The end of what the workers wrote."""
        log = Path(self._folder.name) / "worker.log"
        return log.read_text(errors="replace")[-5000:] if log.exists() else ""

    def environment(self, **more: str) -> dict[str, str]:
        """Settings as variables, on free ports."""
        values = self.values | {
            "gateway.port": str(free_port()),
            "gateway.metrics_port": str(free_port()),
        }
        values |= {name.replace("__", "."): value for name, value in more.items()}
        given = {f"BLENDSTREAM_{n.replace('.', '_').upper()}": v for n, v in values.items()}
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        return kept | given | {"PYTHONPATH": f"{ROOT}/src:{ROOT}"}

    def close(self) -> None:
        """End every gateway that still runs."""
        for gateway in self.gateways:
            gateway.end()
        for worker in self._workers:
            worker.kill()
            worker.wait(10)
        self._folder.cleanup()


class GatewayUnderTest:
    """`blendstream gateway` as a process."""

    def __init__(self, environment: dict[str, str], log: Path, clock_off_s: float = 0.0) -> None:
        self.log = log
        command = ["-m", "blendstream.agents.cli", "gateway"]
        if clock_off_s:
            command = ["-c", WRONG_CLOCK.format(off_s=clock_off_s)]
        self.port = int(environment["BLENDSTREAM_GATEWAY_PORT"])
        self.metrics_port = int(environment["BLENDSTREAM_GATEWAY_METRICS_PORT"])
        self.url = f"http://127.0.0.1:{self.port}"
        self.unix_socket = environment.get("BLENDSTREAM_GATEWAY_UNIX_SOCKET")
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                cwd=ROOT,
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def wait_ready(self, timeout_s: float = 30) -> GatewayUnderTest:
        """Return when /readyz says yes."""
        deadline = time.monotonic() + timeout_s
        last = ""
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError):
                with httpx.Client(transport=httpx.HTTPTransport(uds=self.unix_socket)) as client:
                    answer = client.get(f"{self.url}/readyz", timeout=5)
                last = answer.text
                if answer.status_code == 200:
                    return self
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"the gateway did not get ready: {last}\n{self.output()}")

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(10)

    def terminate(self, timeout_s: float = 20) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def end(self) -> None:
        """However it is, end it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()

    def output(self) -> str:
        """What it wrote to its log."""
        return self.log.read_text(errors="replace")

    def metrics(self) -> str:
        """What it tells Prometheus."""
        return httpx.get(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5).text


async def counted(
    service: GatewayService, stem: Stem, epoch: int, expected: int, *, what: str = "counted"
) -> CountTables:
    """Wait until workers have counted (or received) so many entries; tables to look into."""
    client = await connect_redis(service.settings.redis)
    name = service.topics.of(stem).name
    tables = CountTables(client, name, prefix=service.settings.topics.prefix)
    for _ in range(900):
        totals = [await tables.totals(p, epoch) for p in range(service.partitions)]
        if sum(t.get(what, 0) for t in totals) >= expected:
            return tables
        await asyncio.sleep(0.1)
    raise AssertionError(f"not counted in time: {totals}\n{service.worker_output()}")


@contextlib.contextmanager
def running(service: GatewayService) -> Iterator[GatewayService]:
    """Close the service whatever happens."""
    try:
        yield service
    finally:
        service.close()
