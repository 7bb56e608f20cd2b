"""A query's history, several compared, addresses to pass on, and files to take home."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Download, Route

from blendstream.streams.wire.estimates_document import (
    EstimatedShare,
    EstimatesDocument,
    FilteredRecord,
)
from tests.browser.conftest import Site, Visit, serving
from tests.browser.publications import QUERIES, many, publications, with_unlisted
from tests.browser.results_page import Open, at_least, fits, interval, percent, rows, serious, texts

pytestmark = pytest.mark.browser


def title_is(visit: Visit, text: str) -> None:
    """Wait for another view."""
    visit.page.wait_for_function(
        "text => document.getElementById('history-title').textContent === text", arg=text
    )


def test_history_shows_every_epoch_by_date_and_gaps_where_a_record_was_not_listed(
    visit: Open, site: Site
):
    """A record that comes and goes must not look as if nobody had searched for it."""
    record = next(r for r in site.documents[-1].records if r.query == "pancake recipe")
    opened = visit(f"{site.url}/#r={json.dumps([record.query, record.url])}")
    page = opened.page
    page.click("#history summary")
    shown = {int(row[0]): row[1:] for row in rows(opened, "history-table")}
    listed = []
    for document in site.documents:
        match = [r for r in document.records if (r.query, r.url) == (record.query, record.url)]
        figure = match[0].blend if match else None
        listed.append(figure is not None)
        assert shown[document.epoch][1:] == (
            [percent(figure.probability), interval(figure)] if figure else ["–", "–"]
        )
    assert shown[site.documents[0].epoch][0] == "21 Sept 2026"
    assert listed.count(False) == 3
    runs = sum(now and not before for now, before in zip(listed, [False, *listed], strict=False))
    assert page.locator("#chart .line-1 .line").count() == runs, "a line does not cross a gap"
    assert page.locator("#chart .line-1 .band").count() == runs
    assert page.locator("#chart .tick").all_text_contents()[-1] == "2 Oct"
    assert opened.complaints == []


@pytest.mark.parametrize(
    ("dark", "phone"),
    [(False, False), (True, True)],
    ids=["light", "dark-phone"],
)
def test_several_queries_and_results_are_compared_in_one_chart(
    visit: Open, site: Site, screenshots: Path, dark: bool, phone: bool
):
    opened = visit(f"{site.url}/#q=train+times", dark=dark, phone=phone)
    page, latest = opened.page, site.documents[-1]
    page.fill("#add", "ne")
    page.press("#add", "ArrowDown")
    page.press("#add", "Enter")
    title_is(opened, "Comparing 2")
    assert page.evaluate("document.activeElement.id") == "add", "more may follow"
    page.fill("#add", "no such query")
    page.press("#add", "Enter")
    assert "“no such query” is not a published query" in page.inner_text("#add-status")
    page.locator("#clicked-table .add").first.click()
    title_is(opened, "Comparing 3")
    best = max(
        (r for r in latest.records if r.query in ("train times", "news today")),
        key=lambda r: r.blend.probability,
    )
    names = ["train times", "news today", f"{best.query} → {best.url}"]
    assert texts(opened, "#chips .word") == names
    for line in (1, 2, 3):
        assert page.locator(f"#chart .line-{line} .line").count() == 1
        assert page.locator(f"#chart .line-{line} .band").count() == 1
    figures = {q.query: q.blend for q in latest.queries} | {names[2]: best.blend}
    told = page.inner_text("#readout")
    assert told.startswith("2 Oct 2026")
    for name in names:
        share = (percent if "→" in name else at_least)(figures[name].probability)
        said = f"{share}, 95 % range {interval(figures[name])}"
        assert f"{name}: {said}" in told

    page.focus("#chart")
    page.keyboard.press("Home")
    first = {q.query: q.blend for q in site.documents[0].queries}
    assert f"train times: {at_least(first['train times'].probability)}" in page.inner_text(
        "#readout"
    )
    name = f"compare-{'phone' if phone else 'desk'}-{'dark' if dark else 'light'}.png"
    page.screenshot(path=screenshots / name, full_page=True)
    assert fits(opened)
    assert serious(opened) == []
    page.get_by_role("link", name="Remove train times", exact=True).click()
    title_is(opened, "Comparing 2")
    assert texts(opened, "#chips .word") == names[1:]
    assert opened.complaints == []
    assert opened.strangers == []


def test_an_address_can_be_passed_on_and_the_back_button_goes_back(visit: Open, site: Site):
    """What is looked at is behind the #, which browsers send to no server."""
    opened = visit(site.url)
    page = opened.page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.click("#queries-table a >> text=train times")
    title_is(opened, "train times")
    page.select_option("#epoch", "45")
    page.wait_for_function("() => document.getElementById('headline').textContent.includes('45')")
    assert page.title().startswith("train times – ")
    address = page.url
    passed_on = visit(address)
    for one in (opened, passed_on):
        assert one.page.inner_text("#history-title") == "train times"
        assert "Epoch 45," in one.page.inner_text("#headline")
    page.go_back()
    page.wait_for_function("() => document.getElementById('headline').textContent.includes('51')")
    assert page.inner_text("#history-title") == "train times"
    page.go_back()
    page.wait_for_selector("#all:not([hidden])")
    assert page.is_hidden("#history")
    page.go_forward()
    page.wait_for_selector("#history:not([hidden])")
    page.go_forward()
    page.wait_for_function("() => document.getElementById('headline').textContent.includes('45')")
    page.focus("#skip")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "history-title"
    page.click("#back")
    page.wait_for_selector("#all:not([hidden])")
    assert "Epoch 45," in page.inner_text("#headline"), "all queries of the same epoch"
    assert not [url for url in asked if "train" in url]
    assert opened.complaints == passed_on.complaints == []


@pytest.mark.parametrize("hash_", ["#r=[1", "#r=[1,2]", "#q=&epoch=x&since=-1", "#last=7&own=2"])
def test_an_address_of_somebody_elses_making_shows_the_first_view(
    visit: Open, site: Site, hash_: str
):
    opened = visit(f"{site.url}/{hash_}")
    assert len(rows(opened, "queries-table")) == 20
    assert opened.complaints == []


def test_a_query_on_no_list_is_said_to_be_on_none(visit: Open, site: Site):
    opened = visit(f"{site.url}/#q=nobody+asks+this")
    assert "Not on any list" in opened.page.inner_text("#history-what")
    assert opened.page.is_hidden("#chart-card")
    assert opened.complaints == []


def test_a_querys_history_is_over_one_set_of_results_and_says_where_one_was_not_known(
    visit: Open, screenshots: Path
):
    """A line over whatever was known rose when a result became known, and nobody's habits changed.

    Of the first query three results are known now. In the second epoch one was not, in the third a
    fourth was; the first epoch knows the same as the last.
    """
    documents = [with_unlisted(document, 40) for document in publications()[-4:]]
    query, extra = QUERIES[0], "https://no-longer.example/"

    def figures(document: EstimatesDocument) -> dict[str, EstimatedShare]:
        unlisted = document.filtered.unlisted if document.filtered else ()
        found = [r for r in (*document.records, *unlisted) if r.query == query]
        return {r.url: r.filtered for r in found}

    names = list(figures(documents[-1]))
    assert len(names) == 4
    second, third = documents[1], documents[2]
    documents[1] = replace(second, records=tuple(r for r in second.records if r.url != names[0]))
    more = FilteredRecord(query, extra, EstimatedShare.of(0.03, 1e-6, 0.028, 0.032))
    documents[2] = replace(
        third, filtered=replace(third.filtered, unlisted=(*third.filtered.unlisted, more))
    )
    with serving(documents) as site:
        opened = visit(f"{site.url}/#q={query.replace(' ', '+')}")
        page = opened.page
        page.click("#history summary")
        shown = {int(row[0]): row[2:] for row in rows(opened, "history-table")}
        for document in documents:
            parts = figures(document)
            parts.pop(extra, None)
            share, _ = shown[document.epoch]
            if document in (documents[0], documents[-1]):
                (row,) = [q for q in document.queries if q.query == query]
                assert shown[document.epoch] == [
                    at_least(row.filtered.probability), interval(row.filtered),
                ]  # fmt: skip
                continue
            assert share.startswith(at_least(sum(one.probability for one in parts.values())))
            assert ("1 of 4 results not known yet" in share) == (document is documents[1])
        assert page.locator("#chart .part").count() == 1
        page.focus("#chart")
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        assert "1 of 4 results not known yet" in page.inner_text("#readout")
        assert "A ring marks an epoch" in page.inner_text("#chart-card")
        page.screenshot(path=screenshots / "history-of-one-set.png", full_page=True)
        page.click("#back")
        page.wait_for_selector("#queries-table a")
        row = page.locator("#queries-table tr", has_text=query)
        assert row.locator(".spark .part").count() == 1
        assert serious(opened) == []
        assert opened.complaints == []


def test_a_history_is_in_what_the_page_read_already_and_that_of_its_results_one_request(
    visit: Open, site: Site
):
    """One for each of the two tables, of all queries, and one for the results' older epochs once
    the first is drawn; then no more, whatever is clicked."""
    opened = visit(f"{site.url}/openapi.json")
    page = opened.page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.partition("/v1/")[2]))
    page.goto(site.url, wait_until="networkidle")
    page.wait_for_selector("main[aria-busy=false]")
    latest = site.documents[-1].epoch
    assert sorted(filter(None, asked)) == [
        "epochs",
        f"estimates/{latest}",
        "series?table=queries&limit=30",
        f"series?table=records&limit=4&before={latest - 7}",
        "series?table=records&limit=8",
    ]
    page.wait_for_function(
        "() => document.querySelector('.spark[aria-label^=\"known in 12 of 12\"]')"
    )
    asked.clear()
    page.click("#queries-table a >> text=map")
    title_is(opened, "map")
    page.wait_for_load_state("networkidle")
    page.locator("#clicked-table .add").first.click()
    title_is(opened, "Comparing 2")
    page.click("#back")
    page.click("#queries-table a >> text=chess")
    title_is(opened, "chess")
    assert asked == []
    lines = page.locator("#clicked-table .spark .line").count()
    assert lines >= 2


# --- files ---------------------------------------------------------------------------------------


def taken(visit: Visit, which: str, form: str, table: str, into: Path) -> tuple[str, str]:
    """The name and the content of a downloaded file."""
    if not visit.page.evaluate("document.getElementById('downloads').open"):
        visit.page.click("#downloads summary")
    with visit.page.expect_download() as waiting:
        visit.page.click(f"[data-which={which}][data-form={form}][data-table={table}]")
    waiting.value.save_as(into / "file")
    return waiting.value.suggested_filename, (into / "file").read_text()


@pytest.mark.parametrize("table", ["queries", "records"])
def test_an_epoch_and_all_epochs_can_be_taken_home(visit: Open, tmp_path: Path, table: str):
    """More than a page of the API holds, too: nothing twice, and one line of headings."""
    documents = many(queries=3, epochs=120)
    with serving(documents) as site:
        opened = visit(f"{site.url}/#epoch={documents[-2].epoch}")
        name, text = taken(opened, "epoch", "json", "records", tmp_path)
        assert name == f"epoch-{documents[-2].epoch}.json"
        assert json.loads(text) == json.loads(documents[-2].to_bytes())
        name, text = taken(opened, "all", "json", "records", tmp_path)
        assert name == "all-epochs.json"
        assert json.loads(text) == [json.loads(d.to_bytes()) for d in reversed(documents)]
        for which, wanted in (("epoch", documents[-2:-1]), ("all", documents)):
            name, text = taken(opened, which, "csv", table, tmp_path)
            assert name.endswith(f"-{table}.csv")
            found: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(text)))
            expected = [(d.epoch, r.query) for d in wanted for r in getattr(d, table)]
            assert sorted((int(row["epoch"]), row["query"]) for row in found) == sorted(expected)
        assert opened.complaints == []


def test_what_cannot_be_taken_home_is_said_and_not_saved(visit: Open, site: Site):
    """An error saved as a file would be taken for results."""
    opened = visit(site.url)
    page = opened.page
    saved: list[Download] = []
    page.on("download", lambda download: saved.append(download))  # noqa: PLW0108 - a builtin will not do
    page.click("#downloads summary")

    def fail(how: int | None) -> Callable[[Route], None]:
        def answer(route: Route) -> None:
            _ = route.abort() if how is None else route.fulfill(status=how, body="{}")

        return answer

    for how, said in ((503, "responded with 503"), (404, "Nothing is published"), (None, "fetch")):
        page.unroute_all()
        page.route(re.compile("/v1/estimates"), fail(how))
        for which in ("epoch", "all"):
            page.click(f"[data-which={which}][data-form=json]")
            page.wait_for_function("said => notice.innerText.includes(said)", arg=said)
    assert "incomplete: not all counted" in page.inner_text("#notice"), "what was said stays"
    page.unroute_all()
    with page.expect_download():
        page.click("[data-which=epoch][data-form=json]")
    assert len(saved) == 1
