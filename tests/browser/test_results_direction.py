"""The direction of a query, and its controls, end with the query; addresses of epochs to come."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

from tests.browser.conftest import Site, serving
from tests.browser.publications import publications
from tests.browser.results_page import Open, texts
from tests.browser.turned_texts import CONTROLS, HEBREW, HOSTILE, SHOWN, URL, turned


def test_controls_of_direction_are_seen_and_have_no_effect(visit: Open, screenshots: Path):
    """With them a record could rewrite the numbers and words beside it, or hide a link's end."""
    with serving([turned(document) for document in publications()]) as site:
        opened = visit(site.url)
        page = opened.page
        assert SHOWN in texts(opened, "#queries-table th[scope=row]")
        page.screenshot(path=screenshots / "direction.png", full_page=True)
        for query in (SHOWN, HEBREW):
            row = page.locator("#queries-table tr", has_text=query)
            assert row.locator("bdi").evaluate("e => getComputedStyle(e).unicodeBidi") == "isolate"

        page.fill("#search", "knab")
        assert texts(opened, "#search-list .word") == [SHOWN]
        page.press("#search", "ArrowDown")
        page.press("#search", "Enter")
        page.wait_for_selector("#clicked-table bdi")
        assert page.inner_text("#history-title") == SHOWN
        assert "https://example.org/U+202Egpj.exe" in texts(opened, "#clicked-table bdi")
        page.screenshot(path=screenshots / "direction-history.png", full_page=True)

        both = "&".join(f"q={quote(query)}" for query in (HOSTILE, HEBREW))
        record = quote(json.dumps([HOSTILE, URL]))
        page.goto(f"{site.url}#{both}&r={record}")
        page.wait_for_selector("#chips li:nth-child(3)")
        assert texts(opened, "#chips .word")[2] == f"{SHOWN} → https://example.org/U+202Egpj.exe"
        page.screenshot(path=screenshots / "direction-compared.png", full_page=True)
        page.goto(f"{site.url}#find={quote(HEBREW)}")
        page.wait_for_function("() => !document.getElementById('all').hidden")
        assert page.inner_text("#queries-title") == f"Queries with “\u2068{HEBREW}\u2069”"
        # Not in the text, the title, or what is read out. Links and fields keep what was published.
        for place in ("document.body.innerText", "document.title", LABELS):
            assert (
                page.evaluate(f"/{CONTROLS}/u.test(({place}).replaceAll(/[\u2068\u2069]/gu, ''))")
                is False
            )
        assert opened.complaints == []


LABELS = "[...document.querySelectorAll('[aria-label]')].map(e => e.ariaLabel).join()"


def test_an_epoch_that_is_not_published_yet_is_named_and_the_newest_is_shown(
    visit: Open, site: Site
):
    """Such an address loaded for ever: mistyped, or of another service."""
    newest = site.documents[-1].epoch
    for asked in (newest + 1, 10**6, 2**53 - 1):
        opened = visit(f"{site.url}/#epoch={asked}")
        page = opened.page
        page.wait_for_function("() => notice.innerText.includes('is not published')")
        said = page.inner_text("#notice")
        assert f"Epoch {asked} is not published: the newest is epoch {newest}." in said
        assert f"Epoch {newest}," in page.inner_text("#headline")
        assert page.locator("#queries-table tbody tr").count() > 5
        assert opened.complaints == []


def test_an_epoch_before_the_first_is_named_too(visit: Open, site: Site):
    opened = visit(f"{site.url}/#epoch=3")
    opened.page.wait_for_function("() => notice.innerText.includes('no results of epoch 3')")
    assert opened.page.locator("#queries-table tbody tr").count() > 5
