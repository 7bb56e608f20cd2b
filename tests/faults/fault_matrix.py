"""Every fault at every moment, in as few services as the time allows; appends to a CSV file.

    python -m tests.faults.fault_matrix TIMES.csv --redis cluster --minutes 8

What the file has already is left out, so the command may be repeated until nothing is left. The
tests in test_machine_loss.py do the same, a service for each kind of fault.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import csv
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

from blendstream.agents.local import LocalRedisCluster, LocalSentinels
from tests.faults.fault_times import write_fault, write_verdict
from tests.faults.node_faults import BROKER_FAULTS, CLUSTER_FAULTS, PROCESS_FAULTS, REDIS_FAULTS
from tests.faults.peer_links import LinkedCluster
from tests.faults.replicated_service import MOMENTS, replicated_service

Case = tuple[str, str]


def cases(kind: str) -> list[Case]:
    """The worst moments first, so that a short run has them."""
    redis = REDIS_FAULTS | (CLUSTER_FAULTS if kind == "cluster" else {})
    faults = [*redis, *BROKER_FAULTS, *PROCESS_FAULTS] if kind == "cluster" else [*redis]
    moments = sorted(MOMENTS, key=["drawing", "sealing", "commit", "under load"].index)
    # A worker or gateway knows nothing of the moments of jobs.
    return [
        (fault, moment)
        for moment in moments
        for fault in faults
        if moment == "under load" or fault not in PROCESS_FAULTS
    ]


def measured(file: Path, kind: str) -> set[Case]:
    """Return the cases that the file has, of services whose publications were right."""
    if not file.exists():
        return set()
    with file.open(newline="") as rows:
        lines = list(csv.DictReader(rows))
    right = {line["session"] for line in lines if line["verdict"] == "right"}
    return {
        (line["fault"], line["moment"])
        for line in lines
        if line["session"] in right and line["session"].startswith(f"{kind} ")
    }


async def run(file: Path, kind: str, minutes: float, only: str) -> str | None:
    """Run one service; return the faults of its publications, if any."""
    wanted = [case for case in cases(kind) if any(word in case[0] for word in only.split(","))]
    left = [case for case in wanted if case not in measured(file, kind)]
    session = f"{kind} {os.getpid()}"
    if not left:
        print("nothing is left")
        return None
    servers = LocalRedisCluster if kind == "cluster" else LocalSentinels
    with LinkedCluster() as cluster, servers() as redis, tempfile.TemporaryDirectory() as folder:
        async with replicated_service(cluster, redis, Path(folder)) as running:
            until = time.monotonic() + 60 * minutes
            for fault, moment in left:
                if time.monotonic() > until:
                    break
                recovery = await running.disturb(fault, at=MOMENTS[moment])
                write_fault(session, fault, moment, recovery, running)
                print(fault, moment, recovery, dict(running.restarts), memory(), flush=True)
            try:
                await running.assert_right()
            except AssertionError as error:
                write_verdict(session, running, str(error).splitlines()[-1])
                return str(error)
            write_verdict(session, running, "right")
            return None


def memory() -> str:
    """Megabytes of everything below this process, shared pages counted once."""
    found: Counter[str] = Counter()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            found[process.name()] += process.memory_full_info().pss >> 20
    return f"{sum(found.values())} MB: {dict(found)}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--redis", choices=["cluster", "sentinel"], default="cluster")
    parser.add_argument("--minutes", type=float, default=8, help="of faults, once all runs")
    parser.add_argument(
        "--only", default="", help="faults whose name has one of these words, with commas between"
    )
    given = parser.parse_args()
    os.environ["FAULT_TIMES"] = str(given.file)
    wrong = asyncio.run(run(given.file, given.redis, given.minutes, given.only))
    sys.exit(wrong)


if __name__ == "__main__":
    main()
