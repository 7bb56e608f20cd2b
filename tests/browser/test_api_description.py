"""The API's description, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.conftest import Site
from tests.browser.results_page import Open, serious

pytestmark = pytest.mark.browser


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
