"""The extension in Chromium, against the real gateway, Kafka, worker and Redis."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Playwright, sync_playwright

from blendstream.agents.local.demo.people import Crowd
from blendstream.streams.releases.entries import EpochOutcome
from tests.browser.extension import (
    EXTENSION,
    QUICK,
    Extension,
    backend,
    browsing,
    fill,
    permitted,
    search_site,
)
from tests.browser.publications import publications
from tests.browser.real_service import CELL, QUERY, URL, RealService, real_service
from tests.service.waiting import wait_for

pytestmark = [pytest.mark.browser, pytest.mark.more]


@pytest.fixture(scope="module")
def driver() -> Iterator[Playwright]:
    with sync_playwright() as made:
        yield made


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with search_site() as origin:
        yield origin


@pytest.fixture
def extension(driver: Playwright, tmp_path: Path) -> Iterator[Extension]:
    """The extension with permission for this machine, in a new browser."""
    with browsing(driver, permitted(tmp_path / "extension"), tmp_path / "profile") as made:
        yield made
        assert made.complaints == []


@pytest.fixture(scope="module")
def service(kafka, redis_server) -> Iterator[RealService]:
    with real_service(kafka.url, redis_server.url) as made:
        yield made


def search_and_open(extension: Extension, site: str, query: str = QUERY) -> Page:
    page = extension.context.new_page()
    page.goto(f"{site}/find?q={query.replace(' ', '+')}")
    page.click("#result")
    return page


def searches_kept(extension: Extension, page: Page) -> str | None:
    page.reload()
    page.wait_for_selector("#spent dt")
    return extension.told(page).get("Searches on this device")


def fetched_at_s(page: Page) -> float:
    """When the extension last got an answer about results."""
    return page.evaluate("async () => (await chrome.storage.local.get('fetchedAtS')).fetchedAtS")


def test_what_is_searched_and_opened_is_sent_counted_and_found_offline(
    driver: Playwright, tmp_path: Path, service: RealService, site: str
) -> None:
    """From a click on a page to a cell in Redis, and back into the address bar, offline."""
    folder, profile = permitted(tmp_path / "extension"), tmp_path / "profile"
    with browsing(driver, folder, profile) as extension:
        extension.turn_on(service.url, f"{site}/find?q=%s")
        spent = extension.open("results.html")

        page = search_and_open(extension, site)
        wait_for(lambda: searches_kept(extension, spent) == "1", "the search")
        # A link within the site, a click that the page invented, and another page of the site.
        page.click("#own")
        page.evaluate("document.querySelector('#other').click()")
        page.goto(f"{site}/elsewhere?q=secret")
        page.click("#other")
        service.publish_head_list(7)
        wait_for(lambda: "Windows answered" in extension.told(spent), "the status")
        wait_for(lambda: extension.told(spent)["Windows answered"].startswith("1"), "the report")

        assert service.cells(7, 1) == [int(cell == CELL) for cell in range(51)]
        assert extension.told(spent)["ε spent"].endswith("20 of 40")
        assert searches_kept(extension, spent) == "0"

        document = publications()[-1]
        service.releases.publish_estimates(7, replace(document, epoch=7).to_bytes())
        first = document.queries[0].query
        wait_for(lambda: first in spent.locator("#trends").inner_text(), "the trends")

        # An epoch without results follows. The extension asks again, and keeps the results.
        empty = replace(document, epoch=8, outcome="empty", records=(), queries=(), agreement=None)
        service.releases.open_epoch(8)
        service.releases.seal_records(8)
        service.releases.publish_estimates(8, empty.to_bytes(), EpochOutcome.EMPTY)
        wait_for(lambda: httpx.get(f"{service.url}/v1/estimates/8").status_code == 200, "epoch 8")
        published_s = time.time()
        wait_for(lambda: fetched_at_s(spent) > published_s, "another look at the results")
        assert first in spent.locator("#trends").inner_text()
        assert extension.complaints == []

    assert not service.said(QUERY, "r1.example")

    # Another day, without a network: what was published is still found.
    with browsing(driver, folder, profile) as extension:
        extension.context.set_offline(True)
        offered = extension.suggestions(first.upper())
        assert offered[0]["content"] == f"https://{'-'.join(first.split()[:3])}.example/0"
        assert [s["content"] for s in extension.suggestions(first[:3])] == [
            query.query for query in document.queries if query.query.startswith(first[:3])
        ]
        page = extension.open(f"results.html?q={first}")
        page.wait_for_selector("#found li")
        assert page.locator("#found a").first.get_attribute("href") == offered[0]["content"]
        assert page.locator("#trends tbody tr").count() == 20


#: Every record on the device: [second, query, URL].
RECORDS = """new Promise((resolve, reject) => {
  const open = indexedDB.open('blendstream', 1)
  open.onerror = () => reject(open.error)
  open.onsuccess = () => {
    const read = open.result.transaction('device').objectStore('device').get('records')
    read.onsuccess = () => { open.result.close(); resolve(read.result ?? []) }
  }
})"""


def test_a_page_that_changes_its_address_by_script_is_noted_by_the_new_address(
    extension: Extension, site: str
) -> None:
    """On single-page sites the record once named the visit's first query, not the one shown."""
    extension.turn_on("http://127.0.0.1:9", f"{site}/find?q=%s")
    page = extension.context.new_page()
    noted = ["first"]

    def click() -> None:
        page.click("#result")
        wait_for(lambda: len(extension.worker.evaluate(RECORDS)) == len(noted), "the record")

    page.goto(f"{site}/find?q=first")
    click()
    for change in ("pushState", "replaceState"):
        noted.append(f"by {change.lower()}")
        page.evaluate(f"history.{change}({{}}, '', '/find?q={noted[-1]}')")
        click()
    noted.append("first")
    page.evaluate("history.back()")
    page.wait_for_url("**/find?q=first")
    click()
    # A script may also leave the search page: nothing is noted there.
    page.evaluate("history.pushState({}, '', '/account?q=secret')")
    page.click("#result")
    page.goto(f"{site}/find?q=last")
    noted.append("last")
    click()

    assert [query for _, query, _ in extension.worker.evaluate(RECORDS)] == noted


def test_searches_are_sent_as_they_are_only_after_agreeing_to_that(
    extension: Extension, service: RealService, site: str
) -> None:
    """Opting in is apart: turning the extension on does not do it, and turning it off undoes it.

    The extension holds no secret: a backend gives who is signed in there a token of their own.
    """
    options = extension.turn_on(service.url, f"{site}/find?q=%s")
    options.click("#opt-in-on")
    assert options.inner_text("#opt-in-problem") == "Tick the box if you agree."
    with backend(service.signing_key) as address:
        cookie = {"name": "session", "value": "a-person", "url": address}
        extension.context.add_cookies([{**cookie, "sameSite": "Lax"}])
        fill(options, {"userId": "a-person", "token": address})
        options.check("#agree")
        options.click("#opt-in-on")
        options.wait_for_selector("#opt-in-off:visible")
        assert "sent as they are" in options.inner_text("#state")
        search_and_open(extension, site, "Query  1")
        spent = extension.open("results.html")
        wait_for(lambda: searches_kept(extension, spent) == "1", "the search")

        service.open_epoch_that_ends_soon(20)

        assert service.optin_records(20, 1) == {(QUERY, URL): 1}

    options.click("#off")
    options.wait_for_selector("#off", state="hidden")
    stored = extension.worker.evaluate("chrome.storage.local.get('settings')")["settings"]
    assert (stored["on"], stored["optIn"]) == (False, None)


def test_it_is_off_until_everything_was_chosen_and_permitted(
    driver: Playwright, tmp_path: Path, site: str
) -> None:
    """As it is shipped: no permission, nothing stored, no alarm, no script on any page."""
    with browsing(driver, EXTENSION, tmp_path / "profile") as extension:
        options = extension.open("options.html")
        assert options.inner_text("#state").startswith("Off.")
        required = ["epsilonPerReport", "deltaPerReport", "epsilonPerPeriod", "deltaPerPeriod"]
        assert [options.input_value(f"#{name}") for name in required] == [""] * 4
        assert options.is_disabled("#opt-in-on")
        options.click("#save")
        assert "must be a number" in options.inner_text("#problem")
        # Complete, and then the browser asks; until a person answers, nothing is on.
        fill(options, {"server": "http://127.0.0.1:9", "searchPage": f"{site}/find?q=%s", **QUICK})
        options.click("#save")
        assert options.inner_text("#problem") == ""
        search_and_open(extension, site)
        page = extension.open("sample.html?q=tide+tables")
        page.click("#results a >> nth=0")
        page.wait_for_selector("#said:visible")

        assert "off" in page.inner_text("#said")
        assert extension.worker.evaluate("chrome.storage.local.get()") == {}
        assert extension.worker.evaluate("chrome.alarms.getAll()") == []
        assert extension.worker.evaluate("indexedDB.databases()") == []
        scripts = "chrome.scripting.getRegisteredContentScripts()"
        assert extension.worker.evaluate(scripts) == []


def test_the_sample_page_is_noted_and_forgotten(extension: Extension, site: str) -> None:
    """A trial needs no search page of one's own, and its results are those of the demo's people."""
    options = extension.turn_on("http://127.0.0.1:9")
    page = extension.open("sample.html?q=weather+tomorrow")
    links = page.locator("#results a")
    shown = [link.get_attribute("href") for link in links.all()]
    assert shown == [r.url for r in Crowd().records if r.query == "weather tomorrow"]
    links.first.click()
    page.wait_for_selector("text=Noted. 1 search is on this device")
    links.last.click()
    page.wait_for_selector("text=Noted. 2 searches are on this device")

    options.click("#forget")
    options.wait_for_selector("text=Forgotten.")

    spent = extension.open("results.html")
    assert searches_kept(extension, spent) == "0"


def test_lost_storage_turns_it_off_and_is_not_taken_for_a_new_device(
    extension: Extension, service: RealService
) -> None:
    """The note that it had begun is kept apart from IndexedDB: no second budget."""
    extension.turn_on(service.url)
    spent = extension.open("results.html")
    wait_for(lambda: "ε spent" in extension.told(spent), "the status")
    extension.worker.evaluate(
        "new Promise((done) => (indexedDB.deleteDatabase('blendstream').onsuccess = done))"
    )

    spent.wait_for_selector("#state:has-text('Off.')")

    assert "lost the record of what was spent" in extension.told(spent)["State"]
    assert extension.worker.evaluate("chrome.alarms.getAll()") == []


def test_permission_that_is_taken_away_turns_it_off(driver: Playwright, tmp_path: Path) -> None:
    """People take permissions back in the browser's own pages; the browser then says so."""
    with browsing(driver, EXTENSION, tmp_path / "profile") as extension:
        limits = {name: float(value) for name, value in QUICK.items()}
        settings = {"on": True, "server": "https://gateway.example", "searchPage": ""}
        extension.worker.evaluate(
            "(settings) => chrome.storage.local.set({ settings })",
            settings | {"limits": limits, "optIn": {"userId": "a", "token": "b"}},
        )
        extension.worker.evaluate("chrome.permissions.onRemoved.dispatch({})")

        def stored() -> tuple[bool, object]:
            kept = extension.worker.evaluate("chrome.storage.local.get('settings')")["settings"]
            return kept["on"], kept["optIn"]

        wait_for(lambda: stored() == (False, None), "turning it off")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_its_pages_can_be_read_by_everyone(
    extension: Extension, site: str, screenshots: Path, dark: bool
) -> None:
    """No rule of WCAG that a program can check is broken; pictures are kept for people."""
    result = publications()[-1].to_bytes().decode()
    extension.turn_on("http://127.0.0.1:9", f"{site}/find?q=%s")
    extension.worker.evaluate("(result) => chrome.storage.local.set({ result })", result)
    for name in ("options.html", "results.html?q=map", "sample.html?q=train+times"):
        page = extension.open(name)
        page.set_viewport_size({"width": 900, "height": 900})
        page.emulate_media(color_scheme="dark" if dark else "light")
        if name.startswith("sample"):
            page.click("#results a >> nth=0")
            page.wait_for_selector("#said.good:visible")
        if name.startswith("results"):
            page.wait_for_selector("#spent dd")
        picture = f"extension-{name.partition('.')[0]}-{'dark' if dark else 'light'}.png"
        page.screenshot(path=screenshots / picture, full_page=True)
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        page.set_viewport_size({"width": 360, "height": 800})
        overflow = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        assert page.evaluate(overflow), name
