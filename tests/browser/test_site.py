"""The site that `make docs` builds, in a browser: both themes, desktop and phone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.browser.conftest import ROOT, Visit, _Quiet

pytestmark = [pytest.mark.browser, pytest.mark.more]

Open = Callable[..., Visit]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The built site, on a free port."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_load_without_complaint_fit_the_screen_and_ask_no_other_host(
    visit: Open, site: str, screenshots: Path, dark: bool, phone: bool
):
    """Wide tables scroll inside the page; the page itself must not."""
    for name in ("index", "runbook", "evaluation"):
        seen = visit(f"{site}/{name}.html", dark=dark, phone=phone)
        page = seen.page
        if not phone:  # Where the site shows its navigation beside the page.
            page.set_viewport_size({"width": 1400, "height": 900})
        screen = f"{name}-{'dark' if dark else 'light'}-{'phone' if phone else 'desktop'}"
        page.screenshot(path=screenshots / f"site-{screen}.png")

        assert seen.complaints == []
        assert seen.strangers == []
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= page.viewport_size["width"], screen
        scheme = page.get_attribute("body", "data-md-color-scheme")
        assert scheme == ("slate" if dark else "default")


def test_a_reader_searches_and_finds_the_alert(visit: Open, site: str, screenshots: Path):
    """Search is an index of the site's own, made when it is built."""
    seen = visit(f"{site}/index.html")
    # The index is loaded once someone goes to the box; what is typed before that is not found.
    seen.page.focus("input[name=query]")
    seen.page.wait_for_selector(
        ".md-search-result__meta:has-text('Type to start')", state="attached"
    )
    seen.page.fill("input[name=query]", "ReleaseLogBlocked")
    seen.page.press("input[name=query]", "End")  # The page looks when a key is let go.
    found = seen.page.locator(".md-search-result__link", has_text="ReleaseLogBlocked").first
    found.wait_for()
    seen.page.screenshot(path=screenshots / "site-search.png")
    found.click()
    seen.page.wait_for_url("**/runbook.html*releaselogblocked*")

    assert seen.page.locator("#releaselogblocked").is_visible()
    assert (seen.complaints, seen.strangers) == ([], [])
