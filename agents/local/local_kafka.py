"""Run a real single-node Apache Kafka on this machine: broker and controller in one process."""

import asyncio
import base64
import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from blendstream.agents.local.jars import Progress, class_archive, find_java, kafka_jars
from blendstream.agents.local.local_server import LocalPart, ticking
from blendstream.agents.local.ports import free_port
from blendstream.agents.local.process_guard import StackError

__all__ = ["LocalKafka", "Member", "new_cluster_id"]

QUESTION_MS = 10_000


def new_cluster_id() -> str:
    """Return a random id in Kafka's form: 16 bytes in URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(os.urandom(16)).rstrip(b"=").decode()


@dataclass(frozen=True, slots=True)
class Member:
    """A node's port, cluster id and Java options; a cluster sets them for its nodes."""

    port: int
    cluster_id: str = field(default_factory=new_cluster_id)
    heap_mb: int = 512
    java_options: tuple[str, ...] = ()


class LocalKafka(LocalPart):
    """Kafka on a free port of 127.0.0.1; ready once groups and transactions work.

    `options`: further broker properties, which override those below. `archive_option`: Java's
    option for its class archive, also used to create it. `member`: for a node of a cluster; see
    `local_cluster`.
    """

    name = "Kafka"
    ready_within_s = 90.0

    def __init__(
        self,
        folder: Path | None = None,
        *,
        options: Mapping[str, str] | None = None,
        progress: Progress = lambda _line: None,
        archive_option: str | None = None,
        member: Member | None = None,
    ) -> None:
        self._options = dict(options or {})
        self._java = find_java()
        self._jars = kafka_jars(progress)
        self._archive_option = archive_option or self._shared_archive(progress)
        self._member = member or Member(free_port())
        self.port = self._member.port
        self._controller_port = free_port()
        super().__init__(folder, progress)

    def _shared_archive(self, progress: Progress) -> str:
        def record(archive: Path) -> bool:
            # Java writes the archive when it exits normally, which takes seconds.
            option = f"-XX:ArchiveClassesAtExit={archive}"
            with ticking(progress, "preparing Kafka"), LocalKafka(archive_option=option) as broker:
                broker.server.stop(patience_s=120)
                return broker.server.status != -signal.SIGKILL

        archive = class_archive(self._java, record, progress)
        return f"-XX:SharedArchiveFile={archive}" if archive else "-Xshare:auto"

    @property
    def url(self) -> str:
        return f"kafka://{self.bootstrap}"

    @property
    def bootstrap(self) -> str:
        """Host and port, for aiokafka and librdkafka."""
        return f"127.0.0.1:{self.port}"

    def _properties(self) -> dict[str, str]:
        here = f"127.0.0.1:{self._controller_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{here}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{here}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            # One node cannot replicate; few partitions, since each costs start-up time.
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "2",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "auto.create.topics.enable": "false",
            # Fault tests wait for each of these; production keeps Kafka's own values.
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            # Twice Kafka's default: on a busy machine the broker may not run for seconds, and a
            # broker that is fenced in that time drops its coordinators' state. A killed broker is
            # admitted again after its last session has expired; a stopped one ends its session.
            "broker.session.timeout.ms": "18000",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
            "log.retention.check.interval.ms": "2000",
            "log.initial.task.delay.ms": "1000",
            "log.segment.delete.delay.ms": "500",
            "log.cleaner.backoff.ms": "1000",
            # A small machine runs it together with the tests.
            "log.cleaner.dedupe.buffer.size": str(8 * 1024 * 1024),
            "num.network.threads": "2",
            "num.io.threads": "4",
            **self._options,
        }

    def _prepare(self) -> None:
        configuration = self.folder / "server.properties"
        properties = self._properties()
        configuration.write_text("".join(f"{key}={properties[key]}\n" for key in properties))
        if (self.folder / "data" / "meta.properties").exists():
            return  # A named folder that was formatted by an earlier run.
        formatted = subprocess.run(  # noqa: S603 - a Java found on this machine
            self._run(
                "kafka.tools.StorageTool",
                "format",
                f"--cluster-id={self._member.cluster_id}",
                "-c",
                str(configuration),
            ),
            capture_output=True,
            text=True,
            check=False,
        )
        if formatted.returncode != 0:
            raise StackError(f"Kafka's folder could not be formatted:\n{formatted.stderr[-2000:]}")

    def _command(self) -> list[str]:
        return self._run("kafka.Kafka", str(self.folder / "server.properties"))

    def _run(self, main_class: str, *arguments: str) -> list[str]:
        fast_start = [
            f"-Xmx{self._member.heap_mb}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *self._member.java_options,
        ]
        if main_class == "kafka.Kafka":
            fast_start.append(self._archive_option)
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        classes = f"{self._jars}/*"
        return [str(self._java), *fast_start, quiet, "-cp", classes, main_class, *arguments]

    def _answers(self) -> bool:
        """Return True if clients can work: see `_answers_clients`."""
        if not _listens(self.port):
            return False
        # In a separate thread, because the caller may be inside a running event loop.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, _answers_clients(self.bootstrap)).result()


async def _answers_clients(bootstrap: str) -> bool:
    """Return True if metadata, a group's offsets and a transaction work: each needs a coordinator.

    The port opens seconds before the coordinators run; until then the first user of a group or a
    transaction would get "coordinator not available". (With librdkafka this code would be shorter,
    but the process crashed when a producer was dropped during its first transaction request.)
    """
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=QUESTION_MS)
    writer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id="stack-ready", request_timeout_ms=QUESTION_MS
    )
    try:
        async with asyncio.timeout(QUESTION_MS / 1000):
            await admin.start()
            await admin.list_topics()
            await admin.list_consumer_group_offsets("stack-ready")
            await writer.start()
    except (KafkaError, OSError, TimeoutError):
        return False
    finally:
        await writer.stop()
        await admin.close()
    return True


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
