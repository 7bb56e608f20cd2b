"""Time and memory of evaluating a search log of twenty million rows."""

from __future__ import annotations

import argparse
import gzip
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil

from bench._measured import measure
from bench._page import Table
from blendstream.evaluation.populations import log_setting

TITLE = "A search log of 20 million rows"
TEXT = """
The time to evaluate a generated, gzipped file in the AOL release's format, as large as the clicks
of the release: 20 million rows of 650 000 users, about half of the rows with a click. The aim is at
most ten minutes and 4 GiB.

1. One process reads the file and draws one record per user.
2. The whole command, reading included, makes one run of Figures 9 and 12
   (`blendstream evaluate --log FILE --only top_ten,list_of_ten --runs 1`). Memory is that of all
   its processes together, with shared pages counted once.
"""

ROWS, USERS = 20_000_000, 650_000
BLOCK = 200_000


def main(options: list[str] | None = None) -> list[Table]:
    """Generate the file, read it, evaluate it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=ROWS)
    rows = parser.parse_args(options or []).rows
    table = Table(["work", "wall clock", "rows a second", "peak memory"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.txt.gz"
        generate(path, rows, round(USERS * rows / ROWS))
        size = path.stat().st_size / 2**20
        read = measure(reading, path)
        table.add(
            f"reading and drawing, {size:.0f} MiB", f"{read.seconds:.0f} s",
            f"{rows / read.seconds:.0f}", f"{read.peak_mib:.0f} MiB",
        )  # fmt: skip
        seconds, peak_mib = evaluation(path, Path(folder) / "out")
        table.add(
            "the command, Figures 9 and 12", f"{seconds:.0f} s", f"{rows / seconds:.0f}",
            f"{peak_mib:.0f} MiB",
        )  # fmt: skip
    return [table]


def generate(path: Path, rows: int, users: int) -> None:
    """Write the log; rows are sorted by user, as in the release."""
    rng = np.random.default_rng(1)
    with gzip.open(path, "wt", compresslevel=1, newline="\n") as file:
        file.write("AnonID\tQuery\tQueryTime\tItemRank\tClickURL\n")
        for start in range(0, rows, BLOCK):
            n = min(BLOCK, rows - start)
            columns = (
                (np.arange(start, start + n) * users // rows).tolist(),
                np.minimum(rng.zipf(1.3, n), 10**9).tolist(),
                rng.integers(1, 29, n).tolist(),
                rng.integers(0, 60, n).tolist(),
                np.where(rng.random(n) < 0.55, np.minimum(rng.zipf(2.0, n), 10), 0).tolist(),
            )
            file.writelines(
                f"{user}\tsearch for {query} things\t2006-03-{day:02} 07:{minute:02}:12\t"
                + (f"{rank}\thttp://www.site{query % 997}.example/{rank}\n" if rank else "\t\n")
                for user, query, day, minute, rank in zip(*columns, strict=True)
            )


def reading(path: Path) -> Callable[[], float]:
    """Return the work that is timed: read the log, draw, number the records."""
    return lambda: float(log_setting(path)[0].users)


def evaluation(path: Path, out: Path) -> tuple[float, float]:
    """Run the command; seconds, and the most memory that its processes held together, in MiB."""
    words = ["--log", str(path), "--only", "top_ten,list_of_ten", "--runs", "1", "--out", str(out)]
    began, peak = time.perf_counter(), 0.0
    with subprocess.Popen(
        [sys.executable, "-m", "blendstream.agents.cli", "evaluate", *words],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as running:  # fmt: skip
        while running.poll() is None:
            peak = max(peak, held(running.pid))
            time.sleep(0.5)
    if running.returncode != 0:
        raise RuntimeError(f"blendstream evaluate ended with {running.returncode}")
    return time.perf_counter() - began, peak / 2**20


def held(pid: int) -> float:
    """Bytes of memory that a process and its children hold."""
    total = 0.0
    try:
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            total += process.memory_full_info().pss
    except psutil.NoSuchProcess:
        pass
    return total
