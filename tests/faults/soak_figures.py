"""Evaluate a soak's samples: the quantities that level off, in words and in a figure.

    python -m tests.faults.soak_figures docs/soak.csv          the words
    python -m tests.faults.soak_figures docs/soak.csv docs/soak     and the figure (needs [eval])

A quantity levels off when a line through the second half of its samples rises by less than a tenth
of their mean over that half, or falls. Permanent data cannot; see its growth per epoch.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

from blendstream.evaluation.drawing import Line, Panel, draw_figure
from blendstream.evaluation.summary import Curve, Mean

#: Columns of the file, with what they are called.
QUANTITIES = {
    "gateway_rss_mib": "memory of the oldest gateway, MiB",
    "worker_rss_mib": "memory of the oldest worker, MiB",
    "jobs_rss_mib": "memory of the oldest jobs, MiB",
    "brokers_rss_mib": "memory of all brokers, MiB",
    "redis_nodes_rss_mib": "memory of all Redis nodes, MiB",
    "gateway_files": "open files of the oldest gateway",
    "worker_files": "open files of the oldest worker",
    "jobs_files": "open files of the oldest jobs",
    "brokers_files": "open files of all brokers",
    "redis_nodes_files": "open files of all Redis nodes",
    "redis_keys": "keys in Redis",
    "redis_memory_mib": "memory that Redis's data takes, MiB",
    "redis_files_mib": "Redis's files, all nodes, MiB",
    "entries_mib": "Kafka: records and reports, MiB",
    "kafka_own_mib": "Kafka: its own topics, the clock, MiB",
    "published_mib": "Kafka: publications, MiB",
    "release_log_mib": "Kafka: release log, MiB",
}
#: Kept for ever, by design: they grow with every epoch.
KEPT = ("published_mib", "release_log_mib")
LEVEL = 0.1

Samples = dict[str, tuple[list[float], list[float]]]


def read(path: Path) -> Samples:
    """Minutes and values of every column, where it has one."""
    found: Samples = {}
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            for name, value in line.items():
                if value:
                    minutes, values = found.setdefault(name, ([], []))
                    minutes.append(float(line["seconds"]) / 60)
                    values.append(float(value))
    return found


def rise(minutes: list[float], values: list[float]) -> float:
    """Return the rise of a line through the second half, relative to that half's mean."""
    half = len(values) // 2
    x, y = np.array(minutes[half:]), np.array(values[half:])
    slope = np.polyfit(x, y, 1)[0]
    return float(slope * (x[-1] - x[0]) / max(y.mean(), 1e-9))


def an_epoch(samples: Samples, name: str) -> tuple[float, float]:
    """KiB that an epoch adds, in the first half and in the second."""
    epochs = np.interp(samples[name][0], *samples["epochs_checked"])
    half = len(epochs) // 2
    first, second = (
        float(np.polyfit(epochs[part], np.array(samples[name][1])[part], 1)[0]) * 1024
        for part in (slice(None, half), slice(half, None))
    )
    return first, second


def report(path: Path) -> None:
    """A line for each quantity."""
    samples = read(path)
    print(f"{'quantity':<42}{'middle':>10}{'end':>10}{'most':>10}  2nd half")
    for name, words in QUANTITIES.items():
        minutes, values = samples[name]
        half = len(values) // 2
        grown = rise(minutes, values)
        middle, end = (np.median(part[-12:]) for part in (values[: half + 6], values))
        verdict = "levels off" if grown < LEVEL else "GROWS"
        if name in KEPT:
            first, second = an_epoch(samples, name)
            verdict = f"kept, {first:.1f} KiB per epoch in the 1st half, {second:.1f} in the 2nd"
        middle, end, most = (
            f"{value:.1f}" if value >= 10 else f"{value:.2f}"
            for value in (middle, end, max(values))
        )
        print(f"{words:<42}{middle:>10}{end:>10}{most:>10}  {grown:+6.1%}  {verdict}")


def draw(path: Path, to: Path) -> None:
    """The figure, in both themes."""
    samples = read(path)

    def line(name: str, label: str, colour: str, dash: int = 0) -> Line:
        minutes, values = _thinned(*samples[name])
        return Line(Curve(name, minutes, [Mean(v, 0.0, 1) for v in values]), label, colour, dash)

    def panel(title: str, label: str, *lines: Line) -> Panel:
        return Panel(title, "minutes", label, lines, y_range=(0, None))

    def three(unit: str) -> tuple[Line, ...]:
        kinds = (("gateway", "sharp"), ("worker", "paper"), ("jobs", "limit"))
        return tuple(line(f"{kind}_{unit}", kind, role, n) for n, (kind, role) in enumerate(kinds))

    panels = [
        panel("Memory, oldest of each kind", "MiB", *three("rss_mib")),
        panel("Open files, oldest of each kind", "files", *three("files")),
        panel("Memory of the servers", "MiB", line("brokers_rss_mib", "3 brokers", "third"),
              line("redis_nodes_rss_mib", "6 Redis nodes", "fourth", 1)),
        panel("Redis", "keys", line("redis_keys", "keys", "fourth")),
        panel("Kafka on disk, one copy", "MiB", line("entries_mib", "entries", "paper"),
              line("kafka_own_mib", "Kafka's own", "third", 1),
              line("published_mib", "publications", "sharp", 2),
              line("release_log_mib", "release log", "plain", 3)),
        panel("What was done to it", "faults", line("faults", "faults", "paper")),
    ]  # fmt: skip
    for drawn in draw_figure(panels, to, columns=2, kinds=["svg"]):
        print(f"wrote {drawn}")


def _thinned(minutes: list[float], values: list[float]) -> tuple[list[float], list[float]]:
    """Thin the points to the number that a panel can show."""
    step = max(1, len(values) // 90)
    return minutes[::step], values[::step]


if __name__ == "__main__":
    report(Path(sys.argv[1]))
    if len(sys.argv) > 2:
        draw(Path(sys.argv[1]), Path(sys.argv[2]))
