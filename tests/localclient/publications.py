"""Publications for devices to search in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from blendstream.streams.wire.estimates_document import (
    EstimatedCell,
    EstimatedQuery,
    EstimatedShare,
    EstimatesDocument,
    FilteredQuery,
    FilteredRecord,
    FilteredStatement,
    Participants,
    PublishedAgreement,
)


def figure(p: float | None) -> EstimatedShare:
    return (
        EstimatedShare(None, None, None, None)
        if p is None
        else EstimatedShare(p, 1e-6, round(p - 0.01, 4), round(p + 0.01, 4))
    )


def cell(query: str | None, url: str | None, blend: float | None, client: float) -> EstimatedCell:
    return EstimatedCell(query, url, None, figure(client), figure(blend), 0.5, blend)


def publication(prefer: str = "blend", **changes: Any) -> EstimatesDocument:
    fields: dict[str, Any] = {
        "epoch": 12,
        "window_start_s": 0,
        "window_end_s": 10,
        "reports_until_s": 20,
        "outcome": "complete",
        "reasons": (),
        "head_list_id": "ab" * 32,
        "parameters": {},
        "mechanisms": {},
        "participants": Participants(1, 2, 3),
        "records": (
            cell("weather", "https://rain.example/", 0.10, 0.30),
            cell("weather", "https://sun.example/", 0.25, 0.20),
            cell("weather", "https://also-rain.example/", 0.10, 0.05),
            cell("weather", "https://unknown.example/", None, 0.01),
            cell("news", "https://news.example/", -0.01, 0.02),
            cell("weather", None, 0.05, 0.04),
            cell(None, None, 0.50, 0.40),
        ),
        "queries": (
            EstimatedQuery("news", None, figure(0.02), figure(-0.01), 0.5),
            EstimatedQuery("weather", None, figure(0.5), figure(0.35), 0.5),
        ),
        "agreement": PublishedAgreement(1.0, 0.5, prefer == "blend", prefer),
        "privacy": {},
        "versions": {},
        "quantity": "Shares of people.",
    }
    return EstimatesDocument(**{**fields, **changes})


def over_time(*, disputed: str | None = None) -> EstimatesDocument:
    """Earlier publications know better which URL is first, and of one that is not listed now."""
    document = publication()
    later = {"https://rain.example/": 0.22, "https://sun.example/": 0.21}
    return replace(
        document,
        records=tuple(
            replace(r, filtered=figure(later.get(r.url or "")), disputed=r.url == disputed)
            for r in document.records
        ),
        queries=tuple(replace(q, filtered=figure(0.44)) for q in document.queries),
        filtered=FilteredStatement(
            since_epoch=0,
            epochs=12,
            between_groups=0.0,
            statement="all publications together",
            unlisted=(FilteredRecord("weather", "https://fog.example/", figure(0.05)),),
            unlisted_queries=(FilteredQuery("newt", figure(0.06)),),
        ),
    )
