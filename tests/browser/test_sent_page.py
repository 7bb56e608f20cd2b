"""The extension's page of what was sent, as a person uses it in Chromium."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Playwright, sync_playwright

from blendstream.blender.values.record import Record
from tests.browser.extension import Extension, browsing, permitted
from tests.localclient.support import Gateway, head_list, serving, spec
from tests.service.waiting import wait_for

pytestmark = [pytest.mark.browser, pytest.mark.more]

RECORDS = tuple(
    Record(f"{query} {number}", f"https://{query}.example/{number}")
    for number in range(5)
    for query in ("weather", "train times", "pancakes \u202e")
)


@pytest.fixture(scope="module")
def driver() -> Iterator[Playwright]:
    with sync_playwright() as made:
        yield made


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with serving() as running:
        running.answers["/v1/estimates/latest"] = (200, {}, b"{}")
        yield running


@pytest.fixture
def extension(driver: Playwright, tmp_path: Path) -> Iterator[Extension]:
    with browsing(driver, permitted(tmp_path / "extension"), tmp_path / "profile") as made:
        yield made
        assert made.complaints == []


def report_once(extension: Extension, gateway: Gateway) -> Page:
    """Turn it on, let it report, and open the page."""
    now_s = int(time.time())
    gateway.show(
        head_list(
            window_start_s=now_s - 7_200,
            window_end_s=now_s - 3_600,
            reports_until_s=now_s + 3_600,
            records=RECORDS,
            randomizer=spec(answers=2, delta=1e-5),
        )
    )
    extension.turn_on(gateway.url)
    page = extension.open("sent.html")
    wait_for(lambda: "accepted by the service" in page.inner_text("#sent"), "the report", 30)
    return page


def test_a_person_reads_offline_what_was_sent_and_keeps_it(
    extension: Extension, gateway: Gateway, tmp_path: Path
) -> None:
    """The texts are those of the bytes that the service got; the file has all of it."""
    page = report_once(extension, gateway)
    (body,) = gateway.bodies
    named = [cell for answer in json.loads(body)["answers"] for cell in answer]
    extension.context.set_offline(True)
    page.reload()
    page.wait_for_selector("#sent li")

    shown = page.locator("#sent ul li").all_inner_texts()
    assert len(shown) == len(named) == 2
    for cell, text in zip(named, shown, strict=True):
        if cell < len(RECORDS):
            query = RECORDS[cell].query.replace("\u202e", "U+202E")
            assert text == f"{query} → {RECORDS[cell].url}"
    entry = page.inner_text("#sent > li")
    assert "at most 55 to 1 (ε = 4)" in entry
    assert "at most 36 % likely after seeing it" in entry
    assert "With a probability of at most 0.00001 (δ)" in entry
    assert "36 of 40" in page.inner_text("#budget")
    assert "Nothing is scheduled" in page.inner_text("#next")

    document = keep_by_keyboard(page, tmp_path / "sent.json")
    assert document["schema"] == "blendstream/sent/1"
    cells = [cell["cell"] for answer in document["sent"][0]["answers"] for cell in answer]
    assert cells == named
    assert document["left"] == {"epsilon": 36, "delta": 0.00001}
    assert page.inner_text("#exported") == "Saved."


def keep_by_keyboard(page: Page, path: Path) -> Any:
    """Press Tab until the button has the focus, then Enter."""
    page.locator("body").focus()
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "export":
            break
    assert page.evaluate("document.activeElement.matches(':focus-visible')")
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    download.value.save_as(path)
    return json.loads(path.read_text())


def test_forgetting_removes_the_texts_and_leaves_the_cost(
    extension: Extension, gateway: Gateway
) -> None:
    """At ε = 4 an answer may well be the person's own search."""
    page = report_once(extension, gateway)
    options = extension.open("options.html")
    options.click("#forget")
    options.wait_for_selector("text=Forgotten.")
    page.reload()
    page.wait_for_selector("text=Its text was removed from this device.")

    assert page.locator("#sent ul li").count() == 0
    assert "at most 55 to 1" in page.inner_text("#sent")
    assert "36 of 40" in page.inner_text("#budget")


def test_before_it_was_turned_on_the_page_says_so(extension: Extension) -> None:
    page = extension.open("sent.html")
    page.wait_for_selector("#none:visible")

    assert page.inner_text("#next") == "Nothing."
    assert page.is_disabled("#export")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_can_be_read_by_everyone(
    extension: Extension, gateway: Gateway, screenshots: Path, dark: bool
) -> None:
    """No rule of WCAG that a program can check is broken; pictures are kept for people."""
    page = report_once(extension, gateway)
    page.set_viewport_size({"width": 900, "height": 900})
    page.emulate_media(color_scheme="dark" if dark else "light")
    picture = f"extension-sent-{'dark' if dark else 'light'}.png"
    page.screenshot(path=screenshots / picture, full_page=True)
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    page.set_viewport_size({"width": 360, "height": 800})
    overflow = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert page.evaluate(overflow)
    page.screenshot(path=screenshots / picture.replace("sent", "sent-small"), full_page=True)
