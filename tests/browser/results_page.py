"""What tests of the results page share: how it writes numbers, and what they read from it."""

from __future__ import annotations

from collections.abc import Callable

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page
from playwright.sync_api import TimeoutError as PageTimeout

from blendstream.streams.wire.estimates_document import EstimatedShare
from tests.browser.conftest import Visit

Open = Callable[..., Visit]


def percent(share: float) -> str:
    """As the page writes it."""
    share = float(f"{share:.5g}")  # A series has five digits.
    digits = 1 if share >= 0.1 else 2 if share >= 0.001 else 4
    return f"{100 * share:.{digits}f}\u00a0%"


def at_least(share: float) -> str:
    """A query's share in `sharp`, as the page writes it."""
    return f"at least {percent(share)}"


def interval(figure: EstimatedShare) -> str:
    """As the page writes it."""
    assert figure.low is not None
    assert figure.high is not None
    return f"{percent(figure.low)}\u00a0– {percent(figure.high)}"


def points(by: float) -> str:
    """A difference of two shares, as the page writes it."""
    size = 100 * abs(by)
    return f"{'+' if by >= 0 else '−'}{size:.{2 if size >= 0.1 else 4}f} points"


def rows(visit: Visit, table: str) -> list[list[str]]:
    """The text of a table's body; what a screen reader passes over left out."""
    found = visit.page.eval_on_selector_all(
        f"#{table} tbody tr",
        "rows => rows.map(r => [...r.cells].map(c => {"
        " const copy = c.cloneNode(true);"
        " copy.querySelectorAll('[aria-hidden], svg').forEach(e => e.remove());"
        " return copy.textContent.trim(); }))",
    )
    return [list(row) for row in found]


def texts(visit: Visit, selector: str) -> list[str]:
    """The visible text of each."""
    return visit.page.locator(selector).all_inner_texts()


def wait_for_a_look(page: Page, selector: str) -> None:
    """Move a clock that is stopped until the page has looked for news and shows this.

    More than once: the page plans its next look when the last one was answered, and a clock that
    was moved before that skips nothing.
    """
    for _ in range(10):
        page.clock.run_for(61_000)
        try:
            page.wait_for_selector(selector, timeout=1_500)
        except PageTimeout:
            continue
        return
    page.wait_for_selector(selector)


def serious(visit: Visit) -> list[tuple[str, str]]:
    """What axe thinks keeps people out."""
    found = Axe().run(visit.page).response["violations"]
    return [
        (violation["id"], node["html"][:120])
        for violation in found
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


def fits(visit: Visit) -> bool:
    """Nothing is wider than the window: phones do not scroll sideways."""
    width, window = visit.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    return bool(width <= window)
