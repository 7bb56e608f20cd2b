"""Many epochs in one small document: what it says, how it is paged, cached and bounded."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest

from blendstream.agents.gateway.state.publications import PublishedDocument
from tests.agents.gateway.doubles import TestGateway, make_gateway
from tests.browser.publications import (
    disputed,
    emptied,
    filtered,
    many,
    preferring_clients,
    publications,
    with_unlisted,
)


def serving(documents) -> TestGateway:
    gateway = make_gateway()
    gateway.publications.estimates = {
        d.epoch: PublishedDocument(d.epoch, f"{d.epoch:064x}", d.to_bytes()) for d in documents
    }
    return gateway


def close(short: float | None, number: float | None) -> bool:
    if short is None or number is None:
        return short is number
    return abs(short - number) <= 1e-4 * abs(number)


@pytest.mark.parametrize("table", ["queries", "records"])
@pytest.mark.parametrize("change", [lambda d: d, disputed, preferring_clients, emptied])
async def test_a_series_says_of_each_row_what_the_publication_says(table, change):
    """An analyst who reads one must not see other numbers in the other, but for the sixth digit."""
    document = filtered(change(publications()[-1]), 40)
    reply = await serving([document]).ask("GET", f"/v1/series?table={table}")
    (told,) = reply.json()["epochs"]
    published = json.loads(document.to_bytes())

    rows = published[table]
    prefer = "blend" if published["agreement"] is None else published["agreement"]["prefer"]
    assert told["preferred"] == prefer
    assert told["query"] == [row["query"] for row in rows]
    assert told.get("url") == ([row["url"] for row in rows] if table == "records" else None)
    assert told.get("disputed", []) == [i for i, row in enumerate(rows) if row["disputed"]]
    assert told.get("reasons", []) == published["reasons"]
    assert told["window_start_s"] == published["window_start_s"]
    for name, figure in {
        "share": "probability", "variance": "variance", "low": "low", "high": "high",
    }.items():  # fmt: skip
        for place, row in enumerate(rows):
            assert close(told[name][place], row[prefer][figure])
            both = told["filtered"][name][place], (row["filtered"] or {}).get(figure)
            assert close(*both)
    assert ("filtered" in told) == bool(rows)


@pytest.mark.parametrize("table", ["queries", "records"])
async def test_what_is_known_and_not_listed_is_in_tables_and_series_and_marked(table):
    """Before, search and history on the results page could not find it, nor could a data frame."""
    document = with_unlisted(publications()[-1], 40)
    gateway = serving([document])
    (told,) = (await gateway.ask("GET", f"/v1/series?table={table}")).json()["epochs"]
    answer = await gateway.ask("GET", f"/v1/estimates/latest?format=csv&table={table}")
    rows = list(csv.DictReader(io.StringIO(answer.body.decode())))

    assert document.filtered is not None
    first, *own = document.filtered.unlisted
    assert [row.query for row in own] == ["rarely asked"] * 2
    if table == "records":
        wanted = [(row.query, row.url, row.filtered.probability) for row in (first, *own)]
    else:  # The first one's query has a listed row, which it is summed into.
        (more,) = document.filtered.unlisted_queries
        wanted = [(more.query, None, more.filtered.probability)]
    listed = len(document.records if table == "records" else document.queries)
    assert told["listed"] == listed == len(rows) - len(wanted) == len(told["query"]) - len(wanted)
    assert [row["unlisted"] for row in rows] == ["false"] * listed + ["true"] * len(wanted)
    for (query, url, p), row, i in zip(wanted, rows[listed:], range(listed, 10**6), strict=False):
        assert (row["query"], row.get("url")) == (told["query"][i], url) == (query, url)
        assert url is None or told["url"][i] == url
        assert (row["share"], row["blend_probability"], row["preferred"]) == ("", "", "")
        assert told["share"][i] is told["high"][i] is None
        assert float(row["filtered_probability"]) == pytest.approx(p)
        assert told["filtered"]["share"][i] == pytest.approx(p, rel=1e-4)
        assert float(row["filtered_low"]) < p < float(row["filtered_high"])


@pytest.mark.parametrize("at_least", [True, False])
async def test_tables_and_series_of_queries_say_whether_a_share_is_at_least_that(at_least):
    """A share that leaves out unknown results must not be taken for all of a query's."""
    gateway = serving([replace(publications()[-1], queries_at_least=at_least)])
    (told,) = (await gateway.ask("GET", "/v1/series?table=queries")).json()["epochs"]
    answer = await gateway.ask("GET", "/v1/estimates/latest?format=csv&table=queries")
    rows = list(csv.DictReader(io.StringIO(answer.body.decode())))

    assert told.get("at_least", False) == at_least
    assert {row["at_least"] for row in rows} == {str(at_least).lower()}
    (told,) = (await gateway.ask("GET", "/v1/series?table=records")).json()["epochs"]
    assert "at_least" not in told, "a record's share is its own"


async def test_a_series_is_paged_newest_first_without_gaps():
    documents = publications()
    gateway, seen = serving(documents), []
    path = "/v1/series?limit=5&table=records"
    while path is not None:
        page = (await gateway.ask("GET", path)).json()
        assert (page["schema"], page["table"]) == ("blendstream/series/1", "records")
        seen += [told["epoch"] for told in page["epochs"]]
        path = page["next"]

    assert seen == [document.epoch for document in reversed(documents)]
    assert (await make_gateway().ask("GET", "/v1/series")).json()["epochs"] == []


async def test_a_page_ends_early_rather_than_grow_and_the_next_goes_on_there(monkeypatch):
    """A service with many thousand records must not answer with gigabytes."""
    monkeypatch.setattr("blendstream.agents.gateway.read.read_api._PAGE_BYTES", 5_000)
    documents = publications()
    gateway, seen, pages = serving(documents), [], 0
    path = "/v1/series?limit=12"
    while path is not None:
        reply = await gateway.ask("GET", path)
        page, pages = reply.json(), pages + 1
        assert len(reply.body) < 5_500 or len(page["epochs"]) == 1
        seen += [told["epoch"] for told in page["epochs"]]
        path = page["next"]

    assert pages > 2
    assert seen == [document.epoch for document in reversed(documents)]


async def test_a_reader_that_has_it_is_not_sent_it_again_until_something_is_published():
    """The page asks again every minute."""
    documents = publications()
    gateway = serving(documents[:-1])
    first = await gateway.ask("GET", "/v1/series")
    tag = first.headers["etag"]

    assert (await gateway.ask("GET", "/v1/series", headers={"if-none-match": tag})).status == 304
    other = await gateway.ask("GET", "/v1/series?table=records", headers={"if-none-match": tag})
    assert other.status == 200
    newest = documents[-1]
    gateway.publications.estimates[newest.epoch] = PublishedDocument(
        newest.epoch, "f" * 64, newest.to_bytes()
    )
    again = await gateway.ask("GET", "/v1/series", headers={"if-none-match": tag})
    assert (again.status, again.json()["epochs"][0]["epoch"]) == (200, newest.epoch)


async def test_it_is_small_beside_the_documents():
    documents = [filtered(document, 0) for document in many(queries=250, epochs=12)]
    gateway = serving(documents)
    plain = await gateway.ask("GET", "/v1/series")

    assert len(plain.body) < sum(len(d.to_bytes()) for d in documents) / 8


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=101", "limit=x", "before=-1", "before=", "table=words"]
)
async def test_a_bad_request_for_a_series_is_a_400(query):
    assert (await make_gateway().ask("GET", f"/v1/series?{query}")).status == 400
