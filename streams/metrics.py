"""Every Prometheus metric, declared once. Label values start at zero, so a first failure shows.

No query, URL, user id or contributor key is ever a label or a value. What was received, counted
and refused is read from Redis (`EntryTotals`), so that replays do not double it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from streams.epochs import Stem
from streams.judging import Reason

__all__ = [
    "BATCH_ENTRIES",
    "BATCH_SECONDS",
    "ENTRY_TOTALS",
    "GAPS",
    "LAG",
    "LOST_OFFSETS",
    "PARTITIONS_ASSIGNED",
    "PARTITION_STOPPED",
    "READY",
    "RELOADS",
    "RETRIES",
    "SCRIPT_SECONDS",
    "SEEKS",
    "STOP_REASONS",
    "EntryTotals",
]

#: Why a partition is stopped. Each needs somebody to look; docs/operations.md says what to do.
STOP_REASONS = (
    "topic_recreated",
    "offset_beyond_end",
    "partitions_changed",
    "newer_frame",
    "store_refused",
    "half_applied",
    "key_missing",
)

_STEM = ["stem"]
_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)

BATCH_ENTRIES = Histogram(
    "blender_batch_entries",
    "Entries stored by one script.",
    _STEM,
    buckets=(1, 10, 100, 1_000, 10_000, 50_000, 131_072),
)
BATCH_SECONDS = Histogram(
    "blender_batch_seconds", "Time to judge and store one batch.", _STEM, buckets=_SECONDS
)
SCRIPT_SECONDS = Histogram(
    "blender_script_seconds", "Time Redis took to store one batch.", _STEM, buckets=_SECONDS
)
RETRIES = Counter(
    "blender_store_retries", "Calls made again because Redis or Kafka did not answer.", _STEM
)
RELOADS = Counter(
    "blender_partition_reloads", "Partitions whose state was read again from Redis.", _STEM
)
SEEKS = Counter("blender_partition_seeks", "Times a partition was read again from earlier.", _STEM)
GAPS = Counter(
    "blender_offset_gaps",
    "Offsets passed over because no record has them (control records).",
    _STEM,
)
LOST_OFFSETS = Counter(
    "blender_lost_offsets",
    "Offsets that left the log before they were counted; their epochs are incomplete.",
    _STEM,
)
LAG = Gauge(
    "blender_partition_lag",
    "Offsets that are in the log and not yet counted.",
    ["stem", "partition"],
)
PARTITIONS_ASSIGNED = Gauge("blender_partitions_assigned", "Partitions this worker counts.", _STEM)
PARTITION_STOPPED = Gauge(
    "blender_partitions_stopped", "Partitions that stand still until somebody looks.",
    ["stem", "reason"],
)  # fmt: skip
READY = Gauge("blender_worker_ready", "1 while Redis and Kafka answer and no partition is stopped.")

for _stem in Stem:
    for _metric in (
        BATCH_ENTRIES, BATCH_SECONDS, SCRIPT_SECONDS, RETRIES, RELOADS, SEEKS, GAPS,
        LOST_OFFSETS, PARTITIONS_ASSIGNED,
    ):  # fmt: skip
        _metric.labels(_stem)
    for _reason in STOP_REASONS:
        PARTITION_STOPPED.labels(_stem, _reason).set(0)


class EntryTotals(Collector):
    """Received, counted and refused entries of each partition, as Redis last had them."""

    def __init__(self) -> None:
        self._totals: dict[tuple[Stem, int], Mapping[str, int]] = {}

    def set(self, stem: Stem, partition: int, totals: Mapping[str, int]) -> None:
        self._totals[stem, partition] = totals

    def forget(self, stem: Stem, partition: int) -> None:
        """The partition is another worker's now, which tells its totals."""
        self._totals.pop((stem, partition), None)

    def collect(self) -> Iterable[Metric]:
        for stem in Stem:
            received = CounterMetricFamily(
                f"blender_{stem}_received", "Entries found in the log.", labels=["partition"]
            )
            counted = CounterMetricFamily(
                f"blender_{stem}_counted", "Entries counted.", labels=["partition"]
            )
            refused = CounterMetricFamily(
                f"blender_{stem}_refused", "Entries refused.", labels=["partition", "reason"]
            )
            for (of, partition), totals in sorted(self._totals.items()):
                if of is stem:
                    received.add_metric([str(partition)], totals.get("received", 0))
                    counted.add_metric([str(partition)], totals.get("counted", 0))
                    for reason in Reason:
                        found = totals.get(f"refused:{reason}", 0)
                        refused.add_metric([str(partition), reason], found)
            yield from (received, counted, refused)


def _registered(totals: EntryTotals, registry: CollectorRegistry = REGISTRY) -> EntryTotals:
    registry.register(totals)
    return totals


ENTRY_TOTALS = _registered(EntryTotals())
