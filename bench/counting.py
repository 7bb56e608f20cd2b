"""Measure how fast a worker counts exactly once, compared with a Faust table and a consumer.

All parts run in one session on one local broker and one local Redis, so that the ratios are
meaningful on a noisy machine. The reports are in the topic before a worker starts, and nothing is
sent while it counts. The clock runs from the first to the last stored offset. The workers'
processor time over this period depends little on other processes; the use of the machine's cores by
each part, and by other processes, explains the time by the clock. Seeded; all contributors are
different.

    python -m bench counting                        the whole table
    python -m bench counting --reports 2000000      smaller
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import psutil
from aiokafka import AIOKafkaConsumer, TopicPartition

from bench._cores import Spent
from bench._page import Table
from blendstream.agents.local import LocalKafka, LocalRedis
from blendstream.streams.names import InputStream
from blendstream.streams.wire.frames import OptinEntry, decode, encode_optin_records
from tests.kafka_topics import create_topic
from tests.report_frames import encode_reports
from tests.service.counting import Installation
from tests.service.processes import Part

TITLE = "Counting"
TEXT = """
The rate at which a worker counts reports, deduplicated and exactly once. The baseline is the
windowed table of a Faust tutorial, which gets one message per report.

Kafka and Redis run on the same two cores. There are 4 partitions and 501 cells, all contributors
differ, and w is the number of cells per answer. The benchmark fills the topic first; its clock runs
from the first to the last stored offset.

- *Per processor second* counts the workers' processor time. If other processes use the cores, only
  this column shows how fast a worker counts.
- *Cores* is the average number of cores that workers, broker, Redis and this benchmark used, and
  the number that other processes used.
- A worker spends about 11 µs per frame on decoding, validation and metrics. Faust spends 100 µs per
  group of up to 256 messages.
- With frames of 1 000 reports, half of a worker's time is validation, a third is fetching, and a
  tenth is sending to Redis. Two parts of the validation take most of it: the fingerprint table (25
  to 30 % of the worker's time) and SipHash (15 %).
- Two workers share two cores with the servers, which use 0.3 to 0.55 processor seconds per
  processor second of the workers. So this does not measure how workers scale over machines.
- Redis memory is 8 bytes per contributor, plus the room that Redis reserves at the end of a growing
  string. The sum falls towards 8.3 bytes as partitions fill.
"""

CELLS = 501
PARTITIONS = 4
REPORTS = 6_000_000
#: Some seconds of one worker each.
SMALL_FRAMES, RECORDS = 120_000, 1_200_000
#: A worker that stores nothing for so long in the middle of its work did not work: show its log.
_LONG_STILL_S = 5.0


@dataclass(frozen=True)
class Rate:
    """Entries a second; of workers also their processor time over the same entries."""

    name: str
    entries: int
    seconds: float
    cpu_s: float | None = None
    cores: str = ""

    @property
    def per_s(self) -> float:
        return self.entries / self.seconds

    @property
    def per_cpu_s(self) -> float:
        return self.entries / (self.cpu_s or self.seconds)

    def show(self, table: Table, plain: Rate | None = None) -> None:
        """Add a row; rates of workers are compared with the plain table."""
        beside = ["", ""]
        if plain is not None:
            beside[0] = f"{self.per_s / plain.per_s:,.0f} ×"
        if plain is not None and self.cpu_s:
            beside[1] = f"{self.per_cpu_s / plain.per_cpu_s:,.0f} ×"
        cpu = f"{self.per_cpu_s:,.0f}" if self.cpu_s else ""
        table.add(self.name, f"{self.per_s:,.0f}", cpu, *beside, self.cores)


def main(words: Sequence[str] = ()) -> list[Table]:
    """Rates of every kind of frame, then memory; `words` are the command line's."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--reports", type=int, default=REPORTS)
    return asyncio.run(_main(parser.parse_args(words).reports))


async def _main(reports_at_most: int) -> list[Table]:
    rates = Table(
        ["entries", "per second", "per processor second", "of the plain table, by the clock",
         "by processor time", "cores"]
    )  # fmt: skip
    memory = Table(["memory and reload", "measured"])
    with LocalKafka() as kafka, LocalRedis() as redis:
        plain = await plain_table(kafka, messages=10_000)
        plain.show(rates)
        for frame, w, reports in (
            (1_000, 1, reports_at_most),
            (1_000, 10, reports_at_most // 2),
            (100, 1, reports_at_most // 8),
            (100, 10, reports_at_most // 8),
            (1, 1, SMALL_FRAMES),
            (1, 10, SMALL_FRAMES),
        ):
            counted, bare = await reports_rate(kafka, redis, frame, w, reports)
            bare.show(rates)
            counted.show(rates, plain)
        (await records_rate(kafka, redis, records=RECORDS)).show(rates, plain)
        await memory_and_reload(memory, kafka, redis, contributors=4_000_000)
        (await two_workers(kafka, redis, reports_at_most)).show(rates, plain)
    return [rates, memory]


def new_installation(kafka: LocalKafka, redis: LocalRedis, session_s: int = 20) -> Installation:
    prefix = f"bench-{secrets.token_hex(4)}"
    return Installation(
        kafka.url, redis.url, prefix, partitions=PARTITIONS,
        worker__session_timeout_s=str(session_s), worker__stall_exit_s="600", redis__timeout_s="10",
    )  # fmt: skip


def preload_reports(made: Installation, frame: int, w: int, reports: int) -> None:
    """Reports of different contributors, spread over the partitions."""
    rng = np.random.default_rng(frame * 100 + w)
    made.open_epoch(1)
    head_list = made.publish_head_list(1, cells=CELLS, w=w)
    for number in range(reports // frame):
        cells = rng.integers(0, CELLS - w, size=(frame, 1)) + np.arange(w)
        value = encode_reports(1, head_list, rng.bytes(16 * frame), cells, 2)
        made.send(InputStream.CLIENT_REPORTS, number % PARTITIONS, value)
        if number % 1000 == 0:
            made.flush()
    made.flush()


async def reports_rate(
    kafka: LocalKafka, redis: LocalRedis, frame: int, w: int, reports: int
) -> tuple[Rate, Rate]:
    """Reports a second of a worker, and of a bare consumer on the same bytes."""
    made = new_installation(kafka, redis)
    try:
        await made.create()
        await asyncio.to_thread(preload_reports, made, frame, w, reports)
        topic = made.topics.client_reports.name
        bare = await bare_consumer(kafka, topic, f"bare consumer, frames of {frame:,}, w={w}")
        started = [made.start_worker(log__level="warning")]
        name = f"1 worker, frames of {frame:,}, w={w}"
        return await counted(made, started, InputStream.CLIENT_REPORTS, reports, name), bare
    finally:
        made.close()


async def two_workers(kafka: LocalKafka, redis: LocalRedis, reports: int) -> Rate:
    """Two workers that have divided the partitions already, held while the topic is filled.

    Otherwise one would begin while the other joins, and dividing anew, which takes as long as a
    heartbeat and stops both, would be part of what is measured.
    """
    made = new_installation(kafka, redis, session_s=60)
    try:
        await made.create()
        started = [made.start_worker(log__level="warning") for _ in range(2)]
        each = f'blender_partitions_assigned{{stem="client_reports"}} {PARTITIONS / 2}'

        async def divided() -> bool:
            return all([each in (await made.get(worker, "/metrics"))[1] for worker in started])

        await made.until(divided, 120, "both workers' partitions")
        for worker in started:
            worker.pause()
        await asyncio.to_thread(preload_reports, made, 1_000, 1, reports)
        for worker in started:
            worker.resume()
        return await counted(
            made, started, InputStream.CLIENT_REPORTS, reports, "2 workers, frames of 1,000, w=1"
        )
    finally:
        made.close()


async def counted(
    made: Installation, started: Sequence[Part], stem: InputStream, entries: int, name: str
) -> Rate:
    """From the first stored batch to the last."""
    processes = [psutil.Process(worker.pid) for worker in started]
    tables = await made.tables(stem)
    first: tuple[int, Spent] | None = None
    before, moved, still_s = 0, time.monotonic(), 0.0
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        received = sum(
            [(await tables.totals(p)).get("received", 0) for p in range(made.partitions)]
        )
        if first is None and received:
            first = received, Spent.now(processes)
        elif first is not None and received > before:
            still_s = max(still_s, time.monotonic() - moved)
        if received > before:
            before, moved = received, time.monotonic()
        if first is not None and received == entries:
            await tables.close()
            last, (already, began) = Spent.now(processes), first
            if still_s > _LONG_STILL_S:
                print(made.logs())  # Say why: it may not happen again.
            return Rate(
                name, entries - already, last.at - began.at, last.workers - began.workers,
                last.since(began),
            )  # fmt: skip
        await asyncio.sleep(0.02)
    raise SystemExit(f"{name}: not counted within 300 s\n{made.logs()}")


async def bare_consumer(kafka: LocalKafka, topic: str, name: str) -> Rate:
    """aiokafka alone: fetch the same bytes, decode the frames, count nothing."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=4 * 1024 * 1024,
    )
    await consumer.start()
    try:
        partitions = [TopicPartition(topic, p) for p in range(PARTITIONS)]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        left, entries = sum(ends.values()), 0
        started = time.monotonic()
        while left:
            for messages in (await consumer.getmany(timeout_ms=1000)).values():
                left -= len(messages)
                for message in messages:
                    entries += len(decode(message.value))  # type: ignore[arg-type]
        return Rate(name, entries, time.monotonic() - started)
    finally:
        await consumer.stop()


async def plain_table(kafka: LocalKafka, messages: int) -> Rate:
    """A Faust tumbling table with its changelog, one small message a report."""
    topic = f"plain-{secrets.token_hex(4)}"
    create_topic(kafka.bootstrap, topic, partitions=PARTITIONS)
    environment = os.environ | {
        "BENCH_BROKER": kafka.url, "BENCH_TOPIC": topic, "BENCH_MESSAGES": str(messages)
    }  # fmt: skip
    found = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "bench._plain_table"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    seconds, cpu_s = (float(word) for word in found.stdout.split()[-2:])
    return Rate("plain Faust windowed table", messages, seconds, cpu_s)


async def records_rate(kafka: LocalKafka, redis: LocalRedis, records: int) -> Rate:
    """Opt-in records a second: frames of 500, texts with a long tail, m_O = 1."""
    rng = np.random.default_rng(5)
    made = new_installation(kafka, redis)
    try:
        await made.create()
        made.open_epoch(1)
        for number in range(records // 500):
            which = rng.zipf(1.3, 500) % 200_000
            entries = [
                OptinEntry(rng.bytes(16), 0, b"query number %d" % n, b"https://example.org/%d" % n)
                for n in which.tolist()
            ]
            frame = encode_optin_records(1, entries, log_position=1)
            made.send(InputStream.OPTIN_RECORDS, number % PARTITIONS, frame)
        made.flush()
        started = [made.start_worker(log__level="warning")]
        return await counted(
            made, started, InputStream.OPTIN_RECORDS, records, "1 worker, opt-in records"
        )
    finally:
        made.close()


async def memory_and_reload(
    table: Table, kafka: LocalKafka, redis: LocalRedis, contributors: int
) -> None:
    """Redis bytes per contributor, all keys included, and the time to take the partitions up."""
    made = new_installation(kafka, redis)
    try:
        await made.create()
        with redis.client() as client:
            before = client.info("memory")["used_memory"]
        await asyncio.to_thread(preload_reports, made, 1_000, 1, contributors)
        started = [made.start_worker(log__level="warning")]
        await counted(made, started, InputStream.CLIENT_REPORTS, contributors, "filling")
        made.close()
        with redis.client() as client:
            used = client.info("memory")["used_memory"] - before
        table.add(
            f"Redis, all keys, {contributors:,} contributors", f"{used / contributors:.2f} B each"
        )
        tables = await made.tables(InputStream.CLIENT_REPORTS)
        began, cpu = time.monotonic(), time.process_time()
        loaded = [await tables.load_seen(partition, 1) for partition in range(PARTITIONS)]
        wall, cpu = time.monotonic() - began, time.process_time() - cpu
        assert sum(len(seen.table) for seen in loaded) == contributors
        held = sum(seen.table.nbytes for seen in loaded)
        table.add("worker", f"{held / contributors:.1f} B each")
        table.add("reload on assignment", f"{wall:.2f} s, {cpu:.2f} s of processor")
        await tables.close()
    finally:
        made.close()
