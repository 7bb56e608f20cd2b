"""A publication, and what is found in it; publications to refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from blendstream.blender.values.errors import BlenderError
from blendstream.localclient import PublishedResult
from blendstream.localclient.search import RankedQuery, RankedUrl
from blendstream.streams.wire.canonical_json import canonical_json
from blendstream.streams.wire.estimates_document import (
    DisputedRecords,
    EstimatedCell,
    EstimatedQuery,
    EstimatedShare,
    EstimatesDocument,
    FilteredQuery,
    FilteredRecord,
    FilteredStatement,
    Participants,
    PublishedAgreement,
    PublishedDifference,
)


def figure(probability: float | None) -> EstimatedShare:
    low, high = (None, None) if probability is None else (probability / 2, probability * 1.5)
    return EstimatedShare(probability, 1e-6, low, high)


def cell(
    query: str | None, url: str | None, blend: float | None, client: float | None = 0.1
) -> Any:
    return EstimatedCell(query, url, None, figure(client), figure(blend), 0.5, blend)


def publication(prefer: str | None = "blend") -> EstimatesDocument:
    records = (
        cell("weather", "https://weather.example/", 0.2, 0.01),
        cell("weather", "https://rain.example/", 0.3, 0.02),
        cell("weather", "https://a.example/", 0.2, 0.03),
        cell("weather today", "https://weather.example/", 0.05),
        cell("weatherman", "https://w.example/", 0.01),
        cell("zürich", "https://\U0001f600.example/", 0.01),
        cell("zürich", "https://\uffee.example/", 0.01),
        cell("strasse", "https://s.example/", -0.001),
        cell("unknown", "https://u.example/", None),
        cell("weather", None, 0.02),
        cell(None, None, 0.1),
    )
    totals = {
        "weather": (0.7, 0.06), "weather today": (0.05, 0.1), "weatherman": (0.05, 0.2),
        "zürich": (0.02, 0.0), "strasse": (-0.001, 0.3), "unknown": (None, None),
        "\U0001f600": (0.02, 0.0), "\uffee": (0.02, 0.0),
    }  # fmt: skip
    queries = tuple(
        EstimatedQuery(query, None, figure(client), figure(blend), 0.5)
        for query, (blend, client) in totals.items()
    )
    return EstimatesDocument(
        epoch=41,
        window_start_s=0,
        window_end_s=86_400,
        reports_until_s=172_800,
        outcome="complete",
        reasons=(),
        head_list_id="ab" * 32,
        parameters={},
        mechanisms={},
        participants=Participants(1, 1, 1),
        records=records,
        queries=queries,
        agreement=None if prefer is None else PublishedAgreement(0.1, 0.9, True, prefer),
        privacy={},
        versions={},
        quantity="Shares of people.",
    )


def disputed() -> EstimatesDocument:
    """The same, had a record of one query stood out."""
    document = publication()
    url = "https://rain.example/"
    return replace(
        document,
        difference=PublishedDifference(0.18, 0.15, 0.22, 1.02, 0.18, "About 18 %."),
        disputed=DisputedRecords(1, "optin", "Opt-in users are authenticated."),
        records=tuple(replace(row, disputed=row.url == url) for row in document.records),
        queries=tuple(replace(row, disputed=row.query == "weather") for row in document.queries),
    )


def over_time(prefer: str | None = None) -> EstimatesDocument:
    """The same, had earlier publications changed the order; one row is disputed, one is not told
    of, and two records are not listed any more."""
    document = disputed()
    return replace(
        document,
        agreement=None if prefer is None else PublishedAgreement(0.1, 0.9, True, prefer),
        records=tuple(
            row
            if row.url is None or row.query == "strasse"
            else replace(row, filtered=figure(0.4 / (number + 1)))
            for number, row in enumerate(reversed(document.records))
        ),
        queries=tuple(
            replace(row, filtered=figure(None if row.query == "strasse" else 0.01 * number))
            for number, row in enumerate(document.queries)
        ),
        filtered=FilteredStatement(
            since_epoch=16,
            epochs=26,
            between_groups=0.1,
            statement="What all publications together say.",
            unlisted=(
                FilteredRecord("weather", "https://old.example/", figure(0.26)),
                FilteredRecord("forgotten", "https://old.example/", figure(0.001)),
            ),
            unlisted_queries=(FilteredQuery("weather long ago", figure(0.065)),),
        ),
    )


def without_rows() -> EstimatesDocument:
    """An epoch without results: too few people took part."""
    reasons = ("too_few_optin_users",)
    changes = {"outcome": "empty", "reasons": reasons, "head_list_id": None}
    return replace(publication(None), records=(), queries=(), **changes)


def without_figures() -> EstimatesDocument:
    """Rows of which nothing is known."""
    document = publication()
    return replace(
        document,
        records=tuple(replace(row, blend=figure(None)) for row in document.records),
        queries=tuple(replace(row, blend=figure(None)) for row in document.queries),
    )


def with_more_keys(document: EstimatesDocument) -> bytes:
    """As a later release may write it."""
    body = json.loads(document.to_bytes())
    for place in (body, *body["records"], *body["queries"], body["records"][0]["blend"]):
        place["later"] = {"more": 1}
    return canonical_json(body)


SEARCHES = [
    *(
        "weather",
        " WEATHER ",
        "Weather  Today",
        "ZU\u0308RICH",
        "stra\u00dfe",
        "unknown",
        "nothing",
    ),
    *("", "\x00", "weathe", "__proto__", "\ud800", "forgotten"),
]
PREFIXES = [
    *("", " ", "w", "WEATHER", "weather ", "weather\u3000", "weathert", "weather t", "zu\u0308"),
    *("STRASS", "stra\u00df", "x", "\x00", "\U0001f600", "w" * 300, "\udfff"),
]


def vectors() -> dict[str, object]:
    """The contents of search.json."""
    return {
        "about": "Publications and what is found in them: search (query, the URLs with their "
        "probability, low, high, whether they are disputed and which estimate it is), complete "
        "(prefix, the queries), trends(3), which also say whether the share is at least that; "
        "`own`: what this epoch says by itself; `empty`: it has no row to show and replaces no "
        "other publication. Text that stands for no record finds nothing. Then publications to "
        "refuse.",
        "publications": [
            *(found(publication(prefer).to_bytes()) for prefer in ("blend", "client", None)),
            found(disputed().to_bytes()),
            found(with_more_keys(disputed())),
            found(over_time().to_bytes()),
            found(replace(publication(), queries_at_least=False).to_bytes()),
            found(with_more_keys(over_time("client"))),
            found(without_rows().to_bytes()),
            found(without_figures().to_bytes()),
        ],
        "refused": [{"name": name, "text": text} for name, text in refused()],
    }


def found(data: bytes) -> dict[str, object]:
    result, own = PublishedResult.load(data), PublishedResult.load(data, filtered=False)

    def urls(query: str) -> list[list[Any]]:
        return [[r.url, *figures(r)] for r in result.search(query)]

    def queries(prefix: str) -> list[str]:
        return [r.query for r in result.complete(prefix)]

    return {
        "text": data.decode(),
        "read": result.read,
        "epoch": result.epoch,
        "empty": result.empty,
        "search": [[query, urls(query)] for query in SEARCHES],
        "complete": [[prefix, queries(prefix)] for prefix in PREFIXES],
        "trends": [[r.query, *figures(r)] for r in result.trends(3)],
        "own": {"read": own.read, "trends": [[r.query, *figures(r)] for r in own.trends(3)]},
    }


def figures(row: RankedUrl | RankedQuery) -> list[Any]:
    same = [row.probability, row.low, row.high, row.disputed, row.estimate]
    return [*same, row.at_least] if isinstance(row, RankedQuery) else same


def refused() -> list[tuple[str, str]]:
    def changed(*path: Any) -> str:
        *way, last, value = path
        body = place = json.loads(publication().to_bytes())
        for step in way:
            place = place[step]
        place[last] = value
        return json.dumps(body)

    cases = [
        ("nothing", ""),
        ("a list", "[]"),
        ("null", "null"),
        ("an older schema", changed("schema", "blendstream/estimates/1")),
        ("a newer schema", changed("schema", "blendstream/estimates/3")),
        ("a list for the schema", changed("schema", ["blendstream/estimates/2"])),
        ("an epoch below 0", changed("epoch", -1)),
        ("an epoch that is no whole number", changed("epoch", 1.5)),
        ("an epoch above 2^53 - 1", changed("epoch", 2**53)),
        ("neither blend nor client preferred", changed("agreement", "prefer", "optin")),
        ("text for a probability", changed("records", 0, "blend", "probability", "0.1")),
        ("a probability without an interval", changed("records", 0, "blend", "low", None)),
        ("a probability beyond bounds", changed("records", 0, "blend", "probability", 1e300)),
        ("a figure without its variance", changed("records", 0, "optin", {"probability": 0.1})),
        ("a number for a record", changed("records", 0, 1)),
        ("text for a query", changed("queries", 0, "weather")),
        ("a list for a figure", changed("queries", 0, "client", [])),
        ("a number for records", changed("records", 1)),
        ("null for records", changed("records", None)),
        ("a number for a filtered estimate", changed("records", 0, "filtered", 1)),
        ("a filtered estimate without a list of the others", changed("filtered", {})),
        ("a filtered estimate without queries", changed("filtered", {"unlisted": []})),
    ]
    for name, text in cases:
        try:
            PublishedResult.load(text.encode())
        except BlenderError:
            continue
        raise AssertionError(f"Python accepts: {name}")
    return cases
