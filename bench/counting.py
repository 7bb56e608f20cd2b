"""How fast a worker counts, exactly once, beside a plain Faust table and a bare consumer.

    python -m bench.counting                      the whole table
    python -m bench.counting --quick              frames of 1 000, w = 1, and the two baselines

Everything runs in one go on one local broker and one local Redis, so that the ratios mean
something on a noisy machine: reports lie in the topic before a worker starts, and the clock runs
from the first to the last stored offset. Seeded; the contributors are all different.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import subprocess
import sys
import time
from dataclasses import dataclass

import numpy as np
from aiokafka import AIOKafkaConsumer, TopicPartition

from agents.stack import LocalKafka, LocalRedis
from streams.epochs import Stem
from streams.records.frames import OptinEntry, decode, encode_optin_records, encode_reports
from tests.counting import Installation
from tests.kafka_topics import create_topic

CELLS = 501
PARTITIONS = 4


@dataclass(frozen=True)
class Rate:
    """Entries a second, and over what."""

    name: str
    entries: int
    seconds: float

    @property
    def per_s(self) -> float:
        return self.entries / self.seconds


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the main figures only")
    parser.add_argument("--reports", type=int, default=6_000_000, help="reports at frames of 1 000")
    arguments = parser.parse_args()
    with LocalKafka() as kafka, LocalRedis() as redis:
        plain = await plain_table(kafka, messages=20_000)
        show(plain)
        shapes = [(1_000, 1, arguments.reports)]
        if not arguments.quick:
            shapes += [(1_000, 10, arguments.reports // 2), (100, 1, 1_000_000)]
            shapes += [(100, 10, 1_000_000), (1, 1, 30_000), (1, 10, 30_000)]
        for frame, w, reports in shapes:
            counted, raw = await worker_rate(kafka, redis, frame, w, reports)
            show(raw)
            show(counted)
            print(
                f"{'':40}{counted.per_s / plain.per_s:10.1f} × the plain table, "
                f"{raw.per_s / counted.per_s:.1f} × slower than the bare consumer",
                flush=True,
            )
        if not arguments.quick:
            show((await worker_rate(kafka, redis, 1_000, 1, arguments.reports, workers=2))[0])
            show(await optin_rate(kafka, redis, records=600_000))


def show(rate: Rate) -> None:
    print(
        f"{rate.name:40}{rate.per_s:12,.0f} /s   ({rate.entries:,} in {rate.seconds:.2f} s)",
        flush=True,
    )


def new_installation(kafka: LocalKafka, redis: LocalRedis) -> Installation:
    return Installation(
        kafka.url,
        redis.url,
        f"bench-{secrets.token_hex(4)}",
        partitions=PARTITIONS,
        worker__session_timeout_s="20",
    )


async def worker_rate(
    kafka: LocalKafka, redis: LocalRedis, frame: int, w: int, reports: int, *, workers: int = 1
) -> tuple[Rate, Rate]:
    """Reports a second of one or two workers, and of a bare consumer on the same bytes."""
    rng = np.random.default_rng(frame * 100 + w)
    made = new_installation(kafka, redis)
    try:
        await made.create()
        made.open_epoch(1)
        head_list = made.publish_head_list(1, cells=CELLS, w=w)
        for number in range(reports // frame):
            start = rng.integers(0, CELLS - w, size=(frame, 1))
            cells = start + np.arange(w)
            keys = rng.bytes(16 * frame)
            made.send(
                Stem.CLIENT_REPORTS,
                number % PARTITIONS,
                encode_reports(1, head_list, keys, cells, 2),
            )
            if number % 1000 == 0:
                made.flush()
        made.flush()
        topic = made.topics.client_reports.name
        raw = await bare_consumer(kafka, topic, f"bare consumer, frames of {frame}, w={w}")
        for _ in range(workers):
            made.start_worker(BLENDSTREAM_LOG_LEVEL="warning")
        seconds, share = await time_to_count(made, Stem.CLIENT_REPORTS, reports)
        name = f"{workers} worker{'s' * (workers > 1)}, frames of {frame}, w={w}"
        return Rate(name, round(reports * share), seconds), raw
    finally:
        made.close()


async def time_to_count(made: Installation, stem: Stem, entries: int) -> tuple[float, float]:
    """Seconds from the first stored batch to the last, and the share of entries between them."""
    tables = await made.tables(stem)
    first: tuple[float, int] | None = None
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        received = 0
        for partition in range(made.partitions):
            received += (await tables.totals(partition)).get("received", 0)
        now = time.monotonic()
        if first is None and received:
            first = now, received
        if first is not None and received == entries:
            await tables.close()
            return now - first[0], 1 - first[1] / entries
        await asyncio.sleep(0.01)
    raise SystemExit(f"not counted within 300 s\n{made.logs()}")


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
        "BENCH_BROKER": kafka.url,
        "BENCH_TOPIC": topic,
        "BENCH_MESSAGES": str(messages),
    }
    found = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "bench.plain_table"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return Rate("plain Faust windowed table", messages, float(found.stdout.split()[-1]))


async def optin_rate(kafka: LocalKafka, redis: LocalRedis, records: int) -> Rate:
    """Opt-in records a second, frames of 500, Zipf-like texts."""
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
            made.send(Stem.OPTIN_RECORDS, number % PARTITIONS, encode_optin_records(1, entries))
        made.flush()
        made.start_worker(BLENDSTREAM_LOG_LEVEL="warning")
        seconds, share = await time_to_count(made, Stem.OPTIN_RECORDS, records)
        return Rate("1 worker, opt-in records", round(records * share), seconds)
    finally:
        made.close()


if __name__ == "__main__":
    asyncio.run(main())
