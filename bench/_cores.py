"""Measure which processes used the machine's cores during a measurement by the clock."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Spent:
    """Processor seconds that each part has used so far; `machine` is all that all cores did."""

    at: float
    workers: float
    broker: float
    redis: float
    bench: float
    machine: float

    @classmethod
    def now(cls, workers: Sequence[psutil.Process] = ()) -> Spent:
        servers = {"java": 0.0, "redis": 0.0}
        me = psutil.Process()
        for child in me.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                kind = "java" if child.name() == "java" else "redis"
                if kind == "java" or child.name().startswith(("redis", "valkey")):
                    servers[kind] += _cpu_s(child)
        everyone = psutil.cpu_times()
        return cls(
            time.monotonic(), sum(_cpu_s(process) for process in workers), servers["java"],
            servers["redis"], _cpu_s(me), sum(everyone) - everyone.idle - everyone.iowait,
        )  # fmt: skip

    def since(self, before: Spent) -> str:
        """Return the average number of cores of each part."""
        parts = {
            name: (getattr(self, name) - getattr(before, name)) / (self.at - before.at)
            for name in ("workers", "broker", "redis", "bench", "machine")
        }
        others = max(parts.pop("machine") - sum(parts.values()), 0.0)
        return ", ".join(
            f"{name} {cores:.2f}" for name, cores in {**parts, "others": others}.items()
        )


def _cpu_s(process: psutil.Process) -> float:
    return float(sum(process.cpu_times()[:2]))
