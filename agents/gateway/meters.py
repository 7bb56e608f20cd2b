"""What the gateway counts on the path of every request, resolved to its labels once.

Looking a label up costs more than counting, so each route and each kind of verdict keeps its own
counter at hand. The metrics themselves are declared in `streams.metrics`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from agents.gateway.verdicts import Reason, Verdict
from streams import metrics

__all__ = ["CLIENT_REPORTS", "OPTIN_RECORDS", "OTHER_ROUTES", "EntryMeter", "RouteMeter"]

_ACCEPTED = "accepted"


class RouteMeter:
    """Requests to one route by status, and how long they took."""

    __slots__ = ("_by_status", "_labels", "_seconds")

    def __init__(self, method: str, path: str) -> None:
        self._labels = (method, path)
        self._seconds = metrics.GATEWAY_REQUEST_SECONDS.labels(method, path)
        self._by_status = {200: metrics.GATEWAY_REQUESTS.labels(method, path, 200)}

    def answered(self, status: int, seconds: float) -> None:
        """Count one answer."""
        counter = self._by_status.get(status)
        if counter is None:
            counter = metrics.GATEWAY_REQUESTS.labels(*self._labels, status)
            self._by_status[status] = counter
        counter.inc()
        self._seconds.observe(seconds)


class EntryMeter:
    """Entries of one kind by verdict."""

    __slots__ = ("_accepted", "_by_reason")

    def __init__(self, stem: str) -> None:
        self._accepted = metrics.GATEWAY_ENTRIES.labels(stem, _ACCEPTED)
        self._by_reason = {
            reason: metrics.GATEWAY_ENTRIES.labels(stem, reason.value) for reason in Reason
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
