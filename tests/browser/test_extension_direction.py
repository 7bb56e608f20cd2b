"""The extension's search and trends: a query's direction, and its controls, end with the query."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import sync_playwright

from tests.browser.extension import browsing, permitted
from tests.browser.publications import publications
from tests.browser.turned_texts import CONTROLS, HEBREW, HOSTILE, SHOWN, turned

pytestmark = [pytest.mark.browser, pytest.mark.more]


def test_controls_of_direction_are_seen_and_have_no_effect(tmp_path: Path, screenshots: Path):
    """A record could otherwise rewrite the numbers beside it, or hide a link's true end."""
    result = turned(publications()[-1]).to_bytes().decode()
    folder, profile = permitted(tmp_path / "extension"), tmp_path / "profile"
    with sync_playwright() as driver, browsing(driver, folder, profile) as extension:
        extension.turn_on("http://127.0.0.1:9")
        extension.worker.evaluate("(result) => chrome.storage.local.set({ result })", result)
        page = extension.open(f"results.html?q={quote(HOSTILE)}")
        page.wait_for_selector("#found li")
        page.screenshot(path=screenshots / "extension-direction.png", full_page=True)

        heads = page.locator("#trends th[scope=row]").all_inner_texts()
        assert {SHOWN, HEBREW} <= set(heads)
        assert "https://example.org/U+202Egpj.exe" in page.inner_text("#found")
        kinds = page.eval_on_selector_all(
            "bdi", "all => all.map(e => getComputedStyle(e).unicodeBidi)"
        )
        assert set(kinds) == {"isolate"}
        assert page.evaluate(f"/{CONTROLS}/u.test(document.body.innerText)") is False

        nothing = extension.open(f"results.html?q={quote(HEBREW + ' x')}")
        nothing.wait_for_selector("#found p")
        assert f"“\u2068{HEBREW} x\u2069”" in nothing.inner_text("#found")
        assert extension.suggestions("pay")[0]["description"].startswith("pay [U+202E]moc")
        assert extension.complaints == []
