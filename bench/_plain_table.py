"""The baseline: counting as in a Faust tutorial. Prints its seconds and CPU seconds."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time

import faust
from confluent_kafka import Producer

MESSAGES = int(os.environ["BENCH_MESSAGES"])
TOPIC = os.environ["BENCH_TOPIC"]
BROKER = os.environ["BENCH_BROKER"]

app = faust.App(
    f"app-{TOPIC}", broker=BROKER, store="memory://", web_enabled=False, autodiscover=False,
    datadir=tempfile.mkdtemp(prefix="plain-table-"), topic_partitions=4,
    consumer_auto_offset_reset="earliest", topic_disable_leader=True,
)  # fmt: skip
reports = app.topic(TOPIC, key_type=bytes, value_type=bytes, value_serializer="raw")
counts = app.Table("counts", default=int, partitions=4).tumbling(3600.0)
seen, first, last, cpu_first, cpu_last = 0, 0.0, 0.0, 0.0, 0.0
done = asyncio.Event()


@app.agent(reports)
async def count(stream: faust.StreamT[bytes]) -> None:
    global seen, first, last, cpu_first, cpu_last  # noqa: PLW0603 - a tutorial's way
    async for cell in stream:
        counts[int.from_bytes(cell, "little")] += 1
        seen += 1
        first, cpu_first = first or time.monotonic(), cpu_first or time.process_time()
        if seen == MESSAGES:
            last, cpu_last = time.monotonic(), time.process_time()
            done.set()


async def main() -> None:
    producer = Producer({"bootstrap.servers": BROKER.removeprefix("kafka://"), "linger.ms": 5})
    for number in range(MESSAGES):
        producer.produce(TOPIC, value=(number % 501).to_bytes(2, "little"), partition=number % 4)
        producer.poll(0)
    producer.flush(60)
    await app.start()
    await asyncio.wait_for(done.wait(), 250)
    print(last - first, cpu_last - cpu_first, flush=True)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
