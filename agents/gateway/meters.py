"""What the gateway counts on the path of every request; exported by `streams.metrics`."""

from __future__ import annotations

from collections.abc import Sequence

from agents.gateway.verdicts import ACCEPTED, Reason, Verdict
from streams.epochs import Stem
from streams.metrics import GATEWAY_TOTALS

__all__ = ["CLIENT_REPORTS", "OPTIN_RECORDS", "OTHER_ROUTES", "EntryMeter"]

_ACCEPTED = "accepted"


class EntryMeter:
    """Entries of one kind by verdict."""

    __slots__ = ("_totals",)

    def __init__(self, stem: Stem) -> None:
        self._totals = GATEWAY_TOTALS.verdicts(stem, [_ACCEPTED, *Reason])

    def judged(self, verdicts: Sequence[Verdict]) -> None:
        """Count entries."""
        totals = self._totals
        accepted = verdicts.count(ACCEPTED)
        totals[_ACCEPTED] += accepted
        if accepted < len(verdicts):
            for verdict in verdicts:
                if verdict.reason is not None:
                    totals[verdict.reason] += 1


#: Addresses that are none of the API's: their paths are not labels, since anybody invents them.
OTHER_ROUTES = GATEWAY_TOTALS.route("any", "other", (200, 404))
CLIENT_REPORTS = EntryMeter(Stem.CLIENT_REPORTS)
OPTIN_RECORDS = EntryMeter(Stem.OPTIN_RECORDS)
