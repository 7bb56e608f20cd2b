"""The browser's client in Chromium: IndexedDB, locks between tabs, storage that was lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "tests/vectors/device/conversations.json"
pytestmark = pytest.mark.browser

#: What a page needs for the tests below.
PRELUDE = """
const { Device, IndexedDbStore } = await import('/webclient/lib/index.js')
const { camel, play } = await import('/tests/webclient/talking.mjs')
const { conversations } = await (await fetch('/tests/vectors/device/conversations.json')).json()
const limits = camel(conversations[0].limits)
const list = conversations[0].steps.flatMap((step) => step.exchanges ?? [])[0].response.body
const NOW = 101 * 86400 + 3600
/** A device whose server shows one list and counts what it is posted. */
const device = (store, posted = [], wait = 0) => new Device({
  server: 'https://gateway.example', limits, store,
  fetch: async (_, { method, body }) => {
    await new Promise((resolve) => setTimeout(resolve, wait))
    if (method !== 'POST') return new Response(list)
    posted.push(body)
    return new Response('{"verdicts":[{"status":"accepted"}]}', { status: 202 })
  },
}, { clock: () => NOW })
"""


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser of its own: nothing stored."""
    made = browser.new_context()
    yield made
    made.close()


def page(context: BrowserContext, origin: str) -> Page:
    opened = context.new_page()
    opened.goto(origin)
    return opened


def run(page: Page, script: str) -> object:
    """The value of an async function's body, with the prelude before it."""
    return page.evaluate(f"(async () => {{ {PRELUDE} {script} }})()")


def run_in_worker(page: Page, script: str) -> object:
    """The same in a worker of the page's origin."""
    here = page.evaluate("location.origin")
    body = PRELUDE.replace("'/", f"'{here}/")
    source = f"(async () => {{ {body} {script} }})().then(postMessage)"
    return page.evaluate(
        """(source) => new Promise((resolve, reject) => {
          const blob = new Blob([source], { type: 'text/javascript' })
          const worker = new Worker(URL.createObjectURL(blob), { type: 'module' })
          worker.onmessage = ({ data }) => resolve(data)
          worker.onerror = (event) => reject(new Error(event.message))
        })""",
        source,
    )


def test_every_conversation_goes_the_same_way_on_indexeddb(
    context: BrowserContext, origin: str
) -> None:
    played = run(
        page(context, origin),
        """
        for (const [i, vector] of conversations.entries()) {
          const lose = () => new Promise((resolve) => {
            indexedDB.open('conversation ' + i).onsuccess = ({ target: { result: db } }) => {
              const transaction = db.transaction('device', 'readwrite')
              transaction.objectStore('device').delete('state')
              transaction.oncomplete = () => resolve(db.close())
            }
          })
          await play(vector, Device, () => new IndexedDbStore('conversation ' + i), lose)
        }
        return conversations.length
        """,
    )

    assert played == len(json.loads(VECTORS.read_text())["conversations"])


def test_tabs_that_report_at_once_spend_once(context: BrowserContext, origin: str) -> None:
    """The lock is between tabs: two pages of one origin, both at it for a while."""
    tabs = [page(context, origin), page(context, origin)]
    run(tabs[0], "await device(new IndexedDbStore()).status()")
    for tab in tabs:
        tab.evaluate(
            f"""() => {{ window.ended = (async () => {{ {PRELUDE}
              const posted = []
              const {{ code }} = await device(new IndexedDbStore(), posted, 300)
                .maybeReport({{ atOnce: true }})
              return [code, posted.length]
            }})() }}"""
        )

    ended = sorted(tab.evaluate("window.ended") for tab in tabs)

    assert ended == [["nothing new", 0], ["sent", 1]]
    assert run(tabs[1], "return (await device(new IndexedDbStore()).status()).windowsAnswered") == 1


def test_storage_that_was_lost_is_not_taken_for_a_new_device(
    context: BrowserContext, origin: str
) -> None:
    """Browsers may clear IndexedDB and keep localStorage. A new budget would be a second one."""
    found = run(
        page(context, origin),
        """
        await device(new IndexedDbStore()).status()
        await new Promise((done) => (indexedDB.deleteDatabase('blendstream').onsuccess = done))
        const posted = []
        const { code } = await device(new IndexedDbStore(), posted).maybeReport({ atOnce: true })
        return [code, posted.length]
        """,
    )

    assert found == ["state unreadable", 0]


def test_a_worker_notices_lost_storage_too(context: BrowserContext, origin: str) -> None:
    """Workers, and so extensions, have no localStorage: the second marker is in the cache."""
    found = run_in_worker(
        page(context, origin),
        """
        await device(new IndexedDbStore()).status()
        const fresh = (await device(new IndexedDbStore()).status()).code
        await new Promise((done) => (indexedDB.deleteDatabase('blendstream').onsuccess = done))
        const posted = []
        const { code } = await device(new IndexedDbStore(), posted).maybeReport({ atOnce: true })
        return [typeof localStorage, fresh, code, posted.length]
        """,
    )

    assert found == ["undefined", "status", "state unreadable", 0]


def test_a_marker_that_was_lost_is_set_again(context: BrowserContext, origin: str) -> None:
    found = run(
        page(context, origin),
        """
        await device(new IndexedDbStore()).status()
        localStorage.clear()
        const { code } = await device(new IndexedDbStore()).status()
        return [code, localStorage.length]
        """,
    )

    assert found == ["status", 1]


def test_strict_durability_is_asked_for(context: BrowserContext, origin: str) -> None:
    """What was spent must be on the disk before anything is sent."""
    asked = run(
        page(context, origin),
        """
        const asked = new Set()
        const transaction = IDBDatabase.prototype.transaction
        IDBDatabase.prototype.transaction = function (...how) {
          const made = transaction.apply(this, how)
          asked.add(made.durability)
          return made
        }
        await device(new IndexedDbStore()).status()
        return [...asked]
        """,
    )

    assert asked == ["strict"]


def test_records_stay_until_they_are_forgotten(context: BrowserContext, origin: str) -> None:
    found = run(
        page(context, origin),
        """
        for (const i of [1, 2, 3]) await device(new IndexedDbStore()).record('query ' + i, 'u')
        const held = async () => (await device(new IndexedDbStore()).status()).recordsHeld
        const before = await held()
        await device(new IndexedDbStore()).forget()
        return [before, await held()]
        """,
    )

    assert found == [3, 0]
