"""Measure time and peak memory of a function, in a separate process."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from bench._page import Table


@dataclass(frozen=True)
class Measured:
    """Wall-clock and processor seconds of the work, and the most memory its process held.

    Memory includes the set-up. Ratios are of processor seconds: others may share the machine.
    """

    seconds: float
    cpu_seconds: float
    peak_mib: float
    result: float


def measure(prepare: Callable[..., Callable[[], float]], *arguments: object) -> Measured:
    """Call `prepare(*arguments)` and then, timed, what it returns. Both are picklable by name."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as process:
        return process.submit(_timed, prepare, arguments).result()


def _timed(prepare: Callable[..., Callable[[], float]], arguments: tuple[object, ...]) -> Measured:
    work = prepare(*arguments)
    began, cpu_began = time.perf_counter(), time.process_time()
    result = work()
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Measured(seconds, cpu_seconds, peak, result)


def timings() -> Table:
    """A table for `show`."""
    return Table(["work", "wall clock", "processor", "ratio", "peak memory"])


def show(table: Table, what: str, measured: Measured, baseline: Measured) -> None:
    """Add a row; the ratio is of processor seconds."""
    ratio = measured.cpu_seconds / max(baseline.cpu_seconds, 1e-6)
    table.add(
        what,
        f"{measured.seconds:.3f} s",
        f"{measured.cpu_seconds:.3f} s",
        f"{ratio:.1f}",
        f"{measured.peak_mib:.0f} MiB",
    )
