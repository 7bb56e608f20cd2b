"""Operator's verbs while workers count: no false alarm, no half of a work, nothing left unsaid."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from blendstream.agents.commands.verify import differences
from blendstream.agents.local import LocalRedis
from blendstream.streams.names import InputStream
from tests.service.epochs import EpochService, epoch_service
from tests.service.jobs import Clock, bench
from tests.service.settings import ROOT

PATIENCE_S = 60


@pytest.mark.more
@pytest.mark.timeout(180)
async def test_verify_raises_no_alarm_while_workers_count(kafka, redis_server):
    """It compared counts of two moments, and told operators to throw all counts away."""
    rng, clock = np.random.default_rng(31), Clock()
    origin = str(clock.now_ms // 1000 - 5)
    async with (
        epoch_service(kafka.url, redis_server.url, epoch__origin_unix_s=origin) as made,
        bench(made, clock) as jobs,
    ):
        await jobs.keep()
        state = (await made.log_state()).epochs[0]
        made.start_worker()
        made.send_optin(state, 50, rng)
        tables = await made.tables(InputStream.OPTIN_RECORDS)

        async def counted() -> int:
            return sum([(await tables.totals(n, 0)).get("counted", 0) for n in range(2)])

        await made.until(counted, 40)

        async def send() -> None:
            while True:
                await asyncio.to_thread(made.send_optin, state, 50, rng)

        sending = asyncio.create_task(send())
        before = await counted()
        found = [await differences(jobs.context) for _ in range(15)]
        assert await counted() > before, "nothing was counted meanwhile"
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await tables.close()
        assert [line for lines in found for line in lines] == []


async def test_verify_looks_twice_before_it_raises_an_alarm(kafka, redis_server):
    """What a job is in the middle of is over a moment later; what stays is told."""
    clock, said = Clock(), []
    async with epoch_service(kafka.url, redis_server.url) as made, bench(made, clock) as jobs:
        await jobs.keep()
        key = jobs.context.tables(InputStream.OPTIN_RECORDS).key(0, 0, "S")
        await jobs.context.redis.append(key, b"query\thttps://made-up.example/\t3\n")
        assert any("the tables hold 3:" in line for line in await differences(jobs.context))

        looking = asyncio.create_task(
            differences(jobs.context, again_after_s=1.0, progress=said.append)
        )
        await made.until(lambda: said, 30)
        await jobs.context.redis.unlink(key)
        assert await looking == []
        assert said == ["1 difference at first; checking again in 1 s"]


@contextlib.contextmanager
def started(made: EpochService, *words: str, **output: int) -> Iterator[subprocess.Popen[str]]:
    """`blendstream ...` in the background."""
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | output
    with subprocess.Popen(
        [sys.executable, "-m", "blendstream.agents.cli", *words],
        cwd=ROOT, env=made.environment(), text=True, **piped,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"]
)
async def test_rebuild_interrupted_while_it_waits_says_that_nothing_is_left_to_do(
    kafka, redis_server, number, status
):
    """An operator who loses patience must know whether the counts are gone or half gone."""
    clock = Clock()
    async with epoch_service(kafka.url, redis_server.url) as made, bench(made, clock) as jobs:
        await jobs.keep()
        made.send_raw(InputStream.CLIENT_REPORTS, 1, b"counted by nobody")
        with started(made, "rebuild") as verb:
            for line in verb.stdout:
                if f"{InputStream.CLIENT_REPORTS.value}: 1 of 2 partitions counted" in line:
                    break
            verb.send_signal(number)
            _, said = await asyncio.to_thread(verb.communicate, timeout=PATIENCE_S)
        assert verb.returncode == status, said
        (line,) = said.splitlines()
        optin, reports = (made.topics.of(stem).name for stem in InputStream)
        assert line.startswith(
            "blendstream: stopped while waiting for the workers: all counts are reset, "
            f"2 of 2 in {optin} and 1 of 2 in {reports} were counted again so far."
        )
        assert "nothing needs to be run again" in line


@pytest.mark.timeout(120)
async def test_rebuild_interrupted_while_it_resets_says_which_partitions_are_reset(
    kafka, own_redis: LocalRedis
):
    """Workers recount the reset partitions; the others keep their counts: run it again."""
    clock = Clock()
    async with epoch_service(kafka.url, own_redis.url) as made, bench(made, clock) as jobs:
        await jobs.keep()
        optin, reports = (made.topics.of(stem).name for stem in InputStream)
        with own_redis.client() as client:
            client.execute_command("CLIENT PAUSE 60000 WRITE")
            with started(made, "rebuild") as verb:
                await made.until(lambda: client.info("clients")["blocked_clients"], PATIENCE_S)
                verb.terminate()
                _, said = await asyncio.to_thread(verb.communicate, timeout=PATIENCE_S)
            client.execute_command("CLIENT UNPAUSE")
        assert verb.returncode == 143, said
        assert said.startswith(
            f"blendstream: stopped while resetting counts: 0 of 2 in {optin} and 0 of 2 in "
            f"{reports} are reset, and perhaps the next one."
        )

        # So does one that fails: here at a key of another kind in the second partition.
        await jobs.context.redis.set(
            jobs.context.tables(InputStream.OPTIN_RECORDS).key(1, "state"), "x"
        )
        with started(made, "rebuild") as verb:
            _, said = await asyncio.to_thread(verb.communicate, timeout=PATIENCE_S)
        assert verb.returncode == 1
        first, second = said.splitlines()
        assert f"1 of 2 in {optin} and 0 of 2 in {reports} are reset" in first
        assert "Run `blendstream rebuild` again" in first
        assert second.startswith("blendstream: "), "and what failed"


@pytest.mark.timeout(120)
async def test_a_reader_that_goes_away_ends_what_only_shows_and_not_what_changes(
    kafka, redis_server
):
    """`blendstream epochs | head -1` ended in a traceback; `rebuild | head -1` forgot one topic."""
    clock = Clock()
    async with epoch_service(kafka.url, redis_server.url) as made, bench(made, clock) as jobs:
        await jobs.keep()
        reader, writer = os.pipe()
        os.close(reader)
        for verb_name, status in (("epochs", 141), ("ledger", 141), ("verify", 141)):
            with started(made, verb_name, stdout=writer) as verb:
                _, said = await asyncio.to_thread(verb.communicate, timeout=PATIENCE_S)
            assert (verb.returncode, said) == (status, "")
        tables = [await made.tables(stem) for stem in InputStream]
        before = [await table.rebuilt(1) for table in tables]
        with started(made, "rebuild", stdout=writer) as verb:
            _, said = await asyncio.to_thread(verb.communicate, timeout=PATIENCE_S)
        os.close(writer)
        assert (verb.returncode, said) == (0, "")
        after = [await table.rebuilt(1) for table in tables]
        assert all(old != new for old, new in zip(before, after, strict=True))
        for table in tables:
            await table.close()
