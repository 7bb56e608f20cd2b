"""A whole service for epoch tests: real Kafka and Redis, workers and jobs as processes.

`Service` sends entries, remembers every one of them, starts and disturbs workers and jobs, and
reads what was released. Jobs run in a main program of the tests' own (tests/job_main.py), which may
kill or pause itself at a step and run its clock ahead; production has no such switch.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)

from blendstream.agents.local.ports import free_port
from blendstream.agents.worker.entry_checks import _shares as shares_of_contributors
from blendstream.blender.registry import randomizer_for
from blendstream.blender.values.cells import HeadList
from blendstream.blender.values.record import Record
from blendstream.streams.epoch_keys import EpochKeys, PeriodShares
from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.kafka.kafka_clients import KafkaInspector, producer_settings
from blendstream.streams.kafka.topics import Topics, ensure_topics
from blendstream.streams.names import Share, Stem
from blendstream.streams.releases.compacted_topics import read_publications
from blendstream.streams.releases.epoch_state import EpochState, ReleaseBook, Stage
from blendstream.streams.releases.log import ReleaseLog
from blendstream.streams.settings import Settings
from blendstream.streams.tables.count_store import CountTables
from blendstream.streams.tables.redis import connect_redis
from blendstream.streams.wire.frames import (
    Frame,
    Marker,
    OptinEntry,
    cell_width,
    decode,
    encode_optin_records,
)
from blendstream.streams.wire.head_list_document import HeadListDocument
from tests.counted_records import record_counts
from tests.report_frames import encode_reports

ROOT = Path(__file__).parent.parent
MASTER = bytes(range(32))


def values(kafka: str, redis: str, prefix: str, partitions: int) -> dict[str, str]:
    """Settings with windows of an hour: one epoch is open as long as a test wants."""
    return {
        "kafka.url": kafka,
        "kafka.request_timeout_s": "15",  # Only failures take so long, or a machine that is busy.
        "redis.url": redis,
        "redis.timeout_s": "5",
        "budget.period_s": "8640000",
        "budget.period_epochs": "0",
        "budget.optin_epsilon_limit": "1000",
        "budget.optin_delta_limit": "0.5",
        "budget.client_epsilon_limit": "1000",
        "budget.client_delta_limit": "0.5",
        "keys.master_secrets": f"k1={MASTER.hex()}",
        "keys.current_id": "k1",
        "topics.prefix": prefix,
        "topics.partitions": str(partitions),
        "topics.replication": "1",
        "topics.min_insync_replicas": "1",
        "topics.one_node": "true",
        "topics.retention_s": "864000",
        "worker.session_timeout_s": "3",
        "worker.idle_check_s": "0.3",
        "worker.stop_deadline_s": "5",
        "epoch.window_s": "3600",
        "epoch.minimum_participants": "20",
        # Tests run the jobs' clock hours ahead of the broker's.
        "epoch.counting_deadline_s": "360000",
        "privacy.selection_share": "0.7",
        "privacy.head_list_cells": "10",
        "jobs.poll_s": "0.1",
        "jobs.lease_s": "1",
        "jobs.lease_renew_s": "0.3",
        "jobs.transaction_timeout_s": "20",
        "jobs.stop_deadline_s": "5",
    }


#: Windows of a few seconds, as short as the rules between settings allow.
SHORT = {
    "epoch.window_s": "7",
    "epoch.grace_s": "1.2",
    "epoch.allowed_skew_s": "0.1",
    "gateway.delivery_deadline_s": "0.9",
    "gateway.linger_s": "0.01",
}


class Part:
    """A process that a test can disturb."""

    def __init__(self, name: str, output: Path) -> None:
        self.name = name
        self.output_path = output

    pid: int

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number when one ended it."""
        raise NotImplementedError

    def wait(self, timeout_s: float = 20) -> int:
        deadline = time.monotonic() + timeout_s
        while (code := self.exit_code) is None:
            assert time.monotonic() < deadline, f"{self.name} did not end\n{self.output()[-4000:]}"
            time.sleep(0.05)
        return code

    @property
    def running(self) -> bool:
        return self.exit_code is None

    def _signal(self, number: int) -> None:
        if self.running:
            with contextlib.suppress(ProcessLookupError):  # It may end in this moment.
                os.kill(self.pid, number)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)  # Ends a paused one too.
        self.wait(10)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    @property
    def paused(self) -> bool:
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{self.pid}/stat").read_text()
            return stat.rpartition(")")[2].split()[0] == "T"
        return False

    def output(self) -> str:
        return self.output_path.read_text(errors="replace") if self.output_path.exists() else ""


class Started(Part):
    """A program of its own."""

    def __init__(self, command: list[str], environment: dict[str, str], output: Path) -> None:
        super().__init__(" ".join(command[1:]), output)
        with output.open("ab") as out:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT
            )
        self.pid = self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()


class StartedGateway(Started):
    """A gateway, and where people reach it."""

    def __init__(self, environment: dict[str, str], output: Path) -> None:
        self.url = f"http://127.0.0.1:{environment['BLENDSTREAM_GATEWAY_PORT']}"
        super().__init__(
            [sys.executable, "-m", "blendstream.agents.cli", "gateway"], environment, output
        )


class Forked(Part):
    """Jobs, forked from a process that has their libraries loaded."""

    _server = multiprocessing.get_context("forkserver")

    def __init__(self, words: list[str], environment: dict[str, str], output: Path) -> None:
        super().__init__(" ".join(["jobs", *words]), output)
        from tests.job_main import begin

        self._server.set_forkserver_preload(["tests.job_main"])
        self._process = self._server.Process(target=begin, args=(words, environment, output))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.exitcode


class Service:
    """One installation and all that a test did to it."""

    def __init__(
        self, kafka: str, redis: str, prefix: str, *, partitions: int = 2, **changes: str
    ) -> None:
        self.partitions = partitions
        self.values = values(kafka, redis, prefix, partitions)
        self.change(**changes)
        self.topics = Topics(self.settings)
        self.kafka = KafkaInspector(self.settings.kafka)
        self._folder = tempfile.TemporaryDirectory(prefix="epochs-")
        self.parts: list[Part] = []
        self._orders = Path(self._folder.name) / "orders"
        self._orders.mkdir()
        self.run_ahead(0)
        self.skew_jobs(0)
        self._producer = Producer(producer_settings(self.settings.kafka) | {"linger.ms": 5})
        self.sent: dict[tuple[int, Share], Counter[Record | None]] = {}
        self.reported: dict[int, Counter[int]] = {}
        self.reports: Counter[int] = Counter()
        #: Where the last acknowledged frame of an epoch lies, by partition.
        self.last_offsets: dict[tuple[Stem, int], dict[int, int]] = {}
        self.texts: set[str] = set()
        self._log: ReleaseLog | None = None
        self._reader: Consumer | None = None

    def change(self, **changes: str) -> None:
        """Change settings for processes started from now on: `epoch__window_s="4"`."""
        self.values |= {name.replace("__", "."): value for name, value in changes.items()}
        self.settings = Settings.from_values(self.values)

    async def look_from(self, kafka: str) -> None:
        """Let the test's own clients ask these brokers from now on, by new connections: the old
        ones may still believe a broker that was cut off. Processes keep the settings they had."""
        self.settings = Settings.from_values(self.values | {"kafka.url": kafka})
        self.kafka = KafkaInspector(self.settings.kafka)
        self._producer = Producer(producer_settings(self.settings.kafka) | {"linger.ms": 5})
        log, self._log = self._log, None
        if log is not None:
            await log.close()

    async def create(self) -> None:
        await ensure_topics(self.settings, self.kafka)

        async def every_partition_has_a_leader() -> bool:
            # A topic just made may have none for a moment; real jobs wait that out.
            for topic in self.topics.all():
                await self.kafka.ends(topic.name, range(topic.partitions))
            return True

        await self.until(every_partition_has_a_leader, 30)

    async def close(self) -> None:
        for part in self.parts:
            part.kill()
        if self._log is not None:
            await self._log.close()
        if self._reader is not None:
            self._reader.close()
        self._folder.cleanup()

    # --- processes ------------------------------------------------------------------------------

    def environment(self) -> dict[str, str]:
        given = {
            f"BLENDSTREAM_{name.replace('.', '_').upper()}": v for name, v in self.values.items()
        }
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        ports = {
            "BLENDSTREAM_WORKER_METRICS_PORT": str(free_port()),
            "BLENDSTREAM_JOBS_METRICS_PORT": str(free_port()),
            "BLENDSTREAM_GATEWAY_PORT": str(free_port()),
            "BLENDSTREAM_GATEWAY_METRICS_PORT": str(free_port()),
        }
        return (
            kept
            | given
            | ports
            | {"PYTHONPATH": f"{ROOT}/src:{ROOT}", "BLENDSTREAM_LOG_FORM": "text"}
        )

    def _output(self) -> Path:
        return Path(self._folder.name) / f"{len(self.parts)}.log"

    def start_worker(self) -> Part:
        command = [sys.executable, "-m", "tests.worker_main"]
        self.parts.append(Started(command, self.environment(), self._output()))
        return self.parts[-1]

    def start_jobs(self, *options: str) -> Part:
        """Options as in tests/job_main.py: `--seed N`, `--at KIND.STEP kill|pause`."""
        words = ["--orders", str(self._orders), *options]
        self.parts.append(Forked(words, self.environment(), self._output()))
        return self.parts[-1]

    def start_gateway(self) -> StartedGateway:
        """Takes records with the tokens of `gateway.token_file`, where that is set."""
        gateway = StartedGateway(self.environment(), self._output())
        self.parts.append(gateway)
        return gateway

    def run_ahead(self, ms: int) -> None:
        """Let time run ahead by this much for every jobs process, the brokers' too."""
        self._write_order("clock", str(ms))

    def skew_jobs(self, ms: int) -> None:
        """Let the clock of every jobs process be off the brokers' by this much."""
        self._write_order("skew", str(ms))

    def _write_order(self, name: str, text: str) -> None:
        new = self._orders / f"{name}.new"
        new.write_text(text)
        new.rename(self._orders / name)

    def order(self, step: str, action: str) -> None:
        """Whichever jobs process reaches this step next is to `kill` or `pause` itself there."""
        self._write_order("at", f"{step} {action}")

    @property
    def order_waits(self) -> bool:
        """Whether nobody has come to the step of the last order yet."""
        return (self._orders / "at").exists()

    def take_order_back(self) -> None:
        """Who comes to the step from now on goes on."""
        (self._orders / "at").unlink(missing_ok=True)

    def took_order(self, part: Part) -> bool:
        """Whether this process has taken an order; it is asked once for each."""
        try:
            (self._orders / f"taken.{part.pid}").unlink()
        except FileNotFoundError:
            return False
        return True

    async def disturbed(self, timeout_s: float = 60) -> Part:
        """The process that took the last order, once it is dead or paused."""

        def taker() -> Part | None:
            for part in self.parts:
                if (self._orders / f"taken.{part.pid}").exists() and (
                    part.paused or not part.running
                ):
                    (self._orders / f"taken.{part.pid}").unlink()
                    return part
            return None

        found: Part = await self.until(taker, timeout_s, "a process at the step that was ordered")
        return found

    def logs(self) -> str:
        return "\n".join(f"--- {part.name}\n{part.output()[-4000:]}" for part in self.parts)

    # --- sending --------------------------------------------------------------------------------

    def _send(self, stem: Stem, partition: int, frame: bytes, epoch: int | None = None) -> None:
        def acknowledged(error: KafkaError | None, message: Message) -> None:
            if error is None and epoch is not None:
                self.last_offsets.setdefault((stem, epoch), {})[partition] = message.offset()

        self._producer.produce(
            self.topics.of(stem).name, value=frame, partition=partition, on_delivery=acknowledged
        )

    def send_raw(self, stem: Stem, partition: int, value: bytes) -> None:
        """Bytes that no worker of the test reads: they move the end of a partition."""
        self._send(stem, partition, value)
        self.flush()

    def flush(self) -> None:
        if self._producer.flush(60):
            raise AssertionError("the broker did not acknowledge in a minute")

    def send_optin(
        self, state: EpochState, users: int, rng: np.random.Generator, *, without: int = 0
    ) -> None:
        """Users with one record each, Zipf over a few dozen; every one must be counted.

        As many as `without` more say that they have none; `sent` has them as `None`.
        """
        epoch = state.epoch
        keys = EpochKeys.derive(MASTER, epoch)
        contributors = [rng.bytes(16) for _ in range(users + without)]
        if (period := state.parameters.period) is not None:  # The share is told, as a gateway does.
            told = PeriodShares(MASTER, period)
            contributors = [keys.contributor_in(who, told.of(who)) for who in contributors]
        numbers = np.minimum(rng.zipf(1.6, users), 40).tolist() + [None] * without
        columns = np.array([np.frombuffer(c, "<u8") for c in contributors])
        shares = shares_of_contributors(state, keys, columns)
        by_partition: dict[int, list[OptinEntry]] = {}
        for contributor, number, share in zip(contributors, numbers, shares, strict=True):
            record, query, url = None, "", ""
            if number is not None:
                # No text is part of another one: the tests search for them.
                query, url = (
                    f"query {epoch} {number:03}",
                    f"https://site-{number:03}.example/{epoch}",
                )
                record = Record(query, url)
                self.texts |= {query, url}
            place = keys.partition_of(contributor, self.partitions)
            entry = OptinEntry(contributor, 0, query.encode(), url.encode())
            by_partition.setdefault(place, []).append(entry)
            self.sent.setdefault((epoch, list(Share)[share]), Counter())[record] += 1
        for partition, entries in by_partition.items():
            self._send(Stem.OPTIN_RECORDS, partition, encode_optin_records(epoch, entries), epoch)
        self.flush()

    def send_reports(
        self, epoch: int, head_list: HeadList, head_list_id: str, n: int, rng: np.random.Generator
    ) -> None:
        """Devices that hold random cells and answer by the head list's own randomizer."""
        randomizer = randomizer_for(head_list)
        truth = rng.integers(0, len(head_list.cells), n)
        answers = np.asarray(randomizer.answer_batch(truth, rng)).reshape(n, -1)
        keys = EpochKeys.derive(MASTER, epoch)
        contributors = [rng.bytes(16) for _ in range(n)]
        places = np.array([keys.partition_of(c, self.partitions) for c in contributors])
        for partition in range(self.partitions):
            mine = np.flatnonzero(places == partition)
            if len(mine):
                frame = encode_reports(
                    epoch, bytes.fromhex(head_list_id), [contributors[i] for i in mine],
                    answers[mine], cell_width(len(head_list.cells)),
                )  # fmt: skip
                self._send(Stem.CLIENT_REPORTS, partition, frame, epoch)
        self.flush()
        self.reported.setdefault(epoch, Counter()).update(answers.ravel().tolist())
        self.reports[epoch] += n

    # --- looking --------------------------------------------------------------------------------

    @property
    def log(self) -> ReleaseLog:
        """A reader of its own, kept for the whole test: connecting takes longer than reading."""
        if self._log is None:
            self._log = ReleaseLog(self.settings.kafka, self.topics.releases.name)
        return self._log

    async def book(self) -> ReleaseBook:
        return await self.log.catch_up()

    async def until(
        self, condition: Callable[[], Any], timeout_s: float = 60, what: str = "the condition"
    ) -> Any:
        deadline = time.monotonic() + timeout_s
        while True:
            with contextlib.suppress(StoreUnavailable):
                answer = condition()
                answer = await answer if asyncio.iscoroutine(answer) else answer
                if answer:
                    return answer
            if time.monotonic() > deadline:
                raise AssertionError(f"{what} did not come within {timeout_s} s\n{self.logs()}")
            await asyncio.sleep(0.1)

    async def until_stage(self, epoch: int, *stages: Stage, timeout_s: float = 60) -> EpochState:
        """Wait until the log says so; returns the epoch's state."""

        async def there() -> EpochState | None:
            state = (await self.book()).epochs.get(epoch)
            return state if state is not None and state.stage in stages else None

        found: EpochState = await self.until(
            there, timeout_s, f"epoch {epoch} in {[s.value for s in stages]}"
        )
        return found

    async def document(self, reference: Any) -> bytes:
        return await self.log.read_document(reference)

    async def head_list(self, state: EpochState) -> tuple[HeadList, str]:
        assert state.head_list is not None
        reference = state.head_list.head_list
        data = await self.document(reference)
        return HeadListDocument.from_bytes(data).head_list, reference.id

    async def published(self, topic: str) -> dict[int, bytes]:
        return await read_publications(self.settings.kafka, topic)

    @property
    def has_workers(self) -> bool:
        """Whether a worker was started: then it counts, and no test does."""
        return any("worker_main" in part.name for part in self.parts)

    def markers(self, stem: Stem) -> dict[int, dict[int, Marker]]:
        """Every marker in a topic, by partition and offset."""
        return {
            partition: {at: frame for at, frame in found.items() if isinstance(frame, Marker)}
            for partition, found in self.frames(stem).items()
        }

    def frames(self, stem: Stem) -> dict[int, dict[int, Frame]]:
        """All that a topic holds, by partition and offset."""
        if self._reader is None:  # Kept: connecting takes longer than reading.
            self._reader = Consumer(
                {"bootstrap.servers": self.settings.kafka.bootstrap, "group.id": "test",
                 "enable.auto.commit": False, "enable.partition.eof": True,
                 "fetch.wait.max.ms": 10, "auto.offset.reset": "earliest"}
            )  # fmt: skip
        topic = self.topics.of(stem).name
        places = [TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(self.partitions)]
        found: dict[int, dict[int, Frame]] = {place.partition: {} for place in places}
        left = set(found)
        self._reader.assign(places)
        while left:
            message = self._reader.poll(10)
            error = None if message is None else message.error()
            if message is None or (error and error.code() != KafkaError._PARTITION_EOF):
                self._reader = None
                raise StoreUnavailable("the markers could not be read")
            if error is not None:
                left.discard(message.partition())
                continue
            found[message.partition()][message.offset()] = decode(message.value() or b"")
        return found

    def everything_in_kafka(self) -> dict[str, bytes]:
        """All that can be read of every topic of this installation, whoever made it: keys, values,
        headers, uncommitted records too, and what their compressed parts hold."""
        reader = Consumer(
            {"bootstrap.servers": self.settings.kafka.bootstrap, "group.id": "test",
             "enable.auto.commit": False, "enable.partition.eof": True,
             "isolation.level": "read_uncommitted"}
        )  # fmt: skip
        topics = {
            name: list(about.partitions)
            for name, about in reader.list_topics(timeout=20).topics.items()
            if name.startswith(self.settings.topics.prefix)
        }
        reader.assign(
            [TopicPartition(t, p, OFFSET_BEGINNING) for t, ps in topics.items() for p in ps]
        )
        left = {(name, partition) for name, ps in topics.items() for partition in ps}
        held: dict[str, list[bytes]] = {name: [] for name in topics}
        packed: dict[tuple[str, bytes], dict[int, bytes]] = {}
        while left:
            message = reader.poll(20)
            assert message is not None, f"{left} could not be read to the end"
            topic, key, value = message.topic(), message.key() or b"", message.value() or b""
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF
                left.discard((topic, message.partition()))
                continue
            held[topic] += [key, value, *(v for _, v in message.headers() or () if v)]
            document, _, part = key.rpartition(b"/" if b"/" in key else b" ")
            if part.isdigit():
                packed.setdefault((topic, document), {})[int(part)] = value
        reader.close()
        for (topic, _), parts in packed.items():
            held[topic].append(zlib.decompress(b"".join(parts[n] for n in sorted(parts))))
        return {topic: b"\0".join(pieces) for topic, pieces in held.items()}

    async def tables(self, stem: Stem) -> CountTables:
        client = await connect_redis(self.settings.redis)
        return CountTables(client, self.topics.of(stem).name, prefix=self.settings.topics.prefix)

    async def redis_keys(self) -> dict[bytes, bytes]:
        """Every key under the prefix with its dump, to search for text."""
        client = await connect_redis(self.settings.redis)
        found = {}
        async for key in client.scan_iter(match=f"{self.settings.topics.prefix}:*", count=1000):
            found[key] = await client.dump(key) or b""
        await client.aclose()
        return found

    async def counted(self, epoch: int) -> dict[Share, dict[Record, int]]:
        """What Redis has counted of an epoch's opt-in records."""
        tables = await self.tables(Stem.OPTIN_RECORDS)
        found = {}
        for share in Share:
            counts = await record_counts(tables, epoch, share, range(self.partitions))
            found[share] = {
                Record(*(part.decode() for part in text.split(b"\t"))): n
                for text, n in counts.items()
            }
        await tables.close()
        return found


@contextlib.asynccontextmanager
async def service(
    kafka: str, redis: str, *, partitions: int = 2, **changes: str
) -> AsyncIterator[Service]:
    """A service whose topics are there and whose processes end with it."""
    made = Service(kafka, redis, f"test-{secrets.token_hex(6)}", partitions=partitions, **changes)
    try:
        await made.create()
        yield made
    finally:
        await made.close()
