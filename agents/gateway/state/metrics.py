"""The gateway's Prometheus metrics, declared once.

What is counted on the path of every request is plain numbers, collected when they are asked for.
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
    "Partitions with an overdue acknowledgement; their entries are answered 503.",
)
GATEWAY_IN_FLIGHT = _meters.gauge("blender_gateway_requests_in_flight", "Requests being answered.")
GATEWAY_LOOP_LAG = _meters.histogram(
    "blender_gateway_loop_lag_seconds",
    "How late a timer rang that is set twenty times a second: no request was served meanwhile.",
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
GATEWAY_CLOCK_SKEW_SECONDS = _meters.gauge(
    "blender_gateway_clock_skew_seconds",
    "How far this clock is ahead of the brokers' at least; below 0 when it is behind.",
)
GATEWAY_CLOCK_SKEW_LIMIT = _meters.gauge(
    "blender_gateway_clock_skew_limit_seconds",
    "Beyond this skew the gateway accepts no submissions.",
)
GATEWAY_TOKENS_STALE = _meters.gauge(
    "blender_gateway_tokens_stale",
    "1 while the token file cannot be read and the tokens read before are used.",
)
GATEWAY_READY = _meters.gauge("blender_gateway_ready", "1 while submissions are accepted.")


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
        self._verdicts: dict[InputStream, dict[str, int]] = {}

    def route(self, method: str, path: str, statuses: Iterable[int] = ()) -> RouteTotals:
        """Where requests to one route are counted; the statuses it is known to answer are 0.

        Any route may fail, and its first 500 must show as a rise.
        """
        return self._routes.setdefault((method, path), RouteTotals((*statuses, 500)))

    def verdicts(self, stem: InputStream, names: Iterable[str]) -> dict[str, int]:
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

_ACCEPTED = "accepted"


class EntryMeter:
    """Entries of one kind by verdict."""

    __slots__ = ("_totals",)

    def __init__(self, stem: InputStream) -> None:
        self._totals = GATEWAY_TOTALS.verdicts(stem, [_ACCEPTED, *Reason])

    def judged(self, verdicts: Sequence[Verdict]) -> None:
        totals = self._totals
        accepted = verdicts.count(ACCEPTED)
        totals[_ACCEPTED] += accepted
        if accepted < len(verdicts):
            for verdict in verdicts:
                if verdict.reason is not None:
                    totals[verdict.reason] += 1


#: Addresses that are none of the API's: their paths, which callers invent, are not labels.
OTHER_ROUTES = GATEWAY_TOTALS.route("any", "other", (200, 404))
CLIENT_REPORTS = EntryMeter(InputStream.CLIENT_REPORTS)
OPTIN_RECORDS = EntryMeter(InputStream.OPTIN_RECORDS)
