"""Every Prometheus metric, declared once. Label values start at zero, so a first failure shows.

No query, URL, user id or contributor key is ever a label or a value. What was received, counted
and refused is read from Redis (`EntryTotals`), so that replays do not double it.

Each kind of process has a registry of its own, so that it tells only what it knows: a gateway must
not say that no worker is ready. The jobs' metrics are in `streams.job_metrics`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Counts
from collections.abc import Iterable, Mapping
from itertools import accumulate

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from streams.epochs import Stem
from streams.judging import Reason
from streams.stops import StopReason
from streams.version import version_of

__all__ = [
    "BATCH_ENTRIES",
    "BATCH_SECONDS",
    "BEHIND_SECONDS",
    "ENTRY_TOTALS",
    "FRAME_BYTES",
    "GAPS",
    "GATEWAY",
    "GATEWAY_CLOCK_SKEW_LIMIT",
    "GATEWAY_CLOCK_SKEW_SECONDS",
    "GATEWAY_CONNECTIONS",
    "GATEWAY_FRAMES",
    "GATEWAY_FRAME_BYTES",
    "GATEWAY_FRAME_ENTRIES",
    "GATEWAY_HELD_BYTES",
    "GATEWAY_IN_FLIGHT",
    "GATEWAY_LATE_FRAMES",
    "GATEWAY_LOOP_LAG",
    "GATEWAY_READY",
    "GATEWAY_STALLED_PARTITIONS",
    "GATEWAY_TOKENS_STALE",
    "GATEWAY_TOTALS",
    "LAG",
    "LOST_OFFSETS",
    "PARTITIONS_ASSIGNED",
    "PARTITION_STOPPED",
    "READY",
    "REBALANCES",
    "RELOADS",
    "RETRIES",
    "SCRIPT_SECONDS",
    "SEEKS",
    "SERVER_UP",
    "WORKER",
    "EntryTotals",
    "GatewayTotals",
    "RouteTotals",
    "process_registry",
]


# When a series was made doubles what is scraped, and no panel or alert asks for it.
disable_created_metrics()  # type: ignore[no-untyped-call]

# --- every process -------------------------------------------------------------------------------

SERVER_UP = Gauge(
    "blender_server_up",
    "1 while Kafka or Redis answered this process when it last asked.",
    ["server"],
    registry=None,
)
_BUILD = Info("blender_build", "The version that runs, always 1.", registry=None)


_BUILD.info({"version": version_of("blendstream")})


def process_registry() -> CollectorRegistry:
    """A registry with what every kind of process tells."""
    made = CollectorRegistry()
    ProcessCollector(registry=made)
    PlatformCollector(registry=made)
    GCCollector(registry=made)
    made.register(_BUILD)
    made.register(SERVER_UP)
    return made


# --- the worker ----------------------------------------------------------------------------------

WORKER = process_registry()

_STEM = ["stem"]
_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)

BATCH_ENTRIES = Histogram(
    "blender_batch_entries",
    "Entries stored by one script.",
    _STEM,
    buckets=(1, 10, 100, 1_000, 10_000, 50_000, 131_072),
    registry=WORKER,
)
BATCH_SECONDS = Histogram(
    "blender_batch_seconds",
    "Time to judge and store one batch.",
    _STEM,
    buckets=_SECONDS,
    registry=WORKER,
)
SCRIPT_SECONDS = Histogram(
    "blender_script_seconds",
    "Time Redis took to store one batch.",
    _STEM,
    buckets=_SECONDS,
    registry=WORKER,
)
FRAME_BYTES = Histogram(
    "blender_frame_bytes",
    "Size of the frames whose entries were stored.",
    _STEM,
    buckets=(256, 1024, 4096, 16_384, 65_536, 262_144),
    registry=WORKER,
)
RETRIES = Counter(
    "blender_store_retries",
    "Calls made again because Redis or Kafka did not answer.",
    _STEM,
    registry=WORKER,
)
RELOADS = Counter(
    "blender_partition_reloads",
    "Partitions whose state was read again from Redis.",
    _STEM,
    registry=WORKER,
)
SEEKS = Counter(
    "blender_partition_seeks",
    "Times a partition was read again from earlier.",
    _STEM,
    registry=WORKER,
)
GAPS = Counter(
    "blender_offset_gaps",
    "Offsets passed over because no record has them (control records).",
    _STEM,
    registry=WORKER,
)
LOST_OFFSETS = Counter(
    "blender_lost_offsets",
    "Offsets that left the log before they were counted; their epochs are incomplete.",
    _STEM,
    registry=WORKER,
)
LAG = Gauge(
    "blender_partition_lag",
    "Offsets that are in the log and not yet counted.",
    ["stem", "partition"],
    registry=WORKER,
)
BEHIND_SECONDS = Gauge(
    "blender_partition_behind_seconds",
    "Age of the last frame counted while there are more; 0 when all is counted. Of a stopped "
    "partition it grows until that is counted again.",
    ["stem", "partition"],
    registry=WORKER,
)
REBALANCES = Counter(
    "blender_rebalances", "Times that the partitions were shared out anew.", registry=WORKER
)
PARTITIONS_ASSIGNED = Gauge(
    "blender_partitions_assigned", "Partitions this worker counts.", _STEM, registry=WORKER
)
PARTITION_STOPPED = Gauge(
    "blender_partitions_stopped", "Partitions that stand still until somebody looks.",
    ["stem", "reason"], registry=WORKER)  # fmt: skip
READY = Gauge(
    "blender_worker_ready",
    "1 while Redis and Kafka answer and no partition is stopped.",
    registry=WORKER,
)

for _stem in Stem:
    for _metric in (
        BATCH_ENTRIES, BATCH_SECONDS, SCRIPT_SECONDS, FRAME_BYTES, RETRIES, RELOADS, SEEKS, GAPS,
        LOST_OFFSETS, PARTITIONS_ASSIGNED,
    ):  # fmt: skip
        _metric.labels(_stem)
    for _reason in StopReason:
        PARTITION_STOPPED.labels(_stem, _reason).set(0)


class EntryTotals(Collector):
    """Received, counted and refused entries of each partition, as Redis has them.

    A Redis that lost its tail has less until that was counted again. To Prometheus a counter that
    falls has begun anew, and all of it would look like new entries: while a partition is held, what
    was told is never taken back. What no replay brings back (it is gone from the log too) is made
    up for once all is counted (`settle`), or the counter would stand until it was reached again.
    """

    def __init__(self) -> None:
        self._stored: dict[tuple[Stem, int], Mapping[str, int]] = {}
        self._told: dict[tuple[Stem, int], Counts[str]] = {}
        self._lost: dict[tuple[Stem, int], Counts[str]] = {}

    def set(self, stem: Stem, partition: int, totals: Mapping[str, int]) -> None:
        of = stem, partition
        self._stored[of] = totals
        now = Counts(totals) + self._lost.get(of, Counts())
        self._told[of] = self._told.get(of, Counts()) | now  # The larger of each.

    def settle(self, stem: Stem, partition: int) -> None:
        """Redis has counted all there is: whatever it still lacks does not come back."""
        of = stem, partition
        if of in self._stored:
            self._lost[of] = self._told[of] - Counts(self._stored[of])

    def forget(self, stem: Stem, partition: int) -> None:
        """The partition is another worker's now, which tells its totals."""
        for held in (self._stored, self._told, self._lost):
            held.pop((stem, partition), None)

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
            for (of, partition), totals in sorted(self._told.items()):
                if of is stem:
                    received.add_metric([str(partition)], totals["received"])
                    counted.add_metric([str(partition)], totals["counted"])
                    for reason in Reason:
                        found = totals[f"refused:{reason}"]
                        refused.add_metric([str(partition), reason], found)
            yield from (received, counted, refused)


ENTRY_TOTALS = EntryTotals()
WORKER.register(ENTRY_TOTALS)


# --- the gateway ---------------------------------------------------------------------------------

GATEWAY = process_registry()
GATEWAY_FRAMES = Counter(
    "blender_gateway_frames", "Frames acknowledged by Kafka.", registry=GATEWAY
)
GATEWAY_FRAME_BYTES = Histogram(
    "blender_gateway_frame_bytes",
    "Size of acknowledged frames.",
    buckets=(256, 1024, 4096, 16_384, 65_536, 262_144),
    registry=GATEWAY,
)
GATEWAY_FRAME_ENTRIES = Histogram(
    "blender_gateway_frame_entries",
    "Entries in acknowledged frames.",
    buckets=(1, 10, 100, 1_000, 10_000),
    registry=GATEWAY,
)
GATEWAY_LATE_FRAMES = Counter(
    "blender_gateway_late_frames",
    "Frames that Kafka did not acknowledge within the deadline.",
    registry=GATEWAY,
)
GATEWAY_HELD_BYTES = Gauge(
    "blender_gateway_held_bytes", "Bytes of entries waiting for Kafka.", registry=GATEWAY
)
GATEWAY_STALLED_PARTITIONS = Gauge(
    "blender_gateway_stalled_partitions",
    "Partitions that owe an overdue acknowledgement; their entries are answered 503.",
    registry=GATEWAY,
)
GATEWAY_IN_FLIGHT = Gauge(
    "blender_gateway_requests_in_flight", "Requests being answered.", registry=GATEWAY
)
GATEWAY_CONNECTIONS = Gauge(
    "blender_gateway_connections", "Open HTTP connections.", registry=GATEWAY
)
GATEWAY_LOOP_LAG = Histogram(
    "blender_gateway_loop_lag_seconds",
    "How late a timer rang that is set twenty times a second: for so long nobody was served.",
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
    registry=GATEWAY,
)
GATEWAY_CLOCK_SKEW_SECONDS = Gauge(
    "blender_gateway_clock_skew_seconds",
    "How far this clock is ahead of the brokers' at least; below 0 when it is behind.",
    registry=GATEWAY,
)
GATEWAY_CLOCK_SKEW_LIMIT = Gauge(
    "blender_gateway_clock_skew_limit_seconds",
    "Beyond this skew the gateway takes no submissions.",
    registry=GATEWAY,
)
GATEWAY_TOKENS_STALE = Gauge(
    "blender_gateway_tokens_stale",
    "1 while the token file cannot be read and the tokens of before hold.",
    registry=GATEWAY,
)
GATEWAY_READY = Gauge(
    "blender_gateway_ready", "1 while submissions can be taken.", registry=GATEWAY
)


class RouteTotals:
    """Requests to one route. Plain numbers: a gateway counts on the path of every request."""

    __slots__ = ("_by_status", "_seconds", "_slots")

    def __init__(self, statuses: Iterable[int] = ()) -> None:
        self._by_status: dict[int, int] = dict.fromkeys(statuses, 0)
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

    def route(self, method: str, path: str, statuses: Iterable[int] = ()) -> RouteTotals:
        """Where requests to one route are counted; the statuses it is known to answer are 0.

        Any route may fail, and its first 500 must show as a rise.
        """
        return self._routes.setdefault((method, path), RouteTotals((*statuses, 500)))

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
GATEWAY.register(GATEWAY_TOTALS)
