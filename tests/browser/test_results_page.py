"""The results page and the API's description, in a real browser."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Download, Route

from agents.gateway.read.publications import PauseView
from blender.record import normalise
from tests.browser.conftest import Site, Visit, serving
from tests.browser.publications import (
    disputed,
    emptied,
    filtered,
    preferring_clients,
    publications,
)

pytestmark = pytest.mark.browser

Open = Callable[..., Visit]


def percent(share: float) -> str:
    """As the page writes it."""
    digits = 1 if share >= 0.1 else 2 if share >= 0.001 else 4
    return f"{100 * share:.{digits}f}\u00a0%"


def rows(visit: Visit, table: str) -> list[list[str]]:
    """The text of a table's body."""
    found = visit.page.eval_on_selector_all(
        f"#{table} tbody tr", "rows => rows.map(r => [...r.cells].map(c => c.innerText.trim()))"
    )
    return [list(row) for row in found]


def serious(visit: Visit) -> list[tuple[str, str]]:
    """What axe thinks keeps people out."""
    found = Axe().run(visit.page).response["violations"]
    return [
        (violation["id"], node["html"][:120])
        for violation in found
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


@pytest.mark.parametrize(
    ("dark", "phone"),
    [(False, False), (True, False), (False, True), (True, True)],
    ids=["light", "dark", "phone", "dark-phone"],
)
def test_it_shows_the_latest_epoch_to_everyone(
    visit: Open, site: Site, screenshots: Path, dark: bool, phone: bool
):
    """In both themes, on both sizes: the published numbers, and nothing that keeps people out."""
    opened = visit(site.url, dark=dark, phone=phone)
    page, latest, before = opened.page, site.documents[-1], site.documents[-2]

    assert f"Epoch {latest.epoch}" in page.inner_text("#headline")
    shown = rows(opened, "trends-table")
    best = sorted(latest.queries, key=lambda q: -q.blend.probability)
    then = {q.query: q.blend for q in before.queries}
    clear = 0
    assert len(shown) == 20
    for place, (query, row) in enumerate(zip(best, shown, strict=False), 1):
        change = query.blend.probability - then[query.query].probability
        errors = abs(change) / (query.blend.variance + then[query.query].variance) ** 0.5
        clear += errors >= 1.96
        assert row == [
            str(place),
            query.query,
            percent(query.blend.probability),
            f"{percent(query.blend.low)}\u00a0– {percent(query.blend.high)}",
            f"{'+' if change >= 0 else '−'}{100 * abs(change):.2f} points"
            if errors >= 1.96
            else "no clear change",
        ]
    assert 0 < clear < 20
    assert page.locator("#trends-chart canvas").count() == 1
    assert f"compares with epoch {before.epoch}" in page.inner_text("#change")
    assert "incomplete: not all counted" in page.inner_text("#notice")
    assert latest.privacy["statement"] in page.inner_text("#statement")
    assert "30,000 opt-in users, 1,234,567 clients" in page.inner_text("#participants")
    states = rows(opened, "epochs-table")
    assert states[0][:2] == [str(latest.epoch + 1), "collecting"]
    assert states[1][3] == "incomplete, not all counted"
    page.fill("#search-box", "weather tomorrow")
    page.keyboard.press("Enter")
    page.click("#search-table button")
    page.wait_for_selector("#history-chart canvas")
    # Nothing wider than the window: phones do not scroll sideways.
    width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1]
    name = f"results-{'phone' if phone else 'desk'}-{'dark' if dark else 'light'}.png"
    page.screenshot(path=screenshots / name, full_page=True)
    assert serious(opened) == []
    assert opened.complaints == []
    assert opened.strangers == []


def test_search_finds_a_querys_results_by_keyboard_alone(visit: Open, site: Site):
    """However it is typed, as long as the service would take it for the same query."""
    opened = visit(site.url)
    page, latest = opened.page, site.documents[-1]
    page.focus("#search-box")
    page.keyboard.type("  Weather   TOMORROW ")
    page.keyboard.press("Enter")

    found = [r for r in latest.records if r.query == "weather tomorrow"]
    assert "3 results for “weather tomorrow”" in page.inner_text("#search-status")
    assert sorted(rows(opened, "search-table")) == sorted(
        [
            r.url,
            percent(r.blend.probability),
            f"{percent(r.blend.low)}\u00a0– {percent(r.blend.high)}",
            "history",
        ]
        for r in found
    )
    page.fill("#search-box", "nobody asks this")
    page.click("#search-form button")
    assert "Nothing is published for “nobody asks this”" in page.inner_text("#search-status")
    assert page.is_hidden("#search-results")
    assert opened.complaints == []


def test_part_of_a_query_finds_the_queries_that_contain_it(visit: Open, site: Site):
    """It said that nobody searched for it, of a query that was on the page."""
    opened = visit(site.url)
    page = opened.page
    page.fill("#search-box", "Re")
    page.keyboard.press("Enter")

    offered = page.locator("#search-parts button").all_inner_texts()
    best = sorted(site.documents[-1].queries, key=lambda q: -q.blend.probability)
    containing = [q.query for q in best if "re" in q.query]
    assert len(containing) > 2
    assert offered == sorted(containing, key=lambda query: not query.startswith("re"))
    assert f"{len(offered)} contain it" in page.inner_text("#search-status")
    page.locator("#search-parts button").first.click()
    assert f"for “{offered[0]}”" in page.inner_text("#search-status")
    assert page.locator("#search-parts button").count() == 0
    assert opened.complaints == []


def test_what_the_service_takes_for_one_query_is_found_as_one(visit: Open, site: Site):
    """Browsers fold otherwise than the service: they write a final sigma where it writes none."""
    opened = visit(site.url)
    page, latest = opened.page, site.documents[-1]
    for typed in ("Οδικός χάρτης", "ΟΔΙΚΌΣ  ΧΆΡΤΗΣ", "STRASSE sperrung", "straße", "ISI"):
        page.fill("#search-box", typed)
        page.keyboard.press("Enter")
        published = normalise(typed, "https://any.example/").query
        wanted = [r.url for r in latest.records if r.query == published]
        shown = [row[0] for row in rows(opened, "search-table")]
        assert sorted(shown) == sorted(map(str, wanted)), typed
    page.click("#more")
    for query in latest.queries:
        page.get_by_role("button", name=query.query, exact=True).click()
        wanted = [r.url for r in latest.records if r.query == query.query]
        shown = [row[0] for row in rows(opened, "search-table")]
        assert sorted(shown) == sorted(map(str, wanted)), "every trend leads to its own results"
    assert opened.complaints == []


def test_a_trend_leads_to_its_results(visit: Open, site: Site):
    """A click on a query searches for it; markup in a query stays text."""
    opened = visit(site.url)
    page = opened.page
    page.focus("#more")
    page.keyboard.press("Enter")
    focused = page.evaluate("document.activeElement.closest('tr').cells[0].innerText")
    assert focused == "21", "whoever uses the keyboard goes on where the new rows begin"
    page.click("text=<b>bold</b>")

    assert "2 results" in page.inner_text("#search-status")
    assert page.locator("#trends-table b").count() == 0
    assert len(rows(opened, "trends-table")) == len(site.documents[-1].queries)


def test_history_shows_every_epoch_and_gaps_where_a_record_was_not_listed(visit: Open, site: Site):
    """A record that comes and goes must not look as if nobody had searched for it."""
    opened = visit(site.url)
    page = opened.page
    page.fill("#search-box", "pancake recipe")
    page.keyboard.press("Enter")
    url = rows(opened, "search-table")[0][0]
    page.click("#search-table button")
    page.wait_for_selector("#history-chart canvas")
    assert page.evaluate("document.activeElement.id") == "history-title"
    page.click("#history summary")

    shown = {int(row[0]): row[2] for row in rows(opened, "history-table")}
    for document in site.documents:
        match = [r for r in document.records if (r.query, r.url) == ("pancake recipe", url)]
        wanted = percent(match[0].blend.probability) if match else "–"
        assert shown[document.epoch] == wanted
    assert "–" in shown.values()
    assert opened.complaints == []


def test_the_history_that_was_asked_for_last_is_shown_and_read_once(visit: Open, site: Site):
    """Impatient people click twice; that must not cost two downloads, nor show the wrong record."""
    opened = visit(site.url)
    page = opened.page
    page.fill("#search-box", "weather tomorrow")
    page.keyboard.press("Enter")
    asked: list[str] = []
    held: list[Route] = []
    waiting = True

    def answer(route: Route) -> None:
        asked.append(route.request.url.rpartition("/")[2])
        if waiting:
            held.append(route)
        else:
            route.continue_()

    page.route("**/v1/estimates/*", answer)
    page.click("#search-table tr:nth-child(2) button")
    page.click("#search-table tr:nth-child(3) button")
    last = rows(opened, "search-table")[2][0]
    waiting = False
    for route in held:
        route.continue_()
    page.wait_for_selector("#history-chart canvas")
    assert last in page.inner_text("#history-what")
    assert sorted(asked) == sorted(str(document.epoch) for document in site.documents)

    page.click("#search-table tr:nth-child(1) button")
    first = rows(opened, "search-table")[0][0]
    page.wait_for_function("url => document.body.innerText.includes(`→ ${url}`)", arg=first)
    assert len(asked) == len(site.documents), "what was read is kept"
    assert page.locator("#history-chart canvas").count() == 1
    assert opened.complaints == []


def test_a_history_that_could_not_be_loaded_is_said_and_can_be_asked_for_again(
    visit: Open, site: Site
):
    opened = visit(site.url)
    page = opened.page
    page.fill("#search-box", "weather tomorrow")
    page.keyboard.press("Enter")
    page.route("**/v1/estimates/*", lambda route: route.fulfill(status=503, body="{}"))
    page.click("#search-table button")
    page.wait_for_selector("text=Earlier epochs could not be loaded")
    page.unroute_all()
    page.click("#search-table button")
    page.wait_for_selector("#history-chart canvas")


@pytest.mark.parametrize("form", ["json", "csv"])
def test_the_latest_epoch_can_be_taken_home(visit: Open, site: Site, form: str, tmp_path: Path):
    opened = visit(site.url)
    with opened.page.expect_download() as waiting:
        opened.page.click(f"#get-{form}")
    waiting.value.save_as(tmp_path / "file")
    text = (tmp_path / "file").read_text()

    if form == "json":
        assert json.loads(text) == json.loads(site.documents[-1].to_bytes())
    else:
        table: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(text)))
        assert len(table) >= len(site.documents[-1].records)
    assert opened.complaints == []


def test_what_cannot_be_taken_home_is_said_and_not_saved(visit: Open, site: Site):
    """An error saved as estimates.json would be taken for results."""
    opened = visit(site.url)
    page = opened.page
    saved: list[Download] = []
    page.on("download", lambda download: saved.append(download))  # noqa: PLW0108 - a builtin will not do
    before = page.inner_text("#notice")

    def fail(how: int | None) -> None:
        page.unroute_all()
        page.route(
            "**/v1/estimates/latest",
            lambda route: route.abort() if how is None else route.fulfill(status=how, body="{}"),
        )

    for how, said in ((503, "answered 503"), (404, "Nothing is published"), (None, "fetch")):
        fail(how)
        for form in ("json", "csv"):
            page.click(f"#get-{form}")
            page.wait_for_function("said => notice.innerText.includes(said)", arg=said)
    notice = page.inner_text("#notice")
    assert notice.startswith(before)
    assert notice.count("Nothing was saved") == 3, "each once, however often it is tried"
    page.unroute_all()
    with page.expect_download():
        page.click("#get-json")
    assert len(saved) == 1


def test_on_the_first_day_it_says_that_nothing_is_published(visit: Open, empty_site: Site):
    opened = visit(empty_site.url)

    assert "Nothing is published yet" in opened.page.inner_text("#headline")
    assert serious(opened) == []
    assert opened.complaints == []


def test_after_an_empty_epoch_the_last_results_are_shown_and_compared_with_the_last_before(
    visit: Open, screenshots: Path
):
    """Nothing is "new" because nobody took part in between, and no page is blank for a day."""
    one, two, three, four = publications()[:4]
    with serving([one, emptied(two), three, emptied(four)]) as site:
        opened = visit(site.url)
        page = opened.page
        page.screenshot(path=screenshots / "results-after-an-empty-epoch.png", full_page=True)
        assert f"Epoch {three.epoch}" in page.inner_text("#headline")
        assert f"Shown is epoch {three.epoch}" in page.inner_text("#notice")
        assert f"compares with epoch {one.epoch}" in page.inner_text("#change")
        changes = {row[4].rpartition(" ")[2] for row in rows(opened, "trends-table")}
        assert changes <= {"points", "change"}
        assert rows(opened, "epochs-table")[1][3] == "empty, too few reports"
        page.fill("#search-box", "nobody asks this")
        page.keyboard.press("Enter")
        assert "Nothing is published for" in page.inner_text("#search-status")
        page.fill("#search-box", "map")
        page.keyboard.press("Enter")
        page.click("#search-table button")
        page.wait_for_selector("#history-chart canvas")
        page.click("#history summary")
        assert [row[2] == "–" for row in rows(opened, "history-table")] == [0, 1, 0, 1]
        assert serious(opened) == []
        assert opened.complaints == []


def test_where_every_epoch_is_empty_the_page_says_so(visit: Open):
    """That too few people searched for something would be untrue: nobody could know."""
    with serving([emptied(document) for document in publications()[:2]]) as site:
        opened = visit(site.url)
        page = opened.page
        assert "empty: 0 queries" in page.inner_text("#headline")
        assert "This epoch is empty: too few reports." in page.inner_text("#notice")
        page.fill("#search-box", "map")
        page.keyboard.press("Enter")
        assert "is empty; there is nothing to search in" in page.inner_text("#search-status")
        assert opened.complaints == []


def test_a_pause_and_groups_that_disagree_are_said(visit: Open):
    """The publication says which estimate to read: here the clients', which are half as large."""
    document = preferring_clients(publications()[0])
    # The gateway's clock stands at a million seconds.
    pause = PauseView(from_s=0, resumes_s=1_036_800, detail="the budget is spent")
    with serving([document], pause) as site:
        opened = visit(site.url)
        page = opened.page
        notice = page.inner_text("#notice")
        assert "Paused until 1970-01-13 00:00 UTC: the budget is spent" in notice
        assert "shown are the clients’ estimates" in notice
        assert "no earlier epoch with results" in page.inner_text("#change")
        best = sorted(document.queries, key=lambda q: -q.client.probability)
        for query, row in zip(best, rows(opened, "trends-table"), strict=False):
            assert row[1:3] == [query.query, percent(query.client.probability)]
            assert row[4] == "–"
        assert opened.complaints == []


def test_the_filtered_estimate_is_shown_when_asked_for_and_the_page_says_which_it_shows(
    visit: Open,
):
    """An epoch by itself and all epochs together must not be taken for one another."""
    documents = [filtered(document, 40) for document in publications()[-3:]]
    with serving(documents) as site:
        opened = visit(site.url)
        page, last = opened.page, documents[-1]
        assert "all 12 publications since epoch 40" in page.inner_text("#which")
        own = sorted(last.queries, key=lambda q: -q.blend.probability)
        assert rows(opened, "trends-table")[0][1:3] == [
            own[0].query, percent(own[0].blend.probability),
        ]  # fmt: skip

        page.check("#filtered")
        assert "Shown: filtered" in page.inner_text("#shown")
        best = sorted(last.queries, key=lambda q: -q.filtered.probability)
        for query, row in zip(best[:5], rows(opened, "trends-table"), strict=False):
            assert row[1:3] == [query.query, percent(query.filtered.probability)]
        page.fill("#search-box", last.records[0].query)
        page.keyboard.press("Enter")
        page.click("#search-table button")
        page.wait_for_selector("#history-chart canvas")
        shown = page.eval_on_selector_all(
            "#history-table tbody tr", "rows => rows.map(r => r.cells[2].textContent)"
        )
        assert shown[-1] == percent(last.records[0].filtered.probability)

        page.uncheck("#filtered")
        assert "each epoch by itself" in page.inner_text("#shown")
        page.wait_for_function(
            "text => [...document.querySelectorAll('#history-table tbody tr')].at(-1)"
            ".cells[2].textContent === text",
            arg=percent(last.records[0].blend.probability),
        )
        assert serious(opened) == []
        assert opened.complaints == []
    with serving([publications()[-1]]) as site:
        assert visit(site.url).page.is_hidden("#which")


@pytest.mark.parametrize("phone", [False, True], ids=["desk", "phone"])
def test_a_disputed_record_is_marked_and_explained(visit: Open, screenshots: Path, phone: bool):
    """Readers must see that the number may be wrong, what each group said, and why one is shown."""
    before, document = publications()[-2], disputed(publications()[-1])
    with serving([before, document]) as site:
        opened = visit(site.url, phone=phone)
        page = opened.page
        assert document.difference is not None
        assert document.disputed is not None
        assert page.inner_text("#difference") == document.difference.statement
        assert page.inner_text("#disputed") == f"Marked “disputed”: {document.disputed.reason}"
        (row,) = [r for r in document.records if r.disputed]
        marked = {r[1]: "disputed" in r[2] for r in rows(opened, "trends-table")}
        assert [query for query, is_marked in marked.items() if is_marked] == [row.query]
        page.fill("#search-box", row.query)
        page.keyboard.press("Enter")
        said = (
            f"disputed: opt-in users {percent(row.optin.probability)}, "
            f"clients {percent(row.client.probability)}"
        )
        for url, share, interval, _ in rows(opened, "search-table"):
            assert (said in url) == (row.url in url)
            if row.url in url:
                assert share == percent(row.optin.probability)
                low, high = percent(row.blend.low), percent(row.blend.high)
                assert interval == f"{low}\u00a0– {high}"
        page.click("#search-table button")
        page.wait_for_selector("#history-chart canvas")
        width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1]
        page.screenshot(path=screenshots / f"disputed-{phone}.png", full_page=True)
        assert serious(opened) == []
        assert opened.complaints == []
    with serving([before]) as site:
        page = visit(site.url, phone=phone).page
        assert page.is_hidden("#disputed")
        assert page.is_hidden("#difference")


@pytest.mark.parametrize("failing", ["v1/epochs", "v1/estimates/*"])
def test_what_could_not_be_loaded_is_not_taken_for_unknown(visit: Open, site: Site, failing: str):
    """A search in results that are not there must not say that nobody searched for it."""
    opened = visit(f"{site.url}/openapi.json")
    page = opened.page
    page.route(f"**/{failing}", lambda route: route.fulfill(status=503, body="{}"))
    page.goto(site.url, wait_until="networkidle")
    assert page.inner_text("#headline") == "The results could not be loaded."
    assert "answered 503" in page.inner_text("#notice")
    page.fill("#search-box", "weather tomorrow")
    page.keyboard.press("Enter")
    assert "No results are loaded" in page.inner_text("#search-status")


def test_without_javascript_it_says_where_the_results_are(browser: Browser, site: Site):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(site.url)
    assert "switched off" in page.inner_text("noscript")
    assert "Loading" not in page.inner_text("body")
    context.close()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_api_description_reads_well(visit: Open, site: Site, screenshots: Path, dark: bool):
    """Under a strict policy and without internet: listed, opened and tried out."""
    opened = visit(f"{site.url}/docs", dark=dark, phone=dark)
    page = opened.page
    page.wait_for_selector(".opblock")

    assert page.locator(".opblock").count() > 10
    page.screenshot(path=screenshots / f"docs-{'dark' if dark else 'light'}.png")
    page.click("#operations-submit-post_optin_records .opblock-summary-control")
    page.click("#operations-read-get_latest_estimates .opblock-summary-control")
    latest = page.locator("#operations-read-get_latest_estimates")
    latest.locator(".try-out__btn").click()
    latest.locator(".execute").click()
    answer = latest.locator(".live-responses-table")
    answer.wait_for()
    assert f'"epoch": {site.documents[-1].epoch}' in answer.inner_text()
    assert page.url.endswith("#/read/get_latest_estimates"), "the address can be passed on"
    width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1]
    page.screenshot(path=screenshots / f"docs-{'dark' if dark else 'light'}-open.png")
    assert serious(opened) == []
    assert opened.complaints == []
    assert opened.strangers == []
