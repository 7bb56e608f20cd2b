"""The gateway's Prometheus metrics, declared once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from agents.gateway.submit.verdicts import ACCEPTED, Reason, Verdict
from streams.stems import Stem
from streams.telemetry.metrics import Meters, process_registry

__all__ = [
    "CLIENT_REPORTS",
    "GATEWAY",
    "GATEWAY_CLOCK_SKEW_LIMIT",
    "GATEWAY_CLOCK_SKEW_SECONDS",
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
    "OPTIN_RECORDS",
    "OTHER_ROUTES",
    "EntryMeter",
    "RouteMeter",
]

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
GATEWAY_HELD_BYTES = _meters.gauge(
    "blender_gateway_held_bytes", "Bytes of entries waiting for Kafka."
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


_REQUESTS = _meters.counter(
    "blender_gateway_requests", "HTTP requests answered.", method=(), path=(), status=()
)
_REQUEST_SECONDS = _meters.histogram(
    "blender_gateway_request_seconds",
    "From a request's head to its answer, acknowledgement by Kafka included.",
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
    method=(),
    path=(),
)
_ACCEPTED = "accepted"
_ENTRIES = _meters.counter(
    "blender_gateway_entries",
    "Entries judged, by verdict.",
    stem=(Stem.CLIENT_REPORTS, Stem.OPTIN_RECORDS),
    verdict=(_ACCEPTED, *Reason),
)


class RouteMeter:
    """Requests to one route. The statuses that it is known to answer begin at zero.

    Any route may fail, and its first 500 must show as a rise.
    """

    __slots__ = ("_by_status", "_labels", "_seconds")

    def __init__(self, method: str, path: str, statuses: Iterable[int] = ()) -> None:
        self._labels = method, path
        self._by_status = {s: _REQUESTS.labels(method, path, s) for s in (*statuses, 500)}
        self._seconds = _REQUEST_SECONDS.labels(method, path)

    def answered(self, status: int, seconds: float) -> None:
        if status not in self._by_status:
            self._by_status[status] = _REQUESTS.labels(*self._labels, status)
        self._by_status[status].inc()
        self._seconds.observe(seconds)


class EntryMeter:
    """Entries of one kind by verdict."""

    __slots__ = ("_by_verdict",)

    def __init__(self, stem: Stem) -> None:
        self._by_verdict = {name: _ENTRIES.labels(stem, name) for name in (_ACCEPTED, *Reason)}

    def judged(self, verdicts: Sequence[Verdict]) -> None:
        accepted = verdicts.count(ACCEPTED)
        if accepted:
            self._by_verdict[_ACCEPTED].inc(accepted)
        if accepted < len(verdicts):
            reasons = Counter(v.reason for v in verdicts if v.reason is not None)
            for reason, judged in reasons.items():
                self._by_verdict[reason].inc(judged)


#: Addresses that are none of the API's: their paths, which callers invent, are not labels.
OTHER_ROUTES = RouteMeter("any", "other", (200, 404))
CLIENT_REPORTS = EntryMeter(Stem.CLIENT_REPORTS)
OPTIN_RECORDS = EntryMeter(Stem.OPTIN_RECORDS)
