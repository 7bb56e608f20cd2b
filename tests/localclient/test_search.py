"""Local search and trends from a publication, without a network."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from blendstream.blender.values.errors import ParameterError
from blendstream.localclient import PublishedResult, RankedQuery, RankedUrl
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
from blendstream.streams.wire.head_list_document import MalformedDocument


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
    }
    return EstimatesDocument(**{**fields, **changes})


def test_search_ranks_urls_by_probability_and_shows_their_intervals() -> None:
    result = PublishedResult.load(publication().to_bytes())
    assert result.search("  WEATHER ") == [
        RankedUrl("https://sun.example/", 0.25, 0.24, 0.26),
        RankedUrl("https://also-rain.example/", 0.10, 0.09, 0.11),
        RankedUrl("https://rain.example/", 0.10, 0.09, 0.11),
    ]
    assert [found.url for found in result.search("weather", limit=1)] == ["https://sun.example/"]
    assert result.search("never published") == []


def test_where_the_groups_disagree_the_publications_advice_is_followed() -> None:
    result = PublishedResult.load(publication("client").to_bytes())
    assert result.read == "client"
    assert result.search("weather")[0].url == "https://rain.example/"


def test_trends_are_the_queries_searched_for_most() -> None:
    result = PublishedResult.load(publication().to_bytes())
    assert result.trends(1) == [RankedQuery("weather", 0.35, 0.34, 0.36)]
    assert [found.query for found in result.trends(10)] == ["weather", "news"]
    with pytest.raises(ParameterError, match="n must be at least 0"):
        result.trends(-1)


def test_what_the_groups_dispute_is_marked() -> None:
    """An application that shows the number must be able to say so; here that is one of them."""
    document = publication()
    marked = publication(
        records=tuple(
            replace(r, disputed=r.url == "https://sun.example/") for r in document.records
        ),
        queries=tuple(replace(q, disputed=q.query == "weather") for q in document.queries),
    )
    result = PublishedResult.load(marked.to_bytes())
    assert [found.disputed for found in result.search("weather")] == [True, False, False]
    assert [found.disputed for found in result.trends(2)] == [True, False]
    assert [found.disputed for found in result.complete("n")] == [False]


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


def test_search_ranks_by_the_filtered_estimate_and_each_row_says_so() -> None:
    """It is closer to the truth; and who shows the number must be able to say which one it is."""
    result = PublishedResult.load(over_time().to_bytes())
    assert result.read == "filtered"
    assert [
        (found.url, found.probability, found.estimate) for found in result.search("weather")
    ] == [
        ("https://rain.example/", 0.22, "filtered"),
        ("https://sun.example/", 0.21, "filtered"),
        ("https://also-rain.example/", 0.10, "blend"),  # earlier publications say nothing of it
        ("https://fog.example/", 0.05, "filtered"),  # not listed in this epoch
    ]
    assert result.trends(2)[0] == RankedQuery("news", 0.44, 0.43, 0.45, estimate="filtered")


def test_queries_without_a_listed_url_are_found_too() -> None:
    """Their URLs were found by search, and they themselves by nothing."""
    result = PublishedResult.load(over_time().to_bytes())
    assert [found.query for found in result.complete("ne")] == ["news", "newt"]
    assert [found.query for found in result.trends(9)] == ["news", "weather", "newt"]


def test_a_share_that_leaves_out_unknown_urls_is_at_least_that() -> None:
    for at_least in (True, False):
        document = replace(over_time(), queries_at_least=at_least)
        result = PublishedResult.load(document.to_bytes())
        assert {found.at_least for found in result.trends(9)} == {at_least}


def test_an_epoch_by_itself_can_be_asked_for() -> None:
    result = PublishedResult.load(over_time().to_bytes(), filtered=False)
    assert result == PublishedResult.load(publication().to_bytes())
    assert result.read == "blend"
    assert {found.estimate for found in result.search("weather")} == {"blend"}


def test_a_disputed_row_shows_its_own_epoch() -> None:
    """Its own interval spans both groups'; the filtered one knows of no dispute."""
    found = PublishedResult.load(over_time(disputed="https://rain.example/").to_bytes())
    last = next(row for row in found.search("weather") if row.url == "https://rain.example/")
    assert last == RankedUrl("https://rain.example/", 0.10, 0.09, 0.11, True, "blend")


def test_an_empty_publication_has_nothing_to_find() -> None:
    empty = publication(outcome="empty", records=(), queries=(), agreement=None)
    result = PublishedResult.load(empty.to_bytes())
    assert result.search("weather") == []
    assert result.trends(5) == []
    assert result.empty, "so that an application keeps the publication it has"
    assert not PublishedResult.load(publication().to_bytes()).empty


def test_searching_opens_no_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a person looks for here is nobody's business."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    path = tmp_path / "estimates.json"
    path.write_bytes(publication().to_bytes())
    assert PublishedResult.load(path).search("weather")
    assert PublishedResult.load(str(path)).trends(3)


def test_a_file_that_is_no_publication_is_refused() -> None:
    good = json.loads(publication().to_bytes())
    row = {**good["records"][0], "blend": {**good["records"][0]["blend"], "low": "0.1"}}
    for broken in (
        b"",
        b"{}",
        b"[" * 50_000,
        json.dumps({**good, "schema": "blendstream/estimates/3"}).encode(),
        json.dumps({**good, "records": [row]}).encode(),
        json.dumps({**good, "agreement": {**good["agreement"], "prefer": "mine"}}).encode(),
        json.dumps({**good, "records": [{"query": "weather"}]}).encode(),
    ):
        with pytest.raises(MalformedDocument) as refused:
            PublishedResult.load(broken)
        assert "weather" not in str(refused.value)
