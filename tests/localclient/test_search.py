"""Local search and trends from a publication, without a network."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from blendstream.blender.values.errors import ParameterError
from blendstream.localclient import PublishedResult, RankedQuery, RankedUrl
from blendstream.streams.wire.head_list_document import MalformedDocument
from tests.localclient.publications import over_time, publication


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
