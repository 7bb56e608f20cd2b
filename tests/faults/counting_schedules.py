"""Random schedules of faults for counting, and a model that knows every entry's fate.

A schedule is a seeded list of steps: frames are sent (legal ones, duplicates, malformed, late,
early, of unknown epochs and head lists, in transactions), workers are started, stopped, killed and
paused, and servers are broken (`breakable_servers`). In the end everything is mended, and Redis
must hold, entry by entry, what the model says.

What must never happen: an accepted entry that is not counted, or counted twice; a refused entry
that is counted; one that is in no total; a refusal under another reason than its own.

What is *not* a failure:
- A worker that is unready, idle or in its back-off while Redis or Kafka is away, however long.
- A worker that exits by itself because it stalled or lost its coordinator: it is to be restarted,
  which the schedule does like an orchestrator would.
- Counts that go back for a while after Redis lost its tail, or are partly there while it refills.
- A dead letter that comes twice, or not at all.
- Entries counted in another order than they were sent in across partitions.
- Records of aborted transactions being counted: gateways write without transactions, and nobody
  was told that such a record was accepted. So the schedules commit theirs.
Faults that end an installation (topic made anew, partitions added, log cut off, a script that
failed half-way, a newer frame) stop a partition by design; test_counting_stops.py has them.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator

import numpy as np
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from blendstream.streams.names import InputStream
from blendstream.streams.tables.batch_verdict import Refusal
from blendstream.streams.wire.frames import OptinEntry, encode_optin_records
from tests.faults.breakable_servers import BreakableServers, Step, pick
from tests.report_frames import encode_reports
from tests.service.counting import HOUR_MS, Installation, contributors, installation, optin_entries
from tests.service.processes import Part

#: With room for a machine that does ten other things, and for a worker that starts anew.
COUNTED_WITHIN_S = 400.0
OPTIN, REPORTS = InputStream.OPTIN_RECORDS, InputStream.CLIENT_REPORTS


class World:
    """An installation, what is broken in it, and the steps that break and mend it."""

    def __init__(self, made: Installation, servers: BreakableServers) -> None:
        self.made = made
        self.servers = servers
        self.workers: list[Part] = []
        self.paused: list[Part] = []
        self.steps: list[str] = []
        self.earlier: list[tuple[int, int, list[bytes]]] = []
        self.frames = 0

    async def run(self, seed: int) -> None:
        """One schedule, from whole to whole."""
        self.rng = self.servers.rng = np.random.default_rng(seed)
        self.servers.meanwhile = self.send
        self.steps = []
        self._open_epochs(10 * seed)
        await self._at_least_one_worker()
        steps: list[tuple[float, Step]] = [
            (2, self.start_a_worker), (2, self.kill_a_worker), (1, self.stop_a_worker),
            (2, self.pause_a_worker), (2, self.resume_workers), *self.servers.steps(),
        ]  # fmt: skip
        if self.servers.transactions:
            steps.append((1, self.send_in_a_transaction))
        for _ in range(int(self.rng.integers(3, 8))):
            await self.send()
            step = pick(self.rng, steps)
            self.steps.append(step.__name__)
            await step()
        await self.send()
        await self.mend()
        await self.made.until(self._counted, COUNTED_WITHIN_S, "the end of both logs")
        await self.made.assert_exact()

    async def _counted(self) -> bool:
        await self._at_least_one_worker()  # As an orchestrator would, should one have left.
        return all([await self.made.caught_up(stem) for stem in InputStream])

    # --- what is sent ---------------------------------------------------------------------------

    def _open_epochs(self, base: int) -> None:
        made, now = self.made, int(time.time() * 1000)
        self.records, self.reports = base + 1, base + 2
        self.over, self.future = base + 3, base + 4
        self.limit = int(self.rng.integers(1, 4))
        w = int(self.rng.integers(1, 5))
        made.open_epoch(self.records, records_per_user=self.limit)
        made.open_epoch(self.reports)
        made.publish_head_list(
            self.reports, cells=int(self.rng.integers(w, 400)), w=w,
            answers=int(self.rng.integers(1, 3)),
        )  # fmt: skip
        past = {"window_start_ms": now - 3 * HOUR_MS, "window_end_ms": now - HOUR_MS}
        made.open_epoch(self.over, **past)
        made.open_epoch(self.future, window_start_ms=now + HOUR_MS, window_end_ms=now + 2 * HOUR_MS)

    async def send(self) -> None:
        """A few frames of every kind. The broker is up, or comes back by itself."""
        await asyncio.to_thread(self._send)

    def _send(self) -> None:
        made, rng = self.made, self.rng
        for _ in range(int(rng.integers(1, 5))):
            partition = int(rng.integers(made.partitions))
            keys = contributors(rng, int(rng.integers(1, 80)))
            if self.earlier and rng.random() < 0.5:
                at, epoch, some = self.earlier[rng.integers(len(self.earlier))]
                if epoch == self.reports:  # A retry: the same people in the same partition.
                    made.send_reports(epoch, at, some, rng)
            made.send_reports(self.reports, partition, keys, rng)
            self.earlier.append((partition, self.reports, keys[:20]))
            slot = int(rng.integers(0, self.limit + 1))
            people = keys if rng.random() < 0.5 else self._known(partition, keys)
            made.send_records(
                self.records, partition, optin_entries(rng, people, slot=slot, distinct=5)
            )
            self._send_odd(partition, keys)
        made.flush()

    def _known(self, partition: int, otherwise: list[bytes]) -> list[bytes]:
        found = [some for at, epoch, some in self.earlier
                 if at == partition and epoch == self.reports]  # fmt: skip
        return found[self.rng.integers(len(found))] if found else otherwise

    def _send_odd(self, partition: int, keys: list[bytes]) -> None:
        made, rng = self.made, self.rng
        entries = optin_entries(rng, keys)
        odd = int(rng.integers(8))
        if odd == 0:
            stem = OPTIN if rng.random() < 0.5 else REPORTS
            made.send(stem, partition, rng.bytes(int(rng.integers(0, 200))))
            made.expect_refused(stem, "unknown", Refusal.MALFORMED)
        elif odd == 1:
            made.send(OPTIN, partition, encode_optin_records(self.over, entries, log_position=1))
            made.expect_refused(OPTIN, self.over, Refusal.LATE, len(entries))
        elif odd == 2:
            made.send(OPTIN, partition, encode_optin_records(self.future, entries, log_position=1))
            made.expect_refused(OPTIN, self.future, Refusal.EARLY, len(entries))
        elif odd == 3:
            made.send(OPTIN, partition, encode_optin_records(10**9, entries, log_position=1))
            made.expect_refused(OPTIN, "unknown", Refusal.WRONG_EPOCH, len(entries))
        elif odd == 4:
            cells = np.zeros((len(keys), 1), int)
            made.send(REPORTS, partition, encode_reports(self.reports, bytes(32), keys, cells, 1))
            made.expect_refused(REPORTS, "unknown", Refusal.UNKNOWN_HEAD_LIST, len(keys))
        elif odd == 5:
            long = [OptinEntry(key, 0, b"q" * 300, b"u") for key in keys]
            made.send(OPTIN, partition, encode_optin_records(self.records, long, log_position=1))
            made.expect_refused(OPTIN, self.records, Refusal.TOO_LONG, len(keys))
        elif odd == 6:
            for stem in InputStream:  # As a keeper leaves them that dies before it seals.
                made.send_marker(stem, self.records, partition)

    async def send_in_a_transaction(self) -> None:
        """Committed, so accepted; leaves offsets that no record has, maybe at the log's end."""
        made = self.made
        producer = await self._transactional_producer()
        try:
            async with producer.transaction():
                await producer.send_and_wait(made.topics.client_reports.name, b"?", partition=0)
                await producer.send_and_wait(made.topics.optin_records.name, b"?", partition=1)
        finally:
            await producer.stop()
        made.expect_refused(REPORTS, "unknown", Refusal.MALFORMED)
        made.expect_refused(OPTIN, "unknown", Refusal.MALFORMED)

    async def _transactional_producer(self) -> AIOKafkaProducer:
        """Started; a broker that has just come back may need several attempts."""
        settings = self.made.settings
        for last in (False, False, False, True):
            producer = AIOKafkaProducer(
                bootstrap_servers=settings.kafka.bootstrap,
                transactional_id=settings.topics.prefix,
            )
            try:
                await producer.start()
                return producer
            except (KafkaError, AssertionError):  # aiokafka asserts that it knows a broker.
                await producer.stop()
                if last:
                    raise
                await asyncio.sleep(2.0)
        raise AssertionError("unreachable")

    # --- workers --------------------------------------------------------------------------------

    def _running(self) -> list[Part]:
        self.workers = [worker for worker in self.workers if worker.running]
        return [worker for worker in self.workers if worker not in self.paused]

    def _any(self) -> Part | None:
        running = self._running()
        return running[self.rng.integers(len(running))] if running else None

    async def start_a_worker(self) -> None:
        if len(self._running()) < 3:
            self.workers.append(self.made.start_worker())

    async def kill_a_worker(self) -> None:
        if worker := self._any():
            worker.kill()

    async def stop_a_worker(self) -> None:
        if worker := self._any():
            worker.terminate()
            await asyncio.to_thread(worker.wait, 20)

    async def pause_a_worker(self) -> None:
        if worker := self._any():
            worker.pause()
            self.paused.append(worker)

    async def resume_workers(self) -> None:
        for worker in self.paused:
            worker.resume()
        self.paused.clear()

    async def _at_least_one_worker(self) -> None:
        if not self._running():
            self.workers.append(self.made.start_worker())

    async def mend(self) -> None:
        """Restore everything: servers up, nobody paused, at least one worker."""
        await self.resume_workers()
        await self.servers.mend()
        await asyncio.sleep(0.2)
        await self._at_least_one_worker()


@contextlib.asynccontextmanager
async def world(servers: BreakableServers) -> AsyncIterator[World]:
    """An installation of its own on these servers."""
    async with installation(
        servers.kafka.url, servers.redis.url, f"chaos-{secrets.token_hex(4)}",
        partitions=servers.partitions, **servers.settings,
    ) as made:  # fmt: skip
        yield World(made, servers)
