"""What the gateway counts on the path of every request, resolved to its labels once.

Looking a label up costs more than counting, so each route and each kind of verdict keeps its own
counter at hand. The metrics themselves are declared in `streams.metrics`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from agents.gateway.verdicts import Reason, Verdict
from prometheus_client import Counter as PrometheusCounter, Histogram

__all__ = ["CLIENT_REPORTS", "OPTIN_RECORDS", "OTHER_ROUTES", "EntryMeter", "RouteMeter"]

_ACCEPTED = "accepted"

GATEWAY_REQUESTS = PrometheusCounter("blender_gateway_requests", "x", ["method", "path", "status"])
GATEWAY_REQUEST_SECONDS = Histogram("blender_gateway_request_seconds", "x", ["method", "path"], buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10))
GATEWAY_ENTRIES = PrometheusCounter("blender_gateway_entries", "x", ["stem", "verdict"])


class RouteMeter:
    """Requests to one route by status, and how long they took."""

    __slots__ = ("_by_status", "_labels", "_seconds")

    def __init__(self, method: str, path: str) -> None:
        self._labels = (method, path)
        self._seconds = GATEWAY_REQUEST_SECONDS.labels(method, path)
        self._by_status = {200: GATEWAY_REQUESTS.labels(method, path, 200)}

    def answered(self, status: int, seconds: float) -> None:
        """Count one answer."""
        counter = self._by_status.get(status)
        if counter is None:
            counter = GATEWAY_REQUESTS.labels(*self._labels, status)
            self._by_status[status] = counter
        counter.inc()
        self._seconds.observe(seconds)


class EntryMeter:
    """Entries of one kind by verdict."""

    __slots__ = ("_accepted", "_by_reason")

    def __init__(self, stem: str) -> None:
        self._accepted = GATEWAY_ENTRIES.labels(stem, _ACCEPTED)
        self._by_reason = {
            reason: GATEWAY_ENTRIES.labels(stem, reason.value) for reason in Reason
        }

    def judged(self, verdict: Verdict) -> None:
        """Count one entry."""
        reason = verdict.reason
        (self._accepted if reason is None else self._by_reason[reason]).inc()

    def judged_all(self, verdicts: Iterable[Verdict]) -> None:
        """Count a batch of entries."""
        for reason, entries in Counter(verdict.reason for verdict in verdicts).items():
            (self._accepted if reason is None else self._by_reason[reason]).inc(entries)


#: Addresses that are none of the API's: their paths are not labels, since anybody invents them.
OTHER_ROUTES = RouteMeter("any", "other")
CLIENT_REPORTS = EntryMeter("client_reports")
OPTIN_RECORDS = EntryMeter("optin_records")
