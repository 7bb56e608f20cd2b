"""The gateway's Prometheus metrics.

Hot-path counters are plain integers; `collect` exports them on each scrape.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from blendstream.agents.gateway.state.verdicts import ACCEPTED, Reason, Verdict
from blendstream.streams.names import InputStream
from blendstream.streams.telemetry.metrics import Meters, process_registry

__all__ = [
    "CLIENT_REPORTS",
    "GATEWAY",
    "GATEWAY_BUFFERED_BYTES",
    "GATEWAY_CLOCK_SKEW_LIMIT",
    "GATEWAY_CLOCK_SKEW_SECONDS",
    "GATEWAY_FRAMES",
    "GATEWAY_FRAME_BYTES",
    "GATEWAY_FRAME_ENTRIES",
    "GATEWAY_IN_FLIGHT",
    "GATEWAY_LATE_FRAMES",
    "GATEWAY_LOOP_LAG",
    "GATEWAY_READY",
    "GATEWAY_STALLED_PARTITIONS",
    "GATEWAY_TOKENS_STALE",
    "GATEWAY_TOTALS",
    "OPTIN_RECORDS",
    "OTHER_ROUTES",
    "EntryMeter",
    "GatewayTotals",
    "RouteTotals",
]

_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)
GATEWAY = process_registry()
_meters = Meters(GATEWAY)

GATEWAY_FRAMES = _meters.counter("blender_gateway_frames", "Frames acknowledged by Kafka.")
GATEWAY_FRAME_BYTES = _meters.histogram(
    "blender_gateway_frame_bytes",
    "Size of acknowledged frames.",
    buckets=(256, 1024, 4096, 16_384, 65_536, 262_144),
)
GATEWAY_FRAME_ENTRIES = _meters.histogram(
    "blender_gateway_frame_entries",
    "Entries in acknowledged frames.",
    buckets=(1, 10, 100, 1_000, 10_000),
)
GATEWAY_LATE_FRAMES = _meters.counter(
    "blender_gateway_late_frames", "Frames that Kafka did not acknowledge within the deadline."
)
GATEWAY_BUFFERED_BYTES = _meters.gauge(
    "blender_gateway_buffered_bytes", "Bytes of entries waiting for Kafka."
)
GATEWAY_STALLED_PARTITIONS = _meters.gauge(
    "blender_gateway_stalled_partitions",
    "Partitions with an overdue acknowledgement; the gateway responds with 503 to their entries.",
)
GATEWAY_IN_FLIGHT = _meters.gauge("blender_gateway_requests_in_flight", "Requests in flight.")
GATEWAY_LOOP_LAG = _meters.histogram(
    "blender_gateway_loop_lag_seconds",
    "Delay of a timer that fires 20 times per second: no request was served during the delay.",
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
GATEWAY_CLOCK_SKEW_SECONDS = _meters.gauge(
    "blender_gateway_clock_skew_seconds",
    "Lower bound on this clock's offset to the brokers'; positive when this clock is ahead.",
)
GATEWAY_CLOCK_SKEW_LIMIT = _meters.gauge(
    "blender_gateway_clock_skew_limit_seconds",
    "Beyond this skew the gateway accepts no submissions.",
)
GATEWAY_TOKENS_STALE = _meters.gauge(
    "blender_gateway_tokens_stale",
    "1 while the token file cannot be read and the gateway uses the tokens it read before.",
)
GATEWAY_READY = _meters.gauge("blender_gateway_ready", "1 while submissions are accepted.")


class RouteTotals:
    """Counts of one route's requests, by status and by duration."""

    __slots__ = ("_by_status", "_seconds", "_slots")

    def __init__(self, statuses: Iterable[int] = ()) -> None:
        self._by_status: dict[int, int] = dict.fromkeys(statuses, 0)
        self._slots = [0] * (len(_SECONDS) + 1)
        self._seconds = 0.0

    def count(self, status: int, seconds: float) -> None:
        """Count one response."""
        self._by_status[status] = self._by_status.get(status, 0) + 1
        self._slots[bisect_left(_SECONDS, seconds)] += 1
        self._seconds += seconds

    def statuses(self) -> Mapping[int, int]:
        """Return the number of responses by status."""
        return self._by_status

    def histogram(self) -> tuple[list[tuple[str, float]], float]:
        """Return cumulative buckets by upper bound, and the sum of seconds."""
        bounds = [*(str(float(bound)) for bound in _SECONDS), "+Inf"]
        return list(zip(bounds, accumulate(self._slots), strict=True)), self._seconds


class GatewayTotals(Collector):
    """Collector of a gateway's responses, by route and status, and of its verdicts on entries."""

    def __init__(self) -> None:
        self._routes: dict[tuple[str, str], RouteTotals] = {}
        self._verdicts: dict[InputStream, dict[str, int]] = {}

    def route(self, method: str, path: str, statuses: Iterable[int] = ()) -> RouteTotals:
        """Return the totals of one route, with `statuses` and 500 set to zero.

        Every route may fail, and its first 500 must appear as an increase.
        """
        return self._routes.setdefault((method, path), RouteTotals((*statuses, 500)))

    def verdicts(self, stem: InputStream, names: Iterable[str]) -> dict[str, int]:
        """Return the counts of verdicts on one kind of entry, all of them zero at first."""
        return self._verdicts.setdefault(stem, dict.fromkeys(names, 0))

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics of all routes and verdicts; called by each scrape."""
        requests = CounterMetricFamily(
            "blender_gateway_requests",
            "HTTP responses, by status.",
            labels=["method", "path", "status"],
        )
        seconds = HistogramMetricFamily(
            "blender_gateway_request_seconds",
            "From a request's headers to its response, acknowledgement by Kafka included.",
            labels=["method", "path"],
        )
        entries = CounterMetricFamily(
            "blender_gateway_entries", "Entries submitted, by verdict.", labels=["stem", "verdict"]
        )
        for (method, path), totals in self._routes.items():
            for status, answered in sorted(totals.statuses().items()):
                requests.add_metric([method, path, str(status)], answered)
            buckets, total = totals.histogram()
            seconds.add_metric([method, path], buckets, total)
        for stem, by_verdict in self._verdicts.items():
            for verdict, count in by_verdict.items():
                entries.add_metric([stem, verdict], count)
        yield from (requests, seconds, entries)


GATEWAY_TOTALS = GatewayTotals()
GATEWAY.register(GATEWAY_TOTALS)

_ACCEPTED = "accepted"


class EntryMeter:
    """Counts verdicts on entries of one kind."""

    __slots__ = ("_totals",)

    def __init__(self, stem: InputStream) -> None:
        self._totals = GATEWAY_TOTALS.verdicts(stem, [_ACCEPTED, *Reason])

    def count(self, verdicts: Sequence[Verdict]) -> None:
        """Count the verdicts of one request."""
        totals = self._totals
        accepted = verdicts.count(ACCEPTED)
        totals[_ACCEPTED] += accepted
        if accepted < len(verdicts):
            for verdict in verdicts:
                if verdict.reason is not None:
                    totals[verdict.reason] += 1


#: Requests outside the API: callers choose their paths, so these are not used as labels.
OTHER_ROUTES = GATEWAY_TOTALS.route("any", "other", (200, 404))
CLIENT_REPORTS = EntryMeter(InputStream.CLIENT_REPORTS)
OPTIN_RECORDS = EntryMeter(InputStream.OPTIN_RECORDS)
