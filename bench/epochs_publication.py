"""Time from seal to publication, by step, on a real Kafka and Redis.

    python -m bench epochs_publication         1 000 000 distinct records, 10 000 000 reports
    python -m bench.epochs_publication --records 100000 --reports 1000000              smaller

Opt-in users (one record each, `--records` distinct ones) and reports are written to Kafka as frames
and sealed before the worker starts, so *waiting* is the worst case: nothing is counted yet. The
next steps are reading the counts from Redis, drawing exact noise, committing and publishing; then
these steps for the estimates. The baseline, in the same run, is numpy float noise on as many
counts. For each release the table also shows how many cores the worker, the servers, the jobs (in
this process) and other processes used.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
import psutil

from bench._cores import Spent
from bench._page import Table
from blendstream.agents.local import LocalKafka, LocalRedis
from blendstream.blender.registry import randomizer_for
from blendstream.streams.epoch_keys import EpochKeys
from blendstream.streams.names import InputStream
from blendstream.streams.releases.entries import Kind
from blendstream.streams.releases.epoch_state import Stage
from blendstream.streams.wire.frames import OptinEntry, cell_width, encode_optin_records
from tests.report_frames import encode_reports
from tests.service.epochs import EpochService, epoch_service
from tests.service.jobs import Clock, JobBench, bench
from tests.service.settings import MASTER

TITLE = "From the seal to the publication"
TEXT = """
The time from an epoch's seal to its publication, with a million distinct opt-in records (1 040 000
users), ten million reports, 8 partitions and M = 500.

- *Waiting* is the worst case: the worker starts at the seal, and has everything still to count.
- *Cores* is the average number of cores that each process had: broker, Redis, worker and jobs share
  them.
"""

FRAME = 1000


def say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)


class Watch:
    """The time at which each step was reached."""

    def __init__(self, jobs: JobBench) -> None:
        self.at: dict[str, float] = {}
        inner = jobs.context.observe

        async def observe(step: str) -> None:
            self.at[step] = time.monotonic()
            await inner(step)

        jobs.context.observe = observe

    def parts(self, kind: str, began: float) -> dict[str, float]:
        at = {name: self.at[f"{kind}.{name}"] for name in _STEPS}
        return {
            "read log and counts": at["before_drawing"] - began,
            "noise" if kind == "head-lists" else "estimate": at["drawn"] - at["before_drawing"],
            "encode and send": at["sent"] - at["drawn"],
            "commit": at["committed"] - at["sent"],
            "publish": at["published"] - at["committed"],
        }


_STEPS = ("before_drawing", "drawn", "sent", "committed", "published")


def send_optin(made: EpochService, records: int, popular: int = 200, users: int = 200) -> int:
    """One user for each of so many distinct records, and a popular few with many users each."""
    rng, keys = np.random.default_rng(0), EpochKeys.derive(MASTER, 0)
    frames: dict[int, list[OptinEntry]] = {p: [] for p in range(made.partitions)}
    sent = 0
    for n in range(records + popular * users):
        number = n if n < records else records + n % popular
        text = b"query number %d" % number, b"https://site-%d.example/path" % number
        contributor = rng.bytes(16)
        frame = frames[keys.partition_of(contributor, made.partitions)]
        frame.append(OptinEntry(contributor, 0, *text))
        if len(frame) == FRAME:
            _flush(made, InputStream.OPTIN_RECORDS, frames, encode=_records)
        sent += 1
        if sent % 200_000 == 0:
            say(f"  {sent} opt-in records sent")
    _flush(made, InputStream.OPTIN_RECORDS, frames, encode=_records, all_=True)
    made.flush()
    return sent


def _records(entries: list[OptinEntry]) -> bytes:
    return encode_optin_records(0, entries, log_position=1)


def _flush(
    made: EpochService,
    stem: InputStream,
    frames: dict[int, list[OptinEntry]],
    *,
    encode: Callable[[list[OptinEntry]], bytes],
    all_: bool = False,
) -> None:
    for partition, frame in frames.items():
        if len(frame) >= (1 if all_ else FRAME):
            made.producer.produce(
                made.topics.of(stem).name, value=encode(frame), partition=partition
            )
            made.producer.poll(0)
            frames[partition] = []


async def send_reports(made: EpochService, reports: int) -> None:
    """Frames of 1 000 reports; partitions by turns, since only their number matters here."""
    state = (await made.log_state()).epochs[0]
    head_list, head_list_id = await made.head_list(state)
    randomizer, rng = randomizer_for(head_list), np.random.default_rng(1)
    width = cell_width(len(head_list.cells))
    for sent in range(0, reports, FRAME):
        truth = rng.integers(0, len(head_list.cells), FRAME)
        answers = np.asarray(randomizer.answer_batch(truth, rng)).reshape(FRAME, -1)
        ids = rng.bytes(16 * FRAME)
        contributors = [ids[i : i + 16] for i in range(0, len(ids), 16)]
        frame = encode_reports(0, bytes.fromhex(head_list_id), contributors, answers, width)
        made.producer.produce(
            made.topics.client_reports.name, value=frame,
            partition=sent // FRAME % made.partitions,
        )  # fmt: skip
        made.producer.poll(0)
        if sent % 2_000_000 == 0:
            say(f"  {sent} reports sent")
            made.flush()
    made.flush()


async def counted(made: EpochService, stem: InputStream) -> None:
    tables = await made.tables(stem)

    async def there() -> bool:
        ends = await made.kafka.ends(made.topics.of(stem).name, range(made.partitions))
        for partition, end in ends.items():
            if (await tables.stored_state(partition)).offset != end:
                return False
        return True

    await made.until(there, 3600, f"the end of {stem}")


async def measure(
    made: EpochService, records: int, reports: int
) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    clock = Clock()
    found: dict[str, dict[str, float]] = {}
    cores: dict[str, str] = {}
    async with bench(made, clock) as jobs:
        watch = Watch(jobs)
        await jobs.keep()
        say(f"sending {records} distinct opt-in records")
        users = send_optin(made, records)
        clock.now_ms = (await made.log_state()).epochs[0].parameters.records_sealable_at_ms
        await jobs.keep()
        sealed = time.monotonic()
        before, worker = _started(made)
        await counted(made, InputStream.OPTIN_RECORDS)
        began = time.monotonic()
        say(f"{users} counted; building the head list")
        assert await jobs.run(Kind.HEAD_LISTS)
        found["head list"] = {"waiting": began - sealed, **watch.parts("head-lists", began)}
        cores["head list"] = Spent.now([worker]).since(before)
        state = await made.until_stage(0, Stage.REPORTING)
        assert state.head_list is not None
        for part in made.parts:
            # In order: its successor would wait for a dead one's session to end.
            part.terminate()
            await asyncio.to_thread(part.wait, 60)
        say(f"sending {reports} reports")
        await send_reports(made, reports)
        clock.now_ms = state.head_list.reports_until_ms + 3_600_000 // 10
        await jobs.keep()
        sealed = time.monotonic()
        before, worker = _started(made)
        await counted(made, InputStream.CLIENT_REPORTS)
        began = time.monotonic()
        say("reports counted; estimating")
        assert await jobs.run(Kind.ESTIMATES)
        found["estimates"] = {"waiting": began - sealed, **watch.parts("estimates", began)}
        cores["estimates"] = Spent.now([worker]).since(before)
    return found, cores


def _started(made: EpochService) -> tuple[Spent, psutil.Process]:
    before = Spent.now()
    return before, psutil.Process(made.start_worker().pid)


async def _main(records: int, reports: int, partitions: int = 8) -> list[Table]:
    say("starting Kafka and Redis")
    with LocalKafka() as kafka, LocalRedis() as redis:
        origin = int(time.time()) - 5
        async with epoch_service(
            kafka.url, redis.url, partitions=partitions,
            epoch__window_s="36000", epoch__origin_unix_s=str(origin),
            privacy__head_list_cells="500", privacy__selection_share="0.95",
            redis__timeout_s="30", kafka__request_timeout_s="30",
            jobs__transaction_timeout_s="60", worker__session_timeout_s="30",
            worker__stall_exit_s="600",
        ) as made:  # fmt: skip
            found, cores = await measure(made, records, reports)
    began = time.monotonic()
    np.random.default_rng(0).laplace(scale=0.5, size=records)
    plain = time.monotonic() - began
    table = Table(
        ["part", *found],
        f"{records:,} distinct opt-in records, {reports:,} reports, {partitions} partitions",
    )
    both = [list(parts.items()) for parts in found.values()]
    for (name, head_list), (other, estimates) in zip(*both, strict=True):
        part = name if name == other else f"{name}, {other}"
        table.add(part, f"{head_list:.2f} s", f"{estimates:.2f} s")
    table.add("in all", *(f"{sum(parts.values()):.1f} s" for parts in found.values()))
    table.add("cores", *(cores[release] for release in found))
    table.add("numpy float noise on as many counts", f"{plain:.3f} s", "")
    return [table]


def main(words: Sequence[str] = ()) -> list[Table]:
    """Run at the size given on the command line, or at full size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--reports", type=int, default=10_000_000)
    sizes = parser.parse_args(words)
    return asyncio.run(_main(sizes.records, sizes.reports))


if __name__ == "__main__":
    main(sys.argv[1:])
