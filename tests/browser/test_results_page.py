"""The results page in a real browser: what it shows first, search, older epochs, failures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import pytest
from playwright.sync_api import Browser

from blendstream.blender.values.record import normalise
from blendstream.streams.releases.epoch_state import PauseNotice
from blendstream.streams.wire.estimates_document import EstimatedShare, FilteredQuery
from tests.browser.conftest import Site, serving
from tests.browser.page_trends import clear_changes, in_node
from tests.browser.publications import (
    disputed,
    emptied,
    filtered,
    many,
    preferring_clients,
    publications,
)
from tests.browser.results_page import (
    Open,
    at_least,
    fits,
    interval,
    percent,
    points,
    rows,
    serious,
    texts,
    wait_for_a_look,
)

pytestmark = pytest.mark.browser

#: The epoch that a change is compared with, unless asked: so many before.
BACK = 7


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
    page, latest, before = opened.page, site.documents[-1], site.documents[-1 - BACK]

    assert f"Epoch {latest.epoch}, 2 Oct 2026, incomplete" in page.inner_text("#headline")
    shown = rows(opened, "queries-table")
    best = sorted(latest.queries, key=lambda q: -q.blend.probability)
    changed = clear_changes(latest, before)
    assert len(shown) == 20
    for place, (query, row) in enumerate(zip(best, shown, strict=False), 1):
        by = changed.get(query.query)
        assert row == [
            str(place),
            query.query,
            f"{at_least(query.blend.probability)} {interval(query.blend)}",
            "no clear change" if by is None else points(by),
        ]
    clear = [by for by in changed.values() if by is not None]
    assert 0 < len(clear) < len(changed)
    assert page.locator("#queries-table .whisker .reach").count() == 20
    assert page.locator("#queries-table .spark .line").count() >= 20
    assert "incomplete: not all counted" in page.inner_text("#notice")
    name = f"results-{'phone' if phone else 'desk'}-{'dark' if dark else 'light'}.png"
    page.screenshot(path=screenshots / name, full_page=True)
    assert fits(opened)
    for fold in ("downloads", "epochs", "privacy"):
        assert page.get_attribute(f"#{fold}", "open") is None, "folded until asked for"
        page.click(f"#{fold} summary")
    assert latest.privacy["statement"] in page.inner_text("#statement")
    assert "30,000 opt-in users, 1,234,567 clients" in page.inner_text("#participants")
    states = rows(opened, "epochs-table")
    assert states[0][:2] == [str(latest.epoch + 1), "collecting"]
    assert states[1][3] == "incomplete, not all counted"
    assert fits(opened)
    assert serious(opened) == []
    assert opened.complaints == []
    assert opened.strangers == []


def test_chance_and_the_rule_are_those_of_the_books():
    """Benjamini and Hochberg (1995) print an example: of fifteen comparisons four are clear."""
    told = [
        0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262,
        0.5719, 0.6528, 0.7590, 1.0,
    ]  # fmt: skip
    z = [0.0, 0.5, -1.0, 1.959964, 2.575829, -4.0]
    program = "const found = [small(given.told), given.z.map(chance)];"
    clear, chances = in_node(program, {"told": told, "z": z})

    assert clear == [True] * 4 + [False] * 11
    assert chances == pytest.approx([2 * NormalDist().cdf(-abs(x)) for x in z], abs=2e-7)


def test_rising_falling_and_new_are_more_than_chance(visit: Open):
    """Of many queries some change much by chance: those must not be called trends."""
    *earlier, last = (publications()[place] for place in (4, 8, 9, 11))
    fresh = replace(last.queries[5], query="solar eclipse")
    noise = replace(last.queries[6], query="blue moon", blend=replace(fresh.blend, low=0.0))
    last = replace(last, queries=(*last.queries, fresh, noise))
    with serving([*earlier, last]) as site:
        opened = visit(site.url)
        page = opened.page
        changed = clear_changes(last, earlier[0])
        assert page.input_value("#since") == str(earlier[0].epoch)
        for kind, sign in (("up", 1), ("down", -1)):
            wanted = sorted(
                ((by, q) for q, by in changed.items() if by is not None and by * sign > 0),
                key=lambda one: -abs(one[0]),
            )
            assert texts(opened, f"#movers-{kind} .word") == [q for _, q in wanted[:5]]
            assert [text[2:] for text in texts(opened, f"#movers-{kind} .change")] == [
                points(by) for by, _ in wanted[:5]
            ]
        assert texts(opened, "#movers-new .word") == ["solar eclipse"], "the other may be no one's"
        page.click("#more")
        told = {row[1]: row[3] for row in rows(opened, "queries-table")}
        assert (told["solar eclipse"], told["blue moon"]) == ("new", "new")
        page.select_option("#since", str(earlier[1].epoch))
        page.wait_for_function("() => location.hash.includes('since=')")
        other = clear_changes(last, earlier[1])
        told = {row[1]: row[3] for row in rows(opened, "queries-table")}
        for query, by in other.items():
            assert told.get(query, "not shown") in (
                "not shown", "no clear change" if by is None else points(by),
            )  # fmt: skip
        assert f"Compared with epoch {earlier[1].epoch}" in page.inner_text("#change")
        assert opened.complaints == []


def test_a_query_that_an_earlier_publication_knows_is_not_new(visit: Open):
    """It was called new when one of its results came onto the list, of queries known for weeks."""
    documents = [filtered(document, 40) for document in publications()[-3:]]

    def known(query: str, low: float) -> FilteredQuery:
        return FilteredQuery(query, EstimatedShare.of(0.004, 1e-6, low, 0.006))

    first = documents[0].filtered
    assert first is not None
    earlier = replace(first, unlisted_queries=(known("old hat", 0.002), known("perhaps", 0.0)))
    documents[0] = replace(documents[0], filtered=earlier)
    last = documents[-1]
    fresh = [replace(last.queries[5], query=query) for query in ("old hat", "perhaps", "nowhere")]
    documents[-1] = replace(last, queries=(*last.queries, *fresh))
    with serving(documents) as site:
        opened = visit(site.url)
        assert sorted(texts(opened, "#movers-new .word")) == ["nowhere", "perhaps"]
        assert "no share above 0 in the 2 publications before" in opened.page.inner_text("#change")
        opened.page.click("#more")
        told = {row[1]: row[3] for row in rows(opened, "queries-table")}
        assert told["old hat"] == "known before"
        assert opened.complaints == []


def test_a_share_without_unknown_results_is_at_least_that_and_a_complete_one_is_not_labelled(
    visit: Open,
):
    """`sharp` does not measure results that it does not know; the paper's ⟨q,⋆⟩ does."""
    for sharp in (True, False):
        profile = "sharp" if sharp else "paper"
        documents = [
            replace(each, queries_at_least=sharp, mechanisms={"profile": profile})
            for each in publications()[-2:]
        ]
        with serving(documents) as site:
            opened = visit(site.url)
            page = opened.page
            assert page.locator("#queries-table .least").count() == (20 if sharp else 0)
            assert page.is_visible("#at-least") == sharp
            promised = page.inner_text("#promise")
            assert ("of these results 19 times out of 20" in promised) == sharp
            if sharp:
                assert "are not measured, so its whole share may be larger" in page.inner_text(
                    "#at-least"
                )
            page.click("#queries-table a >> text=map")
            page.wait_for_selector("#clicked-table tr")
            for place in ("#history-what", "#readout", "#history"):
                assert ("at least" in page.inner_text(place)) == sharp
            assert "at least" not in page.inner_text("#clicked-table"), (
                "a result's share is its own"
            )
            assert serious(opened) == []
            assert opened.complaints == []


def test_where_nothing_changed_the_page_says_so(visit: Open):
    one, two = publications()[:2]
    with serving([one, replace(two, queries=one.queries, records=one.records)]) as site:
        opened = visit(site.url)
        assert {row[3] for row in rows(opened, "queries-table")} == {"no clear change"}
        cards = texts(opened, "#movers .card li")
        assert cards == ["No query rose clearly.", "No query fell clearly.", "No query is new."]


# --- search --------------------------------------------------------------------------------------


def test_search_finds_a_query_by_keyboard_alone(visit: Open, site: Site):
    """However it is typed, as long as the service would take it for the same query."""
    opened = visit(site.url)
    page = opened.page
    page.focus("#search")
    page.keyboard.type("  Weather   TOMORROW ")
    page.keyboard.press("Enter")
    page.wait_for_selector("#clicked-table tr")
    assert page.inner_text("#history-title") == "weather tomorrow"
    found = [r for r in site.documents[-1].records if r.query == "weather tomorrow"]
    shown = [row[:2] for row in rows(opened, "clicked-table")]
    best = sorted(found, key=lambda r: -r.blend.probability)
    assert [row[0].replace("add to chart", "").strip() for row in shown] == [r.url for r in best]
    assert [row[1] for row in shown] == [
        f"{percent(r.blend.probability)} {interval(r.blend)}" for r in best
    ]

    page.focus("#search")
    page.fill("#search", "nobody asks this")
    page.keyboard.press("Enter")
    page.wait_for_selector("#found")
    assert "Nothing is published for “nobody asks this”" in page.inner_text("#found")
    assert page.is_hidden("#queries-scroll")
    assert page.is_hidden("#movers")
    assert opened.complaints == []


def test_part_of_a_query_offers_the_queries_that_contain_it(visit: Open, site: Site):
    """It said that nobody searched for it, of a query that was on the page."""
    opened = visit(site.url)
    page = opened.page
    page.focus("#search")
    page.keyboard.type("Re")
    offered = texts(opened, "#search-list .word")
    best = sorted(site.documents[-1].queries, key=lambda q: -q.blend.probability)

    def rank(query: str) -> int:
        return 0 if query.startswith("re") else 1 if " re" in query else 2

    containing = sorted((q.query for q in best if "re" in q.query), key=rank)
    assert len(containing) > 2
    assert offered == containing
    assert page.get_attribute("#search", "aria-expanded") == "true"
    assert serious(opened) == []
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    chosen = page.get_attribute("#search", "aria-activedescendant")
    assert page.inner_text(f"#{chosen} .word") == offered[1]
    page.keyboard.press("Enter")
    page.wait_for_selector("#history:not([hidden])")
    assert page.inner_text("#history-title") == offered[1]
    assert page.evaluate("document.activeElement.id") == "history-title"

    page.fill("#search", "re")
    page.press("#search", "Escape")
    assert page.is_hidden("#search-list")
    page.press("#search", "Enter")
    page.wait_for_selector("#all:not([hidden])")
    assert [row[1] for row in rows(opened, "queries-table")] == containing
    assert page.inner_text("#queries-title") == "Queries with “re”"
    assert f"{len(containing)} queries on this epoch’s list" in page.inner_text("#found")
    assert opened.complaints == []


def test_what_the_service_takes_for_one_query_is_found_as_one(visit: Open, site: Site):
    """Browsers fold otherwise than the service: they write a final sigma where it writes none."""
    opened = visit(site.url)
    page = opened.page
    published = {q.query for q in site.documents[-1].queries}
    for typed in ("Οδικός χάρτης", "ΟΔΙΚΌΣ  ΧΆΡΤΗΣ", "STRASSE sperrung", "ISI", "ısı"):
        page.fill("#search", typed)
        page.press("#search", "Enter")
        wanted = normalise(typed, "https://any.example/").query
        assert wanted in published
        page.wait_for_function(
            "text => document.getElementById('history-title').textContent === text", arg=wanted
        )
    page.click("#back")
    page.click("#more")
    links = page.locator("#queries-table tbody a")
    hrefs = {links.nth(i).inner_text(): links.nth(i).get_attribute("href") for i in range(26)}
    assert set(hrefs) == published
    assert len(set(hrefs.values())) == len(published), "every row leads to its own history"
    assert opened.complaints == []


def test_markup_in_a_query_stays_text_and_the_keyboard_goes_on_at_new_rows(visit: Open, site: Site):
    """Queries come from people, some of whom try."""
    opened = visit(site.url)
    page = opened.page
    page.focus("#more")
    page.keyboard.press("Enter")
    focused = page.evaluate("document.activeElement.closest('tr').cells[0].innerText")
    assert focused == "21"
    page.fill("#search", "<B>bold")
    assert texts(opened, "#search-list .word") == ['<b>bold</b> & "quoted"']
    page.keyboard.press("ArrowDown")
    page.press("#search", "Enter")
    page.wait_for_selector("#clicked-table tr")
    assert page.inner_text("#history-title") == '<b>bold</b> & "quoted"'
    assert page.locator("#main b").count() == 0
    assert opened.complaints == []


# --- epochs --------------------------------------------------------------------------------------


def test_older_epochs_can_be_looked_at_also_those_that_were_not_loaded(visit: Open):
    """Thirty epochs come with the page; the others when they are asked for, once."""
    documents = many(queries=8, epochs=45)
    with serving(documents) as site:
        opened = visit(site.url)
        page = opened.page
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
        for document in (documents[3], documents[40]):
            page.select_option("#epoch", str(document.epoch))
            page.wait_for_function(
                "n => document.getElementById('headline').textContent.includes(`Epoch ${n},`)",
                arg=document.epoch,
            )
            best = sorted(document.queries, key=lambda q: -q.blend.probability)
            assert [row[1:3] for row in rows(opened, "queries-table")] == [
                [q.query, f"{at_least(q.blend.probability)} {interval(q.blend)}"] for q in best
            ]
        page.wait_for_load_state("networkidle")
        series = [path for path in asked if path.startswith("series")]
        queries = [path for path in series if "table=queries" in path]
        assert len(queries) == 2, "one for each stretch that was missing"
        page.select_option("#last", "90")
        page.wait_for_function(
            "() => document.getElementById('trend-head').textContent.includes('last 41 epochs')"
        )
        other = visit(f"{site.url}/#epoch=1000").page
        assert "Epoch 1000 is not published" in other.inner_text("#notice")
        assert opened.complaints == []


def test_a_new_epoch_comes_by_itself_and_leaves_those_alone_who_look_at_another(visit: Open):
    documents = publications()
    with serving(documents[:-2]) as site:
        newest = visit(site.url, hold_clock=True)
        older = visit(f"{site.url}/#epoch={documents[4].epoch}&q=map", hold_clock=True)
        newest.page.focus("#queries-table tbody tr:nth-child(3) a")
        focused = newest.page.evaluate("document.activeElement.textContent")
        site.publish(documents[-2])
        for opened in (newest, older):
            wait_for_a_look(opened.page, f"text=Epoch {documents[-2].epoch} was published.")
        assert f"Epoch {documents[-2].epoch}," in newest.page.inner_text("#headline")
        assert newest.page.evaluate("document.activeElement.textContent") == focused
        assert f"Epoch {documents[4].epoch}," in older.page.inner_text("#headline")
        assert older.page.inner_text("#history-title") == "map"
        listed = newest.page.eval_on_selector_all("#epoch option", "all => all.map(o => o.value)")
        assert int(listed[0]) == documents[-2].epoch
        newest.page.route("**/v1/epochs", lambda route: route.fulfill(status=503, body="{}"))
        with newest.page.expect_response("**/v1/epochs") as refused:
            newest.page.clock.run_for(61_000)
        assert refused.value.status == 503
        newest.page.unroute_all()
        site.publish(documents[-1])
        wait_for_a_look(newest.page, f"text=Epoch {documents[-1].epoch} was published.")


def test_on_the_first_day_it_says_that_nothing_is_published_until_something_is(visit: Open):
    with serving([]) as site:
        opened = visit(site.url, hold_clock=True)
        page = opened.page
        assert "Nothing is published yet" in page.inner_text("#headline")
        page.fill("#search", "map")
        page.press("#search", "Enter")
        assert page.inner_text("#search-status") == "Nothing is published yet."
        assert serious(opened) == []
        site.publish(publications()[0])
        wait_for_a_look(page, "#queries-table a")
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
        assert f"This page shows epoch {three.epoch}" in page.inner_text("#notice")
        assert f"Compared with epoch {one.epoch}" in page.inner_text("#change")
        assert not {row[3] for row in rows(opened, "queries-table")} & {"new", "–"}
        page.click("#epochs summary")
        assert rows(opened, "epochs-table")[1][3] == "empty, too few reports"
        page.click("#queries-table a >> text=map")
        page.wait_for_selector("#chart .dot")
        shown = {row[0]: row[2] for row in rows(opened, "history-table")}
        assert [shown[str(d.epoch)] == "–" for d in (one, two, three)] == [False, True, False]
        assert serious(opened) == []
        assert opened.complaints == []


def test_where_every_epoch_is_empty_the_page_says_so(visit: Open):
    """That too few people searched for something would be untrue: nobody could know."""
    with serving([emptied(document) for document in publications()[:2]]) as site:
        opened = visit(site.url)
        page = opened.page
        assert "empty: 0 queries" in page.inner_text("#headline")
        assert "This epoch is empty: too few reports." in page.inner_text("#notice")
        page.fill("#search", "map")
        page.press("#search", "Enter")
        page.wait_for_selector("#found")
        assert "is empty: there are no queries to search" in page.inner_text("#found")
        assert opened.complaints == []


# --- what a publication says of itself -----------------------------------------------------------


def test_a_pause_and_groups_that_disagree_are_said(visit: Open):
    """The publication says which estimate to read: here the clients', which are half as large."""
    document = preferring_clients(publications()[0])
    # The gateway's clock stands at a million seconds.
    pause = PauseNotice(9, 0, 1_036_800_000, "the budget is spent")
    with serving([document], pause) as site:
        opened = visit(site.url)
        page = opened.page
        notice = page.inner_text("#notice")
        assert "Paused until 13 Jan 1970, 00:00 UTC: the budget is spent" in notice
        assert "the page shows the clients’ estimates" in notice
        assert page.is_hidden("#movers")
        best = sorted(document.queries, key=lambda q: -q.client.probability)
        for query, row in zip(best, rows(opened, "queries-table"), strict=False):
            assert row[1] == query.query
            assert row[2].startswith(at_least(query.client.probability))
            assert row[3] == "–"
        assert opened.complaints == []


def test_all_epochs_together_are_shown_where_they_are_published_and_each_by_itself_when_asked(
    visit: Open,
):
    """An epoch by itself and all epochs together must not be taken for one another."""
    documents = [filtered(document, 40) for document in publications()[-3:]]
    first, last = documents[0], documents[-1]
    with serving(documents) as site:
        opened = visit(site.url)
        page = opened.page
        assert "all 12 publications since epoch 40: more accurate" in page.inner_text("#which-text")

        def check(estimate: str) -> None:
            best = sorted(last.queries, key=lambda q: -getattr(q, estimate).probability)
            changed = clear_changes(last, first, estimate)
            for query, row in zip(best, rows(opened, "queries-table"), strict=False):
                figure, by = getattr(query, estimate), changed.get(query.query)
                change = "no clear change" if by is None else points(by)
                share = f"{at_least(figure.probability)} {interval(figure)}"
                assert row[1:] == [query.query, share, change]

        check("filtered")
        assert page.get_attribute("#filtered", "aria-pressed") == "true"
        page.click("#own")
        page.wait_for_selector("#own[aria-pressed=true]")
        check("blend")
        page.click(f"#queries-table a >> text={last.queries[1].query}")
        page.wait_for_selector("#clicked-table tr")
        own = rows(opened, "history-table")[0]
        assert own[2] == at_least(last.queries[1].blend.probability), "also in the history"
        page.click("#filtered")
        page.wait_for_selector("#filtered[aria-pressed=true]")
        both = rows(opened, "history-table")[0]
        assert both[2] == at_least(last.queries[1].filtered.probability)
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
        marked = {r[1]: "disputed" in r[2] for r in rows(opened, "queries-table")}
        assert [query for query, is_marked in marked.items() if is_marked] == [row.query]
        page.click(f"#queries-table a >> text={row.query}")
        page.wait_for_selector("#clicked-table .mark")
        said = (
            f"disputed: opt-in users {percent(row.optin.probability)}, "
            f"clients {percent(row.client.probability)}"
        )
        for url, share, _ in rows(opened, "clicked-table"):
            assert (said in url) == (row.url in url)
            if row.url in url:
                assert share == f"{percent(row.optin.probability)} {interval(row.blend)}"
        assert fits(opened)
        page.screenshot(path=screenshots / f"disputed-{phone}.png", full_page=True)
        assert serious(opened) == []
        assert opened.complaints == []
    with serving([before]) as site:
        page = visit(site.url, phone=phone).page
        assert page.is_hidden("#disputed")
        assert page.is_hidden("#difference")


@pytest.mark.parametrize("failing", ["v1/epochs", "v1/series*"])
def test_what_could_not_be_loaded_is_not_taken_for_unknown(visit: Open, site: Site, failing: str):
    """A search in results that are not there must not say that nobody searched for it."""
    opened = visit(f"{site.url}/openapi.json")
    page = opened.page
    page.route(f"**/{failing}", lambda route: route.fulfill(status=503, body="{}"))
    page.goto(site.url, wait_until="networkidle")
    page.wait_for_selector("main[aria-busy=false]")
    assert page.inner_text("#headline") == "The results could not be loaded."
    assert "responded with 503" in page.inner_text("#notice")
    page.fill("#search", "weather tomorrow")
    page.press("#search", "Enter")
    assert "No results are loaded" in page.inner_text("#search-status")


def test_without_javascript_it_says_where_the_results_are(browser: Browser, site: Site):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(site.url)
    assert "switched off" in page.inner_text("noscript")
    assert "Loading" not in page.inner_text("body")
    context.close()
