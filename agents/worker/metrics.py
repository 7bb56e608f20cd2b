"""The worker's Prometheus metrics.

`EntryTotals` reads the received, counted and refused entries from Redis, so that replays do not
double them.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from blendstream.agents.worker.halt_reasons import HaltReason
from blendstream.streams.names import InputStream
from blendstream.streams.tables.batch_verdict import Refusal
from blendstream.streams.telemetry.metrics import Meters, process_registry

__all__ = [
    "BATCH_ENTRIES",
    "BATCH_SECONDS",
    "BEHIND_SECONDS",
    "ENTRY_TOTALS",
    "FRAME_BYTES",
    "GAPS",
    "LAG",
    "LOST_OFFSETS",
    "PARTITIONS_ASSIGNED",
    "PARTITIONS_HALTED",
    "READY",
    "REBALANCES",
    "RELOADS",
    "RETRIES",
    "SCRIPT_SECONDS",
    "SEEKS",
    "WORKER",
    "EntryTotals",
]

WORKER = process_registry()
_meters = Meters(WORKER)

_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)

BATCH_ENTRIES = _meters.histogram(
    "blender_batch_entries",
    "Entries stored by one script.",
    buckets=(1, 10, 100, 1_000, 10_000, 50_000, 131_072),
    stem=InputStream,
)
BATCH_SECONDS = _meters.histogram(
    "blender_batch_seconds", "Time to judge and store one batch.", _SECONDS, stem=InputStream
)
SCRIPT_SECONDS = _meters.histogram(
    "blender_script_seconds", "Time Redis took to store one batch.", _SECONDS, stem=InputStream
)
FRAME_BYTES = _meters.histogram(
    "blender_frame_bytes",
    "Size of the frames whose entries were stored.",
    buckets=(256, 1024, 4096, 16_384, 65_536, 262_144),
    stem=InputStream,
)
RETRIES = _meters.counter(
    "blender_store_retries",
    "Calls retried because Redis or Kafka did not respond.",
    stem=InputStream,
)
RELOADS = _meters.counter(
    "blender_partition_reloads",
    "Times that the worker read a partition's state from Redis.",
    stem=InputStream,
)
SEEKS = _meters.counter(
    "blender_partition_seeks",
    "Times that the worker moved the consumer to another offset of a partition.",
    stem=InputStream,
)
GAPS = _meters.counter(
    "blender_offset_gaps",
    "Offsets skipped because they contain no record (control records).",
    stem=InputStream,
)
LOST_OFFSETS = _meters.counter(
    "blender_lost_offsets",
    "Offsets that Kafka removed before a worker counted them; their epochs are incomplete.",
    stem=InputStream,
)
LAG = _meters.gauge(
    "blender_partition_lag",
    "Offsets that are in Kafka and not yet counted.",
    stem=InputStream,
    partition=(),
)
BEHIND_SECONDS = _meters.gauge(
    "blender_partition_lag_seconds",
    "Age of the last frame counted while there are more; 0 when all are counted. It grows while a "
    "partition is halted.",
    stem=InputStream,
    partition=(),
)
REBALANCES = _meters.counter("blender_rebalances", "Times that Kafka reassigned the partitions.")
PARTITIONS_ASSIGNED = _meters.gauge(
    "blender_partitions_assigned", "Partitions this worker counts.", stem=InputStream
)
PARTITIONS_HALTED = _meters.gauge(
    "blender_partitions_halted",
    "Partitions halted until an operator intervenes.",
    stem=InputStream,
    reason=HaltReason,
)
READY = _meters.gauge(
    "blender_worker_ready", "1 while Redis and Kafka respond and no partition is halted."
)


class EntryTotals(Collector):
    """Received, counted and refused entries per partition, as stored in Redis.

    A Redis that lost its newest writes has lower totals until the worker has recounted them.
    Prometheus treats a falling counter as restarted and would add its whole value again. So the
    counters never fall while the partition is assigned to this worker.

    If Kafka has removed entries too, no replay restores them. `settle` then adds them permanently
    once everything else is counted; otherwise the counter would not move until Redis reached its
    old value.
    """

    def __init__(self) -> None:
        self._stored: dict[tuple[InputStream, int], Mapping[str, int]] = {}
        self._shown: dict[tuple[InputStream, int], Counts[str]] = {}
        self._lost: dict[tuple[InputStream, int], Counts[str]] = {}

    def set(self, stem: InputStream, partition: int, totals: Mapping[str, int]) -> None:
        """Update the totals of one partition from Redis."""
        key = stem, partition
        self._stored[key] = totals
        now = Counts(totals) + self._lost.get(key, Counts())
        self._shown[key] = self._shown.get(key, Counts()) | now  # The larger of each.

    def settle(self, stem: InputStream, partition: int) -> None:
        """Note that the whole partition is counted: totals that Redis lacks now are lost."""
        key = stem, partition
        if key in self._stored:
            self._lost[key] = self._shown[key] - Counts(self._stored[key])

    def forget(self, stem: InputStream, partition: int) -> None:
        """Stop exporting a partition, because another worker exports it now."""
        for totals in (self._stored, self._shown, self._lost):
            totals.pop((stem, partition), None)

    def collect(self) -> Iterable[Metric]:
        """Export the totals of all assigned partitions."""
        for stem in InputStream:
            received = CounterMetricFamily(
                f"blender_{stem}_received", "Entries found in Kafka.", labels=["partition"]
            )
            counted = CounterMetricFamily(
                f"blender_{stem}_counted", "Entries counted.", labels=["partition"]
            )
            refused = CounterMetricFamily(
                f"blender_{stem}_refused", "Entries refused.", labels=["partition", "reason"]
            )
            for (owner, partition), totals in sorted(self._shown.items()):
                if owner is stem:
                    received.add_metric([str(partition)], totals["received"])
                    counted.add_metric([str(partition)], totals["counted"])
                    for reason in Refusal:
                        number = totals[f"refused:{reason}"]
                        refused.add_metric([str(partition), reason], number)
            yield from (received, counted, refused)


ENTRY_TOTALS = EntryTotals()
WORKER.register(ENTRY_TOTALS)
