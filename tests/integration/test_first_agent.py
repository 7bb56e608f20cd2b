"""The ground holds: a Faust agent on the real broker counts through a crash of that broker."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import aiokafka
import pytest

from tests.kafka_topics import create_topic
from tests.service.waiting import until

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.faults
async def test_a_faust_agent_counts_every_message_across_a_restart_of_the_broker(
    own_kafka, redis_server, redis_client, name_prefix, tmp_path
):
    """Faust, aiokafka, Kafka and Redis work together before anything is built on them."""
    topic = f"{name_prefix}.messages"
    create_topic(own_kafka.bootstrap, topic, partitions=4)
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.counting_app", "worker", "-l", "warn"],
        cwd=REPOSITORY,
        stdout=(log := (tmp_path / "worker.log").open("w")),
        stderr=log,
        env={
            **os.environ,
            "KAFKA_URL": own_kafka.url,
            "REDIS_URL": redis_server.url,
            "COUNT_TOPIC": topic,
            "COUNT_PREFIX": name_prefix,
            "COUNT_FOLDER": str(tmp_path / "faust"),
        },
    )

    async def counted(expected: int) -> int:
        async def enough() -> int:
            assert worker.poll() is None, (tmp_path / "worker.log").read_text()[-3000:]
            count = int(await redis_client.scard(f"{name_prefix}:counted"))
            return count if count >= expected else 0

        return await until(enough, f"{expected} counted", 90)

    async def send(numbers: range) -> None:
        for number in numbers:
            await producer.send_and_wait(topic, b"message", partition=number % 4)

    try:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=own_kafka.bootstrap, acks="all", enable_idempotence=True
        ) as producer:
            await send(range(200))
            assert await counted(200) == 200

            await asyncio.gather(send(range(400)), asyncio.to_thread(own_kafka.restart))
            await send(range(100))

        assert await counted(700) == 700
        worker.send_signal(signal.SIGTERM)
        await asyncio.to_thread(worker.wait, 60)
    finally:
        worker.kill()
        worker.wait()
        log.close()
    assert await redis_client.scard(f"{name_prefix}:counted") == 700
