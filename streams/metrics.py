"""Every Prometheus metric, declared once. Label values start at zero, so a first failure shows.

No query, URL, user id or contributor key is ever a label or a value. What was received, counted
and refused is read from Redis (`EntryTotals`), so that replays do not double it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import accumulate

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from streams.epochs import Stem
from streams.judging import Reason
from streams.stops import StopReason

__all__ = [
    "BATCH_ENTRIES",
    "BATCH_SECONDS",
    "ENTRY_TOTALS",
    "GAPS",
    "GATEWAY_CLOCK_SKEW_SECONDS",
    "GATEWAY_CONNECTIONS",
    "GATEWAY_FRAMES",
    "GATEWAY_FRAME_BYTES",
    "GATEWAY_FRAME_ENTRIES",
    "GATEWAY_HELD_BYTES",
    "GATEWAY_LATE_FRAMES",
    "GATEWAY_READY",
    "GATEWAY_STALLED_PARTITIONS",
    "GATEWAY_TOTALS",
    "LAG",
    "LOST_OFFSETS",
    "PARTITIONS_ASSIGNED",
    "PARTITION_STOPPED",
    "READY",
    "RELOADS",
    "RETRIES",
    "SCRIPT_SECONDS",
    "SEEKS",
    "EntryTotals",
    "GatewayTotals",
    "RouteTotals",
]

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
    for _reason in StopReason:
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


# --- the gateway ---------------------------------------------------------------------------------

GATEWAY_FRAMES = Counter("blender_gateway_frames", "Frames acknowledged by Kafka.")
GATEWAY_FRAME_BYTES = Histogram(
    "blender_gateway_frame_bytes",
    "Size of acknowledged frames.",
    buckets=(256, 1024, 4096, 16_384, 65_536, 262_144),
)
GATEWAY_FRAME_ENTRIES = Histogram(
    "blender_gateway_frame_entries",
    "Entries in acknowledged frames.",
    buckets=(1, 10, 100, 1_000, 10_000),
)
GATEWAY_LATE_FRAMES = Counter(
    "blender_gateway_late_frames", "Frames that Kafka did not acknowledge within the deadline."
)
GATEWAY_HELD_BYTES = Gauge("blender_gateway_held_bytes", "Bytes of entries waiting for Kafka.")
GATEWAY_STALLED_PARTITIONS = Gauge(
    "blender_gateway_stalled_partitions",
    "Partitions that owe an overdue acknowledgement; their entries are answered 503.",
)
GATEWAY_CONNECTIONS = Gauge("blender_gateway_connections", "Open HTTP connections.")
GATEWAY_CLOCK_SKEW_SECONDS = Gauge(
    "blender_gateway_clock_skew_seconds",
    "How far this clock is ahead of the brokers' at least; below 0 when it is behind.",
)
GATEWAY_READY = Gauge("blender_gateway_ready", "1 while submissions can be taken.")


class RouteTotals:
    """Requests to one route. Plain numbers: a gateway counts on the path of every request."""

    __slots__ = ("_by_status", "_seconds", "_slots")

    def __init__(self) -> None:
        self._by_status: dict[int, int] = {}
        self._slots = [0] * (len(_SECONDS) + 1)
        self._seconds = 0.0

    def answered(self, status: int, seconds: float) -> None:
        self._by_status[status] = self._by_status.get(status, 0) + 1
        self._slots[bisect_left(_SECONDS, seconds)] += 1
        self._seconds += seconds

    def statuses(self) -> Mapping[int, int]:
        return self._by_status

    def histogram(self) -> tuple[list[tuple[str, float]], float]:
        """Cumulative buckets by upper bound, and the sum."""
        bounds = [*(str(float(bound)) for bound in _SECONDS), "+Inf"]
        return list(zip(bounds, accumulate(self._slots), strict=True)), self._seconds


class GatewayTotals(Collector):
    """What a gateway answered, by route and status, and its verdicts on entries."""

    def __init__(self) -> None:
        self._routes: dict[tuple[str, str], RouteTotals] = {}
        self._verdicts: dict[Stem, dict[str, int]] = {}

    def route(self, method: str, path: str) -> RouteTotals:
        return self._routes.setdefault((method, path), RouteTotals())

    def verdicts(self, stem: Stem, names: Iterable[str]) -> dict[str, int]:
        """Where the gateway counts its verdicts on one kind of entry; all begin at zero."""
        return self._verdicts.setdefault(stem, dict.fromkeys(names, 0))

    def collect(self) -> Iterable[Metric]:
        requests = CounterMetricFamily(
            "blender_gateway_requests",
            "HTTP requests answered.",
            labels=["method", "path", "status"],
        )
        seconds = HistogramMetricFamily(
            "blender_gateway_request_seconds",
            "From a request's head to its answer, acknowledgement by Kafka included.",
            labels=["method", "path"],
        )
        entries = CounterMetricFamily(
            "blender_gateway_entries", "Entries judged, by verdict.", labels=["stem", "verdict"]
        )
        for (method, path), totals in self._routes.items():
            for status, answered in sorted(totals.statuses().items()):
                requests.add_metric([method, path, str(status)], answered)
            buckets, total = totals.histogram()
            seconds.add_metric([method, path], buckets, total)
        for stem, by_verdict in self._verdicts.items():
            for verdict, judged in by_verdict.items():
                entries.add_metric([stem, verdict], judged)
        yield from (requests, seconds, entries)


GATEWAY_TOTALS = GatewayTotals()
REGISTRY.register(GATEWAY_TOTALS)
